"""A pass as it is written down in; its rows on the remote logs, in the one order that such a pass has, out.

Rows are sorted by remote partition, then by where they came from: whoever does the pass again has them in that order.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Sequence

from pyspark.sql import DataFrame, SparkSession

from mirror_lib.config.clients import kafka_python_options
from mirror_lib.config.model import ReplicationFlow
from mirror_lib.errors import ClusterError, FencedError, MirrorError, RefusedError
from mirror_lib.facts import TopicPartition
from mirror_lib.log.batch import Producer
from mirror_lib.log.connection import Disconnected
from mirror_lib.records.dead_letters import DeadLetters
from mirror_lib.records.flow_change import FlowChange
from mirror_lib.records.pass_lanes import PassLanes
from mirror_lib.records.read_bytes import ReadBytes
from mirror_lib.records.ready import Ready, made_ready, marked_again
from mirror_lib.records.refused_rows import RefusedRows, RowsRefused
from mirror_lib.records.silent_remotes import ends_without_records
from mirror_lib.records.source_rows import source_rows
from mirror_lib.records.stage import append_rows
from mirror_lib.records.writer import RowsPlan, RowsReport
from mirror_lib.replicate.lane_state import LaneState
from mirror_lib.replicate.lanes import PartitionReport, PartitionTask, TaskPlan, lane_of
from mirror_lib.replicate.topics import TopicWatch
from mirror_lib.state.row_passes import REMOTE, SOURCE, PassRow, RowPass

log = logging.getLogger(__name__)

# A lane whose epochs are used up is given another producer id once more.
MOST_IDS = 5
ORDER = ("remote_topic", "remote_partition", "source_topic", "source_partition", "source_offset")


class NotWhole(Exception):
    """Some of a pass is not written, or nobody knows: it has to be done again."""


@dataclass(frozen=True)
class Done:
    """A pass that is whole: `at` is where each remote partition stands, `offsets` how many the ranges had, and
    `newest` the highest timestamp (ms) among the rows of each source partition that gave any."""

    at: Mapping[TopicPartition, int]
    parts: Sequence[PartitionReport]
    offsets: int
    recovered: int
    newest: Mapping[TopicPartition, int]


class MixedPass:
    """Does the passes of one flow in one driver's life."""

    def __init__(
        self, flow: ReplicationFlow, topics: TopicWatch, change: FlowChange, own: PassLanes, refused: RefusedRows
    ) -> None:
        self._flow = flow
        self._topics = topics
        self._change = change
        self._own = own
        self._refused = refused
        self._lanes: Dict[int, LaneState] = {}
        dead = flow.change.dead_letter_topic if flow.change is not None else None
        self._dead_letters = None if dead is None else DeadLetters(dead)

    def copy(self, spark: SparkSession, planned: RowPass, read: ReadBytes) -> Done:
        """Write what is not written of a pass, whose reading is counted. Raises `NotWhole`, `RowsRefused` where some of
        it is to be left out, and `MirrorError` where it cannot be whole."""
        began = time.time()
        lanes = {lane: state.current(began) for lane, state in self._lanes.items()}
        ready = self._made_ready(planned, lanes)
        ranges = [row for row in planned.of(SOURCE) if row.until_offset != row.from_offset]
        sources = [task for row in ranges for task in self._source_tasks(row)]
        counts: Dict[str, int] = {}
        for row in planned.of(REMOTE):
            counts[row.topic] = counts.get(row.topic, 0) + 1
        changed = self._change.with_counts(counts)(read.of(source_rows(spark, self._flow, sources)), sources)
        rows = self._refused.kept(changed.rows, planned)
        ids = {row.topic: row.topic_id for row in ranges}
        given = RowsPlan(ready.plan, changed.repeatable, False, mixed=True, source_ids=ids)
        found = append_rows(self._sorted(rows), given)
        read.done()
        self._check(found, rows)
        ends = self._ends_of_silent(ready.plan, found, changed.repeatable)
        letters = [letter for each in found for letter in each.dead]
        if letters and self._dead_letters is not None:
            self._dead_letters.append(ready.plan, letters, {row.place: row.from_offset for row in planned.of(SOURCE)})
        parts = self._settled(ready.plan, found, ends, lanes, began)
        at = {(part.remote_topic, part.partition): part.downstream_offset for part in parts}
        offsets = sum((row.until_offset or 0) - row.from_offset for row in ranges)
        return Done(at, parts, offsets, sum(each.report.recovered for each in found), _newest(found))

    def looks_again(self) -> bool:
        """Whether it has lanes that shut others out: it fences them anew then, which fails where somebody has them."""
        self._lanes = {lane: LaneState(producer=state.producer) for lane, state in self._lanes.items()}
        return self._flow.delivery == "exactly-once" and any(state.producer for state in self._lanes.values())

    def _made_ready(self, planned: RowPass, lanes: Mapping[int, LaneState]) -> Ready:
        """The pass's lanes, fenced. Until it is whole nobody knows what lies behind its beginning."""
        self._lanes = {lane: LaneState(producer=state.producer) for lane, state in lanes.items()}
        unused: Mapping[int, Producer] = {}
        for _ in range(MOST_IDS):
            ready = made_ready(self._plan(planned, lanes), unused)
            self._lanes = lanes = {lane: LaneState(producer=each) for lane, each in ready.plan.producers.items()}
            unused = ready.unused
            if not self._own.learn(ready.plan):
                break
        else:
            raise ClusterError(f"{self._flow.name}: the target gives its lanes another producer id each time")
        for part in ready.reports:
            raise RefusedError(f"{self._flow.name}: {part.stopped}")
        return ready

    def _sorted(self, rows: DataFrame) -> DataFrame:
        spread = rows.repartition(self._flow.tasks_max, *ORDER[:2])
        return spread.sortWithinPartitions(*ORDER)

    def _check(self, found: Sequence[RowsReport], rows: DataFrame) -> None:
        if any(each.report.fenced for each in found):
            raise FencedError(f"{self._flow.name}: another driver took over this flow", "let one driver run each flow")
        for each in found:
            for (topic, number), offset, reason in each.failed:
                raise MirrorError(
                    f"{self._flow.name}: {topic}-{number} at offset {offset}: {reason}",
                    "set dead.letter.topic: rows before and behind it are written already",
                )
        parts = [part for each in found for part in each.report.partitions]
        skips = self._flow.on_error == "skip"
        rejected = [part for part in parts if skips and part.rejected_from is not None and not part.refused]
        for part in parts:
            if part.stopped is not None and part not in rejected:
                raise (RefusedError if part.refused else MirrorError)(f"{self._flow.name}: {part.stopped}")
        if any(each.broken for each in found):
            raise NotWhole("a task ended before its rows did")
        if rejected:
            raise RowsRefused(rows, rejected)
        for part in parts:
            if part.sequence is None:
                raise _more_than_given(part.remote)

    def _ends_of_silent(
        self, plan: TaskPlan, found: Sequence[RowsReport], repeatable: bool
    ) -> Mapping[TopicPartition, int]:
        """Where remote logs end that got no row and were not known to end at their positions: they hold markers alone
        there. Raises RefusedError where one holds a record, which is from another pass than this one."""
        seen = {part.remote for each in found for part in each.report.partitions}
        silent = [task for task in plan.tasks if task.sequence is None and task.remote not in seen and not task.shared]
        try:
            ends = ends_without_records(plan, silent)
        except Disconnected as error:
            raise NotWhole(str(error)) from error
        for task in silent:
            if repeatable and task.remote not in ends:
                raise _more_than_given(task.remote)
        return ends

    def _settled(
        self,
        plan: TaskPlan,
        found: Sequence[RowsReport],
        ends: Mapping[TopicPartition, int],
        lanes: Mapping[int, LaneState],
        began: float,
    ) -> List[PartitionReport]:
        """Where every remote partition stands behind a pass that is whole, and what its lane hands over."""
        written = [part for each in found for part in each.report.partitions]
        seen = {part.remote for part in written}
        parts = [*written, *(_standing(task, ends.get(task.remote)) for task in plan.tasks if task.remote not in seen)]
        marked = marked_again(plan, parts, [remote for each in found for remote in each.aged])
        for lane in plan.producers:
            own = [part for part in marked.reports if lane_of(part.remote_topic, part.partition) == lane]
            self._lanes[lane] = lanes.get(lane, LaneState()).after(marked.producers.get(lane), own, began)
        return list(marked.reports)

    def _plan(self, planned: RowPass, lanes: Mapping[int, LaneState]) -> TaskPlan:
        limits = {each.remote_topic: each.max_message_bytes for each in self._topics.partitions.values()}
        shared = self._flow.shared_remote_topics
        alone = self._refused.isolate_until
        known = [row for row in planned.of(REMOTE) if row.topic in limits]
        tasks = tuple(_task(row, lanes, limits[row.topic], shared, alone(row.place)) for row in known)
        producers = {task.lane: lanes[task.lane].producer for task in tasks if task.lane in lanes}
        handed_over = [lanes[task.lane].confirmed_at for task in tasks if task.sequence is not None]
        plan = TaskPlan(
            task=0,
            flow=self._flow.name,
            transactional_ids={},
            producers={lane: producer for lane, producer in producers.items() if producer is not None},
            tasks=tasks,
            source_alias=self._flow.source.alias,
            target_alias=self._flow.target.alias,
            source_options=kafka_python_options(self._flow.source.client_properties("consumer")),
            target_options=kafka_python_options(self._flow.target.client_properties("producer")),
            confirmed_at=min(handed_over, default=0.0),
        )
        return self._own.told(plan)

    def _source_tasks(self, row: PassRow) -> List[PartitionTask]:
        """A task for each remote topic of the row's."""
        own, copied = (row.topic, row.topic_id), self._topics.partitions.values()
        remotes = sorted({each.remote_topic for each in copied if (each.topic, each.source_topic_id) == own})
        if not remotes:
            raise RefusedError(
                f"{self._flow.name}: an interrupted pass copies {row.topic}, which the flow does not copy any more",
                "run it once as it was; a topic that was created anew is another one, and needs a new flow",
            )
        return [
            PartitionTask(
                topic=row.topic,
                remote_topic=remote,
                partition=row.partition,
                upstream_offset=row.from_offset,
                downstream_offset=0,
                end=row.until_offset or 0,
                sequence=None,
                max_message_bytes=0,
            )
            for remote in remotes
        ]


