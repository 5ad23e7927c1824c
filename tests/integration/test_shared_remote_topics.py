"""Remote topics with several writers: a flow knows its own batches by producer ids, also the ids of its earlier runs.

A lane that goes by another transactional id gets another producer id from the target, as one does whose transactional
id the target has forgotten after `transactional.id.expiration.ms`.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Dict, FrozenSet

import pytest

from mirror_lib.replication.copier import copy_lanes
from mirror_lib.replication.messages import TaskPlan, TaskReport
from tests.integration.conftest import Ground, Names
from tests.lab.flow_lab import FlowLab, values
from tests.lab.one_flow import NewFlow, OneFlow
from tests.lab.one_lane import next_plan, task_plans

pytestmark = pytest.mark.long

RECORDS = 300
Ids = Dict[int, FrozenSet[int]]


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    return new_flow("shared", records=RECORDS, remote=True)


def first_plan(flow: OneFlow, exactly_once: bool = True) -> TaskPlan:
    (plan,) = task_plans(flow, exactly_once=exactly_once)
    return replace(plan, tasks=tuple(replace(task, shared=True) for task in plan.tasks), known_ids={})


def forgotten(plan: TaskPlan) -> TaskPlan:
    names = {lane: f"{name}.second" for lane, name in plan.transactional_ids.items()}
    return replace(plan, transactional_ids=names, producers={})


def ids(report: TaskReport) -> Ids:
    return {lane: frozenset([producer.producer_id]) for lane, producer in report.producers.items()}


def dead_life(flow: OneFlow, exactly_once: bool = True) -> Ids:
    """Copies everything and reports nothing; only the ids of its lanes are known afterwards."""
    plan = first_plan(flow, exactly_once)
    begun = copy_lanes(plan, 0)
    assert begun.records == 0 and flow.copies() == 0
    done = copy_lanes(replace(next_plan(plan, begun, flow.written), known_ids=ids(begun)), 0)
    assert done.records == flow.copies() == RECORDS * flow.partitions
    return ids(begun)


@pytest.mark.parametrize("exactly_once", [True, False], ids=["exactly-once", "at-least-once"])
def test_records_of_a_dead_life_are_found_where_the_lane_has_another_producer_id(
    flow: OneFlow, exactly_once: bool
) -> None:
    known = dead_life(flow, exactly_once)
    plan = replace(forgotten(first_plan(flow, exactly_once)), known_ids=known)
    found = copy_lanes(plan, 0)
    assert not any(own & known[lane] for lane, own in ids(found).items())
    assert found.recovered == RECORDS * flow.partitions
    both = {lane: known[lane] | own for lane, own in ids(found).items()}
    flow.fill(50)
    copy_lanes(replace(next_plan(plan, found, flow.written), known_ids=both), 0)
    assert flow.differences() == []


def test_records_of_a_dead_life_whose_ids_are_not_known_would_be_doubled(flow: OneFlow) -> None:
    """The negative control of the test above."""
    dead_life(flow)
    plan = forgotten(first_plan(flow))
    begun = copy_lanes(plan, 0)
    assert begun.recovered == 0
    copy_lanes(replace(next_plan(plan, begun, flow.written), known_ids=ids(begun)), 0)
    assert flow.copies() == 2 * RECORDS * flow.partitions


def test_flow_that_lost_its_ledger_knows_its_own_records_by_the_ids_it_wrote_down(
    ground: Ground, topic_name: Names
) -> None:
    # Without transactional ids each life is given other producer ids.
    lab = FlowLab(*ground, topic_name("shared"), {"shared.remote.topics": "true", "delivery": "at-least-once"})
    lab.create("orders")
    lab.write("orders", values(50))
    lab.copy()
    lab.write_to(lab.target, lab.remote("orders"), [b"of another flow"])
    shutil.rmtree(lab.directory / "state" / "offset_syncs")
    lab.write("orders", values(50, "later"))
    lab.copy()
    assert lab.remote_values("orders") == [*values(50), b"of another flow", *values(50, "later")]


def test_flow_whose_place_has_left_the_remote_topic_is_told_how_to_go_on_and_does(
    ground: Ground, topic_name: Names
) -> None:
    lab = FlowLab(*ground, topic_name("shared"), {"shared.remote.topics": "true"})
    lab.create("orders")
    lab.write("orders", values(50))
    lab.copy()
    # What others write drives all that was there out of the remote topic, while the flow has nothing to copy.
    lab.write_to(lab.target, lab.remote("orders"), values(20, "of another flow"))
    lab.target.expire(lab.remote("orders"), {0: -1})
    lab.write("orders", values(5, "later"))
    refused = str(lab.run().error)
    assert "which an interrupted attempt may have written" in refused and "set on.data.loss: continue" in refused
    assert lab.remote_values("orders") == []
    assert lab.copy(on_data_loss="continue").records == 5
    assert lab.remote_values("orders") == values(5, "later")
    assert [row for row in lab.incidents() if row[0] == "copied again"] == [("copied again", "orders", 0, 50, -1)]
    lab.write("orders", values(5, "last"))
    assert lab.copy(on_data_loss="fail").records == 5
