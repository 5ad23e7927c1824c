"""Writes the changed rows of one Spark task, as Arrow batches, to remote logs and returns a `RowsReport`."""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Callable, Deque, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Tuple

import pyarrow as pa

from mirror_lib.errors import FencedError
from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.connection import Disconnected, Future, LogClient, Network, metadata_request
from mirror_lib.kafka.fetcher import log_ends
from mirror_lib.ledger.records import OFFSETS_SKIPPED, Incident
from mirror_lib.replication.lane import Lanes
from mirror_lib.rows.columns import SOURCE, PartitionRows, partition_rows
from mirror_lib.rows.origin import Provenance
from mirror_lib.rows.partition import LaneReport, LaneTask, Ranges, RowPartition

log = logging.getLogger(__name__)

CONNECT_SECONDS = 30.0


class SourceTopics:
    """Finds topics of the micro-batch that were re-created, for one task, by requests to the cluster `alias`. `ids` are
    by topic, empty if brokers have none; then no broker is asked.

    Spark's Kafka source reads by name. A topic's id only changes when the topic is re-created: if the id is still the
    planned one after rows have come, the rows are of that topic.
    """

    def __init__(self, network: Network, alias: str, options: Mapping[str, Any], ids: Mapping[str, str]) -> None:
        self._client = LogClient(network, alias, options)
        self._ids = {topic: topic_id for topic, topic_id in ids.items() if topic_id}
        self._connected = False
        self._asked: Optional[Future] = None

    def ask(self) -> None:
        """Send the request about the rows that have come, without waiting. Raises `ClusterError`."""
        if self._ids and not self._connected:
            self._client.connect(time.monotonic() + CONNECT_SECONDS)
            self._connected = True
        self._asked = self._client.send(None, metadata_request(self._ids)) if self._ids else None

    def waits(self) -> bool:
        return self._asked is not None and not self._asked.is_done

    def others(self) -> FrozenSet[str]:
        """The topics that were re-created, by the answer to the last `ask`. Raises `Disconnected`."""
        if self._asked is not None and not self._asked.succeeded():
            raise Disconnected(f"{self._client.alias}: {self._asked.exception}")
        if self._asked is not None:
            self._client.learn(self._asked.value)
        return frozenset(topic for topic, topic_id in self._ids.items() if self._client.is_another(topic, topic_id))

    def close(self) -> None:
        self._client.close()


QUEUE_BYTES = 8 * 1024 * 1024
WAIT_MS = 100.0
# The longest poll (ms) while rows wait for a lane whose answer is about to come.
BUSY_MS = 1.0
# How long a newly opened lane retries an unavailable target.
PATIENCE_SECONDS = 30.0
MOST_FAILED = 10
NO_SUCH_ORIGIN = (
    "the flow gives a record of it, which is not in this micro-batch; `transform` must leave topic, partition and "
    "offset as they are"
)
NO_SUCH_PLACE = "the flow gives it a place that is not one of the flow's, where it would be lost"

# A remote partition; and the source partition, if the lane has only its rows.
LaneKey = Tuple[TopicPartition, Optional[TopicPartition]]


