"""One flow in one driver's life: what is copied, where each partition stands, and the pass that moves it on.

Order of effects in a pass: anchors to the ledger, records to the remote logs, offset syncs to the ledger, and only
then this object's memory. Killed anywhere, the next driver finds the truth in the ledger and on the remote logs.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from pyspark.sql import SparkSession

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.config.offset_choice import OffsetChoice
from mirror_lib.errors import ClusterError, FencedError
from mirror_lib.facts import Cluster
from mirror_lib.progress import ProgressSnapshot
from mirror_lib.replicate.journal import BatchRef, Journal, position_row
from mirror_lib.replicate.lane_ids import LaneIds
from mirror_lib.replicate.lane_state import LaneState
from mirror_lib.replicate.lanes import PartitionReport, TaskReport, lane_of
from mirror_lib.replicate.positions import Partitions, Positions
from mirror_lib.replicate.ranges import Range
from mirror_lib.replicate.rejections import Rejections
from mirror_lib.replicate.second_look import looked_again
from mirror_lib.replicate.shares import LaneShares
from mirror_lib.replicate.source_progress import SourceGroup, SourceProgress
from mirror_lib.replicate.stage import run_tasks
from mirror_lib.replicate.starts import SourceCluster
from mirror_lib.replicate.task_plans import plan_tasks
from mirror_lib.replicate.topics import CopiedPartition, TopicWatch
from mirror_lib.replicate.totals import Totals
from mirror_lib.state.records import Incident, LedgerRow, PartitionKey, Position

log = logging.getLogger(__name__)

STUCK_PASSES = 3
UNLISTED = "one of its clusters tells no offsets of it; has it lost its leader?"

Watcher = Callable[[ProgressSnapshot], None]


class FlowMirror:
    """Copies a flow pass by pass. Not thread-safe: one caller at a time.

    `watcher` is called with a snapshot after each pass; `stop` ends a batch after the pass that runs; `totals` counts
    what is copied; nothing beyond `until` is; `group` is told of progress. Reads the ledger and makes the remote
    topics ready when it is made; raises `ClusterError` and `StateError`.
    """

    def __init__(
        self,
        config: MirrorConfig,
        flow: ReplicationFlow,
        journal: Journal,
        source: SourceCluster,
        target: Cluster,
        watcher: Watcher,
        stop: threading.Event,
        totals: Totals,
        until: Optional[OffsetChoice] = None,
        group: Optional[SourceGroup] = None,
    ) -> None:
        self.flow = flow
        self._totals = totals
        self._name = config.name
        self._watcher = watcher
        self._stop = stop
        self._journal = journal
        self._topics = TopicWatch(flow, config.flows, source, target)
        self._topics.refresh()
        self._positions = Positions(flow, source, target, journal, until)
        self._reached = False
        self._progress = SourceProgress(group)
        self._lanes: Dict[int, LaneState] = {}
        self._shares = LaneShares()
        self._ids = LaneIds(flow.name, journal if flow.shared_remote_topics else None)
        self._stopped: Dict[PartitionKey, PartitionReport] = {}
        self._rejections = Rejections(flow.on_error)

    def has_history(self) -> bool:
        """True if the ledger told of this flow."""
        return self._positions.known > 0

    def reached(self) -> bool:
        """Whether the last look that was taken found nothing left to wait for: `until` is reached."""
        return self._reached

    def due(self) -> bool:
        """Whether one more look may find `until` reached: its time is past."""
        return self._reached or self._positions.bounds.passed()

    def stopped(self) -> Sequence[PartitionReport]:
        """The partitions that cannot go on, as of the last batch."""
        return list(self._stopped.values())

    def not_copied(self) -> Sequence[str]:
        """What `--until` names and the flow does not copy, as `topic-partition`."""
        copied = [each.source for each in self._topics.partitions.values()]
        return [f"{topic}-{partition}" for topic, partition in self._positions.bounds.unknown(copied)]

    def blocked(self) -> Sequence[str]:
        """Sentences on the topics that the flow asks for and that cannot be copied as things are."""
        return [f"{each.name}: {each.reason}" for each in self._topics.plan.blocked]

    def copy_batch(self, spark: SparkSession, batch: BatchRef) -> None:
        """Copy until every partition has reached the end that its source had when this was called.

        Raises `FencedError` when another driver took over, `ClusterError` when a cluster stays away.
        """
        passed = self._positions.bounds.passed()
        partitions = self._topics.refresh()
        ranges = self._positions.ranges(partitions, batch)
        self._progress.begun(partitions, ranges)
        # Refused is refused until somebody looked and started again: trying on would fence its lane in every batch.
        refused = {key: part for key, part in self._stopped.items() if part.refused and key in partitions}
        self._stopped = {**_stopped_before_begun(partitions, ranges), **refused}
        for part in self._stopped.values():
            log.error("%s: %s", self.flow.name, part.stopped)
        idle_passes = passes = 0
        while not self._stop.is_set():
            left = map(self._positions.ahead, ranges)
            todo = [each for each in left if each.behind and each.key not in self._stopped]
            if not todo:
                break
            passes += 1
            idle_passes = 0 if self._pass(spark, partitions, todo, batch) else idle_passes + 1
            partitions = self._topics.partitions
            if idle_passes >= STUCK_PASSES:
                raise ClusterError(f"{self.flow.name}: no progress in {idle_passes} passes", "see the executors' logs")
        if not self._stop.is_set():
            self._reached = self._positions.reached(partitions, self._stopped, passed)
        if not passes:
            self._watcher(self._snapshot([], [], batch, 0.0))

    def _pass(self, spark: SparkSession, partitions: Partitions, todo: Sequence[Range], batch: BatchRef) -> bool:
        """Copy once with every lane that has something to do; False if nothing moved."""
        started, began = time.monotonic(), time.time()
        lanes = {lane: state.current(began) for lane, state in self._lanes.items()}
        plans = plan_tasks(self._name, self.flow, partitions, todo, lanes, self._rejections.isolate_until, self._shares)
        reports = looked_again(self.flow.name, self._topics, run_tasks(spark, self._ids.told(plans)))
        self._ids.learn(reports)
        by_source = {each.source: each for each in partitions.values()}
        rows = _ledger_rows(reports, by_source)
        moves = self._moves(reports, by_source)
        rows += _position_rows(moves, rows, partitions)
        # Incidents first: a crash in between tells of one twice, and never moves past records without a word.
        self._journal.note(self._incidents(reports, by_source), batch)
        self._journal.append(rows, batch)
        for key, position in moves.items():
            self._positions.move(key, position)
        self._progress.moved(partitions, moves)
        self._remember(reports, by_source, began)
        self._watcher(self._snapshot(reports, todo, batch, time.monotonic() - started))
        lost = [part.stopped for part in _partitions(reports) if part.lost_tail]
        if lost:
            raise ClusterError(f"{self.flow.name}: {lost[0]}", "the next start copies what was lost again")
        if any(report.fenced for report in reports):
            raise FencedError(
                f"{self.flow.name}: another driver took over this flow; this one stops, nothing is lost or doubled",
                "let one driver run each flow, or give the mirrors different names",
            )
        return bool(rows)

    def _moves(
        self, reports: Sequence[TaskReport], by_source: Mapping[Tuple[str, int], CopiedPartition]
    ) -> Dict[PartitionKey, Position]:
        """Where each reported partition stands now, rejected records that are to be skipped left behind."""
        moves: Dict[PartitionKey, Position] = {}
        for part in _partitions(reports):
            key = by_source[(part.topic, part.partition)].key
            position = Position(self._rejections.position(key, part), part.downstream_offset)
            if position != self._positions.at(key):
                moves[key] = position
        return moves

    def _incidents(
        self, reports: Sequence[TaskReport], by_source: Mapping[Tuple[str, int], CopiedPartition]
    ) -> List[Incident]:
        found: List[Incident] = []
        for part in _partitions(reports):
            found += self._rejections.incidents(by_source[(part.topic, part.partition)].key, part)
        return found

    def _remember(
        self, reports: Sequence[TaskReport], by_source: Mapping[Tuple[str, int], CopiedPartition], began: float
    ) -> None:
        for report in reports:
            parts: Dict[int, List[PartitionReport]] = {}
            for part in report.partitions:
                parts.setdefault(lane_of(part.remote_topic, part.partition), []).append(part)
            for lane, own in parts.items():
                self._lanes[lane] = self._lanes.get(lane, LaneState()).after(report.producers.get(lane), own, began)
        self._totals.add(_partitions(reports))
        self._shares.learn(_partitions(reports))
        for part in _partitions(reports):
            key = by_source[(part.topic, part.partition)].key
            if part.stopped is not None and not self._rejections.goes_on(key, part):
                self._stopped[key] = part
                log.error("%s: %s", self.flow.name, part.stopped)

    def _snapshot(
        self, reports: Sequence[TaskReport], todo: Sequence[Range], batch: BatchRef, seconds: float
    ) -> ProgressSnapshot:
        left = sum(self._positions.ahead(each).behind for each in todo if each.key not in self._stopped)
        times = [part.last_timestamp for part in _partitions(reports) if part.last_timestamp > 0]
        return ProgressSnapshot(
            flow=self.flow.name,
            batch_id=batch.batch_id,
            records=sum(report.records for report in reports),
            bytes=sum(report.bytes for report in reports),
            seconds=seconds,
            copy_seconds=max((report.seconds for report in reports), default=0.0),
            behind_records=left,
            behind_seconds=max(0.0, time.time() - min(times) / 1000) if times and left else None,
            recovered=sum(report.recovered for report in reports),
            stopped=len(self._stopped),
            waiting="copying" if left else "waiting for records",
        )


def _partitions(reports: Sequence[TaskReport]) -> List[PartitionReport]:
    return [part for report in reports for part in report.partitions]


def _ledger_rows(
    reports: Sequence[TaskReport], by_source: Mapping[Tuple[str, int], CopiedPartition]
) -> List[LedgerRow]:
    return [
        by_source[(sync.topic, sync.partition)].ledger_row(
            sync.upstream_offset, sync.downstream_offset, sync.record_count
        )
        for report in reports
        for sync in report.syncs
    ]


def _position_rows(
    moves: Mapping[PartitionKey, Position], rows: Sequence[LedgerRow], partitions: Partitions
) -> List[LedgerRow]:
    """Positions that no run's end tells: after a gap at the end of a range, or after an abort marker."""
    ends: Set[Tuple[PartitionKey, Position]] = {
        (row.key, Position(row.upstream_offset + row.record_count, row.downstream_offset + row.record_count))
        for row in rows
    }
    return [position_row(partitions[key], at) for key, at in moves.items() if (key, at) not in ends]


