"""A continuous flow copies what comes while its stage runs: each record once."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mirror_lib.ledger.intervals import Runs
from mirror_lib.replication.copier import copy_lanes
from mirror_lib.replication.messages import NO_END, TaskPlan
from tests.integration.conftest import Ground, Names
from tests.lab.crash import mirror
from tests.lab.flow_lab import FlowLab, values
from tests.lab.one_flow import ABOUT_TO_WRITE, NewFlow, OneFlow, until
from tests.lab.one_lane import standing_still, task_plans
from tests.lab.readers import lies

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EARLY, LATE = 400, 200
TAIL_SECONDS = 8.0


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    return new_flow("tail", records=EARLY)


def tailing(flow: OneFlow, exactly_once: bool = True) -> TaskPlan:
    flow.create_remote_topic()
    (plan,) = task_plans(flow, exactly_once=exactly_once)
    tasks = tuple(replace(task, end=NO_END) for task in plan.tasks)
    return replace(plan, tails=True, tasks=tasks, max_seconds=TAIL_SECONDS)


@pytest.mark.long
@pytest.mark.parametrize("fence", [True, False], ids=["fence", "negative control: no fence"])
def test_lane_that_stood_still_while_it_tailed_is_refused_once_another_has_its_place(
    flow: OneFlow, fence: bool
) -> None:
    with standing_still(tailing(flow, fence), flow.directory, *ABOUT_TO_WRITE) as wake:
        assert not copy_lanes(task_plans(flow, exactly_once=fence)[0], 1).fenced
        assert wake().report().fenced == fence
    found = flow.differences()
    assert found == [] if fence else "which is a duplicate of" in found[0]


@pytest.mark.long
def test_lane_that_is_given_an_id_that_is_not_written_down_hands_it_back_and_tails_once_it_is(flow: OneFlow) -> None:
    plan = replace(tailing(flow), known_ids={})
    handed_back = copy_lanes(plan, 0)
    assert handed_back.records == 0 and flow.copies() == 0
    known = {lane: frozenset([producer.producer_id]) for lane, producer in handed_back.producers.items()}
    report = copy_lanes(replace(plan, known_ids=known), 0)
    assert report.records == flow.everything
    source, rows = flow.original(), [(p.partition, *run) for p in report.partitions for run in Runs(p.syncs)]
    assert lies(rows, source, flow.remote()) == [] and flow.differences() == []


def test_stop_within_a_stage_leaves_nothing_to_find(spark: SparkSession, flow: OneFlow) -> None:
    """The stage would last a minute. What it appended is in the ledger and in the table of runs."""
    flow.settings["tail.seconds"], flow.trigger = 60, "1 second"
    with mirror("run", flow.config) as running:
        until(lambda: flow.copies() > 0, 90)
        flow.fill(LATE)
        until(flow.all_copied, 90)
        running.process.send_signal(signal.SIGTERM)
        assert running.wait() == 0, running.output
    assert sum(row[3] for row in flow.ledger(spark)) == flow.everything
    runs = spark.read.format("delta").load(str(flow.directory / "state" / "runs"))
    ended = runs.where("outcome = 'stopped'").collect()
    assert [(row["records"], row["bytes"] > 0) for row in ended] == [(flow.everything, True)]
    flow.assert_exact(spark)


def test_running_flow_copies_what_comes_within_one_batch_of_spark(ground: Ground, topic_name: Names) -> None:
    lab = FlowLab(*ground, topic_name("tail"), trigger="1 second")
    lab.create("orders")
    lab.write("orders", values(10, "early"))
    with lab.running() as outcomes:
        until(lambda: len(lab.remote_values("orders")) == 10)
        for number in range(3):
            lab.write("orders", values(10, f"number {number}"))
            until(lambda: lab.differences("orders") == [])
    assert [outcome.error for outcome in outcomes] == [None]
    assert lab.differences("orders") == []
    assert len({each.batch_id for each in lab.seen if each.records}) == 1
