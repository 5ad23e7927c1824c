"""What driver and tasks exchange: lanes, `TaskPlan`, `TaskReport`, and acknowledged offset syncs. Pure.

A lane is the unit of fencing. A partition's lane depends on names alone, so every writer of a partition uses one
transactional id, whatever `tasks.max` is.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any, FrozenSet, Mapping, Optional, Tuple

from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.fetch_quota import RateQuota
from mirror_lib.kafka.record_batch import Producer
from mirror_lib.ledger.records import Incident, LedgerRow, PartitionKey, Position

# Never to be changed: drivers with different counts would not fence each other.
LANES = 64

# A broker forgets a producer, and with it the lane's epoch, when the newest timestamp in its last batch is a day old
# (producer.id.expiration.ms). Half of that allows for clock differences and delays.
EPOCH_KEPT_SECONDS = 12 * 3600.0

# The most offset syncs of a task in one report: about 6 MB to the driver. A log full of gaps, or a filter, reaches this
# number in seconds. The cycle then ends.
MOST_SYNCS = 250_000

# In classes that have a field of the name `bytes`.
Flat = bytes

# The end of a partition that is tailed: its lane continues until the cycle's time is up.
NO_END = 2**63 - 1


@dataclass(frozen=True)
class KeptPartition:
    """A source partition and its remote partition, which has the same number."""

    topic: str
    remote_topic: str
    partition: int

    @property
    def source(self) -> TopicPartition:
        return (self.topic, self.partition)

    @property
    def remote(self) -> TopicPartition:
        return (self.remote_topic, self.partition)


@dataclass(frozen=True)
class CopiedPartition(KeptPartition):
    """A partition that the flow copies, with the ids of both topics and the largest record batch of the remote one."""

    source_topic_id: str
    remote_topic_id: str
    max_message_bytes: int

    @property
    def key(self) -> PartitionKey:
        return PartitionKey(self.source_topic_id, self.remote_topic_id, self.topic, self.partition)

    def ledger_row(self, upstream_offset: int, downstream_offset: int, record_count: int) -> LedgerRow:
        names = (self.topic, self.remote_topic, self.partition, self.source_topic_id, self.remote_topic_id)
        return LedgerRow(*names, upstream_offset, downstream_offset, record_count)

    def position_row(self, position: Position) -> LedgerRow:
        """The row that records the partition's position, without a record of its own."""
        return self.ledger_row(position.upstream_offset, position.downstream_offset, 0)


@dataclass(frozen=True)
class PartitionTask(CopiedPartition):
    """One partition's part of a cycle: copy from `upstream_offset` until at least `end`, or `NO_END`.

    `downstream_offset` is the offset of the next record by the ledger. `sequence` is the producer sequence to continue
    with; None makes the lane fence and reconcile first. Batches that start before `isolate_until` are sent one record
    at a time, so that a refused one can be identified. `shared`: other flows write to the remote topic too.
    `log_start`: the start of the source's log at planning, set if it may be past `upstream_offset`. Nothing is copied
    if the topics' ids have changed since. `unrecorded`: see `Range`.
    """

    upstream_offset: int
    downstream_offset: int
    end: int
    sequence: Optional[int]
    shared: bool = False
    isolate_until: int = -1
    log_start: int = 0
    unrecorded: str = ""

    @property
    def lane(self) -> int:
        return lane_of(self.remote_topic, self.partition)


