"""The state of a flow on its driver: one `PartitionState` for each partition, and the lanes. Pure.

`FlowState.apply(reports)` computes the `Commit` that is to be recorded, and changes nothing. `take` updates the state
with a commit that the flow has recorded.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Collection, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.errors import ClusterError, FencedError
from mirror_lib.facts import TopicPartition
from mirror_lib.ledger.records import (
    DATA_LOST,
    OFFSETS_SKIPPED,
    Incident,
    LedgerRow,
    LedgerRuns,
    PartitionKey,
    Position,
)
from mirror_lib.metrics import COPYING, WAITING, FlowMetrics, by_topic, farthest_back
from mirror_lib.replication.copied_topics import PASSED
from mirror_lib.replication.copy_ranges import Range
from mirror_lib.replication.messages import CopiedPartition, PartitionReport, Stop, TaskPlan, TaskReport, lane_of
from mirror_lib.replication.task_plans import LaneState, plan_tasks

log = logging.getLogger(__name__)

UNLISTED = "one of its clusters answers with no offsets of it; check that the partition has a leader"

Partitions = Mapping[PartitionKey, CopiedPartition]
# By source partition the upstream offset at which its copy resumes, and the offset at which it is caught up.
Lag = Mapping[TopicPartition, Tuple[int, int]]


def unlisted(copied: CopiedPartition) -> Stop:
    """The stop of a partition whose offsets are unknown. It is not copied, so it must not count as caught up."""
    return Stop(f"{copied.topic}-{copied.partition}: {UNLISTED}", "MIR-210")


@dataclass(frozen=True)
class PartitionState:
    """One partition on the driver, an immutable value. Partitions of deleted topics keep theirs.

    `position` is the ledger's until it is `decided` from both logs, then this driver's: in the ledger, or at the next
    commit. `range` is the decision of the current batch, and `stop` is set if it stopped in this batch.
    `doubted`: a lane's last appends could not be reported, so the remote log may have more records. `alike`: its topics
    have no ids, and both logs had the last recorded record since the topics were last not listed.

    `source_end` is the end of the source's log by the last answer. `served` is the cycle in which it last got records.
    Records before the upstream offset `isolate_until` are written one by one. `noted_at` is the offset of its last
    stop that was reported to the operator.
    """

    position: Optional[Position] = None
    decided: bool = False
    doubted: bool = False
    alike: bool = False
    range: Optional[Range] = None
    stop: Optional[Stop] = None
    source_end: int = -1
    served: int = 0
    isolate_until: int = -1
    noted_at: Optional[int] = None

    @property
    def ahead(self) -> Range:
        """The rest of its range, from its position on. It must have both."""
        assert self.range is not None and self.position is not None
        return replace(self.range, start=self.position, isolate_until=self.isolate_until)

    @property
    def refused(self) -> bool:
        """Whether it is stopped until an operator restarts the run."""
        return self.stop is not None and self.stop.refused

    @property
    def goes(self) -> bool:
        """Whether it is copied in this batch, and has not stopped."""
        return self.range is not None and self.stop is None

    @property
    def behind(self) -> bool:
        """Whether it has more to copy in this batch."""
        return self.goes and self.range is not None and self.at.upstream_offset < self.range.end

    @property
    def at(self) -> Position:
        """Its position; it must have one."""
        assert self.position is not None
        return self.position

    def after(self, part: PartitionReport, cycle: int, skips: bool) -> PartitionState:
        """The state once the report of a cycle is recorded. With `skips`, records that the target refuses are skipped:
        the refused batch is sent again one record at a time first, so only the refused record is skipped."""
        rejected, skipped = self._rejected(part, skips)
        upstream = rejected[1] if rejected is not None and skipped else part.position
        position, doubted = Position(upstream, part.downstream_offset), part.sequence is None
        source_end = part.source_end if part.source_end >= 0 else self.source_end
        if part.stopped is None and not part.records:
            same = (position, doubted, source_end) == (self.position, self.doubted, self.source_end)
            return self if same else replace(self, position=position, doubted=doubted, source_end=source_end)
        stop = part.stopped if rejected is None else None
        return replace(
            self,
            position=position,
            doubted=doubted,
            source_end=source_end,
            stop=stop or self.stop,
            served=cycle if part.records else self.served,
            isolate_until=self.isolate_until if rejected is None else max(self.isolate_until, rejected[1]),
            noted_at=self.noted_at if stop is None else part.position,
        )

    def incidents(self, part: PartitionReport, skips: bool) -> List[Incident]:
        """The incidents of a report for the operator. A partition that stays stopped is reported once."""
        passed = [each for each in part.incidents if each.kind in PASSED]
        rejected, skipped = self._rejected(part, skips)
        if rejected is not None and skipped:
            return [*passed, Incident(OFFSETS_SKIPPED, *part.source, *rejected, str(part.stopped))]
        if part.stopped is None or rejected is not None:
            return passed
        return [] if self.noted_at == part.position else list(part.incidents)

    def _rejected(self, part: PartitionReport, skips: bool) -> Tuple[Optional[Tuple[int, int]], bool]:
        """The offsets that the target refused, if the partition continues in the next cycle: sent one by one, or with
        the refused record skipped; and whether it is skipped."""
        rejected = part.stopped.rejected if skips and part.stopped is not None else None
        return rejected, rejected is not None and rejected[0] < self.isolate_until


@dataclass(frozen=True)
class Commit:
    """The result of reports: what must be recorded, and the state once it is.

    `moves` are the changed positions, which the ledger has once it has `runs` and `rows`. `partitions` are the changed
    states.
    """

    reports: Sequence[TaskReport]
    runs: Sequence[LedgerRuns]
    rows: Sequence[LedgerRow]
    incidents: Sequence[Incident]
    moves: Mapping[PartitionKey, Position]
    partitions: Mapping[PartitionKey, PartitionState]
    lanes: Mapping[int, LaneState]

    @property
    def parts(self) -> Iterable[PartitionReport]:
        return (part for report in self.reports for part in report.partitions)

    @property
    def plain(self) -> bool:
        """Whether every partition continued, and only positions changed."""
        ended = any(part.stopped is not None for part in self.parts)
        return not (ended or self.incidents or any(report.fenced for report in self.reports))


class FlowState:
    """The state of one flow. Not thread-safe. `partitions` has all states, and `copied` what is copied now."""

    def __init__(self, flow: ReplicationFlow, recorded: Mapping[PartitionKey, Position]) -> None:
        self._flow = flow
        self._skips = flow.on_error == "skip"
        self.partitions: Dict[PartitionKey, PartitionState] = {key: PartitionState(at) for key, at in recorded.items()}
        self.copied: Partitions = {}
        self._by_source: Mapping[TopicPartition, PartitionKey] = {}
        self._lanes: Mapping[int, LaneState] = {}
        self._cycles = 0

    def of(self, key: PartitionKey) -> PartitionState:
        return self.partitions.get(key, UNKNOWN)

    def key_of(self, source: TopicPartition) -> PartitionKey:
        return self._by_source[source]

    def of_source(self, source: TopicPartition) -> PartitionState:
        return self.partitions[self._by_source[source]]

    def change(self, key: PartitionKey, **fields: object) -> None:
        self.partitions[key] = replace(self.of(key), **fields)  # type: ignore[arg-type]

    def begin(self, copied: Partitions, ranges: Sequence[Range]) -> None:
        """Begin a batch over `copied`, as `ranges` decide. All partitions are tried again, except refused ones: they
        stay refused until an operator restarts the run. More attempts would fence their lanes in every batch."""
        self.copied = copied
        self._by_source = {each.source: key for key, each in copied.items()}
        decided = {each.key: each for each in ranges}
        for key, each in copied.items():
            found, known = decided.get(key), self.of(key)
            stop = known.stop if known.refused else None
            if stop is None and (found is None or found.refused):
                stop = unlisted(each) if found is None else Stop(str(found.refused), found.code, refused=True)
                log.error("%s: %s", self._flow.name, stop)
            end = -1 if found is None else found.end
            if (found, stop, end) != (known.range, known.stop, known.source_end):  # of many partitions few have news
                self.partitions[key] = replace(known, range=found, stop=stop, source_end=end)

    def resize(self, copied: Partitions) -> None:
        """Take over the size limits of `copied`, which were perhaps read again since the batch began."""
        self.copied = {key: copied.get(key, each) for key, each in self.copied.items()}

    def stop(self, key: PartitionKey, stop: Stop) -> None:
        self.change(key, stop=stop)
        log.error("%s: %s", self._flow.name, stop)

    def stopped(self) -> List[Stop]:
        return [each.stop for each in self.partitions.values() if each.stop is not None]

    def some_may_resume(self) -> bool:
        return any(not stop.refused for stop in self.stopped())

    def todo(self) -> List[Range]:
        return [each.ahead for each in self.partitions.values() if each.behind]

    def going(self) -> List[Range]:
        """The ranges of all partitions that have not stopped, from their positions on."""
        return [each.ahead for each in self.partitions.values() if each.goes]

    def lag(self, keys: Optional[Collection[PartitionKey]] = None) -> Lag:
        """The upstream offset at which the copy of each partition resumes, and the end of its source's log by the last
        answer; with `keys` only of these, up to the end of this batch. Without stopped partitions."""
        found: Dict[TopicPartition, Tuple[int, int]] = {}
        for each in self.partitions.values() if keys is None else map(self.of, keys):
            if each.range is not None and each.stop is None:
                at = max(each.at.upstream_offset, each.range.log_start)
                found[each.range.source] = at, each.source_end if keys is None else each.range.end
        return found

    def plans(self, mirror: str, flow: ReplicationFlow, todo: Sequence[Range], began: float) -> List[TaskPlan]:
        """The tasks of a cycle over `todo` that began at `began` (seconds since 1970). `mirror` is the name in the
        file."""
        lanes = {lane: state.current(began) for lane, state in self._lanes.items()}
        # Under a rate limit, or over a slow line, a cycle may reach few of many partitions.
        in_turn = sorted(todo, key=lambda each: self.partitions[each.key].served)
        return plan_tasks(mirror, flow, self.copied, in_turn, lanes)

    def apply(self, reports: Sequence[TaskReport], began: float = 0.0) -> Commit:
        """Compute the commit of a cycle that started at `began`, by the reports of its tasks. Pure: `take` updates the
        state."""
        moves: Dict[PartitionKey, Position] = {}
        changed: Dict[PartitionKey, PartitionState] = {}
        incidents: List[Incident] = []
        runs: List[LedgerRuns] = []
        for part in (part for report in reports for part in report.partitions):
            key = self._by_source[part.source]
            before = self.partitions[key]
            after = before.after(part, self._cycles + 1, self._skips)
            if after is not before:
                changed[key] = after
            if after.at != before.position:
                moves[key] = after.at
            incidents += before.incidents(part, self._skips)
            if part.syncs:
                runs.append(LedgerRuns(self.copied[key].ledger_row(0, 0, 0), part.syncs))
        # Positions that are not the end of a range: after a gap at the end of a range, or an abort marker.
        ends = {(each.key, each.end) for each in runs}
        rows = [self.copied[key].position_row(at) for key, at in moves.items() if (key, at) not in ends]
        return Commit(reports, runs, rows, incidents, moves, changed, _handed_over(self._lanes, reports, began))

    def take(self, commit: Commit) -> None:
        """Update the state with a commit that is recorded, or will be before anything that depends on it."""
        self.partitions.update(commit.partitions)
        self._lanes = commit.lanes
        self._cycles += 1

    def let_go(self, plans: Sequence[TaskPlan]) -> None:
        """The tasks of a failed stage may still run on executors: fence their lanes again, as after a failed
        attempt."""
        tasks = [task for plan in plans for task in plan.tasks]
        lanes = {task.lane for task in tasks}
        self._lanes = {lane: state for lane, state in self._lanes.items() if lane not in lanes}
        for task in tasks:
            self.change(self._by_source[task.source], doubted=True)


UNKNOWN = PartitionState()


def judged_by_topics(reports: Sequence[TaskReport], partitions: Partitions, present: Partitions) -> List[TaskReport]:
    """Clear the stop of every reported partition that is no longer `present`: its topic was deleted. If a new topic
    has the same name, its copy re-reads the remote log."""
    gone = {each.source for key, each in partitions.items() if key not in present}

    def judged(part: PartitionReport) -> PartitionReport:
        if (part.topic, part.partition) not in gone:
            return part
        lost = tuple(each for each in part.incidents if each.kind == DATA_LOST)
        return replace(part, stopped=None, incidents=lost, sequence=None)

    return [replace(report, partitions=tuple(map(judged, report.partitions))) for report in reports]


def _handed_over(
    lanes: Mapping[int, LaneState], reports: Sequence[TaskReport], began: float
) -> Mapping[int, LaneState]:
    after = dict(lanes)
    for report in reports:
        parts: Dict[int, List[PartitionReport]] = {}
        for part in report.partitions:
            parts.setdefault(lane_of(*part.remote), []).append(part)
        for lane, own in parts.items():
            after[lane] = after.get(lane, LaneState()).after(report.producers.get(lane), own, began)
    return after


def fenced(flow: str) -> FencedError:
    return FencedError(
        f"{flow}: another driver fenced this flow. This driver stops; no record is lost or doubled",
        "let one driver run each flow, or give the mirrors different names",
    )


def end_if_lost(flow: str, commit: Commit) -> None:
    """Raise the error that ends the flow's run: `ClusterError` if a remote log lost records, `FencedError` if another
    driver fenced a lane."""
    lost = [part.stopped for part in commit.parts if part.stopped is not None and part.stopped.lost_tail]
    if lost:
        raise ClusterError(f"{flow}: {lost[0]}", "the next start copies the lost records again", code="MIR-207")
    if any(report.fenced for report in commit.reports):
        raise fenced(flow)


def metrics_of(
    flow: str,
    batch_id: int,
    reports: Sequence[TaskReport],
    lag: Lag,
    seconds: float,
    uncounted: Collection[str] = (),
    newest: Optional[Mapping[TopicPartition, int]] = None,
) -> FlowMetrics:
    """The metrics of a cycle that took `seconds`. `lag` is as of `FlowState`, and `newest` the timestamps (ms) of the
    last records copied of source partitions, by default those of `reports`.

    `behind_seconds` is the age of the last record copied of the partition with the largest lag. Lag and topics are
    those of topics that are not in `uncounted`.
    """
    parts = [part for report in reports for part in report.partitions if part.topic not in uncounted]
    if newest is None:
        newest = {part.source: part.last_timestamp for part in parts if part.last_timestamp > 0}
    left = {source: max(0, end - at) for source, (at, end) in lag.items() if source[0] not in uncounted}
    to_come = sum(left.values())
    return FlowMetrics(
        flow=flow,
        batch_id=batch_id,
        records=sum(report.records for report in reports),
        bytes=sum(report.bytes for report in reports),
        seconds=seconds,
        copy_seconds=max((report.seconds for report in reports), default=0.0),
        behind_records=to_come,
        behind_seconds=farthest_back(left, newest),
        recovered=sum(report.recovered for report in reports),
        stopped=0,
        waiting=COPYING if to_come else WAITING,
        source_throttled_seconds=max((report.source_throttled_seconds for report in reports), default=0.0),
        target_throttled_seconds=max((report.target_throttled_seconds for report in reports), default=0.0),
        topics=by_topic(left, [(part.topic, part.records, part.bytes) for part in parts]),
        next_offsets={source: lag[source][0] for source, count in left.items() if count},
    )