@dataclass(frozen=True)
class RowsPlan:
    """The part of a stage's plan that every task gets.

    `read` is the micro-batch, and `ranges` the part of it to write; other rows are excluded. `lanes` are all that rows
    may need. Rows without a remote partition go to `only_remote` of their source partition; rows without a topic are of
    `only_topic`. Without `provenance` records get no origin, and repeated rows are written again. `skips`: a failed row
    without a remote partition is skipped. `source_ids` are the ids of the source's topics, if they have any.
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


@dataclass(frozen=True)
class RowsReport:
    """The result of a task. `broken`: it ended early, and the fate of its records in flight is unknown. `fenced`:
    another driver fenced a lane. `retried`: it was not the first attempt, so producers from before it are invalid.
    `failed`: the first rows that became no record and have no lane to report it. `rows`: how many rows it got."""

    task: int
    lanes: Tuple[LaneReport, ...]
    fenced: bool = False
    broken: bool = False
    retried: bool = False
    failed: Tuple[Tuple[TopicPartition, int, str], ...] = ()
    incidents: Tuple[Incident, ...] = ()
    rows: int = 0


class RowSource:
    """The rows of one Spark task, from the `batches` that Spark gives it, for the lanes that they need.

    `start` opens a lane. `rows` counts the rows that came. `failed` are rows that became no record and have no lane to
    report it. `other` is a topic that was re-created meanwhile, so no further rows of the task are taken.
    """

    def __init__(
        self,
        plan: RowsPlan,
        batches: Iterable[pa.RecordBatch],
        topics: SourceTopics,
        start: Callable[[RowPartition], None],
    ) -> None:
        self.lanes: Dict[LaneKey, RowPartition] = {}
        self.failed: List[Tuple[TopicPartition, int, str]] = []
        self.incidents: List[Incident] = []
        self.other: Optional[str] = None
        self.rows = 0
        self._plan = plan
        self._batches = iter(batches)
        self._topics = topics
        self._start = start
        # Rows that have come and have no lane yet.
        self._coming: Deque[PartitionRows] = deque()
        self._by_remote: Dict[TopicPartition, List[RowPartition]] = {}
        self._exhausted = False

    def poll(self) -> float:
        if self._ends():
            return WAIT_MS
        if not self._coming:
            if self._queued() > QUEUE_BYTES:
                return WAIT_MS
            batch = next(self._batches, None)
            if batch is None:
                self._exhausted = True
                return WAIT_MS
            self.rows += batch.num_rows
            # The rows may be of a re-created topic of that name.
            self._topics.ask()
            self._coming.extend(partition_rows(_widened(batch, self._plan.only_topic), self._plan.provenance))
        # Earlier rows are still appended while the answer is pending.
        if self._topics.waits():
            return WAIT_MS
        self.other = min(self._topics.others(), default=None)
        while self._coming and self.other is None and self._take(self._coming[0]):
            self._coming.popleft()
        return BUSY_MS if self._coming else 0

    def ended(self, idle: bool) -> bool:
        return self._ends() and idle and not self._queued()

    def _ends(self) -> bool:
        return self._exhausted or self.other is not None

    def _queued(self) -> int:
        return sum(lane.queued_bytes for lane in self.lanes.values() if lane.stopped is None)

    def _take(self, rows: PartitionRows) -> bool:
        """Give rows to their lane; False if the lane must wait for another one."""
        source, plan = rows.source, self._plan
        begin, end = plan.read.get(source, (0, 0))
        reported = [at for at, _ in rows.failures]
        reported += [rows.rows.first, rows.rows.last] if len(rows.rows) else []
        strange = [at for at in reported if not begin <= at < end]
        if strange:
            self.failed.append((source, strange[0], NO_SUCH_ORIGIN))
            return True
        if source not in plan.ranges:
            return True
        remote = rows.remote or plan.only_remote.get(source)
        key = next((each for each in ((remote, source), (remote, None)) if each in plan.lanes), None)
        if key is not None and key[0] is not None:
            # Requests and answers name only a partition, so one lane at a time has a batch in flight to it.
            if any(other.busy and other.lane != key for other in self._by_remote.get(key[0], ())):
                return False
            self._lane((key[0], key[1])).take(source, rows.rows, rows.failures)
            return True
        if len(rows.rows):
            self.failed.append((source, rows.rows.first, NO_SUCH_PLACE))
        # A failure in a lane of several source partitions, or of a row without a remote partition.
        begin, end = plan.ranges[source]
        own = [each for each in rows.failures if begin <= each[0] < end]
        if plan.skips:
            self.incidents += [Incident(OFFSETS_SKIPPED, *source, at, at + 1, why) for at, why in own]
        else:
            self.failed += [(source, at, why) for at, why in own]
        return True

    def _lane(self, key: LaneKey) -> RowPartition:
        if key not in self.lanes:
            # Recorded before it is fenced: after any error the driver then has the last producer.
            self.lanes[key] = lane = RowPartition(self._plan.lanes[key], self._plan.ranges, self._plan.skips)
            self._by_remote.setdefault(lane.remote, []).append(lane)
            self._start(lane)
        return self.lanes[key]


class RowWriter:
    """One attempt at one task's rows. `retried`: an earlier attempt may still be running."""

    def __init__(self, plan: RowsPlan, number: int, retried: bool) -> None:
        self._plan = plan
        self._number = number
        self._retried = retried
        self._network = Network()
        self._client = LogClient(self._network, plan.target_alias, plan.target_options)
        self._topics = SourceTopics(self._network, plan.source_alias, plan.source_options, plan.source_ids)
        known = {} if retried else {key: task.producer for key, task in plan.lanes.items() if task.producer is not None}
        self._lanes: Lanes[RowPartition] = Lanes(
            self._client,
            self._recover,
            held=known,
            producers={key: producer for key, producer in known.items() if plan.lanes[key].sequence is not None},
        )
        self._ends: Optional[Mapping[TopicPartition, int]] = None

    def run(self, batches: Iterable[pa.RecordBatch]) -> RowsReport:
        """Append until there are no more rows. A broken connection ends it early: the driver then runs the stage
        again."""
        fenced = broken = False
        source = RowSource(self._plan, batches, self._topics, self._start)
        try:
            self._lanes.pump(source)
            if source.other is not None:  # what was appended of the old topic counts
                raise Disconnected(f"{source.other} was deleted and created again meanwhile")
            self._refence(source)
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
        ended = broken or fenced
        return RowsReport(
            task=self._number,
            lanes=tuple(lane.lane_report(ended, self._lanes.held.get(key)) for key, lane in source.lanes.items()),
            fenced=fenced,
            broken=broken,
            retried=self._retried,
            failed=tuple(source.failed[:MOST_FAILED]),
            incidents=tuple(source.incidents),
            rows=source.rows,
        )

    def _refence(self, source: RowSource) -> None:
        """Fence again after all rows are written. If that fails, the next task reads the remote logs first."""
        try:
            self._lanes.refence()
        except Disconnected as error:
            log.warning("%s task %d: %s; the next task reads the remote logs", self._plan.flow, self._number, error)
            for lane in source.lanes.values():
                lane.doubt()

    def _start(self, lane: RowPartition) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        self._lanes.open([lane], deadline, self._connected(deadline))

    def _recover(self, lanes: Sequence[RowPartition]) -> None:
        for lane in lanes:
            lane.recover(self._client, self._plan.provenance)

    def _connected(self, deadline: float) -> Mapping[TopicPartition, int]:
        """Connect; return the ends of the logs of all lanes before this task's appends."""
        if self._ends is None:
            remotes = {task.remote for task in self._plan.lanes.values()}
            self._client.connect(deadline)
            self._client.refresh_leaders(remotes, deadline)
            self._ends = log_ends(self._client, remotes)
        return self._ends


def _widened(rows: pa.RecordBatch, topic: str) -> pa.RecordBatch:
    """Add the columns topic and failure to rows that came without."""
    reported = dict(zip(rows.schema.names, rows.columns))
    reported.setdefault(SOURCE[0], pa.repeat(topic, rows.num_rows))
    reported.setdefault("failure", pa.nulls(rows.num_rows, pa.string()))
    return pa.RecordBatch.from_arrays(list(reported.values()), names=list(reported))
