"""Ranges in, one plan for each Spark task that has something to copy out: the lanes shared out among the tasks."""

from __future__ import annotations

from typing import Callable, Dict, List, Mapping, Sequence, Tuple

from mirror_lib.config.client_options import kafka_python_options
from mirror_lib.config.model import ReplicationFlow
from mirror_lib.ledger.records import PartitionKey
from mirror_lib.replication.copied_topics import CopiedPartition
from mirror_lib.replication.lane_state import LaneState
from mirror_lib.replication.messages import MOST_SYNCS, PartitionTask, TaskPlan, lane_of, transactional_id
from mirror_lib.replication.planner import Range
from mirror_lib.replication.shares import LaneShares

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
