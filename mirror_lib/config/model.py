"""The one shape every configuration file is turned into: frozen, complete, defaults filled in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Optional, Tuple

DEFAULT_POLICY = "DefaultReplicationPolicy"
IDENTITY_POLICY = "IdentityReplicationPolicy"


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
        """Comma list of `host:port`, as configured."""
        return self.properties["bootstrap.servers"]

    def client_properties(self, role: str) -> Mapping[str, str]:
        """Java client properties for `role` (`consumer`, `producer` or `admin`)."""
        return {**self.properties, **getattr(self, role)}


@dataclass(frozen=True)
class ReplicationFlow:
    """One direction between two clusters, printed `A->B`. Intervals are seconds; `None` means switched off."""

    source: ClusterConfig
    target: ClusterConfig
    topics: Tuple[str, ...] = (".*",)
    topics_exclude: Tuple[str, ...] = (r"mm2.*\.internal", r".*\.replica", r"__.*")
    replication_policy: str = DEFAULT_POLICY
    separator: str = "."
    internal_separator: str = "."
    heartbeats_replication: bool = True
    tasks_max: int = 1
    replication_factor: int = 2
    refresh_topics_interval: Optional[float] = 600.0
    config_properties_exclude: Tuple[str, ...] = ()
    use_defaults_from: str = "target"
    isolation_level: str = "read_committed"
    auto_offset_reset: str = "earliest"
    delivery: str = "exactly-once"
    on_error: str = "fail"
    on_data_loss: str = "fail"
    batch_max_seconds: float = 10.0
    shared_remote_topics: bool = False

    @property
    def name(self) -> str:
        """`A->B`."""
        return f"{self.source.alias}->{self.target.alias}"


@dataclass(frozen=True)
class MirrorConfig:
    """A whole file: flows to run, where state lives, how the queries are triggered.

    `trigger` is `availableNow` or a Spark processing time such as `10 seconds`.
    `name` tells apart mirrors that run the same flow over different topics; it is part of every transactional id.
    """

    flows: Tuple[ReplicationFlow, ...]
    state: str
    trigger: str = "availableNow"
    name: str = "mirror"
    warnings: Tuple[str, ...] = ()
