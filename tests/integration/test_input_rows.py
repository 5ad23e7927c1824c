"""The copied records as input rows of Spark's streaming query."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Callable, List, cast

import pytest

from mirror_lib.spark.input_rows import InputRows
from tests.integration.conftest import Ground
from tests.lab.one_flow import OneFlow
from tests.lab.submitted import submit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def input_rows(folder: Path) -> List[int]:
    """`numInputRows` of each micro-batch of a flow, by Spark's log of events."""
    lines = (line for path in folder.rglob("*") if path.is_file() for line in path.read_text().splitlines())
    events = (json.loads(line) for line in lines if "QueryProgressEvent" in line)
    progress = [event["progress"] for event in events]
    of_the_flow = [each for each in progress if each["name"] == "mirror source->target"]
    return [source["numInputRows"] for each in of_the_flow for source in each["sources"]]


@pytest.mark.long
def test_log_of_events_has_the_copied_records_as_input_rows(ground: Ground, topic_name: Callable[[], str]) -> None:
    source, target, spark, directory = ground
    flow = OneFlow(source, target, topic_name(), directory)
    flow.fill(200)
    events = directory / "events"
    events.mkdir()
    logged = {"enabled": "true", "compress": "false", "dir": events.as_uri()}
    options = [word for name, value in logged.items() for word in ("--conf", f"spark.eventLog.{name}={value}")]
    ended = submit(directory, *options, config=flow.config)
    assert ended.code == 0, ended.text
    flow.assert_exact(spark)
    assert sum(input_rows(events)) == flow.written * flow.partitions


def test_spark_that_lacks_the_private_parts_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    class Fork:
        @property
        def streams(self) -> object:
            raise RuntimeError("StreamExecution has no lastExecution")

    rows = InputRows(cast("SparkSession", Fork()))
    rows.add("query", 1)
    rows.add("query", 1)
    (warned,) = caplog.records
    assert warned.levelname == "WARNING" and "lastExecution" in warned.getMessage()
    assert rows.count("query") is None
