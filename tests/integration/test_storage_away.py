"""State that cannot be written for a while: a continuous flow survives it, and its copy is exact afterwards."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Iterator, List

import pytest

from mirror_lib.config.loader import load
from mirror_lib.errors import StateError
from mirror_lib.replication.query import start_query
from mirror_lib.replication.totals import FlowOutcome
from tests.lab.one_flow import NewFlow, OneFlow, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    settings = {"batch.max.seconds": 1}
    return new_flow("away", settings=settings, trigger="1 second")


class Running:
    """A flow that runs next to the test, until it is asked to stop."""

    def __init__(self, flow: OneFlow, spark: SparkSession) -> None:
        self._stop = threading.Event()
        self.ended: List[FlowOutcome] = []
        self._thread = threading.Thread(target=lambda: self.ended.append(flow.run(spark, self._stop)), daemon=True)
        self._thread.start()

    def stop(self) -> FlowOutcome:
        self._stop.set()
        self._thread.join(60)
        return self.ended[0]


@pytest.fixture
def running(flow: OneFlow, spark: SparkSession) -> Iterator[Running]:
    running = Running(flow, spark)
    yield running
    running.stop()


def away(folder: Path) -> Path:
    """Where the folder is kept until it is back; in its place is what no table can be written into."""
    kept = folder.rename(folder.with_name("kept"))
    folder.write_text("not a folder")
    return kept


def back(folder: Path, kept: Path) -> None:
    folder.unlink()
    kept.rename(folder)


def reported(flow: OneFlow, spark: SparkSession) -> List[int]:
    """The record counts of the ledger's rows."""
    commits = (flow.state / "offset_syncs" / "_delta_log").glob("*.json")
    return [row[3] for row in flow.ledger(spark)] if any(commits) else []


def test_flow_whose_ledger_is_away_for_a_while_goes_on_and_is_exact(
    spark: SparkSession, flow: OneFlow, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    flow.fill(200)
    until(lambda: sum(reported(flow, spark)) >= flow.written * flow.partitions, 100)
    kept = away(flow.state / "offset_syncs")
    flow.fill(200)
    until(lambda: "starts again" in caplog.text or bool(running.ended))
    back(flow.state / "offset_syncs", kept)
    flow.fill(200)
    until(lambda: sum(reported(flow, spark)) >= flow.written * flow.partitions or bool(running.ended))
    assert running.stop().error is None
    flow.assert_exact(spark)


def test_flow_that_begins_at_latest_copies_the_first_record_behind_its_start(
    spark: SparkSession, flow: OneFlow
) -> None:
    flow.settings["consumer.auto.offset.reset"] = "latest"
    running = Running(flow, spark)
    until(lambda: reported(flow, spark) == [0, 0, 0], 120)
    flow.fill(100)
    until(lambda: flow.copies() == flow.written * flow.partitions)
    assert running.stop().error is None
    flow.assert_exact(spark)


def test_folder_that_no_checkpoint_can_be_made_in_is_named(spark: SparkSession, flow: OneFlow) -> None:
    (mirrored,) = load(str(flow.config)).flows
    # Not even root can make a folder there.
    with pytest.raises(StateError, match=r"checkpoint in /proc/nothing: .*mkdir.* \(`state` must be a folder"):
        start_query(spark, mirrored, "/proc/nothing", "1 second", lambda *_: None)
