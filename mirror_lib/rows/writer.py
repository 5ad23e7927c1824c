"""Writes the changed rows of one Spark task, as Arrow batches, to remote logs and returns a `RowsReport`."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, FrozenSet, Iterable, List, Mapping, Optional, Tuple

import pyarrow as pa

from mirror_lib.errors import FencedError
from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.connection import Disconnected, Future, LogClient, Network, name_of
from mirror_lib.kafka.fencing import AnswerLost, HeldLane, fence, idempotent_producer, refresh
from mirror_lib.kafka.fetcher import log_ends
from mirror_lib.kafka.producer import Appender
from mirror_lib.kafka.record_batch import Producer
from mirror_lib.ledger.records import OFFSETS_SKIPPED, Incident
from mirror_lib.replication.messages import EPOCH_KEPT_SECONDS
from mirror_lib.rows.columns import SOURCE, PartitionRows, partition_rows
from mirror_lib.rows.origin import Provenance
from mirror_lib.rows.partition import Lane, LaneReport, LaneTask, Ranges

log = logging.getLogger(__name__)

CONNECT_SECONDS = 30.0


class SourceTopics:
    """Which topics that a micro-batch is of are others by now. One task's, which asks the cluster `alias`. `ids` are by
    topic, empty where brokers have none; nobody is asked then.

    Spark's Kafka source reads by name. An id only ever changes to a later topic's: where it is the planned one after
    rows have come, they came from that topic.
    """

    def __init__(self, network: Network, alias: str, options: Mapping[str, Any], ids: Mapping[str, str]) -> None:
        self._client = LogClient(network, alias, options)
        self._ids = {topic: topic_id for topic, topic_id in ids.items() if topic_id}
        self._connected = False
        self._asked: Optional[Future] = None

    def ask(self) -> None:
        """Ask about the rows that have come, without waiting. Raises `ClusterError`."""
        if self._ids and not self._connected:
            self._client.connect(time.monotonic() + CONNECT_SECONDS)
            self._connected = True
        self._asked = self._client.ask_ids(self._ids) if self._ids else None

    def waits(self) -> bool:
        """Whether the answer has not come yet."""
        return self._asked is not None and not self._asked.is_done

    def others(self) -> FrozenSet[str]:
        """Those that were deleted and created again, by the answer to the last `ask`. Raises `Disconnected`."""
        if self._asked is None:
            return frozenset()
        now = self._client.told_ids(self._asked)
        return frozenset(topic for topic, topic_id in self._ids.items() if now.get(topic, topic_id) != topic_id)

    def close(self) -> None:
        """Close its connections."""
        self._client.close()


QUEUE_BYTES = 8 * 1024 * 1024
# How long to wait for an answer before what is in flight is given up, and looked for by whoever fences next.
PATIENCE_SECONDS = 30.0
MOST_FAILED = 10
NO_SUCH_ORIGIN = (
    "the flow gives a record of it, which is not in this micro-batch; `transform` must leave topic, partition and "
    "offset as they are"
)
NO_SUCH_PLACE = "the flow gives it a place that is not one of the flow's, where it would be lost"

# A remote partition, and the source partition where only its rows go by the lane.
LaneKey = Tuple[TopicPartition, Optional[TopicPartition]]


@dataclass(frozen=True)
class RowsPlan:
    """What every task of a stage is told.

    `read` is the micro-batch, and `ranges` what of it is to be written; its other rows are left out. `lanes` are all
    that rows may need. Rows without a remote partition go to `only_remote` of their source partition, those without a
    topic are of `only_topic`. Without `provenance` records get no origin, and what is done again is written again.
    `skips`: a row that failed and has no place is left out. `source_ids` are those of the source's topics, as far as
    they have any.
    """

    flow: str
    provenance: Optional[Provenance]
    read: Ranges
    ranges: Ranges
    lanes: Mapping[LaneKey, LaneTask]
    source_alias: str
    target_alias: str
    source_options: Mapping[str, Any] = field(repr=False)
    target_options: Mapping[str, Any] = field(repr=False)
    only_remote: Mapping[TopicPartition, TopicPartition] = field(default_factory=dict)
    only_topic: str = ""
    skips: bool = False
    source_ids: Mapping[str, str] = field(default_factory=dict)
    epoch_kept_seconds: float = EPOCH_KEPT_SECONDS


@dataclass(frozen=True)
class RowsReport:
    """What became of a task. `broken`: it ended early, and nobody knows what became of what was in flight. `fenced`:
    another driver took a lane over. `retried`: it was not the first attempt, so that producers of before it are void.
    `failed`: the first rows that became no record and have no lane to tell it."""

    task: int
    lanes: Tuple[LaneReport, ...]
    fenced: bool = False
    broken: bool = False
    retried: bool = False
    failed: Tuple[Tuple[TopicPartition, int, str], ...] = ()
    incidents: Tuple[Incident, ...] = ()


class RowWriter:
    """One attempt at one task's rows. `retried`: an earlier one may be alive."""

    def __init__(self, plan: RowsPlan, number: int, retried: bool) -> None:
        self._plan = plan
        self._number = number
        self._retried = retried
        self._network = Network()
        self._client = LogClient(self._network, plan.target_alias, plan.target_options)
        self._appender = Appender(self._client)
        self._topics = SourceTopics(self._network, plan.source_alias, plan.source_options, plan.source_ids)
        self._open: Dict[LaneKey, Lane] = {}
        self._by_remote: Dict[TopicPartition, List[Lane]] = {}
        self._idempotent: Optional[Producer] = None
        self._ends: Optional[Mapping[TopicPartition, int]] = None
        self._failed: List[Tuple[TopicPartition, int, str]] = []
        self._incidents: List[Incident] = []

    def run(self, batches: Iterable[pa.RecordBatch]) -> RowsReport:
        """Append until there are no more rows. A broken connection ends it early: the driver then asks again."""
        fenced = broken = False
        try:
            for batch in batches:
                self._append(batch)
            self._pump(0)
            self._mark_again()
        except FencedError as error:
            log.warning("%s task %d: %s", self._plan.flow, self._number, error)
            fenced = True
        except Disconnected as error:
            log.warning("%s task %d: %s; its driver tries again", self._plan.flow, self._number, error)
            broken = True
        finally:
            self._client.close()
            self._topics.close()
            self._network.close()
        lanes = tuple(lane.report(broken or fenced) for lane in self._open.values())
        return RowsReport(
            task=self._number,
            lanes=lanes,
            fenced=fenced,
            broken=broken,
            retried=self._retried,
            failed=tuple(self._failed[:MOST_FAILED]),
            incidents=tuple(self._incidents),
        )

    def _append(self, batch: pa.RecordBatch) -> None:
        batch = _widened(batch, self._plan.only_topic)
        self._check_topics()
        for stretch in partition_rows(batch, self._plan.provenance):
            self._take(stretch)
        self._pump(QUEUE_BYTES)

    def _check_topics(self) -> None:
        """Raise `Disconnected` where rows that have come may be of another topic that was given the name meanwhile: the
        driver finds out."""
        self._topics.ask()
        # What came before these rows goes on being appended while the answer is under way.
        self._pump(QUEUE_BYTES, self._topics.waits)
        others = self._topics.others()
        if others:
            self._pump(0)  # what was appended of the old topic counts
            raise Disconnected(f"{min(others)} was deleted and created again meanwhile")

    def _take(self, stretch: PartitionRows) -> None:
        source, plan = stretch.source, self._plan
        begin, end = plan.read.get(source, (0, 0))
        told = [at for at, _ in stretch.failures]
        told += [stretch.rows.first, stretch.rows.last] if len(stretch.rows) else []
        strange = [at for at in told if not begin <= at < end]
        if strange:
            self._failed.append((source, strange[0], NO_SUCH_ORIGIN))
            return
        if source not in plan.ranges:
            return
        remote = stretch.remote or plan.only_remote.get(source)
        key = next((each for each in ((remote, source), (remote, None)) if each in plan.lanes), None)
        if key is not None and key[0] is not None:
            lane = self._lane((key[0], key[1]))
            # Requests and answers name a partition alone, so one lane at a time has something under way to it.
            if any(other is not lane and other.busy for other in self._by_remote[lane.remote]):
                self._pump(0)
            lane.take(source, stretch.rows, stretch.failures)
            return
        if len(stretch.rows):
            self._failed.append((source, stretch.rows.first, NO_SUCH_PLACE))
        # A failure in a lane of several source partitions, or of a row whose place is not known.
        begin, end = plan.ranges[source]
        own = [each for each in stretch.failures if begin <= each[0] < end]
        if plan.skips:
            self._incidents += [Incident(OFFSETS_SKIPPED, *source, at, at + 1, why) for at, why in own]
        else:
            self._failed += [(source, at, why) for at, why in own]

    def _lane(self, key: LaneKey) -> Lane:
        if key not in self._open:
            # Known before it is fenced: whatever breaks then, its driver is told which producer it came to.
            self._open[key] = lane = Lane(self._plan.lanes[key], self._plan.ranges, self._plan.skips)
            self._by_remote.setdefault(lane.remote, []).append(lane)
            self._begin(lane)
        return self._open[key]

    def _begin(self, lane: Lane) -> None:
        task, deadline = lane.task, time.monotonic() + PATIENCE_SECONDS
        end = self._connected(deadline).get(task.remote)
        if end is None:
            raise Disconnected(f"{self._client.alias}: {name_of(task.remote)} does not tell the end of its log")
        if end < task.downstream_offset:  # before a fence, whose marker would fill the place of what was lost
            lane.ends_early(end)
        elif task.producer is not None and task.sequence is not None and not self._retried:
            lane.go_on(end)
        else:
            lane.producer = self._fenced(task, deadline)
            lane.take_over(self._client, self._plan.provenance)

    def _fenced(self, task: LaneTask, deadline: float) -> Producer:
        """A new producer of the lane, after which no earlier one can append. Only who has the lane by his driver's word
        may be told that somebody else took it over; a further attempt takes it over from the one before."""
        if task.transactional_id is None:
            self._idempotent = self._idempotent or idempotent_producer(self._client, deadline)
            return self._idempotent
        held = None if self._retried else task.producer
        partitions = {task.remote[0]: [task.remote[1]]}
        return fence(self._client, task.transactional_id, partitions, deadline, held)

    def _connected(self, deadline: float) -> Mapping[TopicPartition, int]:
        """The ends of the logs of all lanes, as they were before this task appended."""
        if self._ends is None:
            remotes = {task.remote for task in self._plan.lanes.values()}
            self._client.connect(deadline)
            self._client.refresh_leaders_of(remotes, deadline)
            self._ends = log_ends(self._client, remotes)
        return self._ends

    def _pump(self, most_bytes: int, waits: Callable[[], bool] = lambda: False) -> None:
        """Send and receive until no more than `most_bytes` wait to be sent, with 0 until all is acknowledged, and while
        something else `waits`. Raises `Disconnected`, and `FencedError` where a lane is lost."""
        lanes = list(self._open.values())
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            # First of all: what came while somebody waited for another answer would not end the wait below.
            for ack in self._appender.acknowledgements():
                next(lane for lane in self._by_remote[ack.remote] if lane.waits).acknowledge(ack)
                deadline = time.monotonic() + PATIENCE_SECONDS
            self._appender.pump(lanes)
            waiting = sum(lane.queued_bytes for lane in lanes if lane.stopped is None)
            if waiting <= most_bytes and (most_bytes or self._appender.idle()) and not waits():
                return
            if time.monotonic() > deadline:
                raise Disconnected(f"{self._client.alias}: no answer to what was appended in {PATIENCE_SECONDS:.0f} s")
            self._network.poll(100)

    def _mark_again(self) -> None:
        """Fence again behind old records: by their timestamps a broker would soon forget the lane's epoch. Nothing is
        in flight. Killed in here, markers are left, which whoever comes next passes over."""
        before = (time.time() - self._plan.epoch_kept_seconds) * 1000
        aged = {str(lane.task.transactional_id): lane for lane in self._open.values() if lane.forgettable(before)}
        if not aged:
            return
        held = [
            HeldLane(name, lane.producer, {lane.remote[0]: [lane.remote[1]]})
            for name, lane in aged.items()
            if lane.producer is not None
        ]
        renewed: Mapping[str, Producer] = {}
        ends: Mapping[TopicPartition, int] = {}
        try:
            renewed = refresh(self._client, held, time.monotonic() + PATIENCE_SECONDS)
            ends = log_ends(self._client, [lane.remote for lane in aged.values()])
        except Disconnected as error:
            log.warning("%s task %d: %s; the next one looks", self._plan.flow, self._number, error)
            if isinstance(error, AnswerLost):  # nobody knows which producer the lane came to
                for lane in aged.values():
                    lane.producer = None
        for name, lane in aged.items():
            lane.marked(renewed.get(name), ends.get(lane.remote))


def _widened(rows: pa.RecordBatch, topic: str) -> pa.RecordBatch:
    """Rows with a topic and a failure, where they came without."""
    told = dict(zip(rows.schema.names, rows.columns))
    told.setdefault(SOURCE[0], pa.repeat(topic, rows.num_rows))
    told.setdefault("failure", pa.nulls(rows.num_rows, pa.string()))
    return pa.RecordBatch.from_arrays(list(told.values()), names=list(told))
