"""What driver and tasks exchange: lanes, `TaskPlan`, `TaskReport`, and acknowledged offset syncs. Pure.

A lane is the unit of fencing. A partition's lane depends on names alone, so every writer of a partition uses one
transactional id, whatever `tasks.max` is.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Dict, FrozenSet, Mapping, Optional, Tuple

from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.record_batch import Producer
from mirror_lib.ledger.records import Incident, OffsetSyncs
from mirror_lib.replication.quotas import NO_RATES, NOTHING_FETCHED, Fetching, TaskRates, fetching_from

# Never to be changed: drivers with different counts would not fence each other.
LANES = 64

# A broker forgets a producer, and with it the lane's epoch, when the newest time in its last batch is a day past
# (producer.id.expiration.ms). Half of that leaves room for clocks that differ and for what comes in between.
EPOCH_KEPT_SECONDS = 12 * 3600.0

# Offset syncs of a task in one report: some six megabytes on their way to the driver. A log full of gaps, or a filter,
# reaches this number in seconds. The cycle ends then.
MOST_SYNCS = 250_000

# The end of a partition that is tailed: its lane continues until the cycle's time is up.
NO_END = 2**63 - 1


def to_text(report: TaskReport) -> str:
    """A task's report as one line of JSON, as it travels from the task to its driver."""
    bare = asdict(replace(report, syncs=()))
    syncs = [(each.topic, each.partition, b64encode(each.flat).decode("ascii")) for each in report.syncs]
    return json.dumps({**bare, "syncs": syncs})


def from_text(text: str) -> TaskReport:
    """The report of a line that `to_text` of this release wrote. Raises `ValueError` for anything else."""
    try:
        return _report(json.loads(text))
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"the report is of another release: {error}") from error


def _report(fields: Dict[str, Any]) -> TaskReport:
    producers, fetching = fields.pop("producers"), fields.pop("fetching")
    partitions = fields.pop("partitions")
    return TaskReport(
        **{**fields, "syncs": tuple(OffsetSyncs(topic, n, b64decode(flat)) for topic, n, flat in fields["syncs"])},
        fetching=fetching_from(fetching),
        producers={int(lane): Producer(**producer) for lane, producer in producers.items()},
        partitions=tuple(map(partition_report, partitions)),
    )


def partition_report(fields: Dict[str, Any]) -> PartitionReport:
    """That of its fields, as JSON has them."""
    incidents = fields.pop("incidents")
    return PartitionReport(**fields, incidents=tuple(Incident(**incident) for incident in incidents))


class KeptPartition:
    """A source partition and its remote partition, which has the same number. A base without fields of its own."""

    topic: str
    remote_topic: str
    partition: int

    @property
    def source(self) -> TopicPartition:
        """(source topic, partition)."""
        return (self.topic, self.partition)

    @property
    def remote(self) -> TopicPartition:
        """(remote topic, partition)."""
        return (self.remote_topic, self.partition)


@dataclass(frozen=True)
class PartitionTask(KeptPartition):
    """One partition's share of a pass: copy from `upstream_offset` until at least `end`, or `NO_END`.

    `downstream_offset` is where the ledger says the next record belongs. `sequence` is the producer sequence to
    continue with, None where the lane must fence and reconcile first. Batches that start before `isolate_until` are
    sent one record at a time, so that a refused one can be identified. `shared`: other flows write to the remote topic
    too. Nothing from `bound` on is copied, where it is given. `log_start`: where the source's log began when it was
    planned, known where that may be behind `upstream_offset`. Nothing is copied where the topics have other ids by now.
    """

    topic: str
    remote_topic: str
    partition: int
    upstream_offset: int
    downstream_offset: int
    end: int
    sequence: Optional[int]
    max_message_bytes: int
    shared: bool = False
    isolate_until: int = -1
    bound: Optional[int] = None
    log_start: int = 0
    source_topic_id: str = ""
    remote_topic_id: str = ""

    @property
    def lane(self) -> int:
        """The lane that the partition belongs to."""
        return lane_of(self.remote_topic, self.partition)


@dataclass(frozen=True)
class ReportTo:
    """Where a task that tails finds its driver, how often it reports there and how long it then continues, in
    seconds."""

    host: str
    port: int
    secret: str = field(repr=False)
    every: float
    seconds: float


