"""State that cannot be written for a while: a continuous flow survives it, and its copy is exact afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, List

import pytest

from mirror_lib.config.loader import load
from mirror_lib.errors import StateError
from mirror_lib.replication.query import start_query
from tests.lab.one_flow import NewFlow, OneFlow, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    return new_flow("away", settings={"batch.max.seconds": 1}, trigger="1 second")


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
    spark: SparkSession, flow: OneFlow, caplog: pytest.LogCaptureFixture
) -> None:
    with flow.running(spark) as ended:
        flow.fill(200)
        until(lambda: sum(reported(flow, spark)) >= flow.everything, 100)
        kept = away(flow.state / "offset_syncs")
        flow.fill(200)
        until(lambda: "starts again" in caplog.text or bool(ended))
        back(flow.state / "offset_syncs", kept)
        flow.fill(200)
        until(lambda: sum(reported(flow, spark)) >= flow.everything or bool(ended))
    assert ended[0].error is None
    flow.assert_exact(spark)


def test_flow_that_begins_at_latest_copies_the_first_record_behind_its_start(
    spark: SparkSession, flow: OneFlow
) -> None:
    flow.settings["consumer.auto.offset.reset"] = "latest"
    with flow.running(spark) as ended:
        until(lambda: reported(flow, spark) == [0, 0, 0], 120)
        flow.fill(100)
        until(flow.all_copied)
    assert ended[0].error is None
    flow.assert_exact(spark)


def test_folder_that_no_checkpoint_can_be_made_in_is_named(spark: SparkSession, flow: OneFlow) -> None:
    (mirrored,) = load(str(flow.config)).flows
    # Not even root can make a folder there.
    with pytest.raises(StateError, match=r"checkpoint in /proc/nothing: .*mkdir.* \(`state` must be a folder"):
        start_query(spark, mirrored, "/proc/nothing", "1 second", lambda *_: None)
