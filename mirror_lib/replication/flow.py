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
from dataclasses import dataclass, replace
from typing import Callable, Dict, FrozenSet, List, Mapping, Optional, Protocol, Sequence, Tuple

from pyspark.sql import SparkSession

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.config.values import AVAILABLE_NOW
from mirror_lib.errors import ClusterError, FencedError
from mirror_lib.facts import Cluster, TopicPartition
from mirror_lib.kafka.group_progress import GroupProgress
from mirror_lib.metrics import FlowMetrics
from mirror_lib.replication.copied_topics import TopicWatch, recheck_size_limits
from mirror_lib.replication.copy_ranges import Range, SourceCluster, SourceEndOffsets, next_offsets
from mirror_lib.replication.flow_rate import FlowRate, rate_limited
from mirror_lib.replication.flow_state import Commit, FlowState, end_if_lost, judged_by_topics, snapshot_of
from mirror_lib.replication.journal import BatchRef, Journal
from mirror_lib.replication.messages import PartitionReport, TaskPlan, TaskReport
from mirror_lib.replication.positions import Partitions, Positions, SourceProgress
from mirror_lib.replication.stage import CancellableStage, most_slots, run_tasks, task_slots
from mirror_lib.replication.tail import (
    CHECK_SECONDS,
    COMMIT_SECONDS,
    FIRST_STAGE_SECONDS,
    LEFT_OUT_SECONDS,
    TOPICS_SECONDS,
    TOPICS_SHARE,
    Every,
    Tail,
    falls_behind,
    refuse_stalled,
    tail_tasks,
    tailed,
)
from mirror_lib.replication.totals import Totals, counted_as_copied
from mirror_lib.spark.jobs import named
from mirror_lib.topics.filters import subscribe_pattern

log = logging.getLogger(__name__)

STUCK_CYCLES = 3

Watcher = Callable[[FlowMetrics], None]


class IdTable(Protocol):
    """Stores the producer ids of a flow's lanes."""

    def producer_ids(self) -> Mapping[int, FrozenSet[int]]:
        """The producer ids by lane."""

    def add_producer_ids(self, ids: Sequence[Tuple[int, int]]) -> None:
        """Add pairs of lane and producer id."""


class LaneIds:
    """The producer ids of one flow's lanes in one process. Without a `table` the remote topics have no other writer,
    and no ids are recorded."""

    def __init__(self, flow: str, table: Optional[IdTable]) -> None:
        self._flow = flow
        self._table = table
        self._known: Dict[int, FrozenSet[int]] = dict(table.producer_ids()) if table is not None else {}

    def reported(self, plans: Sequence[TaskPlan]) -> List[TaskPlan]:
        """Return `plans` with the recorded ids of their lanes."""
        if self._table is None:
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
        if self._table is None or not new:
            return
        written = self._table.producer_ids()
        if any(written.get(lane, frozenset()) - self._known.get(lane, frozenset()) for lane, _ in new):
            raise FencedError(f"{self._flow}: another driver copies this flow", "let one driver run each flow")
        self._table.add_producer_ids(new)
        for lane, number in new:
            self._known[lane] = self._known.get(lane, frozenset()) | {number}


@dataclass(frozen=True)
class FlowContext:
    """What both engines need to run a flow in one driver process.

    `watcher` is called with metrics after each cycle, and `totals` counts the copied records. `stop` ends a batch after
    its current cycle. Progress is committed to the source's group `group`.
    """

    config: MirrorConfig
    flow: ReplicationFlow
    spark: SparkSession
    journal: Journal
    source: SourceCluster
    target: Cluster
    watcher: Watcher
    stop: threading.Event
    totals: Totals
    group: Optional[GroupProgress] = None


