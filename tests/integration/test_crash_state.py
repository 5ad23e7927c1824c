"""State that is lost or behind, and drivers that meet or are asked to stop: the copy is exact after the next run."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Callable, List

import pytest

from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import RefusedError, VanishedError
from mirror_lib.facts import readable
from mirror_lib.kafka.admin import KafkaCluster
from tests.lab.crash import CrashPoint, driver
from tests.lab.one_flow import ABOUT_TO_WRITE, NewFlow, OneFlow, stopped_process, until
from tests.lab.readers import read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


MIRROR = ["-m", "mirror_lib.cli", "run"]
WRITTEN_BESIDE = ("heartbeats", "source.checkpoints.internal")


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    flow = new_flow("state")
    flow.fill(400)
    return flow


def standing_still(flow: OneFlow) -> CrashPoint:
    """Where one lane's worker stops with a produce request built and not sent."""
    return CrashPoint(*ABOUT_TO_WRITE, flow.directory / "stopped", "stop")


def checkpoint(flow: OneFlow) -> None:
    shutil.rmtree(flow.state / "checkpoints")


def ledger_table(flow: OneFlow) -> None:
    shutil.rmtree(flow.state / "offset_syncs")


def everything(flow: OneFlow) -> None:
    shutil.rmtree(flow.state)


@pytest.mark.parametrize(
    "lose",
    [pytest.param(checkpoint, marks=pytest.mark.long), pytest.param(ledger_table, marks=pytest.mark.long), everything],
)
def test_copy_is_exact_after_state_was_lost(
    spark: SparkSession, flow: OneFlow, lose: Callable[[OneFlow], None]
) -> None:
    assert flow.run(spark).error is None
    lose(flow)
    flow.fill(200)
    assert flow.run(spark).error is None
    flow.assert_exact(spark)


@pytest.mark.parametrize("lose", [ledger_table, everything])
def test_run_whose_state_is_deleted_ends_by_name_and_makes_no_other(
    spark: SparkSession, flow: OneFlow, lose: Callable[[OneFlow], None]
) -> None:
    """A run that created its ledger again had a part of one, and called what was missing there equal."""
    flow.trigger = "1 second"
    with flow.running(spark) as ended:
        until(flow.all_copied)
        until(lambda: any((flow.state / "offset_syncs" / "_delta_log").glob("*.json")))
        until(lambda: sum(row[3] for row in flow.ledger(spark)) == flow.everything)
        lose(flow)
        flow.fill(200)
        until(lambda: bool(ended))
    assert isinstance(ended[0].error, VanishedError)
    assert not (flow.state / "offset_syncs").exists()
    flow.trigger = "availableNow"
    assert flow.run(spark).error is None
    flow.assert_exact(spark)


@pytest.mark.long
def test_copy_is_exact_after_the_last_rows_of_the_ledger_were_lost(spark: SparkSession, flow: OneFlow) -> None:
    assert flow.run(spark).error is None
    flow.fill(200)
    assert flow.run(spark).error is None
    table = f"delta.`{flow.state / 'offset_syncs'}`"
    (last,) = spark.sql(f"SELECT max(committed_at) FROM {table}").collect()[0]
    spark.sql(f"DELETE FROM {table} WHERE committed_at = '{last}'")
    assert sum(row[3] for row in flow.ledger(spark)) == 400 * flow.partitions
    flow.fill(200)
    assert flow.run(spark).error is None
    flow.assert_exact(spark)


@pytest.mark.long
def test_where_another_cluster_stands_behind_an_alias_nothing_is_made_or_copied(
    spark: SparkSession, flow: OneFlow
) -> None:
    assert flow.run(spark).error is None
    swapped = OneFlow(flow.target, flow.source, flow.topic, flow.directory)
    swapped.fill(10)
    error = swapped.run(spark).error
    assert isinstance(error, RefusedError) and "the source cluster has id" in str(error)
    assert read_topic(swapped.target, swapped.remote_topic) == {}  # not even a topic


