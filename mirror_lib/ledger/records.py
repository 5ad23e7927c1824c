"""The rows of the Delta tables as frozen values. Pure; each table's module converts them to columns."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, FrozenSet, Iterator, Mapping, NamedTuple, Optional, Sequence, Tuple

from mirror_lib.errors import RefusedError
from mirror_lib.facts import TopicPartition
from mirror_lib.ledger.intervals import RUN_BYTES, Runs
from mirror_lib.text import UNPRINTED

DATA_LOST = "data lost"
OFFSETS_SKIPPED = "offsets skipped"
COPIED_AGAIN = "copied again"
REMOTE_LOG_HEALED = "remote log healed"
TOPIC_RECREATED = "topic recreated"
PARTITION_STOPPED = "partition stopped"
GROUP_LOST_RECORDS = "group lost records"
TOPIC_BLOCKED = "topic blocked"
TOPIC_ADDED = "topic added"
PARTITIONS_ADDED = "partitions added"
STARTED_LATER = "copy starts later"
# They need no action.
NEWS = (TOPIC_ADDED, PARTITIONS_ADDED, STARTED_LATER)
INCIDENT_KINDS = (
    DATA_LOST,
    OFFSETS_SKIPPED,
    COPIED_AGAIN,
    REMOTE_LOG_HEALED,
    TOPIC_RECREATED,
    PARTITION_STOPPED,
    GROUP_LOST_RECORDS,
    *NEWS,
    TOPIC_BLOCKED,
)
# The other kinds of rows of the table `events`.
TAKEN_OVER = "partition taken over"
PRODUCER_ID = "producer id used"
VERIFIED = "copy verified"
CUTOVER_STEP = "cut-over step"


@dataclass(frozen=True)
class Incident:
    """An event that an operator can look up later: data that was lost, skipped, healed or copied again, or news.

    `kind` is one of `INCIDENT_KINDS`. Offsets are upstream, end exclusive; an unknown offset is -1, and so is the
    partition of an event of a whole topic.
    """

    kind: str
    topic: str
    partition: int
    from_offset: int
    until_offset: int
    reason: str


@dataclass(frozen=True)
class LeftOut:
    """The skipped offsets of one partition: their number (`offsets`), and their first `ranges`, ends exclusive."""

    offsets: int
    ranges: Tuple[Tuple[int, int], ...]


@dataclass(frozen=True)
class PartitionKey:
    """Identifies one partition of a flow: a re-created topic has another id, so another key.

    Topic ids are in Kafka's printed form, `""` if brokers have none.
    """

    source_topic_id: str
    remote_topic_id: str
    source_topic: str
    partition: int


class DeadLetterPlace(NamedTuple):
    """Identifies a source partition's records in one partition of a dead letter topic."""

    source_topic_id: str
    source_topic: str
    partition: int
    remote_partition: int


@dataclass(frozen=True)
class Position:
    """An `upstream_offset` and its `downstream_offset`, mostly of the next record."""

    upstream_offset: int
    downstream_offset: int


@dataclass(frozen=True)
class LedgerRow:
    """An offset sync with the names and ids of both topics, as a lane reports it and the ledger stores it.

    `remote_partition` is `None` if it equals the source's, as in all exact runs. A row with the two `until`s is a range
    of a flow that repartitions records, of one side: a source partition advanced over `[upstream_offset,
    upstream_until)`, or a remote partition got `record_count` records in `[downstream_offset, downstream_until)`."""

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
        return PartitionKey(self.source_topic_id, self.remote_topic_id, self.source_topic, self.partition)


# In a range row, the partition of the side that the range is not of.
NO_PARTITION = -1


class TopicPair(NamedTuple):
    """A topic and one of its remote topics, by names and ids."""

    topic: str
    topic_id: str
    remote_topic: str
    remote_topic_id: str


class LogPosition(NamedTuple):
    """The current offset of a partition of the topic with this id, and the start of its first row (`begin`)."""

    topic_id: str
    offset: int
    begin: int = 0


@dataclass(frozen=True)
class RangePositions:
    """The positions of a flow by its range rows.

    `sources` has the next upstream offset of each source partition, `remotes` the end of each remote partition's
    settled part, `pairs` the topics and their remote topics. `grown`: remote topics that got more partitions after the
    flow's start, so that keys moved."""

    sources: Mapping[TopicPartition, LogPosition] = field(default_factory=dict)
    remotes: Mapping[TopicPartition, LogPosition] = field(default_factory=dict)
    pairs: FrozenSet[TopicPair] = frozenset()
    grown: FrozenSet[str] = frozenset()


