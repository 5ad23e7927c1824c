"""The batch engine's task: copies the lanes of one Spark task on an executor and returns a `TaskReport`.

Order of effects: that of `Lanes`, then a report. After a crash at any point the next task fences first. It then reads
the remote logs to find records that were not reported.
"""

from __future__ import annotations

import logging
import math
import time
from typing import Collection, Dict, FrozenSet, List, Mapping, Optional, Sequence

from mirror_lib.errors import ClusterError, FencedError
from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.connection import Disconnected, LogClient, Network
from mirror_lib.kafka.fencing import AnswerLost
from mirror_lib.kafka.fetch_quota import FetchQuota
from mirror_lib.kafka.fetcher import ISOLATION, Fetcher
from mirror_lib.log_lines import format_worker_entries
from mirror_lib.replication.lane import Lanes
from mirror_lib.replication.messages import EPOCH_KEPT_SECONDS, Stop, TaskPlan, TaskReport
from mirror_lib.replication.partition import PartitionCopy
from mirror_lib.replication.recovery import Recovery

log = logging.getLogger(__name__)

# Kafka's default delivery.timeout.ms: how long a lane retries an unavailable cluster before its task fails.
PATIENCE_SECONDS = 120.0
RETRY_SECONDS = 0.25
# How often a task that tails looks whether the remote logs that it appends to are whole.
CYCLE_SECONDS = 2.0
# A longer rest of a remote log is read only after the fence.
LOOK_OFFSETS = 1000

# Limits the worker's memory, independent of the number of partitions and the size of their backlog.
MOST_QUEUED_BYTES = 32 * 1024 * 1024
# While the target throttles the task: queued batches must be appended before a cycle can end.
THROTTLED_QUEUE_BYTES = 1024 * 1024
WAIT_MS = 100.0


class FetchSource:
    """Fetches record batches from the source's brokers for the partitions `copies`, until a connection breaks.

    It sends a broker the next request as soon as that is useful. It waits only while neither cluster has an answer.
    `source` and `target` share one network. `busy` are the partitions with batches that are queued or in flight.
    """

    def __init__(
        self,
        plan: TaskPlan,
        source: LogClient,
        target: LogClient,
        copies: Sequence[PartitionCopy],
        busy: Collection[PartitionCopy],
        quota: FetchQuota,
    ) -> None:
        self._most_syncs = plan.most_syncs
        self._tailing = plan.tails
        self._target = target
        self._copies = copies
        self._busy = busy
        # Copies before this one have finished.
        self._unfinished = 0
        self._by_source: Mapping[TopicPartition, PartitionCopy] = {copy.source: copy for copy in copies}
        # Fetch requests may stay open from one cycle to the next.
        self._fetcher = Fetcher(source, ISOLATION[plan.isolation_level], quota, {copy.source[0] for copy in copies})
        self._stop_at = math.inf
        self._syncs = 0
        self._no_more = False

    def begin_cycle(self, stop_at: float) -> None:
        """The cycle ends when the ranges are copied, `stop_at` (`time.monotonic()`) is past, or the task is `full`."""
        self._stop_at = stop_at
        self._unfinished = 0
        # What happened between the cycles moved some, too.
        self._fetcher.look(self._copies)

    def full(self) -> bool:
        """Whether the task has as many offset syncs as it may report."""
        return self._syncs >= self._most_syncs

    def poll(self) -> float:
        answered = self._take()
        self._fetcher.look(dict.fromkeys([*answered, *self._busy]))
        now, rest = time.monotonic(), math.inf
        self._no_more = now >= self._stop_at or self.full()
        if not self._no_more and self._may_fetch():
            rest = self._fetcher.pump()
        return WAIT_MS if self._no_more else min(WAIT_MS, (self._stop_at - now) * 1000, rest * 1000)

    def ended(self, idle: bool) -> bool:
        copies = self._copies
        while self._unfinished < len(copies) and copies[self._unfinished].finished(self._no_more):
            self._unfinished += 1
        if self._unfinished < len(copies) or not idle:
            return False
        # Dropping the answers on a slow line would mean no progress: the next cycle fetches over new connections.
        if not self._tailing and self._fetcher.hears_first():
            return False
        # Answers to requests that were open may have come since.
        self._unfinished = 0
        return all(copy.finished(self._no_more) for copy in copies)

    def _may_fetch(self) -> bool:
        # Batches of stopped partitions are not sent any more, so they do not count against the queue.
        queued = sum(copy.queued_bytes for copy in self._busy if copy.stopped is None)
        return queued < (THROTTLED_QUEUE_BYTES if self._target.is_throttled() else MOST_QUEUED_BYTES)

    def _take(self) -> List[PartitionCopy]:
        # In a function of its own: on return nothing references the answer, and the next answer can reuse its memory.
        answered = []
        for of, at, gap, found in self._fetcher.answers():
            answered.append(self._by_source[of])
            self._syncs += answered[-1].take(at, gap, found)
        return answered


