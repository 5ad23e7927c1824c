"""A pass's plan in; the same with every lane fenced and each remote log looked at out: so tasks can share a lane.

Order: a lost tail is looked for before the fence, whose markers would fill its place; what lies behind a position is
looked at after it. A crash in here leaves markers, which the next life steps over.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Collection, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from mirror_lib.errors import ClusterError
from mirror_lib.log.batch import Producer
from mirror_lib.log.connection import Disconnected, LogClient, Network, by_topic, name_of
from mirror_lib.log.fence import fence, idempotent_producer
from mirror_lib.log.fetch import READ_UNCOMMITTED
from mirror_lib.log.offsets import log_ends
from mirror_lib.log.refresh import AnswerLost, HeldLane, refresh
from mirror_lib.log.tail import glances
from mirror_lib.records.rows import Partition
from mirror_lib.replicate.lanes import PartitionReport, PartitionTask, TaskPlan, lane_of
from mirror_lib.replicate.loss import CONTINUE_HINT, left_the_log
from mirror_lib.replicate.partition import PartitionCopy, by_lane
from mirror_lib.replicate.recovery import may_hold_records, stop_at_lost_tails, told_ends

log = logging.getLogger(__name__)

# Kafka's default delivery.timeout.ms: how long the driver fights for a cluster.
PATIENCE_SECONDS = 120.0
RETRY_SECONDS = 0.25

NONE_UNUSED: Mapping[int, Producer] = {}


@dataclass(frozen=True)
class Ready:
    """`plan` has the partitions that can be written, and the producers of their lanes. A partition without a sequence
    may have something left behind its position. `reports` tell of those that cannot go on in this pass: of all, where
    the driver has something to write down first. Nothing was appended under the producers `unused` then."""

    plan: TaskPlan
    reports: Tuple[PartitionReport, ...]
    unused: Mapping[int, Producer] = field(default_factory=dict)


@dataclass(frozen=True)
class Marked:
    """The producers of the lanes by now, but for those to be taken over anew; and where partitions stand behind their
    markers."""

    producers: Mapping[int, Producer]
    reports: Tuple[PartitionReport, ...]


def made_ready(plan: TaskPlan, unused: Mapping[int, Producer] = NONE_UNUSED) -> Ready:
    """Fence what is not fenced yet. `unused` are the last time's. Raises `FencedError` when somebody else has a lane,
    `ClusterError` when a cluster stays away."""
    # What was confirmed so long ago, brokers may have forgotten.
    waited = time.time() - plan.confirmed_at >= plan.epoch_kept_seconds
    producers = {} if waited else dict(plan.producers)
    fresh = [task for task in plan.tasks if task.sequence is None or task.lane not in producers]
    if not fresh:
        return Ready(plan, ())
    deadline = time.monotonic() + PATIENCE_SECONDS
    # Who fences a lane that it has fenced already has to name the latest epoch, or it seems to be somebody else's.
    fenced: Dict[int, Producer] = {}
    while True:
        try:
            with target_of(plan, deadline) as client:
                return _Preparation(plan, client, producers, unused, fenced).ready(fresh, deadline)
        except Disconnected as error:
            if time.monotonic() > deadline:
                raise ClusterError(f"{plan.flow}: {error}", "is the cluster healthy?") from error
            log.warning("%s: %s; trying again", plan.flow, error)
            time.sleep(RETRY_SECONDS)


@contextmanager
def target_of(plan: TaskPlan, deadline: float, *topics: str) -> Iterator[LogClient]:
    """Connections to the target that know the leaders of `topics`, without any of the plan's remote partitions."""
    network = Network()
    client = LogClient(network, plan.target_alias, plan.target_options)
    try:
        client.connect(deadline)
        if topics:  # all of their partitions count: what is known of some of them is not what they hold
            client.refresh_leaders(topics, deadline)
        else:
            # Half of what is left, as there is more to be done than to wait for elections.
            client.refresh_leaders_of({task.remote for task in plan.tasks}, (time.monotonic() + deadline) / 2)
        yield client
    finally:
        client.close()
        network.close()


