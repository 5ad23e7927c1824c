"""Assigns a flow's lanes to tasks and makes each task's `TaskPlan`, with the lane states of earlier cycles and a share
of the flow's rate. Pure."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import Callable, Dict, List, Mapping, Optional, Sequence

from mirror_lib.config.client_options import kafka_python_options
from mirror_lib.config.model import ReplicationFlow
from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.fetch_quota import RateQuota, TokenBucket
from mirror_lib.kafka.record_batch import Producer
from mirror_lib.ledger.records import PartitionKey
from mirror_lib.metrics import RATE_LIMITED
from mirror_lib.replication.copy_ranges import Range
from mirror_lib.replication.messages import (
    EPOCH_KEPT_SECONDS,
    MOST_SYNCS,
    CopiedPartition,
    PartitionReport,
    PartitionTask,
    TaskPlan,
    TaskReport,
    lane_of,
    transactional_id,
)
from mirror_lib.text import size

# A coordinator forgets a transactional id that it has not heard of for 7 days (transactional.id.expiration.ms); the
# next driver would then get another producer id, which fences no process. Fencing again each day keeps it remembered.
FENCE_LASTS_SECONDS = 24 * 3600.0


@dataclass(frozen=True)
class LaneState:
    """The state of a lane between cycles. `sequences` has every remote partition that this driver has fenced for it.

    At the start of the cycles of `fenced_at` and `confirmed_at`, the coordinator, or at least a broker that accepted an
    append, last confirmed that the lane is this driver's. Both are seconds since 1970: other clocks stop while the
    machine is suspended.
    """

    producer: Optional[Producer] = None
    sequences: Mapping[TopicPartition, int] = field(default_factory=dict)
    fenced_at: float = 0.0
    confirmed_at: float = 0.0

    def current(self, now: float) -> LaneState:
        """This state, or one without sequences if the fence is too old to rely on and must be renewed."""
        # A driver that was suspended for too long must ask the coordinator: brokers may have forgotten the fence.
        held = 0 <= now - self.fenced_at < FENCE_LASTS_SECONDS and 0 <= now - self.confirmed_at < EPOCH_KEPT_SECONDS
        return self if held else replace(self, sequences={})

    def after(self, producer: Optional[Producer], partitions: Sequence[PartitionReport], began: float) -> LaneState:
        """The state after a cycle over `partitions` of this lane that started at `began`. Without a producer nothing is
        handed over.

        A new epoch counts sequences from 0 again, even if nothing was copied.
        """
        if producer is None:
            return LaneState()
        fresh = producer != self.producer
        kept = dict.fromkeys(self.sequences, 0) if fresh else dict(self.sequences)
        for part in partitions:
            remote = (part.remote_topic, part.partition)
            if part.sequence is None or (part.stopped is not None and part.stopped.refused):
                # The end of its remote log is unknown: the next copy must read it again.
                kept.pop(remote, None)
            else:
                kept[remote] = part.sequence
        return replace(
            self,
            producer=producer,
            sequences=kept,
            fenced_at=began if fresh else self.fenced_at,
            # After old records, which confirm nothing, the task has fenced.
            confirmed_at=began if fresh or any(part.records for part in partitions) else self.confirmed_at,
        )


def tasks_of(loads: Mapping[int, int], tasks: int) -> Dict[int, int]:
    """Assign the lanes of `loads` to `tasks` tasks: the largest load first, each to the task that has the least."""
    task_of: Dict[int, int] = {}
    sums = [0] * tasks
    for lane in sorted(loads, key=lambda lane: (-loads[lane], lane)):
        task_of[lane] = sums.index(min(sums))
        sums[task_of[lane]] += loads[lane]
    return task_of


# The most offset syncs of all tasks of a stage, whose reports reach the driver at once.
MOST_SYNCS_OF_STAGE = 2_000_000


def plan_tasks(
    name: str,
    flow: ReplicationFlow,
    partitions: Mapping[PartitionKey, CopiedPartition],
    todo: Sequence[Range],
    lanes: Mapping[int, LaneState],
) -> List[TaskPlan]:
    """At most `tasks.max` plans. `lanes` are the lane states of earlier cycles; `name` is the mirror's. A task starts
    with the partitions that come first in `todo`."""
    tasks: List[PartitionTask] = []
    loads: Dict[int, int] = {}
    for each in todo:
        copied = partitions[each.key]
        lane = lane_of(copied.remote_topic, copied.partition)
        tasks.append(_task(flow, copied, each, lanes.get(lane, LaneState())))
        # Partitions without an end weigh about the same.
        loads[lane] = loads.get(lane, 0) + 1 + each.behind
    task_of = tasks_of(loads, flow.tasks_max)
    by_task: Dict[int, List[PartitionTask]] = {}
    for task in tasks:
        by_task.setdefault(task_of[task.lane], []).append(task)
    most = min(MOST_SYNCS, MOST_SYNCS_OF_STAGE // max(1, len(by_task)))
    plans: List[TaskPlan] = []
    for number, own in sorted(by_task.items()):
        fenced = {lane: lanes.get(lane, LaneState()).producer for lane in sorted({task.lane for task in own})}
        ids = {lane: transactional_id(name, flow.name, lane) for lane in fenced}
        handed_over = {lanes[task.lane].confirmed_at for task in own if task.sequence is not None}
        plan = TaskPlan(
            task=number,
            flow=flow.name,
            transactional_ids=ids if flow.delivery == "exactly-once" else {},
            producers={lane: producer for lane, producer in fenced.items() if producer is not None},
            tasks=tuple(own),
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
        plans.append(plan)
    return plans


def _task(flow: ReplicationFlow, copied: CopiedPartition, each: Range, lane: LaneState) -> PartitionTask:
    return PartitionTask(
        **vars(copied),
        upstream_offset=each.start.upstream_offset,
        downstream_offset=each.start.downstream_offset,
        end=each.end,
        sequence=lane.sequences.get(copied.remote),
        shared=flow.shared_remote_topics,
        isolate_until=each.isolate_until,
        log_start=each.log_start,
        unrecorded=each.unrecorded,
    )


# A flow that was delayed for this fraction of the time counts as rate-limited.
AT_LIMIT = 0.2


class FlowRate:
    """One flow's rate in one driver process; without a `rate` it changes nothing. Not thread-safe. The caller gives the
    clock."""

    def __init__(self, rate: Optional[int], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._bucket = None if rate is None else TokenBucket(rate, 0.0, clock())

    def shared(self, plans: Sequence[TaskPlan]) -> List[TaskPlan]:
        """The plans of one stage, each with an equal share. The shares add up to the rate, so it holds however many of
        the tasks run at a time."""
        if self._bucket is None or not plans:
            return list(plans)
        rate, balance = self._bucket.rate, self._bucket.balance(self._clock())
        # The tasks' buckets fill meanwhile. If the tasks fail, they have spent all that they were given.
        self._bucket = TokenBucket(rate, min(balance, 0.0), math.inf)
        share = RateQuota(rate / len(plans), balance / len(plans))
        return [replace(plan, rate=share) for plan in plans]

    def learn(self, reports: Sequence[TaskReport]) -> None:
        """Take over what the tasks of the latest stage left or owe: their buckets have counted each second and byte."""
        if self._bucket is not None and reports:
            balance = sum(report.balance for report in reports)
            self._bucket = TokenBucket(self._bucket.rate, balance, self._clock())


def rate_limited(rate: Optional[int], held_seconds: float, seconds: float) -> Optional[str]:
    """The rate, for the status, if it delayed a cycle of `seconds` for a good part of it."""
    return f"{RATE_LIMITED} {size(rate)}/s" if rate is not None and held_seconds > AT_LIMIT * seconds else None
