"""A target that forgets producers by the age of their records, so that it would take a fenced lane's write again.

Records of 2023 make it forget at its next look. Behind them a lane fences again at the end of its pass.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Iterator, List, Set

import pytest
from kafka import KafkaAdminClient, TopicPartition

from mirror_lib.replication.copier import copy_lanes
from mirror_lib.replication.messages import TaskPlan
from tests.lab.brokers import KafkaBroker, clusters
from tests.lab.crash import CrashPoint
from tests.lab.one_flow import ABOUT_TO_WRITE, NewFlow, OneFlow, until
from tests.lab.one_lane import LaneProcess, next_pass, next_plan, standing_still, task_plans, up_to

pytestmark = pytest.mark.long

# The broker looks for what it may forget this often, not every 10 minutes.
LOOKS_OFTEN = {"producer.id.expiration.check.interval.ms": "200"}
EARLY, LATE = 400, 200
END = EARLY + LATE
REFRESH, ROUND = "mirror_lib.kafka.fencing:refresh", "mirror_lib.kafka.fencing:_SideBySide.__call__"


@pytest.fixture(scope="module")
def forgetful_cluster(lab_directory: Path) -> Iterator[KafkaBroker]:
    with clusters(["target-that-forgets"], lab_directory, LOOKS_OFTEN) as (broker,):
        yield broker


@pytest.fixture
def flow(new_flow: NewFlow, forgetful_cluster: KafkaBroker) -> OneFlow:
    return new_flow("forgetful", target=forgetful_cluster, records=EARLY, remote=True)


@pytest.fixture
def plan(flow: OneFlow) -> TaskPlan:
    (only,) = task_plans(flow)
    return only


def known_epochs(flow: OneFlow) -> List[Set[int]]:
    """The producer epochs that the target remembers, of each remote partition."""
    admin = KafkaAdminClient(bootstrap_servers=flow.target.bootstrap)
    try:
        asked = [TopicPartition(flow.remote_topic, number) for number in range(flow.partitions)]
        reported = admin.describe_producers(asked)
        return [{each.producer_epoch for each in reported[partition].active_producers} for partition in asked]
    finally:
        admin.close()


def forgotten(flow: OneFlow) -> bool:
    return not any(known_epochs(flow))


def test_zombie_is_refused_after_a_pass_over_old_records(flow: OneFlow, plan: TaskPlan) -> None:
    with standing_still(up_to(plan, END), flow.directory, *ABOUT_TO_WRITE) as wake:
        first = copy_lanes(plan, 1)
        flow.fill(LATE)
        time.sleep(0.5)  # the target looks for what it may forget
        assert all(known_epochs(flow))
        zombie = wake().report()
        second = next_pass(plan, first, flow.written)
    assert zombie.fenced and not first.fenced and not second.fenced
    assert second.recovered == 0
    assert flow.differences() == []


def test_zombie_of_a_lane_that_does_not_fence_behind_old_records_doubles_them(
    flow: OneFlow, plan: TaskPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirror_lib.replication.lane.EPOCH_KEPT_SECONDS", math.inf)
    with standing_still(plan, flow.directory, *ABOUT_TO_WRITE) as wake:
        assert not copy_lanes(plan, 1).fenced
        until(lambda: forgotten(flow))
        wake().process.wait(90)
    assert "which is a duplicate of" in flow.differences()[0]


def test_lane_that_was_taken_over_before_it_fences_again_tells_what_it_wrote(flow: OneFlow, plan: TaskPlan) -> None:
    with standing_still(plan, flow.directory, REFRESH, "before", 1) as wake:
        other = copy_lanes(plan, 1)
        first = wake().report()
    assert first.fenced and not first.producers and not other.fenced
    assert first.records == other.recovered == flow.everything
    assert {part.source: part.syncs for part in first.partitions} == {p.source: p.syncs for p in other.partitions}
    assert flow.differences() == []


# The fence of the start takes the first four.
@pytest.mark.parametrize("call", [5, 6, 7], ids=["partitions-added", "marker-asked-for", "fence-up"])
def test_copy_is_exact_after_a_lane_killed_while_it_fences_again(flow: OneFlow, plan: TaskPlan, call: int) -> None:
    crash = CrashPoint(ROUND, "after", call, flow.directory / "died")
    assert LaneProcess(plan, flow.directory, crash).process.wait(90) == -9
    next_life = copy_lanes(plan, 1)
    flow.fill(LATE)
    next_pass(plan, next_life, flow.written)
    assert next_life.recovered == EARLY * flow.partitions
    assert flow.differences() == []


@pytest.mark.parametrize("asks", [True, False], ids=["asks-first", "relies-on-it"])
def test_driver_that_stood_still_until_it_was_forgotten(new_flow: NewFlow, tmp_path: Path, asks: bool) -> None:
    soon = {**LOOKS_OFTEN, "producer.id.expiration.ms": "1000"}
    with clusters(["target-that-forgets-soon"], tmp_path, soon) as (target,):
        flow = new_flow("stood-still", target=target, records=EARLY, remote=True)
        (plan,) = task_plans(flow)
        before = copy_lanes(plan, 0)
        flow.fill(LATE)
        assert not copy_lanes(up_to(plan, END), 1).fenced  # another driver, which takes the lanes over
        until(lambda: forgotten(flow))
        then = next_plan(plan, before, flow.written)
        report = copy_lanes(replace(then, confirmed_at=0.0) if asks else then, 0)
        assert report.fenced == asks
        assert (flow.differences() == []) == asks
