"""The facts that a cluster reports, as frozen values, and the requests that it accepts: the protocols `Cluster`,
`GroupCluster` and `AclCluster`.

Pure, so that decisions and their tests need no Kafka client. `mirror_lib.kafka.admin` answers from a real cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, Dict, FrozenSet, Mapping, Optional, Protocol, Sequence, Tuple

from mirror_lib.text import some

TopicPartition = Tuple[str, int]


@dataclass(frozen=True)
class TopicDescription:
    """One topic. `topic_id` is Kafka's printed form (22 characters), `""` where the brokers know none (before 2.8).
    `leaderless`: the partitions that have no leader now."""

    name: str
    topic_id: str
    partitions: int
    internal: bool = False
    leaderless: Tuple[int, ...] = ()


@dataclass(frozen=True)
class TopicConfigEntry:
    """One effective topic config. `source` is Kafka's name, e.g. `DYNAMIC_TOPIC_CONFIG`; secrets have value `None`."""

    value: Optional[str]
    source: str
    is_default: bool
    is_sensitive: bool = False
    is_read_only: bool = False


TopicConfigs = Mapping[str, TopicConfigEntry]


def readable(configs: Mapping[str, Optional[TopicConfigs]]) -> Dict[str, TopicConfigs]:
    """The topics whose configs this principal may read. Pure."""
    return {name: entries for name, entries in configs.items() if entries is not None}


def unreadable(alias: str, configs: Mapping[str, Optional[TopicConfigs]]) -> Optional[str]:
    """A sentence that names the topics of the cluster `alias` whose configs this principal may not read; `None` if it
    may read all. Pure."""
    closed = sorted(name for name, entries in configs.items() if entries is None)
    return f"{alias}: not allowed to read the configs of {some(closed)}: grant DescribeConfigs" if closed else None


@dataclass(frozen=True)
class NewTopic:
    """A topic to create. `replication_factor` -1 leaves it to the broker."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class OffsetRange:
    """A partition's log: the first offset still there, and the end (exclusive)."""

    log_start: int
    end: int


