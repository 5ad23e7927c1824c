"""The configuration that every file is read into: frozen, complete, with defaults filled in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Optional, Tuple

from mirror_lib.config.record_change import RecordChange
from mirror_lib.config.values import AVAILABLE_NOW, LATEST, OffsetChoice

DEFAULT_POLICY = "DefaultReplicationPolicy"
IDENTITY_POLICY = "IdentityReplicationPolicy"
MM1_POLICY = "MirrorMaker1Policy"
DEFAULT_TOPIC_FILTER = "DefaultTopicFilter"
DEFAULT_GROUP_FILTER = "DefaultGroupFilter"
DEFAULT_CONFIG_FILTER = "DefaultConfigPropertyFilter"

# Where a remote topic has another number of partitions: a record's partition is kept, or the topic is not copied.
KEEP, REFUSE = "keep", "refuse"

# Kafka's operations on topics that an ACL may allow, but for writing; the ones that the copy does not change.
ACL_OPERATIONS = ("READ", "DESCRIBE", "DESCRIBE_CONFIGS", "CREATE", "DELETE", "ALTER", "ALTER_CONFIGS")
READING = ACL_OPERATIONS[:3]

# MirrorMaker 4.3's list as it is. Its two `log.` names match nothing: no topic setting is called that.
CONFIG_PROPERTIES_EXCLUDE = (
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "message.timestamp.difference.max.ms",
    "log.message.timestamp.before.max.ms",
    "log.message.timestamp.after.max.ms",
    "message.timestamp.type",
    "unclean.leader.election.enable",
    "min.insync.replicas",
)


@dataclass(frozen=True)
class ClusterConfig:
    """One Kafka cluster. Property maps hold Java client names and may hold secrets, so they never appear in `repr`.

    `properties` go to every client; `consumer`, `producer` and `admin` override them for one role.
    """

    alias: str
    properties: Mapping[str, str] = field(repr=False)
    consumer: Mapping[str, str] = field(default_factory=dict, repr=False)
    producer: Mapping[str, str] = field(default_factory=dict, repr=False)
    admin: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def bootstrap_servers(self) -> str:
        return self.properties["bootstrap.servers"]

    def client_properties(self, role: str) -> Mapping[str, str]:
        return {**self.properties, **getattr(self, role)}


@dataclass(frozen=True)
class ReplicationFlow:
    """One direction between two clusters, printed `A->B`. Intervals are seconds; `None` means switched off.

    Every field is named after its key in `settings.py`, which also says which of them have no effect yet. A policy or
    filter is a built-in's name or an entry point `module:Class`; `custom_properties` are the keys given for such
    classes, by their whole name. `change` is `None` where whole record batches are copied as they are. `places` holds
    `file:line` of each setting that the file has, by name. With `checkpoints_in_run` the copying job also writes
    checkpoints, as MirrorMaker's does. `delivery_may_fall`: the file is MirrorMaker's and asks for exactly-once neither
    by `delivery` nor by Connect's key, so a target that cannot be fenced gets MirrorMaker's at-least-once.
    """

    source: ClusterConfig
    target: ClusterConfig
    copied: bool = True
    topics: Tuple[str, ...] = (".*",)
    topics_exclude: Tuple[str, ...] = (r"mm2.*\.internal", r".*\.replica", r"__.*")
    replication_policy: str = DEFAULT_POLICY
    separator: str = "."
    remote_alias: str = ""
    internal_separator: str = "."
    heartbeats_replication: bool = True
    tasks_max: int = 1
    replication_factor: int = 2
    refresh_topics_interval: Optional[float] = 600.0
    config_properties_exclude: Tuple[str, ...] = CONFIG_PROPERTIES_EXCLUDE
    remote_topic_configs: Tuple[Tuple[str, str], ...] = ()
    use_defaults_from: str = "target"
    isolation_level: str = "read_committed"
    auto_offset_reset: str = "earliest"
    start_position: Optional[OffsetChoice] = None
    commit_source_group: str = ""
    commit_source_group_interval: float = 60.0
    delivery: str = "exactly-once"
    delivery_may_fall: bool = field(default=False, compare=False)
    on_error: str = "fail"
    on_data_loss: str = "fail"
    batch_max_seconds: float = 10.0
    tail: bool = True
    tail_seconds: float = 30.0
    max_bytes_per_second: Optional[int] = None
    shared_remote_topics: bool = False
    counts_differ: str = KEEP
    change: Optional[RecordChange] = None
    sync_topic_configs_interval: Optional[float] = 600.0
    sync_topic_acls_interval: Optional[float] = 600.0
    sync_topic_acls_operations: Tuple[str, ...] = READING
    sync_topic_acls_wildcards: bool = False
    sync_topic_acls_delete: bool = False
    groups: Tuple[str, ...] = (".*",)
    groups_exclude: Tuple[str, ...] = ("console-consumer-.*", "connect-.*", "__.*")
    groups_simple: str = "exclude"
    refresh_groups_interval: Optional[float] = 600.0
    sync_group_offsets_interval: Optional[float] = None
    emit_checkpoints_interval: Optional[float] = 60.0
    checkpoints_in_run: bool = False
    emit_heartbeats_interval: Optional[float] = 1.0
    offset_syncs_topic_location: str = "source"
    checkpoints_topic_replication_factor: int = 3
    heartbeats_topic_replication_factor: int = 3
    admin_timeout: float = 60.0
    topic_filter: str = DEFAULT_TOPIC_FILTER
    group_filter: str = DEFAULT_GROUP_FILTER
    config_property_filter: str = DEFAULT_CONFIG_FILTER
    custom_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    places: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def name(self) -> str:
        """`A->B`."""
        return f"{self.source.alias}->{self.target.alias}"

    @property
    def naming_alias(self) -> str:
        """The alias of the source in names of remote topics."""
        return self.remote_alias or self.source.alias

    @property
    def translates(self) -> bool:
        """Whether it has any use for the offsets of groups."""
        return self.sync_group_offsets_interval is not None or self.emit_checkpoints_interval is not None

    @property
    def translates_in_run(self) -> bool:
        """Whether `mirror run` translates them too, and not `mirror translate` alone."""
        return self.sync_group_offsets_interval is not None or self.checkpoints_in_run

    @property
    def tails(self) -> bool:
        """Whether its continuous runs tail partitions. Rows come in Spark's batches."""
        return self.tail and self.change is None

    @property
    def repartitions(self) -> bool:
        """Whether a remote partition may get records of several source partitions."""
        return self.change is not None and self.change.repartitions

    @property
    def starts_at_earliest(self) -> bool:
        """Whether a partition that was never copied is copied from the start of its log."""
        return self.start_position is None and self.auto_offset_reset != LATEST


