"""The engine `records` for one flow: plans of a pass in, what became of its partitions out, as from the other engine.

Order of effects in a pass: lanes fenced, rows appended, markers behind old records. The caller writes the ledger then.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Protocol, Sequence, Set, Tuple

from pyspark.sql import DataFrame, SparkSession

from mirror_lib.changes.changed import no_rows
from mirror_lib.config.model import ReplicationFlow
from mirror_lib.errors import FencedError, MirrorError, RefusedError
from mirror_lib.log.batch import Producer
from mirror_lib.log.connection import Disconnected
from mirror_lib.records.dead_letters import DeadLetters
from mirror_lib.records.large_rows import marked
from mirror_lib.records.pass_room import Room, RoomToRead, offsets_by_rate, owed, together
from mirror_lib.records.read_bytes import ReadBytes
from mirror_lib.records.ready import Ready, made_ready, marked_again
from mirror_lib.records.rows import Partition
from mirror_lib.records.rows_at_once import RowsAtOnce
from mirror_lib.records.silent_remotes import looked_behind
from mirror_lib.records.source_rows import source_rows
from mirror_lib.records.stage import COUNTS, append_rows
from mirror_lib.records.told_parts import taking
from mirror_lib.records.unsettled import UnsettledPartitions
from mirror_lib.records.writer import RowsPlan, RowsReport
from mirror_lib.replicate.lanes import PartitionReport, PartitionTask, TaskPlan, TaskReport, nothing_copied
from mirror_lib.replicate.partition import PartitionCopy
from mirror_lib.replicate.rates import Fetching, TaskRates
from mirror_lib.session import cloned

log = logging.getLogger(__name__)

# Offsets of the first pass, when nobody knows yet how long they take: some seconds, where a pass costs one or two more.
# Its tasks end when their time is up, but for those of which no row is left to copy. Later ones are at most so many
# times larger.
FIRST_OFFSETS, FEWEST_OFFSETS = 500_000, 1_000
GROWTH = 4


class Changed(NamedTuple):
    """The rows of a pass as they are to be written, in the columns of `CHANGED_DDL`. `repeatable` says whether they are
    the same each time, else `reason` why not. A task that keeps partitions can do without the columns `needless`."""

    rows: DataFrame
    repeatable: bool
    reason: str = ""
    needless: Tuple[str, ...] = ()


class Change(Protocol):
    """What a flow makes of its rows."""

    def __call__(self, rows: DataFrame, tasks: Sequence[PartitionTask]) -> Changed:
        """`rows` are as Spark's Kafka source gives them, of the partitions of `tasks`."""