def _task(
    row: PassRow, lanes: Mapping[int, LaneState], max_message_bytes: int, shared: bool, isolate_until: int
) -> PartitionTask:
    return PartitionTask(
        topic=row.topic,
        remote_topic=row.topic,
        partition=row.partition,
        upstream_offset=0,
        downstream_offset=row.from_offset,
        end=0,
        sequence=lanes.get(lane_of(*row.place), LaneState()).sequences.get(row.place),
        max_message_bytes=max_message_bytes,
        shared=shared,
        isolate_until=isolate_until,
    )


def _newest(found: Sequence[RowsReport]) -> Dict[TopicPartition, int]:
    newest: Dict[TopicPartition, int] = {}
    for source, timestamp in (item for each in found for item in each.newest.items()):
        newest[source] = max(newest.get(source, -1), timestamp)
    return newest


def _standing(task: PartitionTask, end: Optional[int]) -> PartitionReport:
    """A partition that got no row. `end` is that of a log that was fenced for this pass, and has markers alone."""
    topic, number = task.remote
    stands, sequence = (task.downstream_offset, task.sequence) if end is None else (end, 0)
    return PartitionReport(topic, topic, number, 0, stands, sequence, -1)


def _more_than_given(remote: TopicPartition) -> RefusedError:
    return RefusedError(
        f"{remote[0]}-{remote[1]}: the remote log holds more than the interrupted pass gave",
        "somebody else wrote to it; give the flow an empty remote topic",
    )
