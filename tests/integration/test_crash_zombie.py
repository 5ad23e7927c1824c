"""A lane that continues writing after its successor started: what it writes then is refused, wherever it stood still.

Without the fence the same scene doubles records; that is tested too, or the other tests would prove nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Tuple

import pytest

from mirror_lib.config.model import ClusterConfig
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.replication import copier
from mirror_lib.replication.copier import copy_lanes
from mirror_lib.replication.messages import TaskPlan
from tests.lab.one_flow import ABOUT_TO_WRITE, NewFlow, OneFlow
from tests.lab.one_lane import next_pass, next_plan, standing_still, task_plans, up_to
from tests.lab.stops import stop_of

# Copied by the successor before the zombie wakes up, and after that.
EARLY, LATE = 400, 200
END = EARLY + LATE


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    return new_flow("zombie", records=EARLY, remote=True)


@pytest.fixture
def plan(flow: OneFlow) -> TaskPlan:
    (only,) = task_plans(flow)
    return only


def test_zombie_is_refused_once_its_successor_has_copied_whatever_its_tasks_max(flow: OneFlow, plan: TaskPlan) -> None:
    with standing_still(plan, flow.directory, *ABOUT_TO_WRITE) as wake:
        successors = [copy_lanes(each, 1) for each in task_plans(flow, tasks=2)]
        zombie = wake().report()
    assert zombie.fenced and not any(report.fenced for report in successors)
    assert sum(report.recovered for report in successors) > 0
    assert flow.differences() == []


@pytest.mark.parametrize("exactly_once", [False, pytest.param(True, id="another mirror", marks=pytest.mark.long)])
def test_zombie_without_a_fence_and_one_of_a_mirror_with_another_name_double_records(
    flow: OneFlow, exactly_once: bool
) -> None:
    (plan,) = task_plans(flow, exactly_once=exactly_once)
    other = {lane: f"other-{name}" for lane, name in plan.transactional_ids.items()}
    with standing_still(replace(plan, transactional_ids=other), flow.directory, *ABOUT_TO_WRITE) as wake:
        assert not copy_lanes(plan, 1).fenced
        wake().process.wait(90)
    assert "which is a duplicate of" in flow.differences()[0]


FENCING = "mirror_lib.kafka.fencing:"
ROUND = f"{FENCING}_SideBySide.__call__"
# With its first epochs, its markers written, its fence up.
RARE = [(ROUND, "after", 1), (ROUND, "after", 3), (f"{FENCING}fence", "after", 1)]


@pytest.mark.parametrize(
    "point", [ABOUT_TO_WRITE, (ROUND, "after", 2), *(pytest.param(each, marks=pytest.mark.long) for each in RARE)]
)
def test_zombie_between_two_passes_of_its_successor_does_not_write(
    flow: OneFlow, plan: TaskPlan, point: Tuple[str, str, int]
) -> None:
    with standing_still(up_to(plan, END), flow.directory, *point) as wake:
        first = copy_lanes(plan, 1)
        flow.fill(LATE)
        zombie = wake().report()
        second = next_pass(plan, first, flow.written)
    # While fencing it may have fenced lanes of its own by then; what it had fenced before is lost to it.
    assert zombie.fenced
    if point == ABOUT_TO_WRITE:
        # One epoch further: the lane fenced behind its old records, and not before them.
        onwards = {lane: replace(producer, epoch=producer.epoch + 1) for lane, producer in first.producers.items()}
        assert not second.fenced and second.producers == onwards
    assert not copy_lanes(up_to(plan, END), 1).fenced
    assert flow.differences() == []


def test_two_lanes_that_fence_at_once_never_both_write(flow: OneFlow, plan: TaskPlan) -> None:
    for folder in ("one", "other"):
        (flow.directory / folder).mkdir()
    after_markers = (f"{FENCING}_abort", "after", 1)
    with standing_still(plan, flow.directory / "one", *after_markers) as wake_one, standing_still(
        plan, flow.directory / "other", *after_markers
    ) as wake_other:
        one, other = wake_one(), wake_other()
        reports = [one.report(), other.report()]
    assert any(report.fenced for report in reports)
    assert sum(report.records > 0 for report in reports) <= 1
    finished = copy_lanes(plan, 1)
    assert not finished.fenced
    assert flow.differences() == []


def test_driver_that_lost_a_lane_does_not_take_it_back_for_a_new_partition(plan: TaskPlan) -> None:
    ours = replace(plan, tasks=plan.tasks[:2])
    before = copy_lanes(ours, 0)
    assert not copy_lanes(ours, 1).fenced  # another driver, which takes the lane over
    after = copy_lanes(replace(next_plan(ours, before, EARLY), tasks=plan.tasks), 0)
    assert after.fenced and not after.records


def test_sequences_go_on_past_the_largest_number(flow: OneFlow) -> None:
    (plan,) = task_plans(flow, exactly_once=False)
    (producer,) = copy_lanes(replace(plan, tasks=plan.tasks[:1]), 0).producers.values()
    # To a partition that never saw this producer the broker takes any first sequence.
    tasks = tuple(replace(task, sequence=2**31 - 50) for task in plan.tasks[1:])
    report = copy_lanes(replace(plan, producers={task.lane: producer for task in tasks}, tasks=tasks), 0)
    assert [part.sequence for part in report.partitions] == [EARLY - 50] * len(tasks)
    assert flow.differences() == []


def test_partition_that_stays_refused_gets_no_marker(
    flow: OneFlow, plan: TaskPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = copy_lanes(plan, 0)
    flow.target.write(flow.remote_topic, b"foreign", partition=1)
    flow.fill(LATE)
    own = next_plan(plan, first, flow.written)
    # As a run that starts: without what an earlier one held.
    start = replace(own, producers={}, tasks=tuple(replace(task, sequence=None) for task in own.tasks))

    def end() -> int:
        with KafkaCluster(ClusterConfig("target", {"bootstrap.servers": flow.target.bootstrap})) as cluster:
            return cluster.offsets([(flow.remote_topic, 1)], "read_uncommitted")[flow.remote_topic, 1].end

    def run() -> int:
        """How many offsets the remote partition grew by."""
        before, report = end(), copy_lanes(start, 0)
        parts = {part.partition: part for part in report.partitions}
        assert [stop_of(parts[number]).code for number in range(3)] == ["", "MIR-313", ""] and stop_of(parts[1]).refused
        assert [parts[number].position for number in range(3)] == [END, EARLY, END]
        return end() - before

    assert [run(), run()] == [0, 0]
    # Where the rest of the log is too long to be read twice.
    monkeypatch.setattr(copier, "LOOK_OFFSETS", 0)
    assert run() == 1
    monkeypatch.undo()
    assert run() == 0