class RecordEngine:
    """One flow's engine in one driver's life."""

    def __init__(self, flow: ReplicationFlow, change: Change, at_once: Optional[RowsAtOnce] = None) -> None:
        self._flow = flow
        self._change = change
        self._told = False
        self._repeatable = True
        named = flow.change.dead_letter_topic if flow.change is not None else None
        self._dead_letters = None if named is None else DeadLetters(named)
        self._offsets = FIRST_OFFSETS
        self._room = RoomToRead()
        self._at_once = at_once or RowsAtOnce(counts=COUNTS)
        self._session: Optional[SparkSession] = None
        self._unsettled = UnsettledPartitions()
        self._unused: Mapping[int, Producer] = {}

    def copy(self, spark: SparkSession, plans: Sequence[TaskPlan]) -> List[TaskReport]:
        """Copy once. A partition that is not in the report was not moved. Raises `MirrorError`."""
        if not plans:
            return []
        whole = _one_plan(plans)
        began = time.monotonic()
        if not self._told:  # what is written wrong is refused before anything is fenced
            self._changed(no_rows(spark), whole.tasks)
        tasks = bounded(whole.tasks, self._room.room(_of_reading(whole), self._offsets))
        if not tasks:
            return [_held(whole)]
        self._unsettled.begin(tasks)
        read = ReadBytes(_of_reading(whole))
        try:
            ready = made_ready(replace(whole, tasks=tasks), self._unused)
            self._unused = ready.unused
            more_behind = _more_behind(whole, tasks)
            found = self._append(self._own(spark), ready.plan, read, more_behind)
            self._bury(ready.plan, found)
            report = self._report(ready, found, more_behind, time.monotonic() - began)
            report = self._unsettled.told(report, ready.plan.tasks)
        except FencedError as error:
            log.warning("%s: %s", whole.flow, error)
            return [nothing_copied(0, fenced=True)]
        nbytes = read.nbytes()
        self._at_once.learn(report.records, report.bytes, any(each.large for each in found))
        self._learn(ready.plan, report, nbytes)
        # What is owed waited for all of the pass.
        fetching = Fetching(nbytes, dict.fromkeys(owed(whole.rates), report.seconds))
        return [replace(report, fetching=fetching, partitions=taking(report.partitions, report.seconds))]

    def _own(self, spark: SparkSession) -> SparkSession:
        """A session like `spark`, as other flows have other settings at the same time."""
        if self._session is None:
            self._session = cloned(spark, {})
        return self._session

    def _append(
        self, spark: SparkSession, plan: TaskPlan, read: ReadBytes, more_behind: FrozenSet[Partition]
    ) -> List[RowsReport]:
        if not plan.tasks:
            return []
        changed = self._changed(read.of(source_rows(spark, self._flow, plan.tasks)), plan.tasks)
        at_once = self._at_once.next()
        # Narrow: the rows of a source partition stay together and in order.
        rows = marked(changed.rows.drop(*changed.needless), at_once.largest).coalesce(self._flow.tasks_max)
        ids = {task.topic: task.source_topic_id for task in plan.tasks}
        skips = self._flow.on_error == "skip"
        given = RowsPlan(plan, changed.repeatable, skips, False, ids, more_behind, self._unsettled.left)
        found = append_rows(rows, given, at_once)
        for each in found:
            self._unsettled.learn(each.report, each.unsettled)
        read.done()
        for (topic, number), offset, reason in (failed for each in found for failed in each.failed):
            hint = "`transform` must leave topic, partition and offset as they are, and give a record once"
            raise RefusedError(f"{plan.flow}: {topic}-{number} at offset {offset}: {reason}", hint)
        return found

    def _changed(self, rows: DataFrame, tasks: Sequence[PartitionTask]) -> Changed:
        changed = self._change(rows, tasks)
        if not changed.repeatable and not self._told:
            log.warning("%s is at least once: %s", self._flow.name, changed.reason)
        self._told, self._repeatable = True, changed.repeatable
        return changed

    def _bury(self, plan: TaskPlan, found: Sequence[RowsReport]) -> None:
        letters = [letter for each in found for letter in each.dead]
        # Whoever took the flow over comes to them too.
        overtaken = any(each.report.fenced for each in found)
        if letters and self._dead_letters is None:
            raise MirrorError(f"{plan.flow}: {len(letters)} records failed, and there is no topic for them")
        if letters and not overtaken and self._dead_letters is not None:
            stands: Dict[Partition, int] = {}
            for task in plan.tasks:
                stands[task.source] = min(task.upstream_offset, stands.get(task.source, task.upstream_offset))
            self._dead_letters.append(plan, letters, stands)

    def _report(
        self, ready: Ready, found: Sequence[RowsReport], more_behind: FrozenSet[Partition], seconds: float
    ) -> TaskReport:
        plan = ready.plan
        parts = [part for each in found for part in each.report.partitions]
        seen = {part.remote for part in parts}
        fenced = any(each.report.fenced for each in found)
        # Partitions of which no row came are done, unless their rows may be among those that nobody looked at.
        unsure, cut = fenced or any(each.broken for each in found), any(each.cut for each in found)
        if not (unsure or cut):
            parts += self._looked_behind(plan, seen, more_behind)
        parts += _without_rows(plan, {part.remote for part in parts}, unsure, cut)
        starts = {task.remote: task.upstream_offset for task in plan.tasks if task.sequence is None}
        silent = (part for part in parts if part.remote in starts and part.remote not in seen)
        self._unsettled.pass_over(part.remote for part in silent if part.position > starts[part.remote])
        aged = [] if fenced else [remote for each in found for remote in each.aged]
        marked = marked_again(plan, parts, aged)
        reports = [each.report for each in found]
        return TaskReport(
            task=0,
            producers={} if fenced else marked.producers,
            fenced=fenced,
            partitions=(*ready.reports, *marked.reports),
            syncs=tuple(syncs for each in reports for syncs in each.syncs),
            records=sum(each.records for each in reports),
            bytes=sum(each.bytes for each in reports),
            re_encoded=sum(each.re_encoded for each in reports),
            recovered=sum(each.recovered for each in reports),
            seconds=seconds,
        )

    def _looked_behind(
        self, plan: TaskPlan, seen: Set[Partition], more_behind: FrozenSet[Partition]
    ) -> List[PartitionReport]:
        """The reports of partitions that got no row and may have something left on their remote logs."""
        silent = [task for task in plan.tasks if task.sequence is None and task.remote not in seen]
        # What others wrote is not read for this, however long it is.
        owed = self._unsettled.owed()
        silent = [task for task in silent if not task.shared or task.remote in owed] if self._repeatable else []
        try:
            return looked_behind(plan, silent, owed, more_behind)
        except Disconnected as error:
            log.warning("%s: %s; the next pass looks what is there", plan.flow, error)
            return [PartitionCopy(task).report(known=False) for task in silent]

    def _learn(self, plan: TaskPlan, report: TaskReport, read: Mapping[int, int]) -> None:
        """How many offsets the next pass is to have."""
        starts = {task.remote: task.upstream_offset for task in plan.tasks}
        parts = [part for part in report.partitions if (part.remote_topic, part.partition) in starts]
        done = sum(part.position - starts[(part.remote_topic, part.partition)] for part in parts)
        self._offsets = next_offsets(self._offsets, done, report.seconds, self._flow.batch_max_seconds)
        ranges = [(task.topic, task.end - task.upstream_offset) for task in plan.tasks]
        self._room.learn(read, offsets_by_rate(ranges, plan.rates))


