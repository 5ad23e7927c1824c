"""Disks of a target that lose records or fill up: the records are copied again. `make faults` has the state's disk."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Iterator, List, Tuple

import pytest

from tests.lab.brokers import KafkaBroker, clusters
from tests.lab.checkout import LabError
from tests.lab.crash import CrashPoint, mirror
from tests.lab.one_flow import ABOUT_TO_WRITE, NewFlow, OneFlow, stopped_process, until
from tests.lab.segments import batch_starts, cut_tail, forget_indexes, last_segment
from tests.lab.small_disk import SmallDisk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.long

# The last batch on a log: the records are old, so the lane fenced again behind them.
MARKER = 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A disk of 96 MB, whose folder is new and empty."""
    try:
        disk = SmallDisk(tmp_path / "disk", 96)
    except LabError as error:
        pytest.skip(str(error))
    yield disk
    disk.close()


@pytest.fixture
def flow(pair: List[KafkaBroker], new_flow: NewFlow) -> OneFlow:
    return new_flow("disk", source=pair[0], target=pair[1], records=400)


def incidents(flow: OneFlow, spark: SparkSession) -> List[Tuple[str, int, int, int]]:
    rows = spark.read.format("delta").load(str(flow.state / "events")).where("topic is not null").collect()
    return [(row["kind"], row["partition"], row["from_offset"], row["until_offset"]) for row in rows]


def cut_remote(
    flow: OneFlow, end: Callable[[KafkaBroker], None], lost: Callable[[int], int], torn: bool = False, count: int = 1
) -> None:
    """End the target, and start it without the last batches of `count` remote partitions: `lost` of so many."""
    end(flow.target)
    for number in range(count):
        segment = last_segment(flow.target, flow.remote_topic, number)
        cut_tail(segment, lost(len(batch_starts(segment))), torn)
        if end is KafkaBroker.stop:
            forget_indexes(segment)
    flow.target.restart()


@pytest.mark.parametrize(
    ("end", "torn"),
    [(KafkaBroker.kill, False), (KafkaBroker.kill, True), (KafkaBroker.stop, False)],
    ids=["power cut", "power cut inside a batch", "older disk"],
)
def test_tail_that_the_remote_log_lost_on_disk_is_copied_again(
    spark: SparkSession, flow: OneFlow, end: Callable[[KafkaBroker], None], torn: bool
) -> None:
    flow.copy(spark)
    cut_remote(flow, end, lambda there: MARKER + 4, torn)
    (lost,) = flow.differences()
    assert lost.startswith("partition 0: 400 records on the source, 240 on the target")
    flow.fill(50)
    flow.copy(spark, exact=True)
    assert incidents(flow, spark) == [("remote log healed", 0, 240, 400)]


def test_power_cut_amid_a_run_is_said_and_the_next_run_copies_again_what_it_took(
    spark: SparkSession, flow: OneFlow, tmp_path: Path
) -> None:
    flow.settings["tasks.max"] = 1
    point = CrashPoint(*ABOUT_TO_WRITE, tmp_path / "stopped", "stop")
    with mirror("run", flow.config, crash=point) as run:
        worker = stopped_process(tmp_path / "stopped", 180)
        cut_remote(flow, KafkaBroker.kill, lambda there: there - 1, count=flow.partitions)
        assert flow.copies() == 0
        os.kill(worker, signal.SIGCONT)
        assert run.wait() == 1
    (error,) = [line for line in run.output.splitlines() if "error: " in line]
    assert "ends before offset" in error and "the next start copies the lost records again" in error
    flow.copy(spark, exact=True)


def test_copy_goes_on_where_a_full_disk_ended_the_target(
    spark: SparkSession, pair: List[KafkaBroker], new_flow: NewFlow, small_disk: SmallDisk, tmp_path: Path
) -> None:
    (tmp_path / "brokers").symlink_to(small_disk.path)
    with clusters(["full-target"], tmp_path / "brokers") as (target,):
        flow = new_flow("full", source=pair[0], target=target, records=6000)
        small_disk.fill(leave=1_000_000)
        with flow.running(spark) as outcomes:
            until(lambda: target.process is not None and target.process.poll() is not None)
            small_disk.make_room()
            # Its own log is on that disk, and may lack the reason: a broker without a log folder halts with 1.
            assert target.process is not None and target.process.returncode == 1
            target.restart()
            until(lambda: bool(outcomes), 120)
        assert outcomes[0].error is None
        flow.assert_exact(spark)
