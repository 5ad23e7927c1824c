"""The facts that a cluster reports, as frozen values. Pure: `mirror_lib.kafka.admin` reads them from a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Mapping, Optional, Tuple

from mirror_lib.text import some

TopicPartition = Tuple[str, int]


@dataclass(frozen=True)
class TopicDescription:
    """One topic. `topic_id` is Kafka's printed form, `""` before Kafka 2.8. `leaderless`: partitions without a leader.
    """

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
    """One member of a group. `host` is as Kafka prints it, e.g. `/10.0.0.1`.

    `other_work` is the assignment in a group with another protocol than consumers', in that protocol's bytes.
    """

    host: str
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

    `topic` is a name, a prefix (`pattern_type` PREFIXED), or `*` (LITERAL) for every topic. `principal` is e.g.
    `User:alice`, `operation` e.g. READ or ALL, `permission` ALLOW or DENY.
    """

    topic: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str
