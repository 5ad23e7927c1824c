"""A run's progress in Spark's metrics system, as one of Spark's own sinks writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Dict, List, cast

import pytest

from mirror_lib.metrics import CURRENT, FlowMetrics, gauges
from mirror_lib.spark.metrics import InputRows, current, gauges_for
from tests.integration.conftest import Ground
from tests.lab.one_flow import OneFlow
from tests.lab.submitted import submit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SNAPSHOT = FlowMetrics("A->B", 1, 5, 50, 1.0, 1.0, 7, None, 0, 2, "copying")
CSV = "spark.metrics.conf.driver.sink.csv"


def last_values(folder: Path) -> Dict[str, int]:
    """By gauge. The sink writes a file for each, and a line with a time and a value each period and at the end."""
    found = {}
    for path in folder.glob("*.AccumulatorSource.*.csv"):
        name = path.name.partition(".AccumulatorSource.")[2][: -len(".csv")]
        found[name] = int(path.read_text().splitlines()[-1].split(",")[1])
    return found


def input_rows(folder: Path) -> List[int]:
    """`numInputRows` of each micro-batch of a flow, by Spark's log of events."""
    lines = (line for path in folder.rglob("*") if path.is_file() for line in path.read_text().splitlines())
    events = (json.loads(line) for line in lines if "QueryProgressEvent" in line)
    progress = [event["progress"] for event in events]
    of_the_flow = [each for each in progress if each["name"] == "mirror source->target"]
    return [source["numInputRows"] for each in of_the_flow for source in each["sources"]]


@pytest.mark.long
def test_sink_of_sparks_has_the_progress_of_a_run(ground: Ground, topic_name: Callable[[], str]) -> None:
    source, target, spark, directory = ground
    flow = OneFlow(source, target, topic_name(), directory)
    flow.fill(200)
    folder = directory / "metrics"
    folder.mkdir()
    sink = {"class": "org.apache.spark.metrics.sink.CsvSink", "directory": str(folder), "period": "1"}
    options = [word for name, value in sink.items() for word in ("--conf", f"{CSV}.{name}={value}")]
    events = directory / "events"
    events.mkdir()
    logged = {"enabled": "true", "compress": "false", "dir": events.as_uri()}
    options += [word for name, value in logged.items() for word in ("--conf", f"spark.eventLog.{name}={value}")]
    ended = submit(directory, *options, config=flow.config)
    assert ended.code == 0, ended.text
    flow.assert_exact(spark)
    values = last_values(folder)
    assert values["mirror.source-target.records"] == flow.written * flow.partitions
    assert values["mirror.source-target.bytes"] > 0
    assert values["mirror.source-target.behind_records"] == values["mirror.source-target.stopped"] == 0
    assert sum(input_rows(events)) == flow.written * flow.partitions


def test_spark_that_lacks_the_private_parts_is_warned_of_and_shows_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Fork:
        @property
        def _jvm(self) -> object:
            raise RuntimeError("LongAccumulatorSource does not exist in the JVM")

    show = gauges_for(cast("SparkSession", Fork()), ["A->B"])
    show(SNAPSHOT)
    (warned,) = caplog.records
    assert warned.levelname == "WARNING" and "LongAccumulatorSource" in warned.getMessage()
    rows = InputRows(cast("SparkSession", Fork()))
    rows.add("query", 1)
    rows.add("query", 1)
    assert [each.getMessage().partition(":")[0] for each in caplog.records[1:]] == [
        "this Spark shows no input rows and counts no filtered records, copying is unaffected"
    ]


def test_unknown_lag_is_0_and_others_are_rounded() -> None:
    assert current(SNAPSHOT) == dict(zip(gauges(CURRENT), (7, 0, 2, 16)))