class FlowMirror:
    """Copies a flow cycle by cycle. Not thread-safe: one caller at a time.

    Construction reads the ledger, and creates or grows remote topics; raises `ClusterError`, `StateError`.
    """

    def __init__(self, context: FlowContext) -> None:
        config, flow = context.config, context.flow
        self.flow = flow
        # True once the flow tails: a tail does not wait for its commits.
        self._in_background = False
        # A run that ends by itself still has to copy what the source held when the batch began.
        self._endless = config.trigger != AVAILABLE_NOW
        self._totals = context.totals
        self._name = config.name
        self._watcher = context.watcher
        self._stop = context.stop
        self._journal = context.journal
        self._source = context.source
        self._topics = TopicWatch(flow, config.flows, context.source, context.target)
        self._topics.refresh()
        self._positions = Positions(flow, context.source, context.target, context.journal)
        self._state = FlowState(flow, self._positions)
        self._progress = SourceProgress(context.group)
        self._ids = LaneIds(flow.name, context.journal if flow.shared_remote_topics else None)
        self._known_ends = SourceEndOffsets()
        self._rate = FlowRate(flow.max_bytes_per_second)
        self._topics_due = Every(TOPICS_SECONDS)
        self._cycles = self._failed_tails = 0
        # Until a first stage has passed, records that come between two stages wait several times as long.
        self._is_cold = True
        # What is copied and not yet appended to the ledger.
        self._owed: Optional[Tuple[Commit, BatchRef]] = None
        # The last stage, and how long it took, until its metrics are given out.
        self._unshown: Optional[Tuple[Commit, BatchRef, float]] = None

    def has_history(self) -> bool:
        """True if the ledger has rows of this flow."""
        return self._positions.known > 0

    def stopped(self) -> Sequence[PartitionReport]:
        """The partitions that are stopped, as of the last batch."""
        return list(self._state.stopped.parts.values())

    def sources(self) -> Sequence[TopicPartition]:
        """The source partitions that the flow copies."""
        return self._topics.plan.sources()

    def blocked(self) -> Sequence[str]:
        """One sentence for each selected topic that cannot be copied at present."""
        return [f"{each.name}: {each.reason}" for each in self._topics.plan.blocked]

    def leaderless(self) -> bool:
        """Whether a source partition that Spark's source would read has no leader now."""
        pattern = re.compile(subscribe_pattern(self.flow))
        return any(each.leaderless and pattern.fullmatch(each.name) for each in self._source.topics().values())

    def copy_batch(self, spark: SparkSession, batch: BatchRef, tail: Optional[Tail] = None) -> None:
        """Copy until every partition has reached the end that its source had when this was called. With `tail`, then
        copy new records until the run stops, or has too few task slots.

        Raises `FencedError` if another driver fenced this one, `ClusterError` if a cluster stays unavailable.
        """
        self._in_background = self._in_background or tail is not None
        partitions, ranges = self._catch_up(spark, batch)
        again = Every(LEFT_OUT_SECONDS)
        while tail is not None and not self._stop.is_set():
            todo = tailed(ranges, self._state.stopped.parts, self._positions.ahead)
            tasks = tail_tasks(most_slots(spark), tail.flows, self.flow.tasks_max)
            steady = False
            if todo and tasks:
                steady = self._tail(spark, partitions, todo, batch, tail, tasks)
            elif not todo and self._state.stopped.some_may_resume():
                self._journal.written()
                self._state.stopped.wait(self._stop.is_set)
            else:
                break  # the trigger brings what comes
            if not self._stop.is_set() and (not steady or (self._state.stopped.some_may_resume() and again.due())):
                partitions, ranges = self._catch_up(spark, batch)
        self._write_owed()
        self._journal.written()  # nothing may come for long

    def _catch_up(self, spark: SparkSession, batch: BatchRef) -> Tuple[Partitions, Sequence[Range]]:
        self._write_owed()
        partitions = self._topics.refresh()
        self._journal.note(self._topics.take_news(self._journal.topics), batch)
        ranges = self._positions.ranges(partitions, batch)
        self._known_ends = SourceEndOffsets(ranges)
        self._progress.begun(partitions, ranges)
        self._state.stopped.begin(partitions, ranges)
        idle_cycles = cycles = 0
        while not self._stop.is_set():
            left = map(self._positions.ahead, ranges)
            todo = [each for each in left if each.behind and each.key not in self._state.stopped.parts]
            if not todo:
                break
            cycles += 1
            idle_cycles = 0 if self._cycle(spark, partitions, todo, batch) else idle_cycles + 1
            partitions = self._topics.partitions
            if idle_cycles >= STUCK_CYCLES:
                raise ClusterError(f"{self.flow.name}: no progress in {idle_cycles} cycles", "see the executors' logs")
        if not cycles:
            self._watch([], [], batch, 0.0)
        return partitions, ranges

    def _cycle(self, spark: SparkSession, partitions: Partitions, todo: Sequence[Range], batch: BatchRef) -> bool:
        """Run one cycle over every lane with records to copy; False if no position moved."""
        started, began = time.monotonic(), time.time()
        flow = self.flow
        if flow.max_bytes_per_second is not None:
            # The share of a task that waits for a slot would stay unused.
            flow = replace(flow, tasks_max=min(flow.tasks_max, max(1, task_slots(spark))))
        with named(spark, self._job_name("copy")):
            reports = self._learned(run_tasks(spark, self._plans(flow, partitions, todo, began)))
        commit = self._state.apply(reports, partitions, began)
        self._commit(commit, partitions, batch, later=self._in_background)
        self._write_owed()
        stopped, ahead = self._state.stopped.parts, self._positions.ahead
        going = [ahead(each) for each in todo if each.key not in stopped]
        left = self._known_ends.left(commit.parts.values(), stopped, ahead) if self._endless else going
        self._watch(reports, left, batch, time.monotonic() - started)
        end_if_lost(self.flow.name, commit)
        # A flow that a rate or a quota delayed is not stuck.
        return bool(commit.runs or commit.moves) or any(report.was_held for report in reports)

    def _tail(
        self,
        spark: SparkSession,
        partitions: Partitions,
        todo: Sequence[Range],
        batch: BatchRef,
        tail: Tail,
        tasks: int,
    ) -> bool:
        """Run one stage that copies new records for `tail.seconds`, the first one less. True if the next one may follow
        at once.

        The ledger gets the stage's offset syncs while the next stage runs. The end of the run cancels the stage. What
        a cancelled or failed stage has appended is on the remote logs, where the next start of its lanes finds it.
        """
        began, started = time.time(), time.monotonic()
        plans = self._plans(replace(self.flow, tasks_max=tasks), partitions, todo, began)
        seconds = min(tail.seconds, FIRST_STAGE_SECONDS) if self._is_cold else tail.seconds
        plans = [replace(plan, tails=True, max_seconds=seconds) for plan in plans]
        # A later look might hold up the next stage.
        last_look = started + max(seconds / 2, seconds - COMMIT_SECONDS)
        stage = CancellableStage(spark, plans, self._job_name("tail"))
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
            reports = self._learned(stage.reports())
        except ClusterError as error:
            self._state.let_go(plans, [], partitions)
            if self._stop.is_set():
                self._close(spark, partitions, todo, batch, time.monotonic() - started)
                return False
            self._failed_tails += 1
            if self._failed_tails >= STUCK_CYCLES:
                raise
            log.warning("%s; what the stage appended is found on the target", error)
            return False
        self._failed_tails, self._is_cold = 0, False
        if any(part.stopped for report in reports for part in report.partitions):
            self._topics.present()  # perhaps its topic was re-created since the last look
        reports = judged_by_topics(reports, partitions, self._topics.partitions)
        commit = self._state.apply(reports, partitions, began)
        self._commit(commit, partitions, batch, later=most_slots(spark) > tasks * tail.flows)
        self._state.let_go(plans, reports, partitions)
        self._unshown = commit, batch, time.monotonic() - started
        if not commit.plain:
            self._write_owed()
        end_if_lost(self.flow.name, commit)
        steady = commit.plain and self._topics.partitions == partitions
        return steady and not falls_behind(tasks, self.flow.tasks_max, reports)

    def _close(
        self, spark: SparkSession, partitions: Partitions, todo: Sequence[Range], batch: BatchRef, seconds: float
    ) -> None:
        """After the run's end cancelled a stage of `seconds`: fence its lanes, and commit what it appended."""
        began = time.time()
        plans = [replace(plan, max_seconds=0.0) for plan in self._plans(self.flow, partitions, todo, began)]
        with named(spark, self._job_name("close")):
            reports = self._learned(run_tasks(spark, plans))
        reports = [counted_as_copied(report, seconds) for report in reports]
        commit = self._state.apply(reports, partitions, began)
        self._commit(commit, partitions, batch)
        self._show(commit, batch, seconds)
        end_if_lost(self.flow.name, commit)

    def _job_name(self, what: str) -> str:
        self._cycles += 1
        return f"{self.flow.name}: {what}, cycle {self._cycles}"

    def _show(self, commit: Commit, batch: BatchRef, seconds: float) -> None:
        """The metrics of a stage that tailed."""
        left = self._known_ends.left(commit.parts.values(), self._state.stopped.parts, self._positions.ahead)
        self._watch(commit.reports, left, batch, seconds)

    def _plans(
        self, flow: ReplicationFlow, partitions: Partitions, todo: Sequence[Range], began: float
    ) -> List[TaskPlan]:
        plans = self._state.plans(self._name, flow, partitions, todo, began)
        return self._rate.shared(self._ids.reported(plans))

    def _learned(self, reports: Sequence[TaskReport]) -> Sequence[TaskReport]:
        self._ids.learn(reports)
        self._rate.learn(reports)
        return recheck_size_limits(self.flow.name, self._topics, reports)

    def _commit(self, commit: Commit, partitions: Partitions, batch: BatchRef, *, later: bool = False) -> None:
        """Take `commit`, and append it to the ledger; if `later`, and where that may wait, `_write_owed` appends it."""
        # Incidents first: a crash in between records one twice, and never moves past records in silence.
        self._journal.note(commit.incidents, batch)
        may_wait = commit.plain and not self._progress.waits_for_ledger()
        if later and may_wait:
            self._owed = commit, batch
        else:
            self._journal.append(commit.rows, batch, commit.runs)
        self._state.take(commit)
        self._progress.moved(partitions, commit.moves)
        parts = (part for report in commit.reports for part in report.partitions)
        recovered = sum(report.recovered for report in commit.reports)
        self._totals.add(parts, recovered, self._topics.plan.uncounted)

    def _write_owed(self) -> None:
        """Begin to append, in a thread, what `_commit` left for later, and give out the metrics of the last stage, for
        which the next one does not wait. Call it before other writes to the ledger."""
        owed, self._owed = self._owed, None
        if owed is not None:
            commit, batch = owed
            self._journal.append(commit.rows, batch, commit.runs, in_background=True)
        unshown, self._unshown = self._unshown, None
        if unshown is not None:
            self._show(*unshown)

    def _watch(
        self, reports: Sequence[TaskReport], going: Sequence[Range], batch: BatchRef, seconds: float
    ) -> None:
        held_seconds = max((report.held_seconds for report in reports), default=0.0)
        held = rate_limited(self.flow.max_bytes_per_second, held_seconds, seconds)
        stopped = len(self._state.stopped.parts)
        left = {each.source: each.behind for each in going}
        now = (self.flow.name, reports, left, batch.batch_id, seconds, stopped, held, next_offsets(going))
        self._watcher(snapshot_of(*now, self._topics.plan.uncounted))
