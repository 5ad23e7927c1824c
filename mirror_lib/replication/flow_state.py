"""The state of a flow in one driver: `FlowState.apply(reports)` returns the `Commit` that is to be recorded.

It holds positions, what each lane hands to its next cycle, which task copies which lane, and which partitions have
stopped. It has no effect outside but for log lines.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from typing import Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from mirror_lib.config.client_options import kafka_python_options
from mirror_lib.config.model import ReplicationFlow
from mirror_lib.errors import ClusterError, FencedError
from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.record_batch import Producer
from mirror_lib.ledger.records import DATA_LOST, Incident, LedgerRow, LedgerRuns, PartitionKey, Position
from mirror_lib.metrics import FlowMetrics, farthest_back
from mirror_lib.replication.copied_topics import CopiedPartition
from mirror_lib.replication.journal import position_row
from mirror_lib.replication.messages import (
    EPOCH_KEPT_SECONDS,
    MOST_SYNCS,
    PartitionReport,
    PartitionTask,
    TaskPlan,
    TaskReport,
    lane_of,
    transactional_id,
)
from mirror_lib.replication.planner import Range
from mirror_lib.replication.positions import Partitions, Positions
from mirror_lib.replication.rejections import Rejections
from mirror_lib.replication.tail import LEFT_OUT_SECONDS, LOOK_SECONDS

log = logging.getLogger(__name__)

# A coordinator forgets a transactional id that it has not heard of for 7 days (transactional.id.expiration.ms); the
# next driver would then get another producer id, which fences nobody. Fencing anew each day keeps it remembered.
FENCE_LASTS_SECONDS = 24 * 3600.0


def fence_holds(now: float, fenced_at: float, confirmed_at: float) -> bool:
    """Whether a driver may go on with the sequences of a lane that it fenced then, and last had confirmed then.

    One that stood still for too long must ask the coordinator: brokers may have forgotten that it was fenced.
    """
    return 0 <= now - fenced_at < FENCE_LASTS_SECONDS and 0 <= now - confirmed_at < EPOCH_KEPT_SECONDS


@dataclass(frozen=True)
class LaneState:
    """`sequences` holds every remote partition that this driver has fenced for the lane.

    `fenced_at` and `confirmed_at` are when the passes began in which the coordinator, or at least a broker that took
    an append, last told that the lane is this driver's. Seconds since 1970: other clocks stand still with the machine.
    """

    producer: Optional[Producer] = None
    sequences: Mapping[TopicPartition, int] = field(default_factory=dict)
    fenced_at: float = 0.0
    confirmed_at: float = 0.0

    def current(self, now: float) -> LaneState:
        """Itself, or without sequences where the fence has become too old to rely on and must be put up again."""
        return self if fence_holds(now, self.fenced_at, self.confirmed_at) else replace(self, sequences={})

    def after(self, producer: Optional[Producer], partitions: Sequence[PartitionReport], began: float) -> LaneState:
        """The state after a pass over `partitions` of this lane that `began` then; no producer, nothing to hand over.

        A new epoch counts sequences from 0 again, also where nothing was copied.
        """
        if producer is None:
            return LaneState()
        fresh = producer != self.producer
        kept = dict.fromkeys(self.sequences, 0) if fresh else dict(self.sequences)
        for part in partitions:
            remote = (part.remote_topic, part.partition)
            if part.refused or part.sequence is None:
                # Nobody knows what lies on its remote log: whoever comes back to it has to look again.
                kept.pop(remote, None)
            else:
                kept[remote] = part.sequence
        return replace(
            self,
            producer=producer,
            sequences=kept,
            fenced_at=began if fresh else self.fenced_at,
            # Behind old records, which confirm nothing, the task has fenced.
            confirmed_at=began if fresh or any(part.records for part in partitions) else self.confirmed_at,
        )


# What looking after a partition costs, though it has nothing to copy.
PARTITION_BYTES = 1024
# Of a partition that was not copied yet.
RECORD_BYTES = 512.0
# Lanes move to other tasks where the busiest then has so many bytes less, and a good part of its share.
WORTH_MOVING_BYTES = 16 * 1024 * 1024
WORTH_MOVING_SHARE = 0.2
ENDLESS = 2**62

Loads = Mapping[int, int]


class LaneShares:
    """One flow's shares in one driver's life."""

    def __init__(self) -> None:
        self._task_of: Dict[int, int] = {}
        self._record_bytes: Dict[TopicPartition, float] = {}
        self._latest: Dict[TopicPartition, int] = {}

    def learn(self, parts: Iterable[PartitionReport]) -> None:
        """Remember how much of each partition came in the pass that has ended, and how large its records were."""
        for part in parts:
            name = (part.topic, part.partition)
            self._latest[name] = part.bytes
            if part.records:
                self._record_bytes[name] = part.bytes / part.records

    def bytes_of(self, task: PartitionTask) -> int:
        """What is to be copied, as far as one can know: of what has no end, as much as came last time."""
        behind = task.end - task.upstream_offset
        if behind > ENDLESS:
            return PARTITION_BYTES + self._latest.get(task.source, 0)
        return PARTITION_BYTES + round(behind * self._record_bytes.get(task.source, RECORD_BYTES))

    def tasks_of(self, loads: Loads, tasks: int) -> Mapping[int, int]:
        """Share out the lanes of `loads` (bytes by lane) among `tasks` tasks."""
        staying = {lane: task for lane, task in self._task_of.items() if task < tasks}
        kept, best = shared_out(loads, tasks, staying), shared_out(loads, tasks, {})
        busiest, at_best = _busiest(loads, kept), _busiest(loads, best)
        moving = busiest - at_best > max(WORTH_MOVING_BYTES, WORTH_MOVING_SHARE * busiest)
        chosen = best if moving else kept
        self._task_of.update(chosen)
        return chosen


def shared_out(loads: Loads, tasks: int, staying: Mapping[int, int]) -> Dict[int, int]:
    """The lanes of `staying` where they are, the others one by one to the task with least to do, largest first."""
    task_of = {lane: staying[lane] for lane in loads if lane in staying}
    sums = [0] * tasks
    for lane, task in staying.items():
        sums[task] += loads.get(lane, 1)  # it may be wanted again: where all else is equal, not another one there
    for lane in sorted(loads.keys() - task_of.keys(), key=lambda lane: (-loads[lane], lane)):
        task_of[lane] = sums.index(min(sums))
        sums[task_of[lane]] += loads[lane]
    return task_of


def _busiest(loads: Loads, task_of: Mapping[int, int]) -> int:
    sums: Dict[int, int] = {}
    for lane, task in task_of.items():
        sums[task] = sums.get(task, 0) + loads[lane]
    return max(sums.values(), default=0)


# Offset syncs of all tasks of a stage, whose reports reach the driver at once.
MOST_SYNCS_OF_STAGE = 2_000_000


def plan_tasks(
    name: str,
    flow: ReplicationFlow,
    partitions: Mapping[PartitionKey, CopiedPartition],
    todo: Sequence[Range],
    lanes: Mapping[int, LaneState],
    isolate_until: Callable[[PartitionKey], int],
    shares: LaneShares,
) -> List[TaskPlan]:
    """At most `tasks.max` plans. `lanes` holds what earlier passes handed over; `name` is the mirror's."""
    by_lane: Dict[int, List[PartitionTask]] = {}
    for each in todo:
        copied = partitions[each.key]
        lane = lane_of(copied.remote_topic, copied.partition)
        task = _task(flow, copied, each, lanes.get(lane, LaneState()), isolate_until(each.key))
        by_lane.setdefault(lane, []).append(task)
    loads = {lane: sum(map(shares.bytes_of, tasks)) for lane, tasks in by_lane.items()}
    by_task: Dict[int, List[PartitionTask]] = {}
    for lane, number in sorted(shares.tasks_of(loads, flow.tasks_max).items()):
        by_task.setdefault(number, []).extend(by_lane[lane])
    most = min(MOST_SYNCS, MOST_SYNCS_OF_STAGE // max(1, len(by_task)))
    return [_plan(name, flow, number, tuple(tasks), lanes, most) for number, tasks in sorted(by_task.items())]


def _plan(
    name: str,
    flow: ReplicationFlow,
    number: int,
    tasks: Tuple[PartitionTask, ...],
    lanes: Mapping[int, LaneState],
    most: int,
) -> TaskPlan:
    own = sorted({task.lane for task in tasks})
    fenced = {lane: lanes[lane].producer for lane in own if lane in lanes}
    handed_over = {lanes[task.lane].confirmed_at for task in tasks if task.sequence is not None}
    exact = flow.delivery == "exactly-once"
    return TaskPlan(
        task=number,
        flow=flow.name,
        transactional_ids={lane: transactional_id(name, flow.name, lane) for lane in own} if exact else {},
        producers={lane: producer for lane, producer in fenced.items() if producer is not None},
        tasks=tasks,
        source_alias=flow.source.alias,
        target_alias=flow.target.alias,
        source_options=kafka_python_options(flow.source.client_properties("consumer")),
        target_options=kafka_python_options(flow.target.client_properties("producer")),
        isolation_level=flow.isolation_level,
        on_data_loss=flow.on_data_loss,
        max_seconds=flow.batch_max_seconds,
        confirmed_at=min(handed_over, default=0.0),
        most_syncs=most,
    )


def _task(
    flow: ReplicationFlow, copied: CopiedPartition, each: Range, lane: LaneState, isolate_until: int
) -> PartitionTask:
    return PartitionTask(
        topic=copied.topic,
        remote_topic=copied.remote_topic,
        partition=copied.partition,
        upstream_offset=each.start.upstream_offset,
        downstream_offset=each.start.downstream_offset,
        end=each.end,
        sequence=lane.sequences.get(copied.remote),
        max_message_bytes=copied.max_message_bytes,
        shared=flow.shared_remote_topics,
        isolate_until=isolate_until,
        bound=each.bound,
        log_start=each.log_start,
        source_topic_id=copied.source_topic_id,
        remote_topic_id=copied.remote_topic_id,
    )


UNLISTED = "one of its clusters tells no offsets of it; has it lost its leader?"


def not_begun(partitions: Partitions, ranges: Sequence[Range]) -> Dict[PartitionKey, PartitionReport]:
    """Partitions that are refused, and those whose offsets nobody told: not copied, so not to be called caught up."""
    decided = {each.key for each in ranges}
    stopped = {key: of_unlisted(copied) for key, copied in partitions.items() if key not in decided}
    stopped.update(
        {each.key: _report(partitions[each.key], each.refused, refused=True) for each in ranges if each.refused}
    )
    return stopped


def of_unlisted(copied: CopiedPartition) -> PartitionReport:
    """The report of a partition whose offsets nobody told."""
    return _report(copied, f"{copied.topic}-{copied.partition}: {UNLISTED}")


def refusal_of(copied: CopiedPartition, reason: str) -> PartitionReport:
    """The report of a partition that is not to go on before somebody has looked."""
    return _report(copied, reason, refused=True)


def _report(copied: CopiedPartition, reason: str, refused: bool = False) -> PartitionReport:
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


class StoppedPartitions:
    """One flow's in one driver's life. `parts` are the reports with which they stopped."""

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self.parts: Dict[PartitionKey, PartitionReport] = {}

    def begin(self, partitions: Partitions, ranges: Sequence[Range]) -> None:
        """All are tried again. But refused is refused until somebody looked and started again: trying on would fence
        its lane in every batch."""
        refused = {key: part for key, part in self.parts.items() if part.refused and key in partitions}
        self.parts = {**not_begun(partitions, ranges), **refused}
        for part in self.parts.values():
            log.error("%s: %s", self._flow, part.stopped)

    def stop(self, key: PartitionKey, part: PartitionReport) -> None:
        """It does not go on in this batch."""
        self.parts[key] = part
        log.error("%s: %s", self._flow, part.stopped)

    def some_may_go_on(self) -> bool:
        """Whether it is worth looking at them again later."""
        return any(not part.refused for part in self.parts.values())

    def wait(self, ended: Callable[[], bool]) -> None:
        """Return when another look is worth it, or the batch has `ended`."""
        until = time.monotonic() + LEFT_OUT_SECONDS
        while not ended() and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)


