"""Brokers that throttle the mirror by a quota: it is silent for as long as they ask, and then resumes where it was."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirror_lib.replication.copier import copy_lanes
from mirror_lib.replication.messages import TaskPlan
from tests.lab.one_flow import NewFlow, OneFlow
from tests.lab.one_lane import task_plans
from tests.lab.quotas import quota

pytestmark = pytest.mark.long

# 1.0 MB. The lab's brokers measure over two seconds at least, so a third is more than they take or give at once: they
# put us off again and again until three seconds have passed.
RECORDS, BYTES_A_SECOND = 9000, 320_000.0
# A lane is fenced when it starts, which takes two epochs, and behind its records, which are old.
ONE_LIFE = 2


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    flow = new_flow("throttled", partitions=1)
    flow.fill(RECORDS)
    flow.create_remote_topic()
    return flow


def plan_of_its_own_client(flow: OneFlow) -> TaskPlan:
    (plan,) = task_plans(flow)
    name = {"client_id": flow.topic}
    source, target = {**plan.source_options, **name}, {**plan.target_options, **name}
    return replace(plan, source_options=source, target_options=target)


def test_lane_waits_for_a_target_that_throttles_it_and_is_not_fenced_anew(flow: OneFlow) -> None:
    with quota(flow.target, flow.topic, "producer_byte_rate", BYTES_A_SECOND):
        report = copy_lanes(plan_of_its_own_client(flow), 0)
    assert report.target_throttled_seconds > 0
    assert {producer.epoch for producer in report.producers.values()} == {ONE_LIFE}
    assert flow.differences() == []


def test_answers_without_records_from_a_source_that_throttles_are_not_taken_for_gaps(flow: OneFlow) -> None:
    with quota(flow.source, flow.topic, "consumer_byte_rate", BYTES_A_SECOND):
        report = copy_lanes(plan_of_its_own_client(flow), 0)
    assert report.source_throttled_seconds > 0
    assert {producer.epoch for producer in report.producers.values()} == {ONE_LIFE}
    assert flow.differences() == []
