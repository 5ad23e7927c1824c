"""A driver is fenced in the middle of its writes by one that is killed then: the third starts where its report ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import List, Sequence

import pytest

from mirror_lib.kafka import producer as append
from mirror_lib.kafka.producer import ProduceRequest
from mirror_lib.replication import copier
from mirror_lib.replication.messages import TaskPlan, TaskReport
from mirror_lib.replication.partition import PartitionCopy
from tests.lab.crash import CrashPoint
from tests.lab.drained import Drained
from tests.lab.one_flow import RECORDS_PER_BATCH, NewFlow
from tests.lab.one_lane import LaneProcess, next_plan, task_plans

pytestmark = pytest.mark.long

FENCED_AND_NO_MORE = "mirror_lib.replication.partition:RemotePartition.fenced"


def fenced_at_the_last_request(monkeypatch: pytest.MonkeyPatch, plan: TaskPlan, directory: Path) -> None:
    """Another driver's lane fences when the last batches are about to be sent, and is killed before it reads the
    remote log. Before that moment a partition has more to send, and cannot be taken for one that is done."""
    request = append._produce_request
    done: List[bool] = []

    def build(chosen: Sequence[PartitionCopy]) -> ProduceRequest:
        if not done and all(each.acknowledged and len(each._queue) == 1 and not each._in_flight for each in chosen):
            done.append(True)
            other = LaneProcess(plan, directory, CrashPoint(FENCED_AND_NO_MORE))
            assert other.process.wait(60) == -9
        return request(chosen)

    monkeypatch.setattr(append, "_produce_request", build)


def resumed(plan: TaskPlan, report: TaskReport, end: int) -> TaskPlan:
    """What a new driver plans from the positions that the report gave to the ledger."""
    after = next_plan(plan, report, end)
    return replace(after, producers={}, tasks=tuple(replace(task, sequence=None) for task in after.tasks))


@pytest.mark.parametrize("kind", [PartitionCopy, Drained])
def test_lane_that_was_fenced_while_it_wrote_reports_no_record_as_copied_that_is_not(
    kind: type, new_flow: NewFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = new_flow("fenced")
    for _ in range(2):  # the first batch goes alone, the second is the last request
        flow.fill(RECORDS_PER_BATCH)
    flow.create_remote_topic()
    (plan,) = task_plans(flow)
    monkeypatch.setattr(copier, "PartitionCopy", kind)
    with monkeypatch.context() as meanwhile:
        fenced_at_the_last_request(meanwhile, plan, flow.directory)
        report = copier.copy_lanes(plan, 0)
    assert report.fenced
    assert not copier.copy_lanes(resumed(plan, report, flow.written), 0).fenced
    lost: List[str] = flow.differences()
    assert bool(lost) == (kind is Drained)