class _Preparation:
    def __init__(
        self,
        plan: TaskPlan,
        client: LogClient,
        producers: Mapping[int, Producer],
        unused: Mapping[int, Producer],
        fenced: Dict[int, Producer],
    ) -> None:
        self._plan = plan
        self._client = client
        self._producers = dict(producers)
        self._unused = unused
        self._fenced = fenced

    def ready(self, fresh: Sequence[PartitionTask], deadline: float) -> Ready:
        copies = {task: PartitionCopy(task) for task in fresh}
        stop_at_lost_tails(self._client, copies.values())
        for lane, own in by_lane(copy for copy in copies.values() if copy.stopped is None).items():
            self._fenced[lane] = self._fence(lane, own, deadline)
        self._producers.update(self._fenced)
        behind = self._look_behind(list(copies.values()))
        tasks = [self._task(task, copies, behind) for task in self._plan.tasks]
        plan = replace(self._plan, producers=self._producers)
        if self._hands_back(list(copies.values())):
            stands = (_stands(copies.get(old), new or old) for old, new in zip(self._plan.tasks, tasks))
            return Ready(replace(plan, tasks=()), tuple(stands), self._fenced)
        going = tuple(task for task in tasks if task is not None)
        return Ready(replace(plan, tasks=going), tuple(_unknown(each) for each in copies.values() if each.stopped))

    def _fence(self, lane: int, copies: Sequence[PartitionCopy], deadline: float) -> Producer:
        name = self._plan.transactional_ids.get(lane)
        held = self._fenced.get(lane, self._plan.producers.get(lane))
        if name is None:
            # Each would be another one, to be written down first: the last one was.
            return held if held and held == self._unused.get(lane) else idempotent_producer(self._client, deadline)
        return fence(self._client, name, by_topic(copy.remote for copy in copies), deadline, held)

    def _look_behind(self, copies: Sequence[PartitionCopy]) -> List[PartitionCopy]:
        """Step over markers; return the partitions that may have more than that behind their position."""
        going = {copy.remote: copy.downstream for copy in copies if copy.stopped is None}
        ends = told_ends(self._client, going)
        seen = glances(self._client, going, READ_UNCOMMITTED)
        behind: List[PartitionCopy] = []
        for copy in (copy for copy in copies if copy.stopped is None):
            found = seen.get(copy.remote)
            # As long as a marker, a batch may hold a record, which under at-least-once no marker comes behind.
            if found is not None and found.end < ends[copy.remote]:  # who answered does not lead, see `up_to`
                raise Disconnected(f"{self._client.alias}: {name_of(copy.remote)} does not show the end of its log")
            if found is None or may_hold_records(found):
                behind.append(copy)
            else:
                copy.downstream = found.end
            if copy.task.log_start > copy.acknowledged:
                self._lose(copy, copy in behind)
        return behind

    def _lose(self, copy: PartitionCopy, behind: bool) -> None:
        """The source's log begins behind the position. What an interrupted attempt wrote of that, nobody can tell."""
        reason = left_the_log(copy.source, copy.acknowledged, copy.task.log_start)
        if behind:
            copy.refuse(
                f"{reason}, and the remote log holds what an interrupted attempt may have made of them; give the flow "
                "an empty remote topic"
            )
        elif self._plan.on_data_loss != "continue":
            copy.refuse(f"{reason}; {CONTINUE_HINT}")
        else:
            copy.lose(copy.acknowledged, copy.task.log_start, reason)
            copy.recover(copy.task.log_start, copy.downstream, 0)

    def _task(
        self, task: PartitionTask, copies: Mapping[PartitionTask, PartitionCopy], behind: Sequence[PartitionCopy]
    ) -> Optional[PartitionTask]:
        copy = copies.get(task)
        if copy is None:  # a new epoch counts from 0 in every partition
            return replace(task, sequence=0) if task.lane in self._fenced else task
        if copy.stopped is not None:
            return None
        return replace(task, downstream_offset=copy.downstream, sequence=None if copy in behind else 0)

    def _hands_back(self, copies: Sequence[PartitionCopy]) -> bool:
        """Whether the driver has something to write down before anything is appended: a lane's producer id, a loss."""
        return self._plan.has_new_ids(self._producers) or any(copy.lost for copy in copies)