def next_offsets(last: int, done: int, seconds: float, wanted_seconds: float) -> int:
    """How many offsets a pass of `wanted_seconds` may have, after `done` of at most `last` took so many seconds."""
    if not done or seconds <= 0:
        return last
    return max(FEWEST_OFFSETS, min(int(done / seconds * wanted_seconds), last * GROWTH))


def _one_plan(plans: Sequence[TaskPlan]) -> TaskPlan:
    """The plans of a pass as one: the driver fences for all of them."""
    known: Optional[Dict[int, frozenset[int]]] = None
    if plans[0].known_ids is not None:
        known = {lane: ids for plan in plans for lane, ids in (plan.known_ids or {}).items()}
    return replace(
        plans[0],
        task=0,
        rates=together([plan.rates for plan in plans]),
        transactional_ids={lane: name for plan in plans for lane, name in plan.transactional_ids.items()},
        producers={lane: producer for plan in plans for lane, producer in plan.producers.items()},
        tasks=tuple(task for plan in plans for task in plan.tasks),
        confirmed_at=min((plan.confirmed_at for plan in plans if plan.confirmed_at), default=0.0),
        known_ids=known,
    )


def _of_reading(plan: TaskPlan) -> TaskRates:
    """The rates of a plan; what a pass may write is minded by its tasks."""
    return replace(plan.rates, pass_bytes=None)


def _held(plan: TaskPlan) -> TaskReport:
    """Wait until something may be read again, or for as long as a pass may take."""
    debts = owed(plan.rates)
    seconds = min([*debts.values(), plan.max_seconds])
    time.sleep(seconds)
    return replace(nothing_copied(0), seconds=seconds, fetching=Fetching({}, dict.fromkeys(debts, seconds)))


def bounded(tasks: Sequence[PartitionTask], room: Room) -> Tuple[PartitionTask, ...]:
    """The same with their ends brought forward, so that they have as many offsets to go through as there is room for;
    those without any are left out."""
    wanted = {(task.topic, task.partition, task.remote_topic): task.end - task.upstream_offset for task in tasks}
    shares = room.shares(wanted)
    found = ((task, shares[(task.topic, task.partition, task.remote_topic)]) for task in tasks)
    return tuple(replace(task, end=task.upstream_offset + share) for task, share in found if share)


def _more_behind(whole: TaskPlan, tasks: Sequence[PartitionTask]) -> FrozenSet[Partition]:
    """The remote partitions for which the source has more than `tasks` go through."""
    ends = {task.remote: task.end for task in whole.tasks}
    return frozenset(task.remote for task in tasks if task.end < ends[task.remote])


def _without_rows(plan: TaskPlan, seen: Set[Partition], unsure: bool, cut: bool) -> List[PartitionReport]:
    """What is said of the partitions that are not in `seen`: their ranges held nothing that is to be copied. With `cut`
    they may not have been reached; `unsure`: somebody may have died who wrote to them, and be alive."""
    return [
        PartitionReport(
            topic=task.topic,
            remote_topic=task.remote_topic,
            partition=task.partition,
            position=task.upstream_offset if unsure or cut else task.end,
            downstream_offset=task.downstream_offset,
            sequence=None if unsure else task.sequence,
            last_timestamp=-1,
        )
        for task in plan.tasks
        if task.remote not in seen
    ]