BySource = Mapping[TopicPartition, CopiedPartition]


@dataclass(frozen=True)
class Commit:
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


class FlowState:
    """Not thread-safe. `positions` has decided on the partitions whose reports come."""

    def __init__(self, flow: ReplicationFlow, positions: Positions) -> None:
        self.positions = positions
        self.stopped = StoppedPartitions(flow.name)
        self._rejections = Rejections(flow.on_error)
        self._lanes: Dict[int, LaneState] = {}
        self._shares = LaneShares()

    def plans(
        self, mirror: str, flow: ReplicationFlow, partitions: Partitions, todo: Sequence[Range], began: float
    ) -> List[TaskPlan]:
        """The tasks of a pass over `todo` that `began` then (seconds since 1970); `mirror` is the file's name."""
        lanes = {lane: state.current(began) for lane, state in self._lanes.items()}
        return plan_tasks(mirror, flow, partitions, todo, lanes, self._rejections.isolate_until, self._shares)

    def bytes_of(self, task: PartitionTask) -> int:
        """About how much there is to copy of a partition."""
        return self._shares.bytes_of(task)

    def isolate_until(self, key: PartitionKey) -> int:
        """The upstream offset before which records of a partition go one by one; -1 for none."""
        return self._rejections.isolate_until(key)

    def apply(
        self, reports: Sequence[TaskReport], partitions: Partitions, last: Sequence[TaskReport] = (), began: float = 0.0
    ) -> Commit:
        """What reports come to, of which the last of a partition counts: known here from now on, and to be written down
        before anything that builds on it has an effect. `last` are those of tasks that have ended; what they hand over
        is for a pass behind the one that `began` then."""
        commit = commit_of(reports, partitions, self.positions, self._rejections)
        for key, position in commit.moves.items():
            self.positions.move(key, position)
        for report in last:
            parts: Dict[int, List[PartitionReport]] = {}
            for part in report.partitions:
                parts.setdefault(lane_of(*part.remote), []).append(part)
            for lane, own in parts.items():
                self._lanes[lane] = self._lanes.get(lane, LaneState()).after(report.producers.get(lane), own, began)
        if last:
            self._shares.learn(commit.parts.values())
            self.positions.trust(key for key, part in commit.parts.items() if part.sequence is not None)
            for key, part in commit.parts.items():
                if part.stopped is not None and not self._rejections.goes_on(key, part):
                    self.stopped.stop(key, part)
        return commit

    def let_go(self, plans: Sequence[TaskPlan], reports: Sequence[TaskReport], partitions: Partitions) -> None:
        """A task that died may live on somewhere: its lanes are taken over anew, as after a failed attempt."""
        lanes, sources = unsure(plans, reports)
        for lane in lanes:
            self._lanes.pop(lane, None)
        self.positions.doubt(key for key, each in partitions.items() if each.source in sources)


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


def commit_of(
    reports: Sequence[TaskReport], partitions: Partitions, positions: Positions, rejections: Rejections
) -> Commit:
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
    return Commit(reports, runs, _position_rows(moves, runs, partitions), moves, incidents, parts)


def end_if_lost(flow: str, outcome: Commit) -> None:
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
    return [by_source[(each.topic, each.partition)].ledger_runs(each.flat) for each in syncs]


def _position_rows(
    moves: Mapping[PartitionKey, Position], runs: Sequence[LedgerRuns], partitions: Partitions
) -> List[LedgerRow]:
    """Positions that no end of runs tells: after a gap at the end of a range, or after an abort marker."""
    ends: Set[Tuple[PartitionKey, Position]] = {(each.key, each.end) for each in runs}
    return [position_row(partitions[key], at) for key, at in moves.items() if (key, at) not in ends]
