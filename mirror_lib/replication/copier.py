"""Copies the lanes of one Spark task, on an executor, and returns a `TaskReport`.

Order of effects: fence, re-read the ends of the remote logs, append, fence again after old records, report. After a
crash at any point the next task fences first and finds on the remote logs what was not reported.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import replace
from typing import Callable, Dict, FrozenSet, List, Mapping, Optional, Sequence

from mirror_lib.errors import ClusterError, FencedError
from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.connection import Disconnected, LogClient, Network, by_topic, name_of
from mirror_lib.kafka.fencing import AnswerLost, HeldLane, fence, idempotent_producer, refresh
from mirror_lib.kafka.fetcher import ISOLATION, Fetcher, log_ends
from mirror_lib.kafka.producer import Appender
from mirror_lib.kafka.record_batch import Producer
from mirror_lib.ledger.records import OffsetSyncs
from mirror_lib.replication.messages import TaskPlan, TaskReport, nothing_copied
from mirror_lib.replication.partition import PartitionCopy, by_lane
from mirror_lib.replication.quotas import FetchQuota
from mirror_lib.replication.recovery import Recovery, stop_at_lost_tails
from mirror_lib.replication.report_channel import ReportClient

log = logging.getLogger(__name__)

# Kafka's default delivery.timeout.ms: how long a lane fights for a cluster before its task fails.
PATIENCE_SECONDS = 120.0
RETRY_SECONDS = 0.25
CROWDED_SECONDS = 0.05

# However many partitions a task has and however long their backlog is, its worker stays small.
MOST_QUEUED_BYTES = 32 * 1024 * 1024
# Behind a target that throttles the task: what is queued must be appended before a pass can end.
THROTTLED_QUEUE_BYTES = 1024 * 1024
WAIT_MS = 100.0


class Pump:
    """Moves records from the source's brokers to the target's, for one task and for as long as its connections last.

    It waits only while neither side has an answer, and asks a broker again as soon as that is worth it. `source` and
    `target` share one network.
    """

    def __init__(self, plan: TaskPlan, source: LogClient, target: LogClient, gate: FetchQuota) -> None:
        self._most_syncs = plan.most_syncs
        self._tailing = plan.report_to is not None
        self._target = target
        self._gate = gate
        # Its questions may go on from pass to pass.
        self._fetcher = Fetcher(source, ISOLATION[plan.isolation_level], gate)

    def run(self, copies: Sequence[PartitionCopy], stop_at: float, shall_end: Callable[[], bool]) -> None:
        """Copy until the ranges are done, `stop_at` (`time.monotonic()`) is past, the pass is full or it `shall_end`,
        and all that was fetched is acknowledged. Raises `Disconnected`, `FencedError`."""
        fetcher, appender, runs = self._fetcher, Appender(self._target), 0
        by_source = {copy.source: copy for copy in copies}
        by_remote = {copy.remote: copy for copy in copies}
        self._gate.begin_pass()
        while True:
            # First of all: what came while somebody waited for another answer would not end the wait below.
            runs += self._take(by_source)
            for ack in appender.acknowledgements():
                by_remote[ack.remote].acknowledge(ack)
            now, rest = time.monotonic(), math.inf
            full = self._gate.pass_is_full() or runs >= self._most_syncs
            no_more = now >= stop_at or full or shall_end()
            if not no_more and self._has_room(copies):
                rest = fetcher.pump(copies)
            appender.pump(copies)
            if all(copy.finished(no_more) for copy in copies) and appender.idle() and not self._hears_first():
                return
            wait_ms = min(WAIT_MS, (stop_at - now) * 1000, rest * 1000)
            self._target.network.poll(WAIT_MS if no_more else wait_ms)

    def _has_room(self, copies: Sequence[PartitionCopy]) -> bool:
        # What stopped is not sent any more, and takes no room from the others.
        queued = sum(copy.queued_bytes for copy in copies if copy.stopped is None)
        return queued < (THROTTLED_QUEUE_BYTES if self._target.is_throttled() else MOST_QUEUED_BYTES)

    def _hears_first(self) -> bool:
        # Over a narrow line no pass would bring anything: the next one asks over connections of its own.
        return not self._tailing and self._fetcher.hears_first()

    def _take(self, by_source: Mapping[TopicPartition, PartitionCopy]) -> int:
        # A function of its own: when it is left nothing looks at the answer, and its memory takes the next one.
        return sum(by_source[of].take(at, gap, found) for of, at, gap, found in self._fetcher.answers())


class LaneCopier:
    """One attempt at a pass over a task's lanes. `retried`: an earlier attempt may still be alive somewhere."""

    def __init__(self, plan: TaskPlan, retried: bool) -> None:
        self._plan = plan
        self._isolation = ISOLATION[plan.isolation_level]
        self._network = Network()
        self._source = LogClient(self._network, plan.source_alias, plan.source_options)
        self._target = LogClient(self._network, plan.target_alias, plan.target_options)
        self._copies: Dict[TopicPartition, PartitionCopy] = {task.source: PartitionCopy(task) for task in plan.tasks}
        # What the pass before handed over is only good for the first attempt: a dead one used some of the sequences.
        # Nor is it where the task had to wait so long that brokers may have forgotten who fenced it meanwhile.
        waited = time.time() - plan.confirmed_at >= plan.epoch_kept_seconds
        self._producers: Dict[int, Producer] = {} if retried or waited else dict(plan.producers)
        # The latest producers of this attempt, kept when its connections break: it must not take a lane back then.
        self._held: Dict[int, Producer] = {} if retried else dict(plan.producers)
        self._recovery = Recovery(self._source, self._target, self._isolation, plan.on_data_loss)
        self._done = 0
        self._pump: Optional[Pump] = None
        self._tailing = plan.report_to is not None
        self._teller = ReportClient(plan.report_to)
        self._gate = FetchQuota(plan.rates, retried)

    def run(self) -> TaskReport:
        """Copy until the ranges are done or the time is up. Raises `ClusterError` when a cluster stays away, unless the
        task tails: then the driver looks what there is to do."""
        started = time.monotonic()
        fenced = False
        try:
            self._persist(started)
        except FencedError as error:
            log.warning("%s task %d: %s", self._plan.flow, self._plan.task, error)
            fenced = True
        except ClusterError as error:
            if not self._tailing:
                raise
            log.warning("%s task %d: %s", self._plan.flow, self._plan.task, error)
            self._producers.clear()
        finally:
            self._source.close()
            self._target.close()
            self._network.close()
            self._teller.close()
        report = self._report(list(self._copies.values()), fenced, started)
        return replace(report, syncs=(*self._teller.untold(), *report.syncs))

    def _persist(self, started: float) -> None:
        patience = self._plan.max_seconds if self._tailing else PATIENCE_SECONDS
        deadline = time.monotonic() + patience
        while True:
            try:
                self._connect(deadline)
                self._prepare(deadline)
                self._make_passes(started)
                return
            except Disconnected as error:
                # What was in flight may have been written or not: fence and look, as after a crash.
                log.warning("%s task %d: %s; trying again", self._plan.flow, self._plan.task, error)
                self._producers.clear()
                self._pump = None
                if self._progressed():
                    deadline = time.monotonic() + patience
                elif time.monotonic() > deadline or self._teller.shall_end():
                    raise ClusterError(f"{self._plan.flow}: {error}", "is the cluster healthy?") from error
                time.sleep(RETRY_SECONDS)

    def _progressed(self) -> bool:
        before, self._done = self._done, sum(copy.acknowledged for copy in self._copies.values())
        return self._done > before

    def _make_passes(self, started: float) -> None:
        """One pass; where the task tails, pass after pass until its driver or its time ends it. No further one where
        the driver has something to write down first."""
        copies, to = list(self._copies.values()), self._plan.report_to
        if self._hands_back():
            return
        while to is not None and self._teller.connected:
            began = time.monotonic()
            self._copy(min(began + to.every, started + to.seconds))
            for copy in self._refresh():
                copy.start(self._producers[copy.task.lane])
            ended = self._teller.shall_end() or time.monotonic() >= started + to.seconds
            # Before a report over the line: a loss is written down before the positions behind it are. And what stopped
            # is for the driver to judge.
            if ended or any(copy.stopped is not None for copy in copies) or self._hands_back():
                return
            self._tell([copy for copy in copies if copy.news()], began)
            stop_at_lost_tails(self._target, copies)
        self._copy(started + self._plan.max_seconds)
        self._refresh()

    def _tell(self, copies: List[PartitionCopy], began: float) -> None:
        if copies or self._gate.holds():  # who waits for a bound says so, or nobody would know why nothing comes
            self._teller.tell(self._report(copies, False, began))
            self._recovery.told()
            for copy in copies:
                copy.told()
        while self._teller.crowded() and not self._teller.shall_end():
            time.sleep(CROWDED_SECONDS)

    def _connect(self, deadline: float) -> None:
        for client, partitions in (
            (self._source, {copy.source for copy in self._copies.values()}),
            (self._target, {copy.remote for copy in self._copies.values()}),
        ):
            client.connect(deadline)
            # Half of what is left, as there is more to be done than to wait for elections.
            client.refresh_leaders_of(partitions, (time.monotonic() + deadline) / 2)
        # A topic that was deleted and created anew answers to the old name, and what it holds is something else.
        for copy in self._copies.values():
            task = copy.task
            other_source = self._source.is_another(task.topic, task.source_topic_id)
            other = other_source or self._target.is_another(task.remote_topic, task.remote_topic_id)
            if other and copy.stopped is None:
                name = task.topic if other_source else task.remote_topic
                copy.stop(f"{name} was deleted and created again meanwhile", copy.acknowledged)

    def _prepare(self, deadline: float) -> None:
        """Give every partition a producer and a place to go on from."""
        lanes = by_lane(self._copies.values())
        fresh = {lane: self._fresh(lane, copies) for lane, copies in lanes.items()}
        # Before the fence: its markers would fill the offsets of acknowledged records that a log has lost.
        stop_at_lost_tails(self._target, [copy for copy in self._copies.values() if copy.stopped is None])
        # All lanes before anything else: two drivers that start at once then rarely take half of the lanes each.
        for lane, copies in fresh.items():
            if copies:
                self._producers[lane] = self._held[lane] = self._fence(lane, copies, deadline)
                for copy in lanes[lane]:
                    copy.sequence = 0  # a new epoch counts from 0 in every partition
        looking = [copy for copies in fresh.values() for copy in copies if copy.stopped is None]
        for copy in looking:
            copy.fenced()
        self._recovery.recover(looking, self._own)
        for copy in self._copies.values():
            copy.start(self._producers[copy.task.lane])

    def _hands_back(self) -> bool:
        """Whether the driver has something to write down before anything is appended: a lane's producer id, a loss."""
        return self._plan.has_new_ids(self._producers) or any(copy.lost for copy in self._copies.values())

    def _fresh(self, lane: int, copies: List[PartitionCopy]) -> List[PartitionCopy]:
        return [copy for copy in copies if lane not in self._producers or copy.task.sequence is None]

    def _fence(self, lane: int, copies: List[PartitionCopy], deadline: float) -> Producer:
        transactional_id = self._plan.transactional_ids.get(lane)
        if transactional_id is None:
            return idempotent_producer(self._target, deadline)
        # Not the stopped ones: a marker would take the place of what a log has lost.
        partitions = by_topic(copy.remote for copy in copies if copy.stopped is None)
        return fence(self._target, transactional_id, partitions, deadline, self._held.get(lane))

    def _own(self, copy: PartitionCopy) -> Optional[FrozenSet[int]]:
        """Where others write to the remote topic too: the producer ids of its lane, those of dead lives as well."""
        if not copy.task.shared:
            return None
        return self._plan.ids_of(copy.task.lane) | {self._producers[copy.task.lane].producer_id}

    def _copy(self, stop_at: float) -> None:
        if self._pump is None:
            self._pump = Pump(self._plan, self._source, self._target, self._gate)
        self._pump.run(list(self._copies.values()), stop_at, self._teller.shall_end)

    def _refresh(self) -> List[PartitionCopy]:
        """Fence again where the last records are so old that the target would soon forget the lane's epoch.

        Returns the partitions of these lanes. Nothing is in flight. A crash in here leaves markers, which the next life
        steps over.
        """
        before = (time.time() - self._plan.epoch_kept_seconds) * 1000
        names = self._plan.transactional_ids
        old = [copy for copy in self._copies.values() if copy.task.lane in names and copy.forgettable(before)]
        if not old:
            return []
        stop_at_lost_tails(self._target, old)
        lanes = by_lane([copy for copy in old if copy.forgettable(before)])
        held = [
            HeldLane(names[lane], self._producers[lane], by_topic(copy.remote for copy in copies))
            for lane, copies in lanes.items()
        ]
        try:
            producers = refresh(self._target, held, time.monotonic() + PATIENCE_SECONDS)
        except AnswerLost as error:
            # Taken over anew, as by the next life: by this one only where its driver still counts on it.
            self._held = {lane: producer for lane, producer in self._held.items() if lane not in lanes}
            if self._teller.connected:
                raise
            raise ClusterError(f"{self._plan.flow}: {error}", "the lane is taken over anew") from error
        for lane in lanes:
            self._producers[lane] = self._held[lane] = producers[names[lane]]
        renewed = [copy for copy in self._copies.values() if copy.task.lane in lanes]
        for copy in renewed:
            copy.sequence = 0  # also where no marker was written: the epoch is the lane's
        self._step_over_markers([copy for copies in lanes.values() for copy in copies])
        return renewed

    def _step_over_markers(self, copies: List[PartitionCopy]) -> None:
        ends = log_ends(self._target, [copy.remote for copy in copies])
        for copy in copies:
            copy.fenced()
            end = ends.get(copy.remote, -1)
            if end <= copy.downstream:  # the leader has changed, and does not show the marker yet
                raise Disconnected(f"{self._target.alias}: {name_of(copy.remote)} does not tell the end of its log")
            if end == copy.downstream + 1:
                copy.downstream = end
            else:  # a marker that was written twice, or somebody else's records
                self._recovery.recover([copy], self._own)

    def _report(self, copies: Sequence[PartitionCopy], fenced: bool, started: float) -> TaskReport:
        return TaskReport(
            task=self._plan.task,
            # A lane whose producer was let go of is still ours, as far as we know: its next task names what it held.
            producers={} if fenced else {**self._held, **self._producers},
            fenced=fenced,
            partitions=tuple(copy.report(copy.task.lane in self._producers) for copy in copies),
            syncs=tuple(OffsetSyncs(*copy.source, copy.syncs.tobytes()) for copy in copies if len(copy.syncs)),
            records=sum(copy.records for copy in copies),
            bytes=sum(copy.bytes for copy in copies),
            re_encoded=sum(copy.re_encoded for copy in copies),
            recovered=self._recovery.records,
            seconds=time.monotonic() - started,
            fetching=self._gate.taken(),
            source_throttled_seconds=self._source.throttled_seconds(),
            target_throttled_seconds=self._target.throttled_seconds(),
        )


def copy_lanes(plan: TaskPlan, attempt: int) -> TaskReport:
    """Copy a task's lanes. `attempt` is Spark's attempt number of the task.

    A task that tails is not tried again: its plan is old. It reports nothing, and the driver looks where all stands.
    """
    if attempt > 0 and plan.report_to is not None:
        return nothing_copied(plan.task)
    return LaneCopier(plan, retried=attempt > 0).run()
