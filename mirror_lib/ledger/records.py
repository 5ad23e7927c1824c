"""The rows of the Delta tables as frozen values. Pure: each table's module writes out its columns."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import ClassVar, FrozenSet, Iterator, Mapping, NamedTuple, Optional, Tuple

from mirror_lib.facts import TopicPartition
from mirror_lib.ledger.intervals import RUN_BYTES, Runs


@dataclass(frozen=True)
class OffsetSyncs:
    """The offset syncs of one source partition: `flat` as `Runs.tobytes` gives it."""

    topic: str
    partition: int
    flat: bytes = field(repr=False)


DATA_LOST = "data lost"
OFFSETS_SKIPPED = "offsets skipped"
COPIED_AGAIN = "copied again"
REMOTE_LOG_HEALED = "remote log healed"
TOPIC_RECREATED = "topic recreated"
PARTITION_STOPPED = "partition stopped"
GROUP_LOST_RECORDS = "group lost records"
INCIDENT_KINDS = (
    DATA_LOST,
    OFFSETS_SKIPPED,
    COPIED_AGAIN,
    REMOTE_LOG_HEALED,
    TOPIC_RECREATED,
    PARTITION_STOPPED,
    GROUP_LOST_RECORDS,
)


@dataclass(frozen=True)
class Incident:
    """Something an operator must be able to look up later: data that was lost, skipped, healed or copied again.

    `kind` is one of `INCIDENT_KINDS`. Offsets are upstream, end exclusive; -1 where a bound is not known.
    """

    kind: str
    topic: str
    partition: int
    from_offset: int
    until_offset: int
    reason: str


@dataclass(frozen=True)
class LeftOut:
    """What was skipped of one partition: how many `offsets`, and the first `ranges` of them, ends exclusive."""

    offsets: int
    ranges: Tuple[Tuple[int, int], ...]


@dataclass(frozen=True)
class PartitionKey:
    """One partition of a flow by identity: a topic deleted and re-created has another id, so another key.

    Topic ids are Kafka's printed form, `""` where the brokers know none.
    """

    source_topic_id: str
    remote_topic_id: str
    source_topic: str
    partition: int


class DeadLetterPlace(NamedTuple):
    """A source partition's records in one partition of a dead letter topic."""

    source_topic_id: str
    source_topic: str
    partition: int
    remote_partition: int


@dataclass(frozen=True)
class Position:
    """An upstream offset and the downstream offset that belongs to it: mostly the next record to read, and where the
    mirror is to write it."""

    upstream_offset: int
    downstream_offset: int


@dataclass(frozen=True)
class LedgerRow:
    """An offset sync with the names and ids of both topics: what one lane reports and the ledger stores.

    `remote_partition` is `None` where it is the source's, as that of all exact runs is. A row with the two `until`s is
    a range of a flow that repartitions records: of the records from `upstream_offset` to before `upstream_until`,
    `record_count` lie somewhere between `downstream_offset` and before `downstream_until`."""

    source_topic: str
    remote_topic: str
    partition: int
    source_topic_id: str
    remote_topic_id: str
    upstream_offset: int
    downstream_offset: int
    record_count: int
    remote_partition: Optional[int] = None
    upstream_until: Optional[int] = None
    downstream_until: Optional[int] = None

    @property
    def key(self) -> PartitionKey:
        """The partition it belongs to."""
        return PartitionKey(self.source_topic_id, self.remote_topic_id, self.source_topic, self.partition)

    @property
    def is_range(self) -> bool:
        """Whether it is a range of a flow that repartitions records."""
        return self.upstream_until is not None


# Of a range row that speaks of one side alone: there is no partition on the other one.
NO_PARTITION = -1


class TopicPair(NamedTuple):
    """A topic and a remote topic of it, by names and ids."""

    topic: str
    topic_id: str
    remote_topic: str
    remote_topic_id: str


class LogPosition(NamedTuple):
    """Where a partition stands, of the topic with this id, and where the first row of it begins."""

    topic_id: str
    offset: int
    begin: int = 0


@dataclass(frozen=True)
class RangePositions:
    """What the range rows of a flow say: the next upstream offset of each source partition, where the settled part of
    each remote partition ends, and which topics were copied to which. `grown`: remote topics that were given partitions
    after the flow began, so that keys moved."""

    sources: Mapping[TopicPartition, LogPosition] = field(default_factory=dict)
    remotes: Mapping[TopicPartition, LogPosition] = field(default_factory=dict)
    pairs: FrozenSet[TopicPair] = frozenset()
    grown: FrozenSet[str] = frozenset()


