"""Lanes without Spark: plans over one flow's topic, and a task's lanes in a process of their own.

`python -m tests.lab.one_lane PLAN REPORT` is that process: a pickled `TaskPlan` in, a pickled `TaskReport` out.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from mirror_lib.replication.copier import copy_lanes
from mirror_lib.replication.messages import PartitionTask, TaskPlan, TaskReport, transactional_id
from tests.lab.crash import CrashPoint, Driver
from tests.lab.one_flow import OneFlow, stopped_process


def task_plans(flow: OneFlow, tasks: int = 1, exactly_once: bool = True) -> List[TaskPlan]:
    """What a driver without a ledger plans for `flow`: tasks that have partitions, from start to end."""
    shares: Dict[int, List[PartitionTask]] = {}
    for number in range(flow.partitions):
        task = PartitionTask(
            topic=flow.topic,
            remote_topic=flow.remote_topic,
            partition=number,
            upstream_offset=0,
            downstream_offset=0,
            end=flow.written,
            sequence=None,
            source_topic_id="",
            remote_topic_id="",
            max_message_bytes=1_000_000,
        )
        shares.setdefault(task.lane % tasks, []).append(task)
    return [_plan(flow, number, tuple(share), exactly_once) for number, share in sorted(shares.items())]


def _plan(flow: OneFlow, number: int, tasks: Tuple[PartitionTask, ...], exactly_once: bool) -> TaskPlan:
    ids = {task.lane: transactional_id(flow.topic, "source->target", task.lane) for task in tasks}
    return TaskPlan(
        task=number,
        flow="source->target",
        transactional_ids=ids if exactly_once else {},
        producers={},
        tasks=tasks,
        source_alias="source",
        target_alias="target",
        source_options={"bootstrap_servers": flow.source.bootstrap},
        target_options={"bootstrap_servers": flow.target.bootstrap},
        max_seconds=60.0,
        confirmed_at=time.time(),
    )


def next_plan(plan: TaskPlan, report: TaskReport, end: int) -> TaskPlan:
    """What the driver plans after a clean pass: on from where it ended, with what it handed over, without a fence."""
    parts = {(part.topic, part.partition): part for part in report.partitions}
    tasks = tuple(
        replace(
            task,
            upstream_offset=parts[task.source].position,
            downstream_offset=parts[task.source].downstream_offset,
            sequence=parts[task.source].sequence,
            end=end,
        )
        for task in plan.tasks
    )
    return replace(plan, producers=report.producers, tasks=tasks)


def next_pass(plan: TaskPlan, report: TaskReport, end: int) -> TaskReport:
    """The pass of that plan, in this process."""
    return copy_lanes(next_plan(plan, report, end), 0)


def up_to(plan: TaskPlan, end: int) -> TaskPlan:
    """The same lanes, ordered to copy to another end."""
    return replace(plan, tasks=tuple(replace(task, end=end) for task in plan.tasks))


class LaneProcess(Driver):
    """A lane that copies in a process of its own, perhaps to a crash point."""

    def __init__(self, plan: TaskPlan, directory: Path, crash: Optional[CrashPoint] = None) -> None:
        self._report = directory / "report"
        written = directory / "plan"
        written.write_bytes(pickle.dumps(plan))
        super().__init__(["-m", "tests.lab.one_lane", str(written), str(self._report)], crash)

    def report(self, seconds: float = 90.0) -> TaskReport:
        assert self.wait(seconds) == 0, self.output
        report = pickle.loads(self._report.read_bytes())
        assert isinstance(report, TaskReport)
        return report


@contextmanager
def standing_still(
    plan: TaskPlan, directory: Path, function: str, when: str, call: int
) -> Iterator[Callable[[], LaneProcess]]:
    """The lane up to that point of itself; what is given wakes it up. See `CrashPoint`."""
    crash = CrashPoint(function, when, call, directory / "stopped", "stop")
    lane = LaneProcess(plan, directory, crash)
    try:
        pid = stopped_process(directory / "stopped")

        def wake() -> LaneProcess:
            os.kill(pid, signal.SIGCONT)
            return lane

        yield wake
    finally:
        lane.end()


def main(arguments: Sequence[str]) -> None:
    plan, report = map(Path, arguments)
    report.write_bytes(pickle.dumps(copy_lanes(pickle.loads(plan.read_bytes()), 0)))


if __name__ == "__main__":
    main(sys.argv[1:])
