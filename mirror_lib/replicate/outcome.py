"""What a pass came to: the reports of its tasks in; rows for the ledger, positions, incidents and what is shown out.

Pure, but for what `Rejections` remembers, and the clock that says how far behind a flow is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, List, Mapping, Optional, Sequence, Set, Tuple

from mirror_lib.errors import ClusterError, FencedError
from mirror_lib.facts import TopicPartition
from mirror_lib.metrics import FlowMetrics, farthest_back
from mirror_lib.replicate.journal import position_row
from mirror_lib.replicate.lanes import PartitionReport, TaskPlan, TaskReport, lane_of
from mirror_lib.replicate.positions import Partitions, Positions
from mirror_lib.replicate.rejections import Rejections
from mirror_lib.replicate.topics import CopiedPartition
from mirror_lib.state.records import DATA_LOST, Incident, LedgerRow, LedgerRuns, PartitionKey, Position

BySource = Mapping[Tuple[str, int], CopiedPartition]


@dataclass(frozen=True)
class PassOutcome:
    """`moves` are the positions that changed, which the ledger has once it has `runs` and `rows`; `parts` the reports
    of its partitions by their keys."""

    reports: Sequence[TaskReport]
    runs: Sequence[LedgerRuns]
    rows: Sequence[LedgerRow]
    moves: Mapping[PartitionKey, Position]
    incidents: Sequence[Incident]
    parts: Mapping[PartitionKey, PartitionReport]

    @property
    def plain(self) -> bool:
        """Whether all went on, and there is nothing to tell but where to."""
        ended = any(part.stopped is not None for part in self.parts.values())
        return not (ended or self.incidents or any(report.fenced for report in self.reports))


def judged_by_topics(
    reports: Sequence[TaskReport], partitions: Partitions, present: Partitions
) -> List[TaskReport]:
    """The reports of `partitions`, where those that are not `present` any more have not stopped: their topic is gone,
    and whoever copies a new one of that name looks at its remote log anew."""
    gone = {each.source for key, each in partitions.items() if key not in present}

    def judged(part: PartitionReport) -> PartitionReport:
        if (part.topic, part.partition) not in gone:
            return part
        lost = tuple(each for each in part.incidents if each.kind == DATA_LOST)
        return replace(part, stopped=None, refused=False, lost_tail=False, incidents=lost, sequence=None)

    return [replace(report, partitions=tuple(map(judged, report.partitions))) for report in reports]


def unsure(plans: Sequence[TaskPlan], reports: Sequence[TaskReport]) -> Tuple[Set[int], Set[TopicPartition]]:
    """The lanes, and the partitions of the source, of which a task that died may still write something."""
    tasks = [task for plan in plans for task in plan.tasks]
    parts = [part for report in reports for part in report.partitions]
    lanes = {task.lane for task in tasks} - {lane_of(*part.remote) for part in parts}
    return lanes, {task.source for task in tasks} - {part.source for part in parts if part.sequence is not None}


def outcome_of(
    reports: Sequence[TaskReport], partitions: Partitions, positions: Positions, rejections: Rejections
) -> PassOutcome:
    """Judge reports, of which the last of a partition counts; `positions` are those from before them."""
    by_source = {each.source: each for each in partitions.values()}
    parts = {by_source[(part.topic, part.partition)].key: part for report in reports for part in report.partitions}
    moves: Dict[PartitionKey, Position] = {}
    incidents: List[Incident] = []
    for key, part in parts.items():
        # Rejected records that are to be skipped are left behind.
        position = Position(rejections.position(key, part), part.downstream_offset)
        if position != positions.at(key):
            moves[key] = position
        incidents += rejections.incidents(key, part)
    runs = _ledger_runs(reports, by_source)
    return PassOutcome(reports, runs, _position_rows(moves, runs, partitions), moves, incidents, parts)


def end_if_lost(flow: str, outcome: PassOutcome) -> None:
    """Raise what ends the life of `flow`: `ClusterError` where a remote log lost records, `FencedError` where another
    driver took over."""
    lost = [part.stopped for part in outcome.parts.values() if part.lost_tail]
    if lost:
        raise ClusterError(f"{flow}: {lost[0]}", "the next start copies what was lost again")
    if any(report.fenced for report in outcome.reports):
        raise FencedError(
            f"{flow}: another driver took over this flow; this one stops, nothing is lost or doubled",
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
) -> FlowMetrics:
    """What is shown of a pass that took `seconds`: `left` upstream offsets are to come of each source partition, so
    many partitions have `stopped`, and `held` says what held it back. `behind_seconds` is the age of the last record
    copied of the partition that is farthest back among those with more to copy."""
    parts = [part for report in reports for part in report.partitions]
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
        waiting=held or ("copying" if to_come else "waiting for records"),
        source_throttled_seconds=max((report.source_throttled_seconds for report in reports), default=0.0),
        target_throttled_seconds=max((report.target_throttled_seconds for report in reports), default=0.0),
    )


def _ledger_runs(reports: Sequence[TaskReport], by_source: BySource) -> List[LedgerRuns]:
    # What a task told and was not answered, its last report tells again.
    syncs = dict.fromkeys(syncs for report in reports for syncs in report.syncs)
    return [by_source[(each.topic, each.partition)].ledger_runs(each) for each in syncs]


def _position_rows(
    moves: Mapping[PartitionKey, Position], runs: Sequence[LedgerRuns], partitions: Partitions
) -> List[LedgerRow]:
    """Positions that no end of runs tells: after a gap at the end of a range, or after an abort marker."""
    ends: Set[Tuple[PartitionKey, Position]] = {(each.key, each.end) for each in runs}
    return [position_row(partitions[key], at) for key, at in moves.items() if (key, at) not in ends]