@dataclass(frozen=True)
class LedgerRuns:
    """Many ledger rows of one partition. `like` is a row as all of them are but for their runs, which `flat` holds as
    `Runs.tobytes` gives them."""

    like: LedgerRow
    flat: bytes = field(repr=False)

    def __len__(self) -> int:
        return len(self.flat) // RUN_BYTES

    @property
    def key(self) -> PartitionKey:
        """The partition they belong to."""
        return self.like.key

    @property
    def end(self) -> Position:
        """Where the last of them ends."""
        (last,) = Runs(self.flat[-RUN_BYTES:])
        return Position(last.upstream_end, last.downstream_end)

    def rows(self) -> Iterator[LedgerRow]:
        """Each row by itself."""
        return (replace(self.like, **run._asdict()) for run in Runs(self.flat))


@dataclass(frozen=True)
class TakeoverRow:
    """A partition that another tool copied and this product resumes, at `resumes_at`.

    `taken_from` names where its position was kept, `kept_offset` is the next upstream offset by it (`None`: not kept).
    `tail` records lay behind it on the remote log, `doubled` once more than they should; `older`: the remote log holds
    records before those that were compared.
    """

    key: PartitionKey
    remote_topic: str
    taken_from: str
    kept_offset: Optional[int]
    resumes_at: Position
    tail: int = 0
    doubled: int = 0
    older: bool = False


@dataclass(frozen=True)
class MirrorRun:
    """One flow in one driver's life, as known at its start. `run_id` is fresh for every life; `checkpoint` names the
    folder of Spark's checkpoint that it used."""

    run_id: str
    flow: str
    tasks_max: int
    delivery: str
    source_cluster_id: str
    target_cluster_id: str
    checkpoint: str = ""


# cluster, group, topic, partition
MoveKey = Tuple[str, str, str, int]


@dataclass(frozen=True)
class GroupOffset:
    """One move of a group's committed offset on one partition, as the audit table holds it.

    `cluster`, `group`, `topic` and `partition` say where it was written. `previous_offset` is what stood there, `None`
    if the group had no offset. `new_offset` is `None` where the offset was deleted, which undoes a first write.
    `from_topic` and `from_offset` are the position on the other cluster that it was translated from. `action` is
    `commit` or `rollback`.
    """

    cluster: str
    group: str
    topic: str
    partition: int
    previous_offset: Optional[int]
    previous_metadata: str
    new_offset: Optional[int]
    metadata: str
    from_topic: str
    from_offset: int
    verdict: str
    action: str

    @property
    def key(self) -> MoveKey:
        """Where it was written."""
        return self.cluster, self.group, self.topic, self.partition


@dataclass(frozen=True)
class GroupOffsetRun:
    """What one run moved in one flow: how many offsets, and when the first and the last were written (UTC)."""

    run_id: str
    flow: str
    first_at: datetime
    last_at: datetime
    moves: int


@dataclass(frozen=True)
class Verification:
    """What one comparison of a flow found, as the table `verifications` has it: topics and pairs of records that were
    compared, topics that differ, a sentence on the first difference (empty without one), and what was compared."""

    flow: str
    verdict: str
    topics: int
    records: int
    differing: int
    first_difference: str
    scope: str


# How often a run that is under way adds a sign of life to the table `runs`.
SIGN_SECONDS = 180.0
# A run without an end and without a sign of life for so long was killed: three signs are missing.
DEAD_SECONDS = 600.0
# So long one sign of life an hour is kept.
HISTORY_SECONDS = 30 * 86400.0


@dataclass(frozen=True)
class Progress:
    """How far a run is: records and bytes copied so far, upstream offsets still to copy, and the age in seconds of the
    last record copied of the partition that is farthest back, where it is known."""

    records: int
    bytes: int
    lag_records: Optional[int] = None
    lag_seconds: Optional[float] = None


@dataclass(frozen=True)
class CutoverStep:
    """A row of the table `cutovers`, without its time."""

    OVER: ClassVar[str] = "over"
    BACK: ClassVar[str] = "back"
    DONE: ClassVar[str] = "done"
    # By direction the step that is the last of all.
    LAST: ClassVar[Mapping[str, str]] = {OVER: "check", BACK: "unfence"}

    flow: str
    cutover_id: str
    direction: str
    step: str
    status: str
    detail: str = ""
    facts: str = ""


@dataclass(frozen=True)
class SourceRetention:
    """A row of the table `source_retentions`, without its flow and time. `before` is `None` where the topic had no
    `retention.ms` of its own."""

    RAISE: ClassVar[str] = "raise"
    RESTORE: ClassVar[str] = "restore"

    topic: str
    action: str
    before: Optional[str]
    raised: str