class LaneCopier:
    """One attempt at a cycle over a task's lanes. `retried`: an earlier attempt may still be running."""

    def __init__(self, plan: TaskPlan, retried: bool) -> None:
        self._plan = plan
        self._network = Network()
        self._source = LogClient(self._network, plan.source_alias, plan.source_options)
        self._target = LogClient(self._network, plan.target_alias, plan.target_options)
        names = plan.transactional_ids
        self._copies: List[PartitionCopy] = [PartitionCopy(task, names.get(task.lane)) for task in plan.tasks]
        self._recovery = Recovery(self._source, self._target, ISOLATION[plan.isolation_level], plan.on_data_loss)
        # After a long wait the brokers may have forgotten which process fenced the lanes, so the task fences them.
        waited = time.time() - plan.confirmed_at >= EPOCH_KEPT_SECONDS
        self._lanes: Lanes[PartitionCopy] = Lanes(
            self._target,
            lambda copies: self._recovery.recover(copies, self._own),
            held={} if retried else plan.producers,
            producers={} if retried or waited else plan.producers,
            look=self._refuse_unfenced,
        )
        self._looked = False
        self._acknowledged = 0
        self._fetching: Optional[FetchSource] = None
        self._quota = FetchQuota(plan.rate, retried)

    def run(self) -> TaskReport:
        """Copy until the ranges are done or the time is up. Raises `ClusterError` when a cluster stays unavailable. A
        task that tails reports instead, and its driver decides what to copy next."""
        started = time.monotonic()
        fenced = gave_up = False
        try:
            self._persist(started)
        except FencedError as error:
            # The closing cycle of a run that ends fences the tail that it cancelled. If another driver fenced the task,
            # this one ends with MIR-302 when it reads the report.
            level = logging.DEBUG if self._plan.tails else logging.WARNING
            log.log(level, "%s task %d: %s", self._plan.flow, self._plan.task, error)
            fenced = True
        except ClusterError as error:
            if not self._plan.tails:
                raise
            log.warning("%s task %d: %s", self._plan.flow, self._plan.task, error)
            self._let_go()
            gave_up = True
        finally:
            self._source.close()
            self._target.close()
            self._network.close()
        return self._report(fenced, gave_up, started)

    def _persist(self, started: float) -> None:
        patience = self._plan.max_seconds if self._plan.tails else PATIENCE_SECONDS
        deadline = time.monotonic() + patience
        while True:
            try:
                self._connect(deadline)
                self._lanes.open(self._copies, deadline)
                self._make_cycles(started)
                return
            except Disconnected as error:
                # Batches in flight may or may not be on the remote log: fence and re-read it, as after a crash.
                log.warning("%s task %d: %s; trying again", self._plan.flow, self._plan.task, error)
                self._let_go()
                before, self._acknowledged = self._acknowledged, sum(copy.acknowledged for copy in self._copies)
                if self._acknowledged > before:
                    deadline = time.monotonic() + patience
                elif time.monotonic() > deadline:
                    raise ClusterError(f"{self._plan.flow}: {error}", "check the brokers' logs") from error
                time.sleep(RETRY_SECONDS)

    def _let_go(self) -> None:
        self._lanes.let_go()
        self._fetching = None

    def _make_cycles(self, started: float) -> None:
        """Copy until the time is up, by the start of the task, or the ranges are done. A task that tails drains its
        lanes now and then, to see whether its remote logs are whole."""
        until = started + self._plan.max_seconds
        over = self._hands_back()
        while not over:
            stop_at = min(time.monotonic() + CYCLE_SECONDS, until) if self._plan.tails else until
            over = self._copy(stop_at) or not self._plan.tails or time.monotonic() >= until
            self._refence()
            # Partitions that stop wait for the driver's decision, and the others go on.
            over = over or self._hands_back() or all(copy.stopped is not None for copy in self._copies)
            if not over:
                self._lanes.stop_at_lost_tails()

    def _connect(self, deadline: float) -> None:
        for client, partitions in (
            (self._source, {copy.source for copy in self._copies}),
            (self._target, {copy.remote for copy in self._copies}),
        ):
            client.connect(deadline)
            # Half of the remaining time: the task has more to do than to wait for leader elections.
            client.refresh_leaders(partitions, (time.monotonic() + deadline) / 2)
        # A re-created topic answers to the same name, but its records are different.
        for copy in self._copies:
            task = copy.task
            other_source = self._source.is_another(task.topic, task.source_topic_id)
            other = other_source or self._target.is_another(task.remote_topic, task.remote_topic_id)
            if other and copy.stopped is None:
                name = task.topic if other_source else task.remote_topic
                copy.stop(f"{name} was deleted and created again meanwhile", copy.acknowledged)

    def _hands_back(self) -> bool:
        """Whether the driver must record something before anything is appended: a lane's producer id, or a loss."""
        producers = {copy.task.lane: copy.producer for copy in self._copies if copy.producer is not None}
        return self._plan.has_new_ids(producers) or any(copy.lost for copy in self._copies)

    def _refuse_unfenced(self, copies: Sequence[PartitionCopy], ends: Mapping[TopicPartition, int]) -> None:
        """Refuse partitions whose remote logs the recovery would refuse after the fence: without it each run would add
        a marker to a log that stays refused. Only short rests of logs are read, because the recovery reads them again.
        """
        looked, self._looked = self._looked, True
        if looked:
            return  # the copies have moved since they were planned
        waiting = [copy for copy in copies if _may_be_refused(copy, ends.get(copy.remote, -1))]
        again: Dict[TopicPartition, Stop] = {}
        # Another process may still append, and what it appends may be on the source a moment later than it was read.
        # Twice the same reason is about records that stay.
        for _ in range(2):
            probes = {copy.source: PartitionCopy(copy.task, None) for copy in waiting}
            if probes:
                self._recovery.recover(list(probes.values()), lambda probe: None)
            said, stops = again, {copy.source: probes[copy.source].stopped for copy in waiting}
            again = {source: stop for source, stop in stops.items() if stop is not None and stop.refused}
            waiting = [copy for copy in waiting if copy.source in again]
            sure = [copy for copy in waiting if again[copy.source] == said.get(copy.source)]
        for copy in sure:
            incident = probes[copy.source].incidents[-1]
            copy.refuse(incident.reason, incident.from_offset, code=again[copy.source].code)

    def _own(self, copy: PartitionCopy) -> Optional[FrozenSet[int]]:
        """Where other flows write to the remote topic too: the producer ids of its lane, also of ended processes."""
        if not copy.task.shared:
            return None
        return self._plan.ids_of(copy.task.lane) | {self._lanes.producers[copy.lane].producer_id}

    def _copy(self, stop_at: float) -> bool:
        """Copy for a while; True if the task may fetch no more."""
        if self._fetching is None:
            busy = self._lanes.busy
            self._fetching = FetchSource(self._plan, self._source, self._target, self._copies, busy, self._quota)
        self._fetching.begin_cycle(stop_at)
        self._lanes.pump(self._fetching)
        return self._fetching.full()

    def _refence(self) -> None:
        try:
            self._lanes.refence()
        except AnswerLost as error:
            # Its driver may have given the lane to another task by now.
            raise ClusterError(f"{self._plan.flow}: {error}", "the lane is fenced again") from error

    def _report(self, fenced: bool, gave_up: bool, started: float) -> TaskReport:
        lanes, copies = self._lanes, self._copies
        return TaskReport(
            task=self._plan.task,
            # A lane whose producer was dropped still belongs to this task: the next task names the producer in `held`.
            producers={} if fenced else dict(lanes.held),
            fenced=fenced,
            partitions=tuple(copy.report(copy.lane in lanes.producers) for copy in copies),
            seconds=time.monotonic() - started,
            held_seconds=self._quota.held_seconds(),
            balance=self._quota.balance(),
            source_throttled_seconds=self._source.throttled_seconds(),
            target_throttled_seconds=self._target.throttled_seconds(),
            gave_up=gave_up,
        )


def _may_be_refused(copy: PartitionCopy, end: int) -> bool:
    """Whether a fence would write a marker and the remote log has little after the copy's position, or the source has
    lost the next records."""
    rest = end - copy.downstream
    alone = copy.transactional_id is not None and not copy.task.shared
    return alone and rest <= LOOK_OFFSETS and (rest > 0 or copy.task.log_start > copy.acknowledged)


def copy_lanes(plan: TaskPlan, attempt: int) -> TaskReport:
    """Copy a task's lanes. `attempt` is Spark's attempt number of the task.

    A task that tails is not retried: its failure ends the stage, and the next one recovers. Raises `ClusterError`.
    """
    format_worker_entries()
    if attempt > 0 and plan.tails:
        raise ClusterError(f"{plan.flow}: task {plan.task} was lost with its process")
    return LaneCopier(plan, retried=attempt > 0).run()
