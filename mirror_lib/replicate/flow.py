"""One flow in one driver's life: what is copied, where each partition stands, and the pass that moves it on.

Order of effects in a pass: anchors to the ledger, records to the remote logs, offset syncs to the ledger, and only
then this object's memory. Killed anywhere, the next driver finds the truth in the ledger and on the remote logs.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from dataclasses import replace
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from pyspark.sql import SparkSession

from mirror_lib.config.clients import kafka_python_options
from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.errors import ClusterError, FencedError
from mirror_lib.facts import Cluster, OffsetRange
from mirror_lib.plan import TopicPlan
from mirror_lib.progress import ProgressSnapshot
from mirror_lib.replicate.lane_state import LaneState
from mirror_lib.replicate.lanes import LanePlan, LaneReport, PartitionReport, PartitionTask, lane_of, transactional_id
from mirror_lib.replicate.ranges import Range, first_range, next_range
from mirror_lib.replicate.stage import run_lanes
from mirror_lib.replicate.topics import CopiedPartition, TopicWatch
from mirror_lib.state.incidents import IncidentTable
from mirror_lib.state.offset_syncs import OffsetSyncTable
from mirror_lib.state.records import Incident, LedgerRow, PartitionKey, Position

log = logging.getLogger(__name__)

STUCK_PASSES = 3

Watcher = Callable[[ProgressSnapshot], None]


class FlowMirror:
    """Copies a flow pass by pass. Not thread-safe: one caller at a time.

    `watcher` is called with a snapshot after each pass; `stop` ends a batch after the pass that runs.
    """

    def __init__(
        self,
        config: MirrorConfig,
        flow: ReplicationFlow,
        spark: SparkSession,
        source: Cluster,
        target: Cluster,
        watcher: Watcher,
        stop: threading.Event,
    ) -> None:
        self.flow = flow
        self.run_id = uuid.uuid4().hex
        self.records = 0
        self.bytes = 0
        self._config = config
        self._spark = spark
        self._source = source
        self._target = target
        self._watcher = watcher
        self._stop = stop
        self._ledger = OffsetSyncTable(spark, config.state)
        self._incidents = IncidentTable(spark, config.state)
        self._topics = TopicWatch(flow, config.flows, source, target)
        self._positions: Dict[PartitionKey, Position] = {}
        self._in_ledger: Mapping[PartitionKey, Position] = {}
        self._lanes: Dict[int, LaneState] = {}
        self._stopped: Dict[PartitionKey, PartitionReport] = {}
        self._isolate: Dict[PartitionKey, int] = {}
        self._appends = 0

    def load(self) -> List[Tuple[str, int]]:
        """Read where the ledger says each partition stands and make the remote topics ready, before the first batch.

        Returns the remote partitions."""
        self._in_ledger = self._ledger.positions(self.flow.name)
        return [each.remote for each in self._topics.refresh().values()]

    def known_positions(self) -> int:
        """How many partitions the ledger knew when it was loaded."""
        return len(self._in_ledger)

    def topic_plan(self) -> TopicPlan:
        """What is copied and what is skipped, as last looked up."""
        return self._topics.plan

    def stopped(self) -> Sequence[PartitionReport]:
        """The partitions that cannot go on."""
        return list(self._stopped.values())

    def copy_batch(self, spark: SparkSession, query_id: str, batch_id: int) -> None:
        """Copy until every partition has reached the end that its source had when this was called.

        Raises `FencedError` when another driver took over, `ClusterError` when a cluster stays away.
        """
        self._spark = spark
        self._stopped.clear()
        partitions = self._topics.refresh()
        ranges = self._ranges(partitions, query_id, batch_id)
        stuck = 0
        while not self._stop.is_set():
            todo = [each for each in map(self._ahead, ranges) if each.behind and each.key not in self._stopped]
            if not todo:
                return
            moved = self._pass(partitions, todo, query_id, batch_id)
            stuck = 0 if moved else stuck + 1
            if stuck >= STUCK_PASSES:
                raise ClusterError(f"{self.flow.name}: no progress in {stuck} passes", "see the log of the executors")

    def _ahead(self, each: Range) -> Range:
        position = self._positions.get(each.key)
        return each if position is None else replace(each, start=position)

    def _ranges(
        self, partitions: Mapping[PartitionKey, CopiedPartition], query_id: str, batch_id: int
    ) -> List[Range]:
        """Decide for every partition, and write down what has to be true before anything is copied."""
        sources = self._source_ranges(list(partitions.values()))
        new = [each for key, each in partitions.items() if key not in self._positions]
        targets = self._target.offsets([each.remote for each in new], "read_uncommitted")
        ranges: List[Range] = []
        for key, each in partitions.items():
            if each.source not in sources:
                continue
            if key in self._positions:
                ranges.append(next_range(self.flow, key, self._positions[key], sources[each.source]))
            elif each.remote in targets:
                ranges.append(first_range(self.flow, key, self._in_ledger, sources[each.source], targets[each.remote]))
        settled = [self._heal(each) for each in ranges]
        self._settle(partitions, settled, query_id, batch_id)
        return [each for each in settled if each.refused is None]

    def _source_ranges(self, partitions: Sequence[CopiedPartition]) -> Mapping[Tuple[str, int], OffsetRange]:
        found = dict(self._source.offsets([each.source for each in partitions], self.flow.isolation_level))
        # Past the last stable offset but within the log: copied under another isolation level, not truncated.
        beyond = [
            each.source
            for each in partitions
            if each.source in found and self._known(each.key).upstream_offset > found[each.source].end
        ]
        if beyond:
            for name, whole in self._source.offsets(beyond, "read_uncommitted").items():
                at = next(self._known(each.key).upstream_offset for each in partitions if each.source == name)
                found[name] = OffsetRange(whole.log_start, min(at, whole.end))
        return found

    def _known(self, key: PartitionKey) -> Position:
        return self._positions.get(key) or self._in_ledger.get(key) or Position(0, 0)

    def _heal(self, each: Range) -> Range:
        if each.void_from is None:
            return each
        upstream = self._ledger.upstream_of(self.flow.name, each.key, each.void_from)
        # Voided before it is copied again: two facts about one downstream offset would contradict each other.
        self._ledger.void_from(self.flow.name, each.key, each.void_from)
        start = Position(each.start.upstream_offset if upstream is None else upstream, each.void_from)
        incident = each.incident and replace(each.incident, from_offset=start.upstream_offset)
        return replace(each, start=start, incident=incident)

    def _settle(
        self, partitions: Mapping[PartitionKey, CopiedPartition], ranges: Sequence[Range], query_id: str, batch_id: int
    ) -> None:
        for each in ranges:
            if each.refused is not None:
                self._stopped[each.key] = _refused(partitions[each.key], each)
                log.error("%s: %s", self.flow.name, each.refused)
            else:
                self._positions[each.key] = each.start
        anchors = [_position_row(partitions[each.key], each.start) for each in ranges if each.anchor and not each.refused]
        self._append(anchors, query_id, batch_id)
        self._note([each.incident for each in ranges if each.incident is not None], batch_id)

    def _pass(
        self, partitions: Mapping[PartitionKey, CopiedPartition], todo: Sequence[Range], query_id: str, batch_id: int
    ) -> bool:
        started = time.monotonic()
        reports = run_lanes(self._spark, self._lane_plans(partitions, todo))
        by_source = {each.source: each for each in partitions.values()}
        rows: List[LedgerRow] = []
        for report in reports:
            rows.extend(_ledger_rows(report, by_source))
        known = dict(self._positions)
        moved = bool(rows)
        rows.extend(self._position_rows(reports, by_source, rows))
        self._append(rows, query_id, batch_id)
        self._remember(reports, by_source, batch_id)
        self._watcher(self._snapshot(reports, todo, batch_id, time.monotonic() - started))
        if any(report.fenced for report in reports):
            raise FencedError(
                f"{self.flow.name}: another driver took over this flow; this one stops, nothing is lost or doubled",
                "let one driver run each flow, or give the mirrors different names",
            )
        return moved or known != self._positions

    def _lane_plans(self, partitions: Mapping[PartitionKey, CopiedPartition], todo: Sequence[Range]) -> List[LanePlan]:
        flow, lanes = self.flow, self.flow.tasks_max
        tasks: Dict[int, List[PartitionTask]] = {}
        for each in todo:
            copied = partitions[each.key]
            lane = lane_of(copied.remote_topic, copied.partition, lanes)
            self._lanes[lane] = self._lanes.get(lane, LaneState()).current()
            tasks.setdefault(lane, []).append(self._task(copied, each, self._lanes[lane]))
        fenced = flow.delivery == "exactly-once"
        return [
            LanePlan(
                lane=lane,
                flow=flow.name,
                transactional_id=transactional_id(self._config.name, flow.name, lane, lanes) if fenced else None,
                producer=self._lanes[lane].producer,
                tasks=tuple(lane_tasks),
                source_alias=flow.source.alias,
                target_alias=flow.target.alias,
                source_options=kafka_python_options(flow.source.client_properties("consumer")),
                target_options=kafka_python_options(flow.target.client_properties("producer")),
                isolation_level=flow.isolation_level,
                max_seconds=flow.batch_max_seconds,
            )
            for lane, lane_tasks in sorted(tasks.items())
        ]

    def _task(self, copied: CopiedPartition, each: Range, lane: LaneState) -> PartitionTask:
        return PartitionTask(
            topic=copied.topic,
            remote_topic=copied.remote_topic,
            partition=copied.partition,
            upstream_offset=each.start.upstream_offset,
            downstream_offset=each.start.downstream_offset,
            end=each.end,
            sequence=lane.sequences.get(copied.remote),
            max_message_bytes=copied.max_message_bytes,
            shared=self.flow.shared_remote_topics,
            isolate_until=self._isolate.get(each.key, -1),
        )

    def _position_rows(
        self,
        reports: Sequence[LaneReport],
        by_source: Mapping[Tuple[str, int], CopiedPartition],
        rows: Sequence[LedgerRow],
    ) -> List[LedgerRow]:
        """Positions that no run's end tells: after a gap at the end of a range, or after an abort marker."""
        ends: Set[Tuple[PartitionKey, Position]] = {
            (row.key, Position(row.upstream_offset + row.record_count, row.downstream_offset + row.record_count))
            for row in rows
        }
        found: List[LedgerRow] = []
        for part in _partitions(reports):
            copied = by_source[(part.topic, part.partition)]
            position = Position(part.position, part.downstream_offset)
            if position != self._positions[copied.key] and (copied.key, position) not in ends:
                found.append(_position_row(copied, position))
        return found

    def _remember(
        self, reports: Sequence[LaneReport], by_source: Mapping[Tuple[str, int], CopiedPartition], batch_id: int
    ) -> None:
        incidents: List[Incident] = []
        for report in reports:
            self.records += report.records
            self.bytes += report.bytes
            self._lanes[report.lane] = self._lanes[report.lane].after(report)
        for part in _partitions(reports):
            key = by_source[(part.topic, part.partition)].key
            self._positions[key] = Position(part.position, part.downstream_offset)
            if part.stopped is not None:
                self._stopped[key] = part
                incidents.extend(part.incidents)
                log.error("%s: %s", self.flow.name, part.stopped)
        self._note(incidents, batch_id)

    def _append(self, rows: Sequence[LedgerRow], query_id: str, batch_id: int) -> None:
        if rows:
            number, self._appends = self._appends, self._appends + 1
            self._ledger.append(
                self.flow.name, rows, run_id=self.run_id, append_number=number, query_id=query_id, batch_id=batch_id
            )

    def _note(self, incidents: Sequence[Incident], batch_id: int) -> None:
        if incidents:
            self._incidents.append(self.flow.name, incidents, run_id=self.run_id, batch_id=batch_id)

    def _snapshot(
        self, reports: Sequence[LaneReport], todo: Sequence[Range], batch_id: int, seconds: float
    ) -> ProgressSnapshot:
        left = sum(self._ahead(each).behind for each in todo)
        times = [part.last_timestamp for part in _partitions(reports) if part.last_timestamp > 0]
        age = time.time() - min(times) / 1000 if times and left else None
        return ProgressSnapshot(
            flow=self.flow.name,
            batch_id=batch_id,
            records=sum(report.records for report in reports),
            bytes=sum(report.bytes for report in reports),
            seconds=seconds,
            behind_records=left,
            behind_seconds=None if age is None else max(0.0, age),
            recovered=sum(report.recovered for report in reports),
            stopped=len(self._stopped),
            waiting="copying" if left else "waiting for records",
        )


