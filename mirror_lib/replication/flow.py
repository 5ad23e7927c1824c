"""Runs one flow in one driver process: refresh topics, plan ranges, run the lanes, commit.

Order of effects in a stage: anchors to the ledger, records to the remote logs, offset syncs to the ledger, which may
overlap the next stage. After a crash at any point the next driver recovers from the ledger and the remote logs. In
shared remote topics a lane's new producer id is recorded before anything is appended under it.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Callable, Dict, FrozenSet, List, Optional, Sequence, Tuple

from pyspark.sql import SparkSession

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.config.values import AVAILABLE_NOW
from mirror_lib.errors import ClusterError, FencedError
from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.kafka.group_progress import GroupProgress
from mirror_lib.ledger.records import TOPIC_BLOCKED, MirrorRun
from mirror_lib.metrics import FlowMetrics
from mirror_lib.replication.copied_topics import TopicWatch, recheck_size_limits
from mirror_lib.replication.copy_ranges import Range
from mirror_lib.replication.driver import FlowDriver
from mirror_lib.replication.flow_state import Commit, Lag, Partitions, end_if_lost, judged_by_topics, metrics_of
from mirror_lib.replication.journal import BatchRef, Journal
from mirror_lib.replication.messages import NO_END, Stop, TaskPlan, TaskReport
from mirror_lib.replication.stage import CancellableStage, most_slots, run_tasks, task_slots
from mirror_lib.replication.tail import (
    CHECK_SECONDS,
    COMMIT_SECONDS,
    FIRST_STAGE_SECONDS,
    LEFT_OUT_SECONDS,
    TOPICS_SECONDS,
    TOPICS_SHARE,
    Every,
    falls_behind,
    refuse_stalled,
    tail_tasks,
)
from mirror_lib.replication.task_plans import FlowRate, rate_limited
from mirror_lib.replication.totals import Totals, counted_as_copied
from mirror_lib.spark.jobs import named
from mirror_lib.topics.filters import subscribe_pattern

log = logging.getLogger(__name__)

STUCK_CYCLES = 3

Watcher = Callable[[FlowMetrics], None]


class LaneIds:
    """The producer ids of one flow's lanes in one process. Without a `journal` the remote topics have no other writer,
    and no ids are recorded."""

    def __init__(self, flow: str, journal: Optional[Journal]) -> None:
        self._flow = flow
        self._journal = journal
        self._known: Dict[int, FrozenSet[int]] = {} if journal is None else dict(journal.producer_ids())

    def reported(self, plans: Sequence[TaskPlan]) -> List[TaskPlan]:
        if self._journal is None:
            return list(plans)
        return [
            replace(plan, known_ids={task.lane: self._known.get(task.lane, frozenset()) for task in plan.tasks})
            for plan in plans
        ]

    def learn(self, reports: Sequence[TaskReport]) -> None:
        """Record the lanes' new producer ids. Call it before the next tasks are planned with them.

        Raises `FencedError` if another driver has recorded ids since: this driver does not know what was appended under
        those.
        """
        given = {(lane, each.producer_id) for report in reports for lane, each in report.producers.items()}
        new = sorted((lane, number) for lane, number in given if number not in self._known.get(lane, frozenset()))
        if self._journal is None or not new:
            return
        written = self._journal.producer_ids()
        if any(written.get(lane, frozenset()) - self._known.get(lane, frozenset()) for lane, _ in new):
            raise FencedError(f"{self._flow}: another driver copies this flow", "let one driver run each flow")
        self._journal.add_producer_ids(new)
        for lane, number in new:
            self._known[lane] = self._known.get(lane, frozenset()) | {number}


@dataclass(frozen=True)
class FlowContext:
    """What both engines need to run a flow in one driver process.

    `watcher` is called with metrics after each cycle, and `totals` counts the copied records. `stop` ends a batch after
    its current cycle. Progress is committed to the source's group `group`. `unfinished` is the flow's last run, if it
    may have left records that the ledger does not have.
    """

    config: MirrorConfig
    flow: ReplicationFlow
    spark: SparkSession
    journal: Journal
    source: KafkaCluster
    target: KafkaCluster
    watcher: Watcher
    stop: threading.Event
    totals: Totals
    group: Optional[GroupProgress] = None
    unfinished: Optional[MirrorRun] = None


class Mirror(ABC):
    """What a flow's driver process does in both engines. Not thread-safe: one caller at a time. `placement` identifies
    how records get their partitions, if they do not keep them.

    Construction reads the ledger, and creates or grows remote topics; raises `ClusterError`, `StateError`.
    """

    placement = ""

    def __init__(self, context: FlowContext) -> None:
        self.flow = context.flow
        self._name, self._spark = context.config.name, context.spark
        self._source, self._target = context.source, context.target
        self._journal = context.journal
        self._watcher = context.watcher
        self._stop = context.stop
        self._totals = context.totals
        # A run that ends by itself still has to copy what the source held when the batch began.
        self._endless = context.config.trigger != AVAILABLE_NOW
        self._topics = TopicWatch(context.flow, context.config.flows, context.source, context.target)
        self._topics.refresh()

    def has_history(self) -> bool:
        """True if the ledger has rows of this flow."""
        return bool(self._journal.positions() or self._journal.range_positions().pairs)

    @abstractmethod
    def stopped(self) -> Sequence[Stop]:
        """Why partitions are stopped as of the last batch, one value for each."""

    def sources(self) -> Sequence[TopicPartition]:
        return self._topics.plan.sources()

    def blocked(self) -> Sequence[str]:
        """One sentence for each selected topic that cannot be copied at present."""
        return [f"{each.name}: {each.reason}" for each in self._topics.plan.blocked]

    def _refreshed(self) -> Partitions:
        """The partitions to copy, once the news about their topics are recorded."""
        partitions = self._topics.refresh()
        news = self._topics.take_news(self._journal.topics)
        # A run that ends by itself names the topics at its end, in its exit code and its row.
        self._journal.note([each for each in news if self._endless or each.kind != TOPIC_BLOCKED])
        return partitions

    def _count(
        self, reports: Sequence[TaskReport], filtered: Optional[int] = None, dead_letters: Optional[int] = None
    ) -> None:
        parts = (part for report in reports for part in report.partitions)
        self._totals.add(parts, self._topics.plan.uncounted, filtered, dead_letters)

    def _watch(self, metrics: FlowMetrics, held: Optional[str]) -> None:
        """Show metrics. `held` names the limit that delayed the cycle."""
        stopped, blocked = len(self.stopped()), len(self._topics.plan.blocked)
        self._watcher(replace(metrics, waiting=held or metrics.waiting, stopped=stopped, blocked=blocked))


class FlowMirror(Mirror):
    """Copies a flow cycle by cycle."""

    def __init__(self, context: FlowContext) -> None:
        super().__init__(context)
        flow = context.flow
        # True once the flow tails: a tail does not wait for its commits.
        self._in_background = False
        clusters, tails = (context.source, context.target), self._endless and flow.tails
        self._driver = FlowDriver(flow, *clusters, context.journal, context.group, tails)
        self._state = self._driver.state
        self._ids = LaneIds(flow.name, context.journal if flow.shared_remote_topics else None)
        self._rate = FlowRate(flow.max_bytes_per_second)
        self._topics_due = Every(TOPICS_SECONDS)
        self._cycles = self._failed_tails = 0
        # Until a first stage has passed, records that come between two stages wait several times as long.
        self._is_cold = True
        # The last stage, and how long it took, until its metrics are given out.
        self._unshown: Optional[Tuple[Commit, float]] = None

    def stopped(self) -> Sequence[Stop]:
        return self._state.stopped()

    def leaderless(self) -> bool:
        """Whether a source partition that Spark's source would read has no leader now."""
        pattern = re.compile(subscribe_pattern(self.flow))
        return any(each.leaderless and pattern.fullmatch(each.name) for each in self._source.topics().values())

    def copy_batch(self, batch: BatchRef, tailing: int = 0) -> None:
        """Copy until every partition has reached the end that its source had when this was called. If the flow is one
        of `tailing` flows, then copy new records until the run stops, or has too few task slots.

        Raises `FencedError` if another driver fenced this one, `ClusterError` if a cluster stays unavailable.
        """
        self._journal.batch = batch
        self._in_background = self._in_background or tailing > 0
        self._catch_up()
        again = Every(LEFT_OUT_SECONDS)
        while tailing and not self._stop.is_set():
            todo = [replace(each, end=NO_END) for each in self._state.going()]
            tasks = tail_tasks(most_slots(self._spark), tailing, self.flow.tasks_max)
            steady = False
            if todo and tasks:
                steady = self._tail(todo, tailing, tasks)
            elif not todo and self._state.some_may_resume():
                self._journal.written()
                self._stop.wait(LEFT_OUT_SECONDS)
            else:
                break  # the trigger brings what comes
            if not self._stop.is_set() and (not steady or (self._state.some_may_resume() and again.due())):
                self._catch_up()
        self._write_owed()
        self._journal.written()  # nothing may come for long

    def _catch_up(self) -> None:
        self._write_owed()
        self._driver.begin(self._refreshed())
        idle_cycles = cycles = 0
        while not self._stop.is_set():
            todo = self._state.todo()
            if not todo:
                break
            cycles += 1
            idle_cycles = 0 if self._cycle(todo) else idle_cycles + 1
            self._state.resize(self._topics.partitions)
            if idle_cycles >= STUCK_CYCLES:
                raise ClusterError(f"{self.flow.name}: no progress in {idle_cycles} cycles", "see the executors' logs")
        if not cycles:
            self._show([], {}, 0.0)

    def _cycle(self, todo: Sequence[Range]) -> bool:
        """Run one cycle over every lane with records to copy; False if no position moved."""
        started, began = time.monotonic(), time.time()
        flow = self.flow
        if flow.max_bytes_per_second is not None:
            # The share of a task that waits for a slot would stay unused.
            flow = replace(flow, tasks_max=min(flow.tasks_max, max(1, task_slots(self._spark))))
        with named(self._spark, self._job_name("copy")):
            reports = self._learned(run_tasks(self._spark, self._plans(flow, todo, began)))
        commit = self._state.apply(reports, began)
        self._driver.commit(commit, in_background=self._in_background)
        self._count(reports)
        lag = self._state.lag(None if self._endless else [each.key for each in todo])
        self._show(reports, lag, time.monotonic() - started)
        end_if_lost(self.flow.name, commit)
        # A flow that a rate or a quota delayed is not stuck.
        held = any(report.held_seconds > 0 or report.throttled_seconds > 0 for report in reports)
        return bool(commit.runs or commit.moves) or held

    def _tail(self, todo: Sequence[Range], tailing: int, tasks: int) -> bool:
        """Run one stage that copies new records for the flow's `tail.seconds`, the first one less. True if the next one
        may follow at once.

        The ledger gets the stage's offset syncs while the next stage runs. The end of the run cancels the stage. What
        a cancelled or failed stage has appended is on the remote logs, where the next start of its lanes finds it.
        """
        began, started = time.time(), time.monotonic()
        plans = self._plans(replace(self.flow, tasks_max=tasks), todo, began)
        seconds = self.flow.tail_seconds
        seconds = min(seconds, FIRST_STAGE_SECONDS) if self._is_cold else seconds
        plans = [replace(plan, tails=True, max_seconds=seconds) for plan in plans]
        # A later look might hold up the next stage.
        last_look = started + max(seconds / 2, seconds - COMMIT_SECONDS)
        stage = CancellableStage(self._spark, plans, self._job_name("tail"))
        while not stage.wait(CHECK_SECONDS):
            if time.monotonic() - started >= COMMIT_SECONDS:
                self._write_owed()
            if self._stop.is_set():
                stage.cancel()
            elif time.monotonic() < last_look and self._topics_due.due():
                self._topics.present()
                self._topics_due.done(TOPICS_SHARE)
            refuse_stalled(self.flow.name, "a stage", time.monotonic() - started - seconds)
        self._write_owed()
        try:
            reports = self._learned(stage.result())
        except ClusterError as error:
            self._state.let_go(plans)
            if self._stop.is_set():
                self._close(todo, time.monotonic() - started)
                return False
            self._failed_tails += 1
            if self._failed_tails >= STUCK_CYCLES:
                raise
            log.warning("%s; what the stage appended is found on the target", error)
            return False
        self._failed_tails, self._is_cold = 0, False
        if any(part.stopped for report in reports for part in report.partitions):
            self._topics.present()  # perhaps its topic was re-created since the last look
        copied = self._state.copied
        reports = judged_by_topics(reports, copied, self._topics.partitions)
        commit = self._state.apply(reports, began)
        self._driver.commit(commit, later=most_slots(self._spark) > tasks * tailing)
        self._count(reports)
        self._unshown = commit, time.monotonic() - started
        if not commit.plain:
            self._write_owed()
        end_if_lost(self.flow.name, commit)
        # A task waits for all its partitions. The catch-up leaves out those without a leader.
        gave_up = any(report.gave_up for report in reports)
        news = self._topics.has_news or self._topics.partitions != copied
        steady = commit.plain and not gave_up and not news
        return steady and not falls_behind(tasks, self.flow.tasks_max, reports)

    def _close(self, todo: Sequence[Range], seconds: float) -> None:
        """After the run's end cancelled a stage of `seconds`: fence its lanes, and commit what it appended."""
        began = time.time()
        plans = [replace(plan, max_seconds=0.0) for plan in self._plans(self.flow, todo, began)]
        with named(self._spark, self._job_name("close")):
            reports = self._learned(run_tasks(self._spark, plans))
        commit = self._state.apply([counted_as_copied(report, seconds) for report in reports], began)
        self._driver.commit(commit)
        self._count(commit.reports)
        self._show(commit.reports, self._state.lag(), seconds)
        end_if_lost(self.flow.name, commit)

    def _job_name(self, what: str) -> str:
        self._cycles += 1
        return f"{self.flow.name}: {what}, cycle {self._cycles}"

    def _plans(self, flow: ReplicationFlow, todo: Sequence[Range], began: float) -> List[TaskPlan]:
        plans = self._state.plans(self._name, flow, todo, began)
        return self._rate.shared(self._ids.reported(plans))

    def _learned(self, reports: Sequence[TaskReport]) -> Sequence[TaskReport]:
        self._ids.learn(reports)
        self._rate.learn(reports)
        return recheck_size_limits(self.flow.name, self._topics, reports)

    def _write_owed(self) -> None:
        """Begin to append what the last commit left for later, and give out the metrics of the last stage, for which
        the next one does not wait. Call it before other writes to the ledger."""
        self._driver.write_owed()
        unshown, self._unshown = self._unshown, None
        if unshown is not None:
            commit, seconds = unshown
            self._show(commit.reports, self._state.lag(), seconds)

    def _show(self, reports: Sequence[TaskReport], lag: Lag, seconds: float) -> None:
        held_seconds = max((report.held_seconds for report in reports), default=0.0)
        held = rate_limited(self.flow.max_bytes_per_second, held_seconds, seconds)
        name, uncounted = self.flow.name, self._topics.plan.uncounted
        self._watch(metrics_of(name, self._journal.batch.batch_id, reports, lag, seconds, uncounted), held)