@dataclass(frozen=True)
class TaskPlan:
    """Everything a Spark task needs to copy its lanes once.

    `transactional_ids` are by lane, empty for `at-least-once`. `producers` belong to lanes that are already fenced;
    `confirmed_at` is the oldest time at which one of them was confirmed (seconds since 1970). `known_ids` are the
    producer ids that each lane may have appended under, and nothing is appended under any other id. It is None if no
    other flow writes to the remote topics. A task that `tails` copies what comes until its time is up, and then reports
    even if a cluster is unavailable. `rate` is the task's share of the flow's rate, if it has one.
    """

    task: int
    flow: str
    transactional_ids: Mapping[int, str]
    producers: Mapping[int, Producer]
    tasks: Tuple[PartitionTask, ...]
    source_alias: str
    target_alias: str
    source_options: Mapping[str, Any] = field(repr=False)
    target_options: Mapping[str, Any] = field(repr=False)
    isolation_level: str = "read_committed"
    on_data_loss: str = "fail"
    max_seconds: float = 10.0
    confirmed_at: float = 0.0
    known_ids: Optional[Mapping[int, FrozenSet[int]]] = None
    tails: bool = False
    rate: Optional[RateQuota] = None
    most_syncs: int = MOST_SYNCS

    def ids_of(self, lane: int) -> FrozenSet[int]:
        """The producer ids that the lane may have appended under, as recorded by the driver."""
        return (self.known_ids or {}).get(lane, frozenset())

    def has_new_ids(self, producers: Mapping[int, Producer]) -> bool:
        """Whether the driver must record one of these lanes' ids before anything is appended under it."""
        given = producers.items()
        return self.known_ids is not None and any(each.producer_id not in self.ids_of(lane) for lane, each in given)


@dataclass(frozen=True)
class Stop:
    """Why a partition stopped, with the code if it has its own.

    `refused`: for safety, not by a failure, until an operator has acted. `lost_tail`: the remote log lost acknowledged
    records. `fails`: at a record on which the flow's change fails. `rejected`: the first and the end of the upstream
    offsets that the target refused.
    """

    reason: str
    code: str = ""
    refused: bool = False
    lost_tail: bool = False
    fails: bool = False
    rejected: Optional[Tuple[int, int]] = None

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True)
class PartitionReport(KeptPartition):
    """The position of a partition after a cycle; `stopped` if it is stopped.

    Every source record before `position` was copied or does not exist. `downstream_offset` is the end of the
    acknowledged records on the remote log; `sequence` is the producer's next one, None if it is unknown. `source_end`
    is the end of the source's log by the last answer, -1 without one. `seconds` is from the first fetch to the last
    acknowledgement. `recovered` records, with `recovered_bytes` in their batches, were found on the remote log.
    `syncs` are the offset syncs to append to the ledger, those of the found records included, as `Runs.tobytes` gives
    them.
    """

    position: int
    downstream_offset: int
    sequence: Optional[int]
    last_timestamp: int
    source_end: int = -1
    records: int = 0
    bytes: int = 0
    seconds: float = 0.0
    stopped: Optional[Stop] = None
    incidents: Tuple[Incident, ...] = ()
    recovered: int = 0
    recovered_bytes: int = 0
    syncs: Flat = field(default=b"", repr=False)


@dataclass(frozen=True)
class TaskReport:
    """The result of a task's cycle. `producers` belong to its lanes and pass to the next task.
    `fenced` means that another driver fenced a lane, `gave_up` that a cluster was unavailable when a tail ended. The
    flow's rate delayed the task for `held_seconds`, and `balance` is what it left of its share, in bytes, or owes if it
    is negative. The throttled seconds are the times for which brokers throttled the task by their quotas."""

    task: int
    producers: Mapping[int, Producer]
    fenced: bool
    partitions: Tuple[PartitionReport, ...]
    seconds: float
    held_seconds: float = 0.0
    balance: float = 0.0
    source_throttled_seconds: float = 0.0
    target_throttled_seconds: float = 0.0
    gave_up: bool = False

    @property
    def records(self) -> int:
        return sum(part.records for part in self.partitions)

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.partitions)

    @property
    def recovered(self) -> int:
        return sum(part.recovered for part in self.partitions)

    @property
    def throttled_seconds(self) -> float:
        return self.source_throttled_seconds + self.target_throttled_seconds


def lane_of(remote_topic: str, partition: int) -> int:
    """The lane of a partition. Neighbouring partitions of a topic have different lanes; topics start at different
    ones."""
    return (zlib.crc32(remote_topic.encode()) + partition) % LANES


def transactional_id(name: str, flow: str, lane: int) -> str:
    """The lane's transactional id; `name` distinguishes mirrors whose flows have the same name."""
    return f"{name}.{flow}.{lane}"


def nothing_copied(task: int) -> TaskReport:
    return TaskReport(task, {}, False, (), 0.0)
