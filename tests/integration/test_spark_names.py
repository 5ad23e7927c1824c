"""What Spark shows of the mirror and prints: names of its jobs, input rows, patterns as Java reads them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, List, Set

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql.utils import IllegalArgumentException  # type: ignore[attr-defined]  # Spark 3.3 has no pyspark.errors

from mirror_lib.topics.filters import first_match
from tests.lab.one_flow import NewFlow
from tests.lab.submitted import submit
from tests.unit.pattern_cases import ALIKE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def jobs(spark: SparkSession) -> Set[str]:
    """Descriptions of all jobs so far."""
    context: Any = spark.sparkContext._jsc
    found = context.sc().statusStore().jobsList(None)
    described = [found.apply(number).description() for number in range(found.size())]
    return {each.get() for each in described if each.isDefined()}


def test_jobs_of_a_run_say_what_they_are_for(spark: SparkSession, new_flow: NewFlow) -> None:
    flow = new_flow("jobs", records=50)
    flow.copy(spark)
    assert {"warm-up", "source->target: copy, cycle 1", "source->target: ledger"} <= jobs(spark)


@pytest.mark.parametrize("pattern", [*ALIKE, "a|b"])
def test_pattern_that_the_mirror_takes_means_the_same_to_java(spark: SparkSession, pattern: str) -> None:
    java: Any = spark.sparkContext._jvm
    names = ["orders", "sales.eu", "abc.v12", "aa", "aaa", "Orders", "a", "b", "a{b}", "^a", "]a", "a&b", "&", "test"]
    wanted = [name for name in names if first_match([pattern], name)]
    assert [name for name in names if java.java.util.regex.Pattern.matches(pattern, name)] == wanted


@pytest.mark.parametrize("pattern", ["(?P<team>a)", "a{,3}", "{team}", "(?a)a", "(?#note)a", r"\U00000061", "[a[b]"])
def test_java_refuses_what_the_mirror_refuses(spark: SparkSession, pattern: str) -> None:
    java: Any = spark.sparkContext._jvm
    with pytest.raises((Py4JJavaError, IllegalArgumentException)):  # the latter since Spark 3.4
        java.java.util.regex.Pattern.compile(pattern)


def input_rows(folder: Path) -> List[int]:
    """`numInputRows` of each micro-batch of a flow, by Spark's log of events."""
    lines = (line for path in folder.rglob("*") if path.is_file() for line in path.read_text().splitlines())
    events = (json.loads(line) for line in lines if "QueryProgressEvent" in line)
    progress = [event["progress"] for event in events]
    of_the_flow = [each for each in progress if each["name"] == "mirror source->target"]
    return [source["numInputRows"] for each in of_the_flow for source in each["sources"]]


@pytest.mark.long
def test_log_of_events_has_the_copied_records_as_input_rows(spark: SparkSession, new_flow: NewFlow) -> None:
    flow = new_flow("input", records=200)
    events = flow.directory / "events"
    events.mkdir()
    logged = {"enabled": "true", "compress": "false", "dir": events.as_uri()}
    options = [word for name, value in logged.items() for word in ("--conf", f"spark.eventLog.{name}={value}")]
    ended = submit(flow.directory, *options, config=flow.config)
    assert ended.code == 0, ended.text
    flow.assert_exact(spark)
    assert sum(input_rows(events)) == flow.everything


PROGRAM = """\
from mirror_lib.spark.session import running_session
for name in ("one", "another"):
    with running_session(name) as session:
        out = session._jvm.java.lang.System.out
        out.println("Deleted 0 files and directories in a total of 1 directories.")
        out.println(name)
    out.println("Exception in a thread of Spark's that noticed its end")
print("a document", flush=True)
"""


def test_java_prints_to_standard_error_without_noise_and_nothing_once_it_ends(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "a document\n"
    assert done.stderr.splitlines() == ["one", "another"]
    assert list(tmp_path.iterdir()) == []
