"""A lane that goes on writing after its successor started: what it writes then is refused, wherever it stood still.

Without the fence the same scene doubles records; that is tested too, or the other tests would prove nothing.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Callable, Iterator, Optional

import pytest

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.replicate.lane import copy_lane
from mirror_lib.replicate.lanes import LanePlan
from mirror_lib.replicate.stale_lanes import fence_stale_lanes
from tests.lab.brokers import KafkaBroker, clusters
from tests.lab.crash import CrashPoint
from tests.lab.one_flow import ABOUT_TO_WRITE, OneFlow, stopped_process
from tests.lab.one_lane import LaneProcess, lane_plans, next_plan

# Copied by the successor before the zombie wakes up, and after that.
EARLY, LATE = 400, 200


@pytest.fixture
def flow(
    source_cluster: KafkaBroker, target_cluster: KafkaBroker, topic_name: Callable[[str], str], tmp_path: Path
) -> OneFlow:
    return filled(source_cluster, target_cluster, topic_name("zombie"), tmp_path)


def filled(source: KafkaBroker, target: KafkaBroker, topic: str, directory: Path) -> OneFlow:
    flow = OneFlow(source, target, topic, directory)
    flow.fill(EARLY)
    flow.create_remote_topic()
    return flow


def to_the_end(plan: LanePlan) -> LanePlan:
    """The same lane, told to go on to what is written late."""
    return replace(plan, tasks=tuple(replace(task, end=EARLY + LATE) for task in plan.tasks))


@contextmanager
def standing_still(
    plan: LanePlan, directory: Path, function: str, when: str, call: int
) -> Iterator[Callable[[], LaneProcess]]:
    """The lane up to that point; what is given wakes it up."""
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


def test_zombie_is_refused_once_its_successor_has_copied(flow: OneFlow) -> None:
    (plan,) = lane_plans(flow)
    with standing_still(plan, flow.directory, *ABOUT_TO_WRITE) as wake:
        successor = copy_lane(plan, 1)
        zombie = wake().report()
    assert zombie.fenced and not successor.fenced
    assert successor.recovered > 0
    assert flow.differences() == []


def test_zombie_without_a_fence_doubles_records(flow: OneFlow) -> None:
    (plan,) = lane_plans(flow, exactly_once=False)
    with standing_still(plan, flow.directory, *ABOUT_TO_WRITE) as wake:
        assert not copy_lane(plan, 1).fenced
        wake().process.wait(90)
    assert "which is a duplicate of" in flow.differences()[0]


def test_zombie_between_two_passes_of_its_successor_is_refused(flow: OneFlow) -> None:
    (plan,) = lane_plans(flow)
    with standing_still(to_the_end(plan), flow.directory, *ABOUT_TO_WRITE) as wake:
        first = copy_lane(plan, 1)
        flow.fill(LATE)
        zombie = wake().report()
        second = copy_lane(next_plan(plan, first, flow.written), 0)
    assert zombie.fenced and not second.fenced
    assert second.producer == first.producer
    assert flow.differences() == []


@pytest.mark.parametrize(
    ("function", "when", "call"),
    [
        pytest.param("mirror_lib.log.fence:init_producer", "after", 1, id="with-its-first-epoch"),
        pytest.param("mirror_lib.log.fence:_add_partitions", "after", 1, id="with-its-partitions-added"),
        pytest.param("mirror_lib.log.fence:_abort", "after", 1, id="with-its-markers-written"),
        pytest.param("mirror_lib.log.fence:fence", "after", 1, id="with-its-fence-up"),
    ],
)
def test_lane_that_stood_still_while_fencing_does_not_write(
    flow: OneFlow, function: str, when: str, call: int
) -> None:
    (plan,) = lane_plans(flow)
    with standing_still(to_the_end(plan), flow.directory, function, when, call) as wake:
        first = copy_lane(plan, 1)
        flow.fill(LATE)
        zombie = wake().report()
        second = copy_lane(next_plan(plan, first, flow.written), 0)
    assert zombie.fenced and not zombie.records and not second.fenced
    assert flow.differences() == []


def test_two_lanes_that_fence_at_once_never_both_write(flow: OneFlow) -> None:
    (plan,) = lane_plans(flow)
    for folder in ("one", "other"):
        (flow.directory / folder).mkdir()
    after_markers = ("mirror_lib.log.fence:_abort", "after", 1)
    with standing_still(plan, flow.directory / "one", *after_markers) as wake_one, standing_still(
        plan, flow.directory / "other", *after_markers
    ) as wake_other:
        one, other = wake_one(), wake_other()
        reports = [one.report(), other.report()]
    assert any(report.fenced for report in reports)
    assert sum(report.records > 0 for report in reports) <= 1
    finished = copy_lane(plan, 1)
    assert not finished.fenced
    assert flow.differences() == []


def test_driver_that_lost_a_lane_does_not_take_it_back_for_a_new_partition(flow: OneFlow) -> None:
    (plan,) = lane_plans(flow)
    ours = replace(plan, tasks=plan.tasks[:2])
    before = copy_lane(ours, 0)
    assert not copy_lane(ours, 1).fenced  # another driver, which takes the lane over
    after = copy_lane(replace(next_plan(ours, before, EARLY), tasks=plan.tasks), 0)
    assert after.fenced and not after.records


def stale_flow(flow: OneFlow, lanes: int) -> ReplicationFlow:
    source = ClusterConfig("source", {"bootstrap.servers": flow.source.bootstrap})
    target = ClusterConfig("target", {"bootstrap.servers": flow.target.bootstrap})
    return ReplicationFlow(source, target, tasks_max=lanes)


@pytest.mark.parametrize("last_lanes", [1, None], ids=["known-from-the-last-run", "known-from-the-target-alone"])
def test_zombie_of_another_lane_count_is_refused(flow: OneFlow, last_lanes: Optional[int]) -> None:
    (old,) = lane_plans(flow)
    remote = [(flow.remote_topic, number) for number in range(flow.partitions)]
    with standing_still(old, flow.directory, *ABOUT_TO_WRITE) as wake:
        assert fence_stale_lanes(flow.topic, stale_flow(flow, 2), remote, last_lanes) == 1
        new = [copy_lane(plan, 0) for plan in lane_plans(flow, lanes=2)]
        zombie = wake().report()
    assert zombie.fenced and not any(report.fenced for report in new)
    assert flow.differences() == []


def test_zombie_of_another_lane_count_that_is_not_fenced_doubles_records(flow: OneFlow) -> None:
    (old,) = lane_plans(flow)
    with standing_still(old, flow.directory, *ABOUT_TO_WRITE) as wake:
        for plan in lane_plans(flow, lanes=2):
            copy_lane(plan, 0)
        wake().process.wait(90)
    assert "which is a duplicate of" in flow.differences()[0]


def test_zombie_that_lost_its_connections_does_not_take_the_lane_back(
    topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    with clusters(["source", "target-that-restarts"], tmp_path) as (source, target):
        flow = filled(source, target, topic_name("zombie"), tmp_path)
        (old,) = lane_plans(flow)
        remote = [(flow.remote_topic, number) for number in range(flow.partitions)]
        with standing_still(to_the_end(old), flow.directory, *ABOUT_TO_WRITE) as wake:
            assert fence_stale_lanes(flow.topic, stale_flow(flow, 2), remote, 1) == 1
            plans = lane_plans(flow, lanes=2)
            first = [copy_lane(plan, 0) for plan in plans]
            flow.fill(LATE)
            target.kill()
            target.restart()
            zombie = wake().report()
            second = [copy_lane(next_plan(*each, flow.written), 0) for each in zip(plans, first)]
        assert zombie.fenced and not any(report.fenced for report in second)
        assert flow.differences() == []


def test_sequences_go_on_past_the_largest_number(flow: OneFlow) -> None:
    (plan,) = lane_plans(flow, exactly_once=False)
    producer = copy_lane(replace(plan, tasks=plan.tasks[:1]), 0).producer
    # To a partition that never saw this producer the broker takes any first sequence.
    tasks = tuple(replace(task, sequence=2**31 - 50) for task in plan.tasks[1:])
    report = copy_lane(replace(plan, producer=producer, tasks=tasks), 0)
    assert [part.sequence for part in report.partitions] == [EARLY - 50] * len(tasks)
    assert flow.differences() == []