def marked_again(plan: TaskPlan, parts: Sequence[PartitionReport], aged: Iterable[Partition]) -> Marked:
    """Fence again behind old records, in the partitions `aged`: a broker would soon forget the lane's epoch.

    Nothing is in flight. Where the end of a log is not the expected one behind the marker, or is not told, the next
    pass fences and looks. Raises `FencedError`, `ClusterError`.
    """
    stands = {(part.remote_topic, part.partition): part.downstream_offset for part in parts}
    lanes = _lanes_of(each for each in aged if lane_of(*each) in plan.transactional_ids)
    if not lanes:
        return Marked(dict(plan.producers), tuple(parts))
    deadline = time.monotonic() + PATIENCE_SECONDS
    ends: Dict[Partition, int] = {}
    asked: Dict[int, List[Partition]] = {}
    renewed: Dict[int, Producer] = {}
    unsure: Collection[int] = ()
    try:
        with target_of(plan, deadline) as client:
            before = log_ends(client, [each for own in lanes.values() for each in own])
            whole = {lane: [each for each in own if before.get(each) == stands[each]] for lane, own in lanes.items()}
            asked = {lane: own for lane, own in whole.items() if own}
            renewed = _refreshed(client, plan, asked, deadline)
            ends.update(log_ends(client, [each for own in asked.values() for each in own]))
    except AnswerLost as error:
        log.warning("%s: %s; the next pass takes the lanes over anew", plan.flow, error)
        unsure = asked
    except Disconnected as error:
        log.warning("%s: %s; the next pass looks what is there", plan.flow, error)
    behind = tuple(behind_markers(part, lanes, renewed, ends) for part in parts)
    held = {lane: producer for lane, producer in plan.producers.items() if lane not in unsure}
    return Marked({**held, **renewed}, behind)


def _refreshed(
    client: LogClient, plan: TaskPlan, lanes: Mapping[int, Sequence[Partition]], deadline: float
) -> Dict[int, Producer]:
    names = {lane: plan.transactional_ids[lane] for lane in lanes}
    held = [HeldLane(names[lane], plan.producers[lane], by_topic(own)) for lane, own in lanes.items()]
    found = refresh(client, held, deadline) if held else {}
    return {lane: found[name] for lane, name in names.items()}


def behind_markers(
    part: PartitionReport,
    lanes: Mapping[int, Sequence[Partition]],
    renewed: Collection[int],
    ends: Mapping[Partition, int],
) -> PartitionReport:
    """Where a partition stands by now: `lanes` were to be fenced again, in these partitions; `renewed` were, and then
    the logs ended at `ends`."""
    remote = (part.remote_topic, part.partition)
    lane = lane_of(*remote)
    if lane not in lanes or part.sequence is None:
        return part
    if lane not in renewed:
        return replace(part, sequence=None)  # nobody knows which epoch the lane has
    if remote not in lanes[lane]:
        return replace(part, sequence=0)  # the epoch is the lane's
    if ends.get(remote) != part.downstream_offset + 1:
        return replace(part, sequence=None)
    return replace(part, sequence=0, downstream_offset=part.downstream_offset + 1)


def _stands(copy: Optional[PartitionCopy], task: PartitionTask) -> PartitionReport:
    """The report of a partition for which nothing was done but to fence, and perhaps to look behind its position."""
    if copy is not None and (copy.stopped or copy.lost):
        return _unknown(copy)
    return replace(PartitionCopy(task).report(), sequence=task.sequence)


def _unknown(copy: PartitionCopy) -> PartitionReport:
    """Its report, after which whoever comes back to it looks again."""
    return replace(copy.report(), sequence=None)


def _lanes_of(remotes: Iterable[Partition]) -> Dict[int, List[Partition]]:
    lanes: Dict[int, List[Partition]] = {}
    for remote in remotes:
        lanes.setdefault(lane_of(*remote), []).append(remote)
    return lanes
