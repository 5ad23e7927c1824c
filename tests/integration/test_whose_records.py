"""A run appends only after what both logs prove: state folders that are lost or mistyped, logs that have expired."""

from __future__ import annotations

import shutil

import pytest
from pyspark.sql import SparkSession

from mirror_lib.cli import main
from tests.lab.one_flow import NewFlow, OneFlow

LATEST = {"consumer.auto.offset.reset": "latest"}


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    return new_flow("owned", partitions=2)


def test_expired_remote_log_is_not_filled_again_by_another_state_folder(flow: OneFlow, spark: SparkSession) -> None:
    flow.fill(100)
    assert flow.code(spark) == ""
    flow.target.expire(flow.remote_topic, {0: -1, 1: 60})
    shutil.rmtree(flow.state)
    flow.fill(50)
    assert main(["plan", str(flow.config)]) == 3
    assert flow.code(spark) == "MIR-329"
    assert {number: len(log) for number, log in flow.remote().items()} == {0: 0, 1: 41}
    # The way on: the operator knows the next offset of one log, and the first one that the other log still has.
    flow.settings["start.position"] = f'"{flow.topic}:0=100, {flow.topic}:1=59"'
    assert flow.code(spark) == ""
    assert flow.differences_after({0: 100, 1: 59}) == []


def test_latest_without_its_state_leaves_no_gap(flow: OneFlow, spark: SparkSession) -> None:
    flow.settings.update(LATEST)
    assert flow.code(spark) == ""  # the remote topic is made, and the start recorded
    flow.fill(40)
    assert flow.code(spark) == ""
    kept = flow.directory / "kept"
    flow.state.rename(kept)
    flow.fill(30)
    assert flow.code(spark) == "MIR-329"
    shutil.rmtree(flow.state)
    kept.rename(flow.state)
    assert flow.code(spark) == ""
    flow.assert_exact(spark)


def test_logs_prove_where_a_run_without_its_state_resumes_or_stop_it(flow: OneFlow, spark: SparkSession) -> None:
    flow.fill(100)
    assert flow.code(spark) == ""
    shutil.rmtree(flow.state)
    flow.fill(50)
    assert main(["plan", str(flow.config)]) == 0
    assert flow.code(spark) == ""
    flow.assert_exact(spark)
    # A log that has lost copied records proves nothing, and two that are empty are copied from their ends on.
    shutil.rmtree(flow.state)
    flow.source.expire(flow.topic, {0: 30, 1: 30})
    assert flow.code(spark) == "MIR-329" and flow.all_copied()
    shutil.rmtree(flow.state)
    flow.source.expire(flow.topic, {0: -1, 1: -1})
    flow.target.expire(flow.remote_topic, {0: -1, 1: -1})
    assert flow.code(spark) == ""
    flow.fill(20)
    assert flow.code(spark) == ""
    assert flow.differences_after({0: 150, 1: 150}) == []
