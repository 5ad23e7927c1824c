"""The configuration that every file is read into: frozen, complete, with defaults filled in.

Each field is given with the key that fills it. docs/reference/settings.md is generated from these keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Mapping, Optional, Tuple

from mirror_lib.config.record_change import BATCHES, RECORDS, RecordChange
from mirror_lib.config.values import (
    AT_MOST_A_MINUTE,
    BOOLEAN,
    INTERVAL,
    LATEST,
    LEGAL_NAME,
    LEGAL_OR_BLANK,
    MILLISECONDS,
    OPTIONAL_PORT,
    OPTIONAL_TEXT,
    PATTERNS,
    SECONDS,
    SIZE,
    START_POSITION,
    TEXT,
    TEXTFILE,
    TOPIC_CONFIGS,
    TRIGGER,
    Kind,
    OffsetChoice,
    Setting,
    choice,
    derived,
    key,
    replaceable_class,
    rows,
    some_of,
    whole_number,
)

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

MM2_TRIGGER = "10 seconds"
# MirrorMaker's default for `topics.exclude` up to 3.9. Since 4.0 its first pattern spares a user's `orders.internal`.
INTERNAL_UP_TO_3_9 = r".*[\-\.]internal"
MM2_TOPICS_EXCLUDE = rf"{INTERNAL_UP_TO_3_9}, .*\.replica, __.*"

_MIRROR = "org.apache.kafka.connect.mirror."
_POLICIES = {
    **{prefix + name: name for prefix in ("", _MIRROR) for name in (DEFAULT_POLICY, IDENTITY_POLICY)},
    "io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy": IDENTITY_POLICY,
    MM1_POLICY: MM1_POLICY,
}
# The policy in the samples of Amazon MSK, from before MirrorMaker had one that keeps names.
_SAMPLES = {"com.amazonaws.kafka.samples.CustomMM2ReplicationPolicy": IDENTITY_POLICY}


def _filter(name: str) -> Kind:
    return replaceable_class({name: name, _MIRROR + name: name})


# The section of docs/reference/settings.md.
CLASSES = "Custom classes"
_BY_KEY = "; to repartition records by key, copy those topics by a file of its own with partitioner: key"
_PYTHON = f"{CLASSES} are Python's"
_REPLICATION = whole_number(1, default_of_broker=True)


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

    A policy or filter is a built-in's name or an entry point `module:Class`; `custom_properties` are the keys given for
    such classes, by their whole name. `change` is `None` where whole record batches are copied as they are. `places`
    holds `file:line` of each setting that the file has, by name. With `checkpoints_in_run` the copying job also writes
    checkpoints, as MirrorMaker's does. `delivery_may_fall`: the file is MirrorMaker's and asks for exactly-once neither
    by `delivery` nor by Connect's key, so a target that cannot be fenced gets MirrorMaker's at-least-once.
    """

    # JSON has a flow's name, and none of its settings.
    PRINTED: ClassVar[str] = "name"

    source: ClusterConfig
    target: ClusterConfig
    copied: bool = key("copy.enabled", BOOLEAN, "true", "`false` only translates groups, by the ledger of another "
        "run with the same `state`, and writes heartbeats")
    topics: Tuple[str, ...] = key("topics", PATTERNS, ".*", "Topics to copy: names or patterns")
    topics_exclude: Tuple[str, ...] = key("topics.exclude", PATTERNS, r"mm2.*\.internal, .*\.replica, __.*",
        "Topics not to copy; beats `topics`", differs="in a MirrorMaker 2 or Connect file the default is MirrorMaker's "
        f"up to 3.9, `{MM2_TOPICS_EXCLUDE}`, which also excludes a user's `orders.internal`")
    replication_policy: str = key("replication.policy.class", replaceable_class(_POLICIES, _SAMPLES), DEFAULT_POLICY,
        f"Names of remote topics: `A.orders`, or `orders` by `{IDENTITY_POLICY}` and `{MM1_POLICY}`, which lacks "
        "MirrorMaker 2's rule for heartbeats and internal topics", differs=_PYTHON)
    separator: str = key("replication.policy.separator", LEGAL_OR_BLANK, ".", "Between alias and topic in a remote "
        "topic's name; may be blank")
    remote_alias: str = derived("", Setting("source.cluster.alias", LEGAL_OR_BLANK, "", "Another alias of A in names "
        "of remote topics. If it and the separator are blank, topics keep their names"))
    internal_separator: str = derived(".", Setting("replication.policy.internal.topic.separator.enabled", BOOLEAN,
        "true", "`false` keeps `.` in names of internal topics"))
    heartbeats_replication: bool = key("heartbeats.replication.enabled", BOOLEAN, "true", "Copy heartbeats topics even "
        "if no pattern matches them", note="in a flow that changes records, and in a mirror with a `name` of its own, "
        "the default is `false`")
    tasks_max: int = key("tasks.max", whole_number(1), "1", "Spark tasks that copy the flow at once",
        differs="one task copies many partitions, so a few are enough; at most 64")
    replication_factor: int = key("replication.factor", _REPLICATION, "2", "Of new remote topics; -1 is the broker's "
        "default")
    refresh_topics_interval: Optional[float] = key("refresh.topics.interval.seconds", INTERVAL, "600",
        "How often limits of remote topics are read again",
        differs="each cycle, or each stage of a tail (`tail.seconds`), copies new and grown topics",
        switch=Setting("refresh.topics.enabled", BOOLEAN, "true", "Copy new topics and partitions while running"),
    )
    config_properties_exclude: Tuple[str, ...] = key("config.properties.exclude", PATTERNS,
        ", ".join(CONFIG_PROPERTIES_EXCLUDE), "Topic configs to exclude")
    remote_topic_configs: Tuple[Tuple[str, str], ...] = key("remote.topic.configs", TOPIC_CONFIGS, "",
        "Configs of every remote topic instead of its source's: `retention.ms=604800000, cleanup.policy=delete`. Set "
        "at creation, later by config sync")
    use_defaults_from: str = key("use.defaults.from", choice("target", "source"), "target", "Cluster whose defaults "
        "apply to topic configs that the source never set")
    isolation_level: str = key("consumer.isolation.level", choice("read_committed", "read_uncommitted"),
        "read_committed", "`read_committed` skips records of aborted transactions", differs="MirrorMaker copies "
        "aborted records by default")
    auto_offset_reset: str = key("consumer.auto.offset.reset", choice("earliest", "latest"), "earliest",
        "Where a partition without copied records starts")
    start_position: Optional[OffsetChoice] = key("start.position", START_POSITION, "", "The same by a time "
        "(`2026-01-01T00:00:00Z`), the offsets of a source group (`group NAME`), or offsets (`orders:0=100, "
        "orders:1=250`). Other partitions follow `consumer.auto.offset.reset`")
    commit_source_group: str = key("commit.source.group", OPTIONAL_TEXT, "", "Group on the source, without members, "
        "to which the flow's progress is committed")
    commit_source_group_interval: float = key("commit.source.group.interval.seconds", SECONDS, "60", "How often")
    delivery: str = key("delivery", choice("exactly-once", "at-least-once"), "exactly-once", "`at-least-once` is for "
        "targets older than Kafka 2.5, where MirrorMaker files default to it, or without transactional ids")
    delivery_may_fall: bool = field(default=False, compare=False)
    on_error: str = key("on.error", choice("fail", "skip"), "fail", "If the target rejects a record batch, `fail` "
        "stops its partition and fails the run; `skip` writes an incident and continues, but where records are "
        "repartitioned")
    on_data_loss: str = key("on.data.loss", choice("fail", "continue"), "fail", "If the source lost uncopied records, "
        "or a shared remote topic records of an interrupted attempt, `fail` stops the partition, `continue` resumes "
        "after the gap")
    batch_max_seconds: float = key("batch.max.seconds", SECONDS, "10", "About the length of a cycle, which ends with "
        "a commit to the ledger")
    tail: bool = key("tail.enabled", BOOLEAN, "true", "In continuous mode tasks copy new records within milliseconds; "
        "`false` copies once per `trigger`")
    tail_seconds: float = key("tail.seconds", AT_MOST_A_MINUTE, "30", "Length of a stage that tails, at most 60. Then "
        "its offsets are committed to the ledger, and new topics are copied")
    max_bytes_per_second: Optional[int] = key("max.bytes.per.second", SIZE, "none", "Rate limit of the flow, split "
        "evenly over its tasks: `50000000`, `50 MB`, `512 KiB`")
    shared_remote_topics: bool = key("shared.remote.topics", BOOLEAN, "false", "Remote topics may have other writers")
    counts_differ: str = key("partition.counts.differ", choice(KEEP, REFUSE, advice=_BY_KEY), KEEP,
        "If partition counts differ, `keep` keeps a record's partition and grows a remote topic that has too few; "
        "`refuse` does not copy the topic")
    change: Optional[RecordChange] = derived(None, Setting("engine", choice(BATCHES, RECORDS), BATCHES,
        "`batches` copies whole record batches; `records` sends each record through Spark's rows",
        note="a key from `where` to `dead.letter.topic` that changes records makes it `records`"), *rows(RecordChange))
    sync_topic_configs_interval: Optional[float] = key("sync.topic.configs.interval.seconds", INTERVAL, "600",
        "How often",
        switch=Setting("sync.topic.configs.enabled", BOOLEAN, "true", "Sync topic configs",
            differs="`max.message.bytes` is never lowered, and configs of timestamps never change"),
    )
    sync_topic_acls_interval: Optional[float] = key("sync.topic.acls.interval.seconds", INTERVAL, "600", "How often",
        switch=Setting("sync.topic.acls.enabled", BOOLEAN, "true", "Sync topic ACLs, never Write",
            differs="by default only Read and Describe; prefixed and wildcard patterns are translated too"),
    )
    sync_topic_acls_operations: Tuple[str, ...] = key("sync.topic.acls.operations", some_of(*ACL_OPERATIONS),
        ", ".join(READING), f"Operations of ALLOW that are copied, of {', '.join(ACL_OPERATIONS)}. DENY is always "
        "copied")
    sync_topic_acls_wildcards: bool = key("sync.topic.acls.wildcards", BOOLEAN, "false", "With a policy that keeps "
        "names, copy `*` and prefixes as such: they cover the target's own topics too")
    sync_topic_acls_delete: bool = key("sync.topic.acls.delete", BOOLEAN, "false", "Delete ACLs that this flow "
        "created, after their originals")
    groups: Tuple[str, ...] = key("groups", PATTERNS, ".*", "Consumer groups whose offsets are translated")
    groups_exclude: Tuple[str, ...] = key("groups.exclude", PATTERNS, "console-consumer-.*, connect-.*, __.*",
        "Consumer groups to exclude; beats `groups`")
    groups_simple: str = key("groups.simple", choice("exclude", "include"), "exclude", "`include` commits for groups "
        "without membership that another client committed for; Kafka does not show whether it is alive")
    refresh_groups_interval: Optional[float] = key("refresh.groups.interval.seconds", INTERVAL, "600", "How often",
        switch=Setting("refresh.groups.enabled", BOOLEAN, "true", "Find new groups while running"),
    )
    sync_group_offsets_interval: Optional[float] = key("sync.group.offsets.interval.seconds", INTERVAL, "60",
        "How often",
        switch=Setting("sync.group.offsets.enabled", BOOLEAN, "false", "Commit translated offsets on the target"),
    )
    emit_checkpoints_interval: Optional[float] = key("emit.checkpoints.interval.seconds", INTERVAL, "60", "How often",
        switch=Setting("emit.checkpoints.enabled", BOOLEAN, "true", "`mirror translate` writes MirrorMaker's "
            "checkpoints topic, `mirror run` if it syncs group offsets or YAML sets this key"),
    )
    checkpoints_in_run: bool = False
    emit_heartbeats_interval: Optional[float] = key("emit.heartbeats.interval.seconds", INTERVAL, "1", "How often",
        switch=Setting("emit.heartbeats.enabled", BOOLEAN, "true", "Write heartbeats to the target, also if the flow "
            "is not enabled (in YAML by an explicit `true`)", differs="a cluster without an enabled flow gets none"),
    )
    offset_syncs_topic_location: str = key("offset-syncs.topic.location", choice("source", "target"), "source",
        "Cluster of MirrorMaker's offset-syncs topic, which a take-over reads")
    checkpoints_topic_replication_factor: int = key("checkpoints.topic.replication.factor", _REPLICATION, "3",
        "Of the checkpoints topic")
    heartbeats_topic_replication_factor: int = key("heartbeats.topic.replication.factor", _REPLICATION, "3",
        "Of the heartbeats topic")
    admin_timeout: float = key("admin.timeout.ms", MILLISECONDS, "60000", "Timeout of an admin request, retries "
        "included", differs="a timeout fails and is retried, instead of skipped")
    topic_filter: str = key("topic.filter.class", _filter(DEFAULT_TOPIC_FILTER), DEFAULT_TOPIC_FILTER,
        "Topics to copy, by `topics` and `topics.exclude`", differs=_PYTHON)
    group_filter: str = key("group.filter.class", _filter(DEFAULT_GROUP_FILTER), DEFAULT_GROUP_FILTER,
        "Groups to translate, by `groups` and `groups.exclude`", differs=_PYTHON)
    config_property_filter: str = key("config.property.filter.class", _filter(DEFAULT_CONFIG_FILTER),
        DEFAULT_CONFIG_FILTER, "Topic configs to exclude, by `config.properties.exclude`", differs=_PYTHON)
    custom_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    places: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def name(self) -> str:
        """`A->B`."""
        return f"{self.source.alias}->{self.target.alias}"

    @property
    def naming_alias(self) -> str:
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
    state: str = key("state", TEXT, "./mirror-state", "Folder of the Delta tables and Spark's checkpoints, on any path "
        "that Spark can write")
    history_days: int = key("history.days", whole_number(1), "30", "How many days the folder keeps offset commits of "
        "groups and signs of life of runs")
    trigger: str = key("trigger", TRIGGER, "availableNow", "`availableNow` copies the present records and ends; a time "
        "such as `10 seconds` runs until it is stopped", note=f"in a MirrorMaker 2 file the default is `{MM2_TRIGGER}`")
    name: str = key("name", LEGAL_NAME, "mirror", "Distinguishes mirrors with a flow of the same name (`A->B`). Part "
        "of every transactional id: never change it")
    spark_when_idle: bool = key("spark.when.idle", BOOLEAN, "false", "`true`: a bounded run starts Spark "
        "although it has nothing to do")
    metrics_port: Optional[int] = key("metrics.port", OPTIONAL_PORT, "none", "Port of the driver for Prometheus; "
        "0 is any free port. Needs the extra `metrics`")
    metrics_host: str = key("metrics.host", TEXT, "127.0.0.1", "Address of that port; `0.0.0.0` is every interface. "
        "The server has no login")
    metrics_textfile: str = key("metrics.textfile", TEXTFILE, "", "File of the same metrics for node_exporter's "
        "textfile collector. Needs the extra `metrics`")
    metrics_topics_max: int = key("metrics.topics.max", whole_number(0), "1000", "How many topics of each flow have "
        "their own metrics, by lag")
    heartbeat_pairs: Tuple[ReplicationFlow, ...] = ()
    warnings: Tuple[str, ...] = ()
    idle: Tuple[str, ...] = field(default=(), repr=False, compare=False)
    corrected: Tuple[str, ...] = field(default=(), repr=False, compare=False)
    places: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