def _partitions(reports: Sequence[LaneReport]) -> List[PartitionReport]:
    return [part for report in reports for part in report.partitions]


def _ledger_rows(report: LaneReport, by_source: Mapping[Tuple[str, int], CopiedPartition]) -> List[LedgerRow]:
    return [
        by_source[(sync.topic, sync.partition)].ledger_row(
            sync.upstream_offset, sync.downstream_offset, sync.record_count
        )
        for sync in report.syncs
    ]


def _position_row(copied: CopiedPartition, position: Position) -> LedgerRow:
    return copied.ledger_row(position.upstream_offset, position.downstream_offset, 0)


def _refused(copied: CopiedPartition, each: Range) -> PartitionReport:
    return PartitionReport(
        topic=copied.topic,
        remote_topic=copied.remote_topic,
        partition=copied.partition,
        position=each.start.upstream_offset,
        downstream_offset=each.start.downstream_offset,
        sequence=0,
        last_timestamp=-1,
        stopped=each.refused,
        refused=True,
    )


def unfinished(mirror: FlowMirror) -> Optional[str]:
    """Why the flow is not whole, in one sentence; None if every partition is caught up."""
    stopped = mirror.stopped()
    if not stopped:
        return None
    first = stopped[0].stopped
    return f"{mirror.flow.name}: {len(stopped)} partition(s) stopped; the first: {first}"
