"""The state of a flow in one driver: `FlowState.apply(reports)` returns the `Commit` that is to be recorded.

It has the positions, the state that each lane passes to its next cycle, the assignment of lanes to tasks, and the
stopped partitions. `apply` changes nothing; `take` updates the state with a commit, when the flow has recorded it.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from typing import Callable, Collection, Dict, FrozenSet, List, Mapping, Optional, Sequence, Set, Tuple

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.errors import ClusterError, FencedError
from mirror_lib.facts import TopicPartition
from mirror_lib.ledger.records import DATA_LOST, Incident, LedgerRow, LedgerRuns, PartitionKey, Position
from mirror_lib.metrics import COPYING, WAITING, FlowMetrics, by_topic, counted_only, farthest_back
from mirror_lib.replication.copied_topics import CopiedPartition
from mirror_lib.replication.copy_ranges import Range
from mirror_lib.replication.journal import position_row
from mirror_lib.replication.messages import (
    PartitionReport,
    TaskPlan,
    TaskReport,
    lane_of,
)
from mirror_lib.replication.positions import Partitions, Positions
from mirror_lib.replication.rejections import Rejections
from mirror_lib.replication.tail import CHECK_SECONDS, LEFT_OUT_SECONDS
from mirror_lib.replication.task_plans import LaneState, plan_tasks

log = logging.getLogger(__name__)

UNLISTED = "one of its clusters answers with no offsets of it; check that the partition has a leader"


def not_begun(partitions: Partitions, ranges: Sequence[Range]) -> Dict[PartitionKey, PartitionReport]:
    """Reports of the partitions that are refused or whose offsets are unknown. They are not copied, so they must not
    count as caught up."""
    decided = {each.key for each in ranges}
    stopped = {key: of_unlisted(copied) for key, copied in partitions.items() if key not in decided}
    stopped.update(
        {each.key: refusal_of(partitions[each.key], each.refused, each.code) for each in ranges if each.refused}
    )
    return stopped


def of_unlisted(copied: CopiedPartition) -> PartitionReport:
    """The report of a partition whose offsets are unknown."""
    return replace(_report(copied, f"{copied.topic}-{copied.partition}: {UNLISTED}"), code="MIR-210")


def refusal_of(copied: CopiedPartition, reason: str, code: str) -> PartitionReport:
    """The report of a partition that stops for safety until an operator has acted."""
    return replace(_report(copied, reason), refused=True, code=code)


def _report(copied: CopiedPartition, reason: str) -> PartitionReport:
    return PartitionReport(
        topic=copied.topic,
        remote_topic=copied.remote_topic,
        partition=copied.partition,
        position=-1,
        downstream_offset=-1,
        sequence=0,
        last_timestamp=-1,
        stopped=reason,
    )


class StoppedPartitions:
    """One flow's stopped partitions in one process. `parts` are the reports with which they stopped."""

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self.parts: Dict[PartitionKey, PartitionReport] = {}

    def begin(self, partitions: Partitions, ranges: Sequence[Range]) -> None:
        """Try all partitions again, except refused ones: they stay refused until an operator restarts the run. More
        attempts would fence their lanes in every batch."""
        refused = {key: part for key, part in self.parts.items() if part.refused and key in partitions}
        found = not_begun(partitions, ranges)
        self.parts = {**found, **refused}
        for part in (part for key, part in found.items() if key not in refused):
            log.error("%s: %s", self._flow, part.stopped)

    def stop(self, key: PartitionKey, part: PartitionReport) -> None:
        """Do not copy this partition further in this batch."""
        self.parts[key] = part
        log.error("%s: %s", self._flow, part.stopped)

    def some_may_resume(self) -> bool:
        """Whether a later attempt may succeed for some of them."""
        return any(not part.refused for part in self.parts.values())

    def wait(self, ended: Callable[[], bool]) -> None:
        """Return when another attempt is due, or the batch has `ended`."""
        until = time.monotonic() + LEFT_OUT_SECONDS
        while not ended() and time.monotonic() < until:
            time.sleep(CHECK_SECONDS)


BySource = Mapping[TopicPartition, CopiedPartition]