@dataclass(frozen=True)
class MirrorConfig:
    """A whole file: flows to run, where the state is, how the queries are triggered.

    `trigger` is `availableNow` or a Spark processing time such as `10 seconds`.
    `heartbeat_pairs` are not copied; heartbeats are written to their targets, because the file asks for it.
    `name` distinguishes mirrors whose flows have the same name; it is part of every transactional id.
    `metrics_port` is `None` where no metrics are served, and `metrics_textfile` empty where no file is written.
    `warnings` are sentences for the operator, to be printed once; they hold no values that may be secret. Those of
    `idle` are about keys without effect, those of `corrected` about what is read otherwise than it is written.
    `places` holds `file:line` of each setting for the whole file that the file has, by name.
    """

    flows: Tuple[ReplicationFlow, ...]
    state: str
    trigger: str = AVAILABLE_NOW
    name: str = "mirror"
    metrics_port: Optional[int] = None
    metrics_host: str = "127.0.0.1"
    metrics_textfile: str = ""
    metrics_topics_max: int = 1000
    heartbeat_pairs: Tuple[ReplicationFlow, ...] = ()
    warnings: Tuple[str, ...] = ()
    idle: Tuple[str, ...] = field(default=(), repr=False, compare=False)
    corrected: Tuple[str, ...] = field(default=(), repr=False, compare=False)
    places: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
