"""A continuous flow continues copying what comes while its stage runs: each record once, whatever is killed
meanwhile."""

from __future__ import annotations

import contextlib
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Callable, List, Tuple

import pytest

from mirror_lib.errors import ClusterError
from mirror_lib.ledger.intervals import Runs
from mirror_lib.replication.copier import copy_lanes
from mirror_lib.replication.messages import NO_END, TaskPlan, TaskReport
from tests.lab.brokers import KafkaBroker
from tests.lab.crash import CrashPoint, Driver, driver
from tests.lab.flow_lab import FlowLab, values
from tests.lab.meanwhile import meanwhile
from tests.lab.one_flow import ABOUT_TO_WRITE, NewFlow, OneFlow, until
from tests.lab.one_lane import standing_still, task_plans
from tests.lab.readers import lies, read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EARLY, LATE = 400, 200
TAIL_SECONDS = 12.0
LEDGER = "mirror_lib.ledger.offset_syncs:OffsetSyncTable.append"


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    flow = new_flow("tail")
    flow.fill(EARLY)
    return flow


@pytest.fixture
def small(new_flow: NewFlow) -> OneFlow:
    """So little that it is copied in a few requests, before tailing begins."""
    flow = new_flow("tail")
    flow.settings["tail.seconds"] = 1  # so soon the ledger is written
    flow.fill(20)
    return flow


def tailing(flow: OneFlow, exactly_once: bool = True) -> TaskPlan:
    flow.create_remote_topic()
    (plan,) = task_plans(flow, exactly_once=exactly_once)
    tasks = tuple(replace(task, end=NO_END) for task in plan.tasks)
    return replace(plan, tails=True, tasks=tasks, max_seconds=TAIL_SECONDS)


def lane_that_tails(plan: TaskPlan) -> contextlib.AbstractContextManager[List[TaskReport]]:
    """The lane copies while the block runs, for `TAIL_SECONDS`; its report is there afterwards."""
    return meanwhile(lambda stop: [copy_lanes(plan, 0)])


def assert_told_of_everything(flow: OneFlow, report: TaskReport) -> None:
    rows = [(part.partition, *run) for part in report.partitions for run in Runs(part.syncs)]
    source, remote = flow.original(), read_topic(flow.target, flow.remote_topic)
    assert lies(rows, source, remote) == []
    reported = {(row[0], row[1] + i) for row in rows for i in range(row[3])}
    assert reported == {(number, offset) for number, log in source.items() for offset in log}
    assert flow.differences() == []


def test_lane_goes_on_with_what_comes_and_tells_of_all_of_it(flow: OneFlow) -> None:
    with lane_that_tails(tailing(flow)) as last:
        for _ in range(2):
            until(flow.all_copied)
            flow.fill(LATE)
        until(flow.all_copied)
    (report,) = last
    assert not report.fenced and all(part.sequence is not None for part in report.partitions)
    assert report.records == flow.everything
    assert_told_of_everything(flow, report)


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
def test_task_that_died_is_not_tried_again_with_its_old_plan(flow: OneFlow) -> None:
    with pytest.raises(ClusterError, match="was lost"):
        copy_lanes(tailing(flow), 1)
    assert flow.copies() == 0


@pytest.mark.long
def test_lane_that_is_given_an_id_that_is_not_written_down_hands_it_back_and_tails_once_it_is(flow: OneFlow) -> None:
    plan = replace(tailing(flow), known_ids={})
    handed_back = copy_lanes(plan, 0)
    assert handed_back.records == 0 and flow.copies() == 0
    known = {lane: frozenset([producer.producer_id]) for lane, producer in handed_back.producers.items()}
    with lane_that_tails(replace(plan, known_ids=known)) as last:
        until(flow.all_copied)
    assert_told_of_everything(flow, last[0])


def continuous(flow: OneFlow, crash: CrashPoint) -> contextlib.AbstractContextManager[Driver]:
    flow.trigger = "1 second"
    return driver(["-m", "mirror_lib.cli", "run", str(flow.config)], crash)


def fed_until(flow: OneFlow, done: Callable[[], bool]) -> None:
    """Records come, a few at a time, once the first are copied."""
    until(lambda: flow.copies() > 0, 90)

    def fed() -> bool:
        flow.fill(20)
        return done()

    until(fed, 90)


@pytest.mark.long
def test_copy_is_exact_after_a_driver_was_killed_that_had_copied_more_than_it_wrote_down(
    spark: SparkSession, small: OneFlow
) -> None:
    flow = small
    crash = CrashPoint(LEDGER, "before", 3, flow.directory / "died", "kill")
    with continuous(flow, crash) as running:
        fed_until(flow, lambda: crash.reached)
        assert running.wait() == -9
    flow.trigger = "availableNow"
    assert flow.run(spark).error is None
    flow.assert_exact(spark)


def test_stop_within_a_stage_leaves_nothing_to_find(spark: SparkSession, small: OneFlow) -> None:
    """The stage would last a minute. What it appended is in the ledger and in the table of runs."""
    flow = small
    flow.settings["tail.seconds"] = 60
    never = CrashPoint(LEDGER, "before", 10**6, flow.directory / "died", "kill")
    with continuous(flow, never) as running:
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


def test_running_flow_copies_what_comes_within_one_batch_of_spark(
    ground: Tuple[KafkaBroker, KafkaBroker, SparkSession, Path], topic_name: Callable[[str], str]
) -> None:
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