@dataclass(frozen=True)
class Commit:
    """The result of reports: what must be recorded, and the state of `FlowState` once it is.

    `moves` are the changed positions, which the ledger has once it has `runs` and `rows`. `parts` are the reports by
    partition key, `stops` the stopped ones. `checked` are the partitions whose lane has read the end of the remote log.
    """

    reports: Sequence[TaskReport]
    runs: Sequence[LedgerRuns]
    rows: Sequence[LedgerRow]
    moves: Mapping[PartitionKey, Position]
    incidents: Sequence[Incident]
    parts: Mapping[PartitionKey, PartitionReport]
    rejections: Rejections
    lanes: Mapping[int, LaneState]
    stops: Mapping[PartitionKey, PartitionReport]
    checked: FrozenSet[PartitionKey]

    @property
    def plain(self) -> bool:
        """Whether every partition continued, and only positions changed."""
        ended = any(part.stopped is not None for part in self.parts.values())
        return not (ended or self.incidents or any(report.fenced for report in self.reports))


class FlowState:
    """The state of one flow. Not thread-safe. `positions` must have decided on every reported partition."""

    def __init__(self, flow: ReplicationFlow, positions: Positions) -> None:
        self.positions = positions
        self.stopped = StoppedPartitions(flow.name)
        self._rejections = Rejections(flow.on_error == "skip")
        self._lanes: Mapping[int, LaneState] = {}
        # The cycle in which each partition last got records.
        self._served: Dict[PartitionKey, int] = {}
        self._cycles = 0

    def plans(
        self, mirror: str, flow: ReplicationFlow, partitions: Partitions, todo: Sequence[Range], began: float
    ) -> List[TaskPlan]:
        """The tasks of a cycle over `todo` that began at `began` (seconds since 1970). `mirror` is the name in the
        file."""
        lanes = {lane: state.current(began) for lane, state in self._lanes.items()}
        # Under a rate limit, or over a slow line, a cycle may reach few of many partitions.
        in_turn = sorted(todo, key=lambda each: self._served.get(each.key, 0))
        return plan_tasks(mirror, flow, partitions, in_turn, lanes, self._rejections.isolate_until)

    def isolate_until(self, key: PartitionKey) -> int:
        """The upstream offset before which records of a partition are written one by one; -1 for none."""
        return self._rejections.isolate_until(key)

    def apply(self, reports: Sequence[TaskReport], partitions: Partitions, began: float = 0.0) -> Commit:
        """Compute the commit of a cycle that started at `began`, by the reports of its tasks; the last report of a
        partition counts. Pure: `take` updates the state."""
        by_source = {each.source: each for each in partitions.values()}
        parts = {by_source[part.source].key: part for report in reports for part in report.partitions}
        rejections = self._rejections
        moves: Dict[PartitionKey, Position] = {}
        incidents: List[Incident] = []
        for key, part in parts.items():
            # The position is after rejected records that are skipped.
            position = Position(rejections.position(key, part), part.downstream_offset)
            if position != self.positions.at(key):
                moves[key] = position
            incidents += rejections.incidents(key, part)
        runs = _ledger_runs(reports, by_source)
        return Commit(
            reports=reports,
            runs=runs,
            rows=_position_rows(moves, runs, partitions),
            moves=moves,
            incidents=incidents,
            parts=parts,
            rejections=rejections.after(parts),
            lanes=_handed_over(self._lanes, reports, began),
            stops={key: part for key, part in parts.items() if part.stopped and not rejections.continues(part)},
            checked=frozenset(key for key, part in parts.items() if part.sequence is not None),
        )

    def take(self, commit: Commit) -> None:
        """Update the state with a commit that is recorded, or will be before anything that depends on it."""
        for key, position in commit.moves.items():
            self.positions.move(key, position)
        self.positions.trust(commit.checked)
        self._rejections, self._lanes = commit.rejections, commit.lanes
        self._cycles += 1
        self._served.update((key, self._cycles) for key, part in commit.parts.items() if part.records)
        for key, part in commit.stops.items():
            self.stopped.stop(key, part)

    def let_go(self, plans: Sequence[TaskPlan], reports: Sequence[TaskReport], partitions: Partitions) -> None:
        """A task that failed may still run on an executor: fence its lanes again, as after a failed attempt."""
        lanes, sources = unsure(plans, reports)
        self._lanes = {lane: state for lane, state in self._lanes.items() if lane not in lanes}
        self.positions.doubt(key for key, each in partitions.items() if each.source in sources)


def judged_by_topics(
    reports: Sequence[TaskReport], partitions: Partitions, present: Partitions
) -> List[TaskReport]:
    """Clear the stop of every reported partition that is no longer `present`: its topic was deleted. If a new topic
    has the same name, its copy re-reads the remote log."""
    gone = {each.source for key, each in partitions.items() if key not in present}

    def judged(part: PartitionReport) -> PartitionReport:
        if (part.topic, part.partition) not in gone:
            return part
        lost = tuple(each for each in part.incidents if each.kind == DATA_LOST)
        return replace(part, stopped=None, refused=False, lost_tail=False, incidents=lost, sequence=None)

    return [replace(report, partitions=tuple(map(judged, report.partitions))) for report in reports]