def _stopped_before_begun(partitions: Partitions, ranges: Sequence[Range]) -> Dict[PartitionKey, PartitionReport]:
    """Partitions that are refused, and those whose offsets nobody told: not copied, so not to be called caught up."""
    decided = {each.key for each in ranges}
    stopped = {
        key: _not_begun(copied, f"{copied.topic}-{copied.partition}: {UNLISTED}")
        for key, copied in partitions.items()
        if key not in decided
    }
    stopped.update(
        {each.key: _not_begun(partitions[each.key], each.refused, refused=True) for each in ranges if each.refused}
    )
    return stopped


def _not_begun(copied: CopiedPartition, reason: str, refused: bool = False) -> PartitionReport:
    return PartitionReport(
        topic=copied.topic,
        remote_topic=copied.remote_topic,
        partition=copied.partition,
        position=-1,
        downstream_offset=-1,
        sequence=0,
        last_timestamp=-1,
        stopped=reason,
        refused=refused,
    )


def unfinished(mirror: FlowMirror) -> Optional[str]:
    """Why the flow is not whole, in one sentence; None if every partition is caught up."""
    stopped, blocked = mirror.stopped(), mirror.blocked()
    not_copied = mirror.not_copied()
    if not_copied:
        return f"{mirror.flow.name}: --until names {not_copied[0]}, which this flow does not copy"
    if stopped:
        return f"{mirror.flow.name}: {len(stopped)} partition(s) stopped; the first: {stopped[0].stopped}"
    if blocked:
        return f"{mirror.flow.name}: {len(blocked)} topic(s) cannot be copied; the first: {blocked[0]}"
    return None