@dataclass(frozen=True)
class LedgerRuns:
    """Many ledger rows of one partition. `like` has the values that all rows share; `flat` has their runs, in the
    format of `Runs.tobytes`."""

    like: LedgerRow
    flat: bytes = field(repr=False)

    def __len__(self) -> int:
        return len(self.flat) // RUN_BYTES

    @property
    def key(self) -> PartitionKey:
        return self.like.key

    @property
    def end(self) -> Position:
        (last,) = Runs(self.flat[-RUN_BYTES:])
        return Position(last.upstream_end, last.downstream_end)

    def rows(self) -> Iterator[LedgerRow]:
        return (replace(self.like, **run._asdict()) for run in Runs(self.flat))


@dataclass(frozen=True)
class TakeoverRow:
    """A partition that another tool copied, and that the mirror resumes at `resumes_at`.

    `taken_from` is the store of the tool's position, `kept_offset` the next upstream offset by that position (`None`:
    not stored). The remote log had `tail` records after the position, and `doubled` duplicates among them. `older`: the
    remote log has records before those that were compared.
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
    """One run of a flow, with the facts at its start. `run_id` is new for every run; `checkpoint` is the name of its
    Spark checkpoint's folder."""

    run_id: str
    flow: str
    tasks_max: int
    delivery: str
    source_cluster_id: str
    target_cluster_id: str
    checkpoint: str = ""

    @property
    def clusters(self) -> Tuple[str, str]:
        return self.source_cluster_id, self.target_cluster_id


RUN_COLUMNS = ("kind", "outcome", "at", *MirrorRun.__dataclass_fields__)


def latest_run(rows: Sequence[Mapping[str, Any]]) -> Tuple[Optional[MirrorRun], bool]:
    """The run of a flow that started last, by the flow's rows with RUN_COLUMNS; and whether it recorded the outcome
    `ok`: nothing to recover."""
    last = max((row for row in rows if row["kind"] == "started"), key=lambda row: row["at"], default=None)
    if last is None:
        return None, False
    ended_well = any(row["run_id"] == last["run_id"] and row["outcome"] == "ok" for row in rows)
    return MirrorRun(**{name: last[name] for name in MirrorRun.__dataclass_fields__}), ended_well


def same_clusters(flow: str, now: Tuple[str, str], before: Optional[Tuple[str, str]]) -> None:
    """Raise `RefusedError` if the ids of source and target differ from `before`, the ids at the flow's last run."""
    for side, cluster_id, recorded in zip(("source", "target"), now, before or now):
        if cluster_id != recorded:
            raise RefusedError(
                f"{flow}: the {side} cluster has id {cluster_id}, and the ledger was written for {recorded}",
                "check bootstrap.servers; for another cluster give another `state:` or another alias",
                code="MIR-304",
            )


# cluster, group, topic, partition
MoveKey = Tuple[str, str, str, int]


@dataclass(frozen=True)
class GroupOffset:
    """One offset commit of a group on one partition, as recorded in the table `group_offsets`.

    `cluster`, `group`, `topic` and `partition` are the commit's place. `previous_offset` is the offset before, `None`
    if the group had none. `new_offset` is `None` if the offset was deleted, which undoes a first commit. `from_topic`
    and `from_offset` are the translated position on the other cluster. `action` is `commit` or `rollback`.
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
        return self.cluster, self.group, self.topic, self.partition


@dataclass(frozen=True)
class Verification:
    """The result of one comparison of a flow, as in the table `events`.

    `topics` and `records` count compared topics and pairs of records, `differing` topics that differ.
    `first_difference` is a sentence, empty without a difference; `scope` is the compared part."""

    flow: str
    verdict: str
    topics: int
    records: int
    differing: int
    first_difference: str
    scope: str


# The interval of a run's signs of life in the table `runs`.
SIGN_SECONDS = 180.0
# A run without an end row counts as killed after this time without a sign of life: three are missing.
DEAD_SECONDS = 600.0
DAY_SECONDS = 86400.0


@dataclass(frozen=True)
class Progress:
    """The progress of a run: records and bytes copied so far, the lag in upstream offsets and in seconds, and the
    records that the flow's change dropped so far and those in its dead letter topic, if they are counted.

    `lag_seconds` is the age of the last copied record in the partition with the largest such age, if known."""

    records: int
    bytes: int
    lag_records: Optional[int] = None
    lag_seconds: Optional[float] = None
    filtered: Optional[int] = None
    dead_letters: Optional[int] = None


@dataclass(frozen=True)
class CutoverStep:
    """A started or ended step of a cut-over, as in the table `events`."""

    OVER: ClassVar[str] = "over"
    BACK: ClassVar[str] = "back"
    DONE: ClassVar[str] = "done"
    FAILED: ClassVar[str] = "failed"
    # The first step of a way back: it changes nothing.
    FIRST_BACK: ClassVar[str] = "check"
    # By direction the step that is the last of all.
    LAST: ClassVar[Mapping[str, str]] = {OVER: "check", BACK: "groups"}

    flow: str
    cutover_id: str
    direction: str
    step: str
    status: str
    detail: str = ""
    facts: str = field(default="", metadata=UNPRINTED)