def unsure(plans: Sequence[TaskPlan], reports: Sequence[TaskReport]) -> Tuple[Set[int], Set[TopicPartition]]:
    """The lanes and the source partitions that a failed task may still write."""
    tasks = [task for plan in plans for task in plan.tasks]
    parts = [part for report in reports for part in report.partitions]
    lanes = {task.lane for task in tasks} - {lane_of(*part.remote) for part in parts}
    return lanes, {task.source for task in tasks} - {part.source for part in parts if part.sequence is not None}


def _handed_over(
    lanes: Mapping[int, LaneState], reports: Sequence[TaskReport], began: float
) -> Mapping[int, LaneState]:
    """The state of lanes after these reports."""
    after = dict(lanes)
    for report in reports:
        parts: Dict[int, List[PartitionReport]] = {}
        for part in report.partitions:
            parts.setdefault(lane_of(*part.remote), []).append(part)
        for lane, own in parts.items():
            after[lane] = after.get(lane, LaneState()).after(report.producers.get(lane), own, began)
    return after


def end_if_lost(flow: str, outcome: Commit) -> None:
    """Raise the error that ends the flow's run: `ClusterError` if a remote log lost records, `FencedError` if another
    driver fenced a lane."""
    lost = [part.stopped for part in outcome.parts.values() if part.lost_tail]
    if lost:
        raise ClusterError(f"{flow}: {lost[0]}", "the next start copies the lost records again", code="MIR-207")
    if any(report.fenced for report in outcome.reports):
        raise FencedError(
            f"{flow}: another driver fenced this flow. This driver stops; no record is lost or doubled",
            "let one driver run each flow, or give the mirrors different names",
        )


def snapshot_of(
    flow: str,
    reports: Sequence[TaskReport],
    left: Mapping[TopicPartition, int],
    batch_id: int,
    seconds: float,
    stopped: int,
    held: Optional[str] = None,
    next_offsets: Optional[Mapping[TopicPartition, int]] = None,
    uncounted: Collection[str] = (),
) -> FlowMetrics:
    """The metrics of a cycle that took `seconds`. `left` upstream offsets remain of each source partition, from
    `next_offsets` on. `stopped` counts the stopped partitions, and `held` names the limit that delayed the cycle.
    `behind_seconds` is the age of the last record copied of the partition with the largest lag. Lag and topics are
    those of topics that are not in `uncounted`."""
    parts = [part for report in reports for part in report.partitions if part.topic not in uncounted]
    left = counted_only(left, uncounted)
    times = {part.source: part.last_timestamp for part in parts if part.last_timestamp > 0}
    to_come = sum(left.values())
    return FlowMetrics(
        flow=flow,
        batch_id=batch_id,
        records=sum(report.records for report in reports),
        bytes=sum(report.bytes for report in reports),
        seconds=seconds,
        copy_seconds=max((report.seconds for report in reports), default=0.0),
        behind_records=to_come,
        behind_seconds=farthest_back(left, times),
        recovered=sum(report.recovered for report in reports),
        stopped=stopped,
        waiting=held or (COPYING if to_come else WAITING),
        source_throttled_seconds=max((report.source_throttled_seconds for report in reports), default=0.0),
        target_throttled_seconds=max((report.target_throttled_seconds for report in reports), default=0.0),
        topics=by_topic(left, [(part.topic, part.records, part.bytes) for part in parts]),
        next_offsets=counted_only(next_offsets or {}, uncounted),
    )


def _ledger_runs(reports: Sequence[TaskReport], by_source: BySource) -> List[LedgerRuns]:
    # An unanswered report is repeated in the task's last report.
    syncs = dict.fromkeys(syncs for report in reports for syncs in report.syncs)
    return [by_source[(each.topic, each.partition)].ledger_runs(each.flat) for each in syncs]


def _position_rows(
    moves: Mapping[PartitionKey, Position], runs: Sequence[LedgerRuns], partitions: Partitions
) -> List[LedgerRow]:
    """Rows for positions that are not the end of a range: after a gap at the end of a range, or an abort marker."""
    ends: Set[Tuple[PartitionKey, Position]] = {(each.key, each.end) for each in runs}
    return [position_row(partitions[key], at) for key, at in moves.items() if (key, at) not in ends]