@dataclass(frozen=True)
class TaskPlan:
    """Everything a Spark task needs to copy its lanes once.

    `transactional_ids` holds each lane's, none for `at-least-once`; `producers` the ones of lanes that are fenced
    already, and `confirmed_at` is when the one confirmed longest ago was confirmed (seconds since 1970).
    `epoch_kept_seconds` is how long brokers are trusted to know a lane's epoch. `known_ids`: the producer ids that each
    lane may have appended under, where others write to its remote topics too: nothing is appended under any other. None
    where no other flow does. A task with `report_to` tails: it makes cycle after cycle and reports each to its driver,
    and it reports at the end of its time also where a cluster is away. `rates` is the task's share of what the flow may
    fetch.
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
    epoch_kept_seconds: float = EPOCH_KEPT_SECONDS
    known_ids: Optional[Mapping[int, FrozenSet[int]]] = None
    report_to: Optional[ReportTo] = None
    rates: TaskRates = NO_RATES
    most_syncs: int = MOST_SYNCS

    def ids_of(self, lane: int) -> FrozenSet[int]:
        """The producer ids that the lane may have appended under, as far as the driver knows them."""
        return (self.known_ids or {}).get(lane, frozenset())

    def has_new_ids(self, producers: Mapping[int, Producer]) -> bool:
        """Whether the driver has one of these ids of lanes to write down before anything is appended under it."""
        given = producers.items()
        return self.known_ids is not None and any(each.producer_id not in self.ids_of(lane) for lane, each in given)


@dataclass(frozen=True)
class PartitionReport(KeptPartition):
    """The position of a partition after a cycle. `stopped` is the reason it is stopped, None if it is not; `refused`
    says that the reason is safety, not failure, and `code` which refusal it is; `lost_tail` says that the remote log
    lost acknowledged records; the target refused what lies between the `rejected`
    offsets (upstream, end exclusive).

    `position` is the upstream offset up to which everything was copied or does not exist; `upstream_offset` and
    `downstream_offset` are the ends of what was acknowledged; `sequence` is the producer's next one, None where it is
    not known. `source_end` is the end of the source's log as the last answer gave it, -1 without one.
    `seconds` is from the first fetch to the last acknowledgement. `fails`: it stopped at a record that the flow's
    change can make none.
    """

    topic: str
    remote_topic: str
    partition: int
    position: int
    downstream_offset: int
    sequence: Optional[int]
    last_timestamp: int
    source_end: int = -1
    records: int = 0
    bytes: int = 0
    seconds: float = 0.0
    stopped: Optional[str] = None
    refused: bool = False
    lost_tail: bool = False
    rejected_from: Optional[int] = None
    rejected_until: int = -1
    incidents: Tuple[Incident, ...] = ()
    fails: bool = False
    code: str = ""


@dataclass(frozen=True)
class TaskReport:
    """What became of a task's pass. `syncs` are the offset syncs to append to the ledger, also those found on the
    remote log from an attempt that could not report them. `producers` belong to its lanes, to be handed over.
    `fenced` says that another driver took a lane over. `fetching` is what the rates count, and for so many seconds
    brokers throttled the task by their quotas."""

    task: int
    producers: Mapping[int, Producer]
    fenced: bool
    partitions: Tuple[PartitionReport, ...]
    syncs: Tuple[OffsetSyncs, ...]
    records: int
    bytes: int
    re_encoded: int
    recovered: int
    seconds: float
    fetching: Fetching = NOTHING_FETCHED
    source_throttled_seconds: float = 0.0
    target_throttled_seconds: float = 0.0

    @property
    def was_held(self) -> bool:
        """Whether a bound or a quota kept it waiting: that it copied little does not mean that it is stuck."""
        return any(self.fetching.held_seconds.values()) or self.throttled_seconds > 0

    @property
    def throttled_seconds(self) -> float:
        """By both clusters."""
        return self.source_throttled_seconds + self.target_throttled_seconds


def lane_of(remote_topic: str, partition: int) -> int:
    """The lane of a partition: neighbours of a topic have different lanes, topics start at different ones."""
    return (zlib.crc32(remote_topic.encode()) + partition) % LANES


def transactional_id(name: str, flow: str, lane: int) -> str:
    """The lane's transactional id; `name` distinguishes mirrors whose flows have the same name."""
    return f"{name}.{flow}.{lane}"


def nothing_copied(task: int, fenced: bool = False) -> TaskReport:
    """What a task reports that moved no partition."""
    return TaskReport(task, {}, fenced, (), (), 0, 0, 0, 0, 0.0)
