"""Which task copies which lane: bytes to copy by lane in, a task's number by lane out. Pure, but for what it remembers.

A lane stays with its task from pass to pass, as long as no task has much more to do than it must.
"""

from __future__ import annotations

from typing import Dict, Iterable, Mapping

from mirror_lib.facts import TopicPartition
from mirror_lib.replication.messages import PartitionReport, PartitionTask

# What looking after a partition costs, though it has nothing to copy.
PARTITION_BYTES = 1024
# Of a partition that was not copied yet.
RECORD_BYTES = 512.0
# Lanes move to other tasks where the busiest then has so many bytes less, and a good part of its share.
WORTH_MOVING_BYTES = 16 * 1024 * 1024
WORTH_MOVING_SHARE = 0.2
ENDLESS = 2**62

Loads = Mapping[int, int]


class LaneShares:
    """One flow's shares in one driver's life."""

    def __init__(self) -> None:
        self._task_of: Dict[int, int] = {}
        self._record_bytes: Dict[TopicPartition, float] = {}
        self._latest: Dict[TopicPartition, int] = {}

    def learn(self, parts: Iterable[PartitionReport]) -> None:
        """Remember how much of each partition came in the pass that has ended, and how large its records were."""
        for part in parts:
            name = (part.topic, part.partition)
            self._latest[name] = part.bytes
            if part.records:
                self._record_bytes[name] = part.bytes / part.records

    def bytes_of(self, task: PartitionTask) -> int:
        """What is to be copied, as far as one can know: of what has no end, as much as came last time."""
        behind = task.end - task.upstream_offset
        if behind > ENDLESS:
            return PARTITION_BYTES + self._latest.get(task.source, 0)
        return PARTITION_BYTES + round(behind * self._record_bytes.get(task.source, RECORD_BYTES))

    def tasks_of(self, loads: Loads, tasks: int) -> Mapping[int, int]:
        """Share out the lanes of `loads` (bytes by lane) among `tasks` tasks."""
        staying = {lane: task for lane, task in self._task_of.items() if task < tasks}
        kept, best = shared_out(loads, tasks, staying), shared_out(loads, tasks, {})
        busiest, at_best = _busiest(loads, kept), _busiest(loads, best)
        moving = busiest - at_best > max(WORTH_MOVING_BYTES, WORTH_MOVING_SHARE * busiest)
        chosen = best if moving else kept
        self._task_of.update(chosen)
        return chosen


def shared_out(loads: Loads, tasks: int, staying: Mapping[int, int]) -> Dict[int, int]:
    """The lanes of `staying` where they are, the others one by one to the task with least to do, largest first."""
    task_of = {lane: staying[lane] for lane in loads if lane in staying}
    sums = [0] * tasks
    for lane, task in staying.items():
        sums[task] += loads.get(lane, 1)  # it may be wanted again: where all else is equal, not another one there
    for lane in sorted(loads.keys() - task_of.keys(), key=lambda lane: (-loads[lane], lane)):
        task_of[lane] = sums.index(min(sums))
        sums[task_of[lane]] += loads[lane]
    return task_of


def _busiest(loads: Loads, task_of: Mapping[int, int]) -> int:
    sums: Dict[int, int] = {}
    for lane, task in task_of.items():
        sums[task] = sums.get(task, 0) + loads[lane]
    return max(sums.values(), default=0)