def held_back(ends: Mapping[TopicPartition, int], stable: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
    """The number of offsets before each partition's log end that open transactions hide from `read_committed` readers,
    if any. `stable`: the last stable offsets. Pure."""
    held = {place: end - stable[place] for place, end in ends.items() if place in stable}
    return {place: count for place, count in held.items() if count > 0}


@dataclass(frozen=True)
class ActiveProducer:
    """A producer that numbers its batches, in the state of a partition's leader (KIP-664).

    `last_sequence` and `last_timestamp` (ms since 1970) belong to its last batch. `open_since` is the first offset of
    its open transaction, `None` without one. `transactional_id` is `None` if it has none, or this principal may not
    describe it. `started`: when its coordinator saw that transaction begin (ms since 1970), `None` if unknown.
    """

    producer_id: int
    last_sequence: int
    last_timestamp: int
    open_since: Optional[int] = None
    transactional_id: Optional[str] = None
    started: Optional[int] = None

    @property
    def name(self) -> str:
        """`transactional id payments-1`, or `producer id 1001`."""
        if self.transactional_id is None:
            return f"producer id {self.producer_id}"
        return f"transactional id {self.transactional_id}"


@dataclass(frozen=True)
class CommittedOffset:
    """The next offset a group reads, and the metadata committed with it (`""` without any)."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True)
class GroupMember:
    """One member of a group and its present assignment. `host` is as Kafka prints it, e.g. `/10.0.0.1`.

    `other_work` is the assignment in a group with another protocol than consumers', in that protocol's bytes.
    """

    member_id: str
    client_id: str
    host: str
    partitions: FrozenSet[TopicPartition]
    other_work: bytes = b""


@dataclass(frozen=True)
class ConsumerGroup:
    """A group that exists.

    `state` is Kafka's word: Empty, Stable, PreparingRebalance, CompletingRebalance, Assigning, Reconciling or Dead.
    `simple`: its offsets are committed without membership, by an assigning consumer or an admin client, so Kafka cannot
    tell whether it is in use. A group created by `commit_offsets` is simple until its first member joins.
    """

    group: str
    state: str
    simple: bool
    members: Tuple[GroupMember, ...]

    @property
    def has_members(self) -> bool:
        """Whether the group has a member, or a member is joining: Kafka then refuses commits from outside the group."""
        return bool(self.members) or self.state not in ("Empty", "Dead")


LITERAL, PREFIXED = "LITERAL", "PREFIXED"
EVERY_TOPIC = "*"


@dataclass(frozen=True)
class AclBinding:
    """One ACL of topics, with the words of Kafka's tools.

    `topic` is a name, a prefix (`pattern_type` PREFIXED, KIP-290), or EVERY_TOPIC, which is a LITERAL pattern.
    `principal` is e.g. `User:alice`, `operation` e.g. READ or ALL, `permission` ALLOW or DENY.
    """

    topic: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


class Cluster(Protocol):
    """The requests that a Kafka cluster accepts. Each raises ClusterError if it cannot be answered at all."""

    alias: str

    def cluster_id(self) -> str:
        """The cluster's own id."""

    def broker_count(self) -> int:
        """The number of brokers that can have replicas now."""

    def topics(self) -> Mapping[str, TopicDescription]:
        """Every visible topic, by name. A topic that is just being created or deleted may be missing."""

    def topic_configs(
        self, names: Sequence[str], keys: Optional[Sequence[str]] = None
    ) -> Mapping[str, Optional[TopicConfigs]]:
        """Effective configs by topic, defaults included; only `keys` where given. Unknown topics are left out; `None`
        of a topic whose configs this principal may not read."""

    def topic_config_keys(self) -> FrozenSet[str]:
        """The topic configs that this cluster's brokers know; empty where that cannot be found out."""

    def check_creation(self, specs: Sequence[NewTopic]) -> Mapping[str, Tuple[Optional[str], Mapping[str, str]]]:
        """Validate `create_topics` without creating anything: by topic the reason of a refusal, or `None`, and the
        configs that the topic would have, where the brokers report them."""

    def create_topics(self, specs: Sequence[NewTopic]) -> Mapping[str, Optional[str]]:
        """Create topics: `None` where the topic now exists (also where it did before), else the broker's reason."""

    def create_partitions(self, counts: Mapping[str, int]) -> Mapping[str, Optional[str]]:
        """Grow topics to so many partitions: `None` where it has them (also where it had more), else the reason."""

    def alter_topic_configs(
        self, changes: Mapping[str, Mapping[str, Optional[str]]]
    ) -> Mapping[str, Optional[str]]:
        """Set (or, with value `None`, delete) single topic configs, leaving the others: `None` or the reason."""

    def offsets(
        self, partitions: Sequence[TopicPartition], isolation_level: str
    ) -> Mapping[TopicPartition, OffsetRange]:
        """Log start and end; the end is the last stable offset under `read_committed`, else the high watermark.

        Partitions that are unknown or have no leader now are left out and named in the log.
        """

    def sure_offsets(
        self, partitions: Sequence[TopicPartition], isolation_level: str
    ) -> Mapping[TopicPartition, OffsetRange]:
        """The same, from leaders on which all brokers agree. If not all brokers answer, partitions are left out."""

    def offsets_at(
        self, partitions: Sequence[TopicPartition], timestamp: int, isolation_level: str
    ) -> Mapping[TopicPartition, int]:
        """The first offset whose record is of `timestamp` (ms since 1970) or later; -1 where there is none (yet).

        Partitions that are unknown or have no leader now are left out.
        """

    def close(self) -> None:
        """Drop the connections. Closing twice is harmless."""


class GroupCluster(Protocol):
    """The requests about consumer groups. Each raises ClusterError if no broker answers.

    Groups do not block each other: a group is left out and named in the log if its coordinator is unavailable, or if
    Describe is not granted.
    """

    alias: str

    def group_names(self) -> Sequence[str]:
        """Consumer groups, sorted: classic, KIP-848 and simple ones; no share, streams or Connect groups."""

    def unlisted_brokers(self) -> Sequence[str]:
        """The ids of the brokers that did not list their groups at the last `group_names`."""

    def describe_groups(self, groups: Sequence[str]) -> Mapping[str, ConsumerGroup]:
        """State and members by group. Absent groups are left out."""

    def committed_offsets(self, groups: Sequence[str]) -> Mapping[str, Mapping[TopicPartition, CommittedOffset]]:
        """Every committed offset by group. A group without any, or absent, has an empty mapping; a group whose
        coordinator did not answer is left out."""

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset], again: Callable[[], bool] = lambda: True
    ) -> Mapping[TopicPartition, Optional[str]]:
        """Commit for a group without being a member: `None` where it is done, else the broker's reason.

        `again` is called before each further attempt: an attempt without an answer may have been carried out.
        """

    def delete_offsets(
        self, group: str, partitions: Sequence[TopicPartition], again: Callable[[], bool] = lambda: True
    ) -> Mapping[TopicPartition, Optional[str]]:
        """Delete committed offsets: `None` where there is none any more, else the broker's reason. `again` as above."""


class AclCluster(Protocol):
    """The requests about ACLs of topics. Each raises ClusterError if it cannot be answered at all."""

    alias: str

    def topic_acls(self) -> Optional[FrozenSet[AclBinding]]:
        """Every ACL of topics; `None` where the cluster has no authorizer."""

    def create_topic_acls(self, acls: Sequence[AclBinding]) -> Mapping[AclBinding, Optional[str]]:
        """Create ACLs: `None` if the ACL exists now (or existed before), else the broker's reason."""

    def delete_topic_acls(self, acls: Sequence[AclBinding]) -> Mapping[AclBinding, Optional[str]]:
        """Delete exactly these ACLs: `None` if the ACL no longer exists, else the broker's reason."""
