"""Disks that lose and disks that fill up: what was lost is copied again, and what could not be written is said."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Iterator, List, Tuple

import pytest

from tests.lab.brokers import KafkaBroker, clusters
from tests.lab.checkout import LabError
from tests.lab.crash import CrashPoint, driver, mirror
from tests.lab.group_lab import commit_with_note
from tests.lab.one_flow import ABOUT_TO_WRITE, NewFlow, OneFlow, stopped_process, until
from tests.lab.segments import batch_starts, cut_tail, forget_indexes, last_segment
from tests.lab.small_disk import SmallDisk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.long

WRITING_THE_LEDGER = "mirror_lib.ledger.offset_syncs:OffsetSyncTable.append"
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


def test_tail_that_reached_into_what_another_tool_wrote_is_refused_or_told(spark: SparkSession, flow: OneFlow) -> None:
    flow.copy(spark)
    shutil.rmtree(flow.state)  # from now on these records are another tool's
    flow.settings.update({"commit.source.group": flow.topic, "start.position": f"group {flow.topic}"})
    for number in range(flow.partitions):
        commit_with_note(flow.source, flow.topic, flow.topic, 400, "", number)
    flow.fill(100)
    flow.copy(spark)
    assert flow.differences() == []
    # Marker, 10 batches, marker; then marker, 3 batches, marker.
    cut_remote(flow, KafkaBroker.stop, lambda there: there - 1 - 6)
    error = str(flow.run(spark).error)
    assert "remote log ends at 241" in error and "its offsets 241 to 401 held what the ledger does not know" in error
    flow.settings["on.data.loss"] = "continue"
    flow.copy(spark)
    assert flow.copies() == 2 * 500 + 240 + 100
    assert incidents(flow, spark) == [("data lost", 0, -1, 400)]


def test_running_flow_copies_again_a_remote_log_that_was_lost_whole_on_disk(spark: SparkSession, flow: OneFlow) -> None:
    """`make faults` has one that lost its tail."""
    flow.trigger = "1 second"
    with flow.running(spark) as outcomes:
        until(lambda: flow.copies() == 1200)
        until((flow.state / "offset_syncs" / "_delta_log" / f"{0:020}.json").exists)
        cut_remote(flow, KafkaBroker.kill, lambda there: there)
        assert len(flow.differences()) == 1
        flow.fill(50)
        until(lambda: flow.differences() == [])
    assert outcomes[0].error is None
    flow.assert_exact(spark)
    assert ("remote log healed", 0, 0, 400) in incidents(flow, spark)


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


def test_state_that_cannot_be_written_is_said_and_the_next_run_enters_what_was_copied(
    spark: SparkSession, flow: OneFlow, small_disk: SmallDisk, tmp_path: Path
) -> None:
    flow.directory = small_disk.directory
    (small_disk.path / "mirror.yaml").write_text(flow.config.read_text())
    command = small_disk.python(["-m", "mirror_lib.cli", "run", str(small_disk.directory / "mirror.yaml")])
    point = CrashPoint(WRITING_THE_LEDGER, "before", 1, tmp_path / "stopped", "stop")
    with driver(command, point) as run:
        stopped = stopped_process(tmp_path / "stopped", 180)
        small_disk.fill()
        os.kill(stopped, signal.SIGCONT)
        assert run.wait() == 1
    # Java writes to the same stream, perhaps without ending its line.
    ends = re.compile(r"error: MIR-\d+: (primary->backup|could)")
    (error,) = [line for line in run.output.splitlines() if ends.search(line)]
    assert "could not write to the table" in error and "No space left on device" in error
    assert flow.differences() == []
    assert not list((small_disk.path / "state" / "offset_syncs" / "_delta_log").glob("*.json"))
    small_disk.make_room()
    with driver(command) as run:
        assert run.wait() == 0, run.output
    shutil.copytree(small_disk.path / "state", flow.state)
    flow.assert_exact(spark)


def test_driver_that_died_while_it_made_a_table_leaves_nothing_in_the_way(spark: SparkSession, flow: OneFlow) -> None:
    for table in ("runs", "offset_syncs"):
        (flow.state / table / "_delta_log").mkdir(parents=True)
    flow.copy(spark, exact=True)