@pytest.mark.long
def test_where_another_cluster_stands_behind_an_alias_nothing_is_done_beside_the_copy_either(
    spark: SparkSession, flow: OneFlow
) -> None:
    assert flow.run(spark).error is None
    beside = {
        "sync.topic.configs.enabled": "true",
        "emit.heartbeats.enabled": "true",
        "emit.checkpoints.enabled": "true",
    }
    swapped = OneFlow(flow.target, flow.source, flow.topic, flow.directory, settings=beside)
    # Alike by its name, it would get the configs of the source's topic.
    swapped.target.create_topic(swapped.remote_topic, swapped.partitions, retention_ms="86400000")
    # Other tests may have written some; what is not there is empty.
    before = [read_topic(swapped.target, topic) for topic in WRITTEN_BESIDE]
    with driver([*MIRROR, str(swapped.config), "--once"]) as running:
        assert running.wait() == 3
    assert "the source cluster has id" in running.output
    with KafkaCluster(ClusterConfig("target", {"bootstrap.servers": swapped.target.bootstrap})) as cluster:
        (configs,) = readable(cluster.topic_configs([swapped.remote_topic], ["retention.ms"])).values()
    assert configs["retention.ms"].value == "86400000"
    assert [read_topic(swapped.target, topic) for topic in WRITTEN_BESIDE] == before


def test_second_driver_takes_over_and_the_first_is_refused(spark: SparkSession, flow: OneFlow) -> None:
    with driver([*MIRROR, str(flow.config)], standing_still(flow)) as first:
        worker = stopped_process(flow.directory / "stopped", 180)
        assert flow.run(spark).error is None
        flow.assert_exact(spark)
        os.kill(worker, signal.SIGCONT)
        assert first.wait() == 3
    assert "another driver fenced this flow" in first.output
    flow.assert_exact(spark)


def test_killed_worker_is_replaced_within_the_run(spark: SparkSession, flow: OneFlow) -> None:
    crash = CrashPoint(*ABOUT_TO_WRITE, flow.directory / "died")
    with driver([*MIRROR, str(flow.config)], crash) as running:
        assert running.wait() == 0
    assert crash.reached
    flow.assert_exact(spark)


@pytest.mark.long
def test_killed_executor_is_replaced_within_the_run(spark: SparkSession, flow: OneFlow) -> None:
    crash = CrashPoint(*ABOUT_TO_WRITE, flow.directory / "died", "kill parents")
    submit = ["./spark-submit.sh", "--master", "local-cluster[2,1,1024]", "jobs/mirror.py", str(flow.config)]
    script = f"import os; os.execv('./spark-submit.sh', {submit!r})"
    with driver(["-c", script], crash) as running:
        assert running.wait() == 0, running.output
    assert crash.reached
    flow.assert_exact(spark)


@pytest.mark.long
def test_sigterm_ends_a_run_whose_lane_hangs_and_the_next_one_completes(spark: SparkSession, flow: OneFlow) -> None:
    with driver([*MIRROR, str(flow.config)], standing_still(flow)) as running:
        stopped_process(flow.directory / "stopped", 180)
        os.kill(running.pid, signal.SIGTERM)
        assert running.wait(60) == 143
    assert flow.copies() < flow.everything
    assert flow.run(spark).error is None
    flow.assert_exact(spark)


def test_sigterm_ends_a_continuous_run_well(spark: SparkSession, flow: OneFlow) -> None:
    flow.trigger = "1 second"
    with driver([*MIRROR, str(flow.config)]) as running:
        until(flow.all_copied, 180)
        flow.fill(200)
        until(flow.all_copied, 60)
        os.kill(running.pid, signal.SIGTERM)
        assert running.wait(60) == 0
    flow.assert_exact(spark)


def checkpoints(flow: OneFlow) -> List[Path]:
    return list((flow.state / "checkpoints" / "source-target").glob("*"))


@pytest.mark.long
def test_checkpoint_of_a_run_that_was_stopped_or_failed_is_not_left_behind(flow: OneFlow, spark: SparkSession) -> None:
    flow.trigger = "1 second"
    with flow.running(spark) as ends:
        until(lambda: flow.all_copied() and len(checkpoints(flow)) == 1, 120)
    assert [end.error for end in ends] == [None] and checkpoints(flow) == []
    flow.trigger = "availableNow"
    assert flow.run(spark).error is None
    (gone_on_with,) = checkpoints(flow)
    flow.fill(10)
    assert flow.run(spark).error is None and checkpoints(flow) == [gone_on_with]
    flow.create_source_anew(10)
    assert flow.run(spark).error is not None and checkpoints(flow) == []
