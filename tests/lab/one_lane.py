"""Lanes without Spark: plans over one flow's topic, and a lane in a process of its own, as a Spark task would run it.

`python -m tests.lab.one_lane PLAN REPORT` is that process: a pickled `LanePlan` in, a pickled `LaneReport` out.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import List, Optional, Sequence

from mirror_lib.replicate.lane import copy_lane
from mirror_lib.replicate.lanes import LanePlan, LaneReport, PartitionTask, lane_of, transactional_id
from tests.lab.brokers import die_with_parent
from tests.lab.checkout import ROOT
from tests.lab.crash import CrashPoint
from tests.lab.one_flow import OneFlow


def lane_plans(flow: OneFlow, lanes: int = 1, exactly_once: bool = True) -> List[LanePlan]:
    """What a driver without a ledger plans for `flow`: every lane that has partitions, from its start to its end."""
    plans = []
    for lane in range(lanes):
        tasks = tuple(
            PartitionTask(
                topic=flow.topic,
                remote_topic=flow.remote_topic,
                partition=number,
                upstream_offset=0,
                downstream_offset=0,
                end=flow.written,
                sequence=None,
                max_message_bytes=1_000_000,
            )
            for number in range(flow.partitions)
            if lane_of(flow.remote_topic, number, lanes) == lane
        )
        plans.append(
            LanePlan(
                lane=lane,
                flow="source->target",
                transactional_id=transactional_id(flow.topic, "source->target", lane, lanes) if exactly_once else None,
                producer=None,
                tasks=tasks,
                source_alias="source",
                target_alias="target",
                source_options={"bootstrap_servers": flow.source.bootstrap},
                target_options={"bootstrap_servers": flow.target.bootstrap},
                max_seconds=60.0,
            )
        )
    return [plan for plan in plans if plan.tasks]


def next_plan(plan: LanePlan, report: LaneReport, end: int) -> LanePlan:
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
    return replace(plan, producer=report.producer, tasks=tasks)


class LaneProcess:
    """A lane that copies in a process of its own, perhaps to a crash point."""

    def __init__(self, plan: LanePlan, directory: Path, crash: Optional[CrashPoint] = None) -> None:
        self._report = directory / "report"
        written = directory / "plan"
        written.write_bytes(pickle.dumps(plan))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.lab.one_lane", str(written), str(self._report)],
            cwd=ROOT,
            env=None if crash is None else crash.environment(),
            preexec_fn=die_with_parent,
        )

    def report(self, seconds: float = 90.0) -> LaneReport:
        """Its report, when it has ended."""
        assert self.process.wait(seconds) == 0
        report = pickle.loads(self._report.read_bytes())
        assert isinstance(report, LaneReport)
        return report

    def end(self) -> None:
        """`kill -9`, also where it stands still."""
        self.process.kill()
        self.process.wait()


def main(arguments: Sequence[str]) -> None:
    plan, report = map(Path, arguments)
    report.write_bytes(pickle.dumps(copy_lane(pickle.loads(plan.read_bytes()), 0)))


if __name__ == "__main__":
    main(sys.argv[1:])
