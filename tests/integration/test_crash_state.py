"""Checkpoints that are lost, other clusters under an alias, and a run that is asked to stop while a lane hangs."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, List

import pytest

from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import RefusedError
from mirror_lib.facts import readable
from mirror_lib.kafka.admin import KafkaCluster
from tests.lab.crash import CrashPoint, mirror
from tests.lab.one_flow import ABOUT_TO_WRITE, NewFlow, OneFlow, stopped_process, until
from tests.lab.readers import read_if_there

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRITTEN_BESIDE = ("heartbeats", "source.checkpoints.internal")

pytestmark = pytest.mark.long


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    return new_flow("state", records=400)


def test_copy_is_exact_after_state_was_lost(spark: SparkSession, flow: OneFlow) -> None:
    """Spark's checkpoints; `test_whose_records` has a ledger that is lost."""
    flow.copy(spark)
    shutil.rmtree(flow.state / "checkpoints")
    flow.fill(200)
    flow.copy(spark, exact=True)


def test_where_another_cluster_stands_behind_an_alias_nothing_is_made_or_copied_nor_done_beside_the_copy(
    spark: SparkSession, flow: OneFlow
) -> None:
    flow.copy(spark)
    swapped = OneFlow(flow.target, flow.source, flow.topic, flow.directory)
    swapped.fill(10)
    error = swapped.run(spark).error
    assert isinstance(error, RefusedError) and "the source cluster has id" in str(error)
    assert not swapped.has_remote_topic()

    beside = ("sync.topic.configs", "emit.heartbeats", "emit.checkpoints")
    swapped.settings = {f"{each}.enabled": "true" for each in beside}
    # Alike by its name, it would get the configs of the source's topic.
    swapped.target.create_topic(swapped.remote_topic, swapped.partitions, retention_ms="86400000")
    before = [read_if_there(swapped.target, topic) for topic in WRITTEN_BESIDE]
    with mirror("run", swapped.config, "--once") as running:
        assert running.wait() == 3
    assert "the source cluster has id" in running.output
    with KafkaCluster(ClusterConfig("target", {"bootstrap.servers": swapped.target.bootstrap})) as cluster:
        (configs,) = readable(cluster.topic_configs([swapped.remote_topic], ["retention.ms"])).values()
    assert configs["retention.ms"].value == "86400000"
    assert [read_if_there(swapped.target, topic) for topic in WRITTEN_BESIDE] == before


def test_sigterm_ends_a_run_whose_lane_hangs_and_the_next_one_completes(spark: SparkSession, flow: OneFlow) -> None:
    point = CrashPoint(*ABOUT_TO_WRITE, flow.directory / "stopped", "stop")
    with mirror("run", flow.config, crash=point) as running:
        stopped_process(flow.directory / "stopped", 180)
        os.kill(running.pid, signal.SIGTERM)
        assert running.wait(60) == 143
    assert flow.copies() < flow.everything
    flow.copy(spark, exact=True)


def checkpoints(flow: OneFlow) -> List[Path]:
    return list((flow.state / "checkpoints" / "source-target").glob("*"))


def test_checkpoint_of_a_run_that_was_stopped_or_failed_is_not_left_behind(flow: OneFlow, spark: SparkSession) -> None:
    flow.trigger = "1 second"
    with flow.running(spark) as ends:
        until(lambda: flow.all_copied() and len(checkpoints(flow)) == 1, 120)
    assert [end.error for end in ends] == [None] and checkpoints(flow) == []
    flow.trigger = "availableNow"
    flow.copy(spark)
    (gone_on_with,) = checkpoints(flow)
    flow.fill(10)
    assert flow.run(spark).error is None and checkpoints(flow) == [gone_on_with]
    flow.create_source_anew(10)
    assert flow.run(spark).error is not None and checkpoints(flow) == []
