"""Ranges in, one plan for each lane that has something to do out."""

from __future__ import annotations

from typing import Callable, Dict, List, Mapping, Sequence

from mirror_lib.config.clients import kafka_python_options
from mirror_lib.config.model import ReplicationFlow
from mirror_lib.replicate.lane_state import LaneState
from mirror_lib.replicate.lanes import LanePlan, PartitionTask, lane_of, transactional_id
from mirror_lib.replicate.ranges import Range
from mirror_lib.replicate.topics import CopiedPartition
from mirror_lib.state.records import PartitionKey


def plan_lanes(
    name: str,
    flow: ReplicationFlow,
    partitions: Mapping[PartitionKey, CopiedPartition],
    todo: Sequence[Range],
    lanes: Mapping[int, LaneState],
    isolate_until: Callable[[PartitionKey], int],
) -> List[LanePlan]:
    """Plans by lane number. `lanes` holds what earlier passes handed over; `name` is the mirror's."""
    tasks: Dict[int, List[PartitionTask]] = {}
    for each in todo:
        copied = partitions[each.key]
        lane = lane_of(copied.remote_topic, copied.partition, flow.tasks_max)
        state = lanes.get(lane, LaneState())
        tasks.setdefault(lane, []).append(_task(flow, copied, each, state, isolate_until(each.key)))
    exact = flow.delivery == "exactly-once"
    return [
        LanePlan(
            lane=lane,
            flow=flow.name,
            transactional_id=transactional_id(name, flow.name, lane, flow.tasks_max) if exact else None,
            producer=lanes.get(lane, LaneState()).producer,
            tasks=tuple(lane_tasks),
            source_alias=flow.source.alias,
            target_alias=flow.target.alias,
            source_options=kafka_python_options(flow.source.client_properties("consumer")),
            target_options=kafka_python_options(flow.target.client_properties("producer")),
            isolation_level=flow.isolation_level,
            max_seconds=flow.batch_max_seconds,
        )
        for lane, lane_tasks in sorted(tasks.items())
    ]


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
    )
