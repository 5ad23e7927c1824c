"""Runs a row flow in one driver process: configures its query, and writes and records each micro-batch.

Order of effects for a micro-batch: fence lanes, read their remote logs back, append rows, commit to the ledger. After a
crash at any point the next driver starts its query at the ledger's positions and finds written rows by their origins.
Spark reads the rows of a micro-batch at full speed. So a rate limits its size to about five seconds of the rate, and
the next one waits until the bytes read are within the rate. Bytes are counted uncompressed.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import abstractmethod
from dataclasses import replace
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from mirror_lib.config.client_options import kafka_python_options
from mirror_lib.config.model import ReplicationFlow
from mirror_lib.config.record_change import RecordChange
from mirror_lib.errors import ClusterError, MirrorError
from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.fetch_quota import TokenBucket
from mirror_lib.ledger.intervals import Runs
from mirror_lib.replication.flow import FlowContext, Mirror
from mirror_lib.replication.flow_state import Lag, Partitions, fenced, metrics_of
from mirror_lib.replication.journal import NO_BATCH, BatchRef
from mirror_lib.replication.messages import PartitionReport, TaskReport, nothing_copied
from mirror_lib.replication.tail import LEFT_OUT_SECONDS
from mirror_lib.replication.task_plans import LaneState, rate_limited
from mirror_lib.rows.origin import Provenance, origin_cluster
from mirror_lib.rows.partition import LaneReport, LaneTask, Ranges
from mirror_lib.rows.stage import append_rows
from mirror_lib.rows.transform import RemoteNames, changed, filtered, needless
from mirror_lib.rows.writer import LaneKey, RowsPlan, RowsReport
from mirror_lib.spark.jobs import named

log = logging.getLogger(__name__)

BATCH_SECONDS = 5.0
# The most offsets of a micro-batch without a rate: some seconds of copying, as a micro-batch costs about one more.
MOST_OFFSETS = 2_000_000
FEWEST_OFFSETS = 1_000
# The size of records is unknown before the first micro-batch; brokers' default limit is assumed. A later micro-batch is
# at most RESIZE times as large.
LARGEST_RECORD = 1024 * 1024
GROWTH = 20
# A query keeps its limit unless the right one is this many times smaller or larger.
RESIZE = 3
# The longest single wait, so that a stop is noticed.
WAIT_SECONDS = 0.5
# The column of an observation.
BYTES = "bytes"
# Bytes of lengths, deltas and attributes of a record (format v2), and its part of a batch's header.
AROUND = 12
# Spark compiles these expressions, but runs a lambda row by row. So the bytes of headers are counted in one text.
_HEADERS = tuple(f"octet_length(array_join(cast(headers.{part} as array<string>), ''))" for part in ("key", "value"))
_CONTENT = " + ".join(f"coalesce({part}, 0)" for part in ("octet_length(key)", "octet_length(value)", *_HEADERS))
_BYTES = f"cast({AROUND} + {_CONTENT} as bigint)"


class RowQuota:
    """Keeps one flow's micro-batches within its rate. Not thread-safe. The caller gives the clock."""

    def __init__(self, flow: ReplicationFlow, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = flow.batch_max_seconds
        self._clock = clock
        self._rate = flow.max_bytes_per_second
        self._bucket = None if self._rate is None else TokenBucket(self._rate, 0.0, clock())
        self._observed: Optional[Observation] = None
        self._most = MOST_OFFSETS
        # The bytes per offset and the offsets of the last micro-batch.
        self._record_bytes = float(LARGEST_RECORD)
        self._last = 0
        self._waited = 0.0

    def offsets(self) -> int:
        """How many offsets a micro-batch may have now."""
        most = self._most
        if self._rate is not None and self._record_bytes:
            most = min(most, int(self._rate * BATCH_SECONDS / self._record_bytes))
        if self._rate is not None and self._last:
            most = min(most, self._last * GROWTH)
        return max(1, most)

    def resize(self, present: int) -> bool:
        """Whether micro-batches limited to `present` offsets should get another limit."""
        wanted = self.offsets()
        return wanted * RESIZE <= present or (wanted >= present * RESIZE and self._last * 2 >= present)

    def counted(self, rows: DataFrame) -> DataFrame:
        """`rows` of Spark's Kafka source; with a rate the next action counts their bytes."""
        if self._rate is None:
            return rows
        self._observed = Observation()
        return rows.observe(self._observed, F.sum(F.expr(_BYTES)).alias(BYTES))

    def pay(self, offsets: int, seconds: float) -> None:
        """Deduct the bytes that a successful action read."""
        slow, quick = seconds > self._seconds * RESIZE, seconds * RESIZE < self._seconds
        if slow or (quick and offsets * 2 >= self._most):
            wanted = int(offsets / max(seconds, 0.1) * self._seconds)
            self._most = max(FEWEST_OFFSETS, min(wanted, MOST_OFFSETS))
        self._last = offsets
        if self._bucket is not None and self._observed is not None:
            nbytes = int(self._observed.get[BYTES] or 0)
            self._bucket.spend(nbytes, self._clock())
            self._record_bytes = nbytes / offsets

    def wait(self, stop: threading.Event) -> None:
        """Return when the rate is not in debt, or the flow must stop."""
        self._waited = 0.0
        while self._bucket is not None and not stop.is_set():
            balance = self._bucket.balance(self._clock())
            if balance >= 0:
                return
            seconds = min(-balance / self._bucket.rate, WAIT_SECONDS)
            time.sleep(seconds)
            self._waited += seconds

    def word(self, seconds: float) -> Optional[str]:
        """The rate, for the status, if it delayed a micro-batch of `seconds` after the last wait; else `None`."""
        return rate_limited(self._rate, self._waited, seconds + self._waited)


def _come_again(found: Sequence[RowsReport]) -> Mapping[TopicPartition, int]:
    """The offset from which on the rows of source partitions come again: those that stopped before their last row.
    Later ones may be in the dead letter topic."""
    lanes = (lane for report in found for lane in report.lanes)
    return {lane.source: lane.part.position for lane in lanes if lane.source and lane.part.stopped is not None}


def _before(part: PartitionReport, offset: int) -> Optional[PartitionReport]:
    """The part of a lane of dead letters before the upstream `offset`, if there is one."""
    runs, end, count = Runs(), part.downstream_offset, 0
    for run in Runs(part.syncs):
        own = min(run.upstream_end, offset) - run.upstream_offset
        if own > 0:
            runs.append(run.upstream_offset, run.downstream_offset, own)
            end, count = run.downstream_offset + own, count + own
    return replace(part, syncs=runs.tobytes(), downstream_offset=end, records=count, recovered=0) if count else None


# How long a micro-batch without progress is retried, and the wait before each retry.
PATIENCE_SECONDS = 120.0
RETRY_SECONDS = 0.5
AT_LEAST_ONCE = "%s: without provenance what an interrupted attempt has written is written again"


class RowMirror(Mirror):
    """Copies one row flow. Construction also raises `ConfigError` and `RefusedError`. A micro-batch of the present
    query has at most `most_offsets`."""

    def __init__(self, context: FlowContext) -> None:
        flow = context.flow
        self._change = flow.change or RecordChange()
        super().__init__(context)
        self._quota = RowQuota(flow)
        self._held: Dict[LaneKey, LaneState] = {}
        self._counts: Dict[str, int] = {}
        # The upstream offset up to which the query has read each source partition.
        self._read_to: Dict[TopicPartition, int] = {}
        # The partitions of the query.
        self._partitions: Partitions = {}
        self._begun_at = time.monotonic()
        self.most_offsets = 0
        self._cycles = 0
        if not self._change.provenance:
            log.warning(AT_LEAST_ONCE, flow.name)

    def begin(self) -> Mapping[TopicPartition, int]:
        """Read both clusters and decide where each partition resumes. Returns the start of each partition that the
        flow's query must read; none if all are stopped. All prerequisites of the copy are then in the ledger."""
        self._journal.batch = NO_BATCH
        self._partitions = self._refreshed()
        self._begun_at = time.monotonic()
        self._look_up_counts()
        starts = self._begin()
        self._read_to = dict(starts)
        self.most_offsets = self._quota.offsets()
        return starts

    def filtered(self, rows: DataFrame) -> DataFrame:
        """The `rows` read by the query that reach `copy_rows`: those that `where` accepts.

        A filter in the query drops a row before Spark copies it for `foreachBatch`. With a rate all rows must be
        counted first, and a `transform` is called for each micro-batch. In both cases all rows are passed on.
        """
        early = self._change.where is not None and self._change.transform is None
        # Faults of a filter were found at construction.
        return filtered(rows, self._change, again=True) if early and self.flow.max_bytes_per_second is None else rows

    def outdated(self) -> bool:
        """Whether the query no longer reads what it should, so that it must be restarted."""
        if self._quota.resize(self.most_offsets):
            return True
        if self._left_out() and time.monotonic() - self._begun_at > LEFT_OUT_SECONDS:
            return True
        return self._topics.present().keys() != self._partitions.keys() or self._topics.has_news

    def copy_rows(
        self,
        rows: DataFrame,
        batch: BatchRef,
        ends: Mapping[TopicPartition, int],
        rows_read: Callable[[], Optional[int]],
    ) -> None:
        """Write the rows of a micro-batch, which ends before the offsets `ends`. `rows_read`: how many rows Spark has
        read in it, in all its stages. Raises `FencedError` if another driver fenced this one, `ClusterError` if a
        cluster stays unavailable, `MirrorError` if a record stops the flow."""
        self._journal.batch = batch
        self._quota.wait(self._stop)
        if self._endless:
            # The query may last for months. A bounded run copies what the source held at its start.
            logs = self._source.offsets(list(ends), self.flow.isolation_level)
            self._learn_ends({source: log.end for source, log in logs.items()})
        read = {source: (self._read_to[source], end) for source, end in ends.items()}
        self._read_to.update(ends)
        ranges, offsets, started = self._ranges(ends), None, time.monotonic()
        for (topic, number), (at, _) in ranges.items():
            if at < read[(topic, number)][0]:
                # The query has read past the written rows while another process copied: its rows would be lost.
                beyond = f"{topic}-{number} was read beyond offset {at}, where its copy ends"
                raise ClusterError(f"{self.flow.name}: {beyond}", "the next start resumes there")
        deadline, counted = started + PATIENCE_SECONDS, 0
        while ranges and not self._stop.is_set():
            offsets = offsets or sum(end - at for at, end in ranges.values())
            began, mono, read_before = time.time(), time.monotonic(), rows_read()
            found = self._stage(rows, read, ranges, began)
            if self._is_whole(found):
                filtered = self._filtered(read_before, rows_read(), found)
                # A further stage reads all rows of the micro-batch again.
                new = None if filtered is None else filtered - counted
                self._settle(found, ranges, time.monotonic() - mono, new)
                counted = filtered or 0
                deadline = time.monotonic() + PATIENCE_SECONDS
                ranges = self._ranges(ends)
            elif time.monotonic() > deadline:
                raise ClusterError(f"{self.flow.name}: no task completed", "see the executors' logs")
            else:
                time.sleep(RETRY_SECONDS)
                self._topics.refresh()
                if self._topics.partitions.keys() != self._partitions.keys():
                    raise ClusterError(f"{self.flow.name}: its topics have changed")
        if offsets is not None and not self._stop.is_set():
            self._quota.pay(offsets, time.monotonic() - started)

    def behind(self) -> bool:
        """Whether the source had more at the last check than is copied now."""
        return any(at < end for at, end in self._lag().values())

    def show_end(self) -> None:
        """Show the flow's metrics. Call it when the query has ended, or there was nothing to read."""
        self._journal.batch = NO_BATCH
        self._show([], 0.0)

    @abstractmethod
    def _lag(self) -> Lag: ...

    @abstractmethod
    def _learn_ends(self, ends: Mapping[TopicPartition, int]) -> None:
        """Measure the lag against these ends of the source's logs."""

    @abstractmethod
    def _begin(self) -> Mapping[TopicPartition, int]: ...

    @abstractmethod
    def _left_out(self) -> bool:
        """Whether a partition that the query does not read may resume later."""

    @abstractmethod
    def _ranges(self, ends: Mapping[TopicPartition, int]) -> Dict[TopicPartition, Tuple[int, int]]:
        """The offsets of each source partition still to copy before `ends`, without empty ranges."""

    def _idle(self) -> Ranges:
        """Empty ranges of source partitions whose records an earlier attempt may have written."""
        return {}

    @abstractmethod
    def _lanes(self, ranges: Ranges) -> List[LaneTask]: ...

    @abstractmethod
    def _settle(self, found: Sequence[RowsReport], ranges: Ranges, seconds: float, filtered: Optional[int]) -> None:
        """Record the results of a stage whose tasks have all completed. `filtered`: see `FlowMetrics`."""

    @abstractmethod
    def _shuffled(self, rows: DataFrame) -> DataFrame: ...

    def _filtered(self, before: Optional[int], after: Optional[int], found: Sequence[RowsReport]) -> Optional[int]:
        """How many rows of a stage's micro-batch reached no task. `None` if unknown."""
        drops = self._change.where is not None or self._change.transform is not None
        if not drops or before is None or after is None:
            return None
        return after - before - sum(report.rows for report in found)

    def _task_report(self, report: RowsReport, seconds: float) -> TaskReport:
        """The report of a task's copies, without its dead letters. A task measures only its appends: Spark read and
        changed the rows before, for all partitions of the micro-batch."""
        topics = {each.remote_topic: each.topic for each in self._partitions.values()}
        lanes = [lane for lane in report.lanes if not self._is_dead(lane.remote)]
        return replace(
            nothing_copied(report.task),
            partitions=tuple(
                replace(lane.part, topic=topics[lane.remote[0]], seconds=seconds if lane.part.records else 0.0)
                for lane in lanes
            ),
            seconds=seconds,
        )

    def _show(self, found: Sequence[RowsReport], seconds: float, filtered: Optional[int] = None) -> None:
        """Add the reports of a stage to the run's totals, and show the flow's metrics. `filtered`: see
        `FlowMetrics`."""
        reports = [self._task_report(report, seconds) for report in found]
        dead_letters: Optional[int] = None
        if self._change.dead_letter_topic is not None:
            dead_letters = sum(lane.part.records + lane.part.recovered for lane in self._dead_lanes(found))
        self._count(reports, filtered, dead_letters)
        newest: Dict[TopicPartition, int] = {}
        for topic, number, at in (each for report in found for lane in report.lanes for each in lane.newest):
            newest[(topic, number)] = max(at, newest.get((topic, number), -1))
        name, uncounted = self.flow.name, self._topics.plan.uncounted
        metrics = metrics_of(name, self._journal.batch.batch_id, reports, self._lag(), seconds, uncounted, newest)
        self._watch(replace(metrics, filtered=filtered, dead_letters=dead_letters), self._quota.word(seconds))

    def _dead_lanes(self, found: Sequence[RowsReport]) -> List[LaneReport]:
        """The reports of the dead letter topic, without rows that come again."""
        again, lanes = _come_again(found), (lane for report in found for lane in report.lanes)
        kept: List[LaneReport] = []
        for lane in (each for each in lanes if self._is_dead(each.remote)):
            from_offset = None if lane.source is None else again.get(lane.source)
            part = lane.part if from_offset is None else _before(lane.part, from_offset)
            kept += [replace(lane, part=part)] if part is not None else []
        return kept

    def _stage(self, rows: DataFrame, read: Ranges, ranges: Ranges, began: float) -> List[RowsReport]:
        plan = self._plan(read, ranges, began)
        names = RemoteNames({each.topic: each.remote_topic for each in self._partitions.values()}, self._counts)
        made = changed(self._quota.counted(rows), self._change, names, again=self._cycles > 0)
        self._cycles += 1
        spark = rows.sparkSession
        try:
            with named(spark, f"{self.flow.name}: rows, cycle {self._cycles}"):
                found = append_rows(self._shuffled(made.drop(*needless(self._change, names))), plan)
        except MirrorError:
            self._held = {}  # the last producers of the tasks are unknown
            raise
        self._remember(found, began)
        return found

    def _plan(self, read: Ranges, ranges: Ranges, began: float) -> RowsPlan:
        flow, ids = self.flow, {each.topic: each.source_topic_id for each in self._partitions.values()}
        lanes: Dict[LaneKey, LaneTask] = {}
        for lane in self._lanes(ranges):
            held = self._held.get((lane.remote, lane.source), LaneState())
            sequence = held.current(began).sequences.get(lane.remote)
            lane = replace(lane, producer=held.producer, sequence=sequence)
            lanes[(lane.remote, lane.source)] = lane
        provenance = Provenance(origin_cluster(self._name, flow.source.alias), ids) if self._change.provenance else None
        return RowsPlan(
            flow=flow.name,
            provenance=provenance,
            read=read,
            ranges={**self._idle(), **ranges},
            lanes=lanes,
            source_alias=flow.source.alias,
            target_alias=flow.target.alias,
            source_options=kafka_python_options(flow.source.client_properties("consumer")),
            target_options=kafka_python_options(flow.target.client_properties("producer")),
            only_remote={source: remote for remote, source in lanes if source and not self._is_dead(remote)},
            only_topic=next(iter(ids)) if len(ids) == 1 else "",
            skips=flow.on_error == "skip",
            source_ids=ids,
        )

    def _transactional_id(self, remote: TopicPartition, source: Optional[TopicPartition] = None) -> Optional[str]:
        """The transactional id of a remote partition's lane, or of the lane of one source partition's records in it."""
        if self.flow.delivery != "exactly-once":
            return None
        places = (remote,) if source is None else (remote, source)
        return ".".join([self._name, self.flow.name, *(f"{topic}.{number}" for topic, number in places)])

    def _remember(self, found: Sequence[RowsReport], began: float) -> None:
        if any(report.retried for report in found):
            # An attempt without a report may have fenced lanes that no later attempt needed.
            self._held = {}
        # The same rows come again, and the lanes that wrote them must read them back.
        broken, again = any(report.broken for report in found), _come_again(found)
        for lane in (lane for report in found for lane in report.lanes):
            key, (topic, number) = (lane.remote, lane.source), lane.remote
            sequence = None if broken or lane.source in again else lane.part.sequence
            part = replace(lane.part, remote_topic=topic, partition=number, sequence=sequence)
            self._held[key] = self._held.get(key, LaneState()).after(lane.producer, [part], began)

    def _is_whole(self, found: Sequence[RowsReport]) -> bool:
        """Whether all tasks completed. Raises the error that ends the flow."""
        if any(report.fenced for report in found):
            raise fenced(self.flow.name)
        for report in found:
            for (topic, number), offset, reason in report.failed:
                raise MirrorError(
                    f"{self.flow.name}: {topic}-{number} at offset {offset}: {reason}",
                    "set dead.letter.topic for records that cannot be changed, or skip them by on.error: skip",
                    code="MIR-206",
                )
        for lane in (lane for report in found for lane in report.lanes if self._is_dead(lane.remote)):
            if lane.part.stopped is not None:
                refused = "the dead-letter topic refuses a record"
                raise MirrorError(f"{self.flow.name}: {refused}: {lane.part.stopped}", code="MIR-206")
        return not any(report.broken for report in found)

    def _appends_blindly(self) -> bool:
        """Whether the flow would append behind records that it cannot compare, and no operator named the offset."""
        choice = self.flow.start_position
        return not self._change.provenance and not (choice is not None and choice.offsets)

    def _is_dead(self, remote: TopicPartition) -> bool:
        return remote[0] == self._change.dead_letter_topic

    def _look_up_counts(self) -> None:
        """Read the partition counts of remote topics. Raises `ClusterError` if one does not exist."""
        there, dead = self._target.topics(), self._change.dead_letter_topic
        names = {each.remote_topic for each in self._partitions.values()}
        for name in names | ({dead} if dead is not None and names else set()):
            if name not in there:
                raise ClusterError(f"{self.flow.name}: there is no topic {name} on {self.flow.target.alias}")
            self._counts[name] = there[name].partitions

    def _dead_topic_id(self) -> str:
        found = self._target.topics().get(self._change.dead_letter_topic or "")
        return "" if found is None else found.topic_id
