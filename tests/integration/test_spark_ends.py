"""A Spark that ends under a flow: it is said so, and no one waits for it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, List

import pytest

from tests.lab.checkout import ROOT
from tests.lab.crash import Driver, driver
from tests.lab.one_flow import NewFlow, OneFlow, until
from tests.lab.standalone import java_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENDS = {
    "stopped from Python": "spark.stop()",
    "stopped in Java": "spark.sparkContext._jsc.stop()",
    "without its Java": "spark.sparkContext._gateway.proc.kill(); spark.sparkContext._gateway.proc.wait()",
}
ASKED = """\
import json, sys
from pathlib import Path
from mirror_lib.ledger.tables import RUNS
from mirror_lib.errors import MirrorError
from mirror_lib.ledger.delta_table import StateTable
from mirror_lib.verify.flow import read_to_the_end
from tests.lab.spark_session import build_session

spark = build_session(Path(sys.argv[1]))
table, rows = StateTable(spark, sys.argv[1] + "/state", RUNS), spark.range(1)
assert table.rows() is None

def compare():
    with read_to_the_end("A->B", spark):
        exec(sys.argv[2])
        rows.collect()

for ask in (compare, table.rows, table.rows):
    try:
        ask()
    except MirrorError as error:
        print(json.dumps([type(error).__name__, str(error)]))
"""


@pytest.mark.long
@pytest.mark.parametrize("how", ENDS)
def test_spark_that_has_ended_is_named_and_no_folder_or_log_is_blamed(tmp_path: Path, how: str) -> None:
    command = [sys.executable, "-c", ASKED, str(tmp_path), ENDS[how]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    reported = [json.loads(line) for line in done.stdout.splitlines()]
    ended = "Spark has ended (check whether it was stopped, or the driver's Java ran out of memory)"
    asked = ("A->B", *[f"could not read the table {tmp_path}/state/runs"] * 2)
    assert reported == [["SparkEndedError", f"{what}: {ended}"] for what in asked], done.stderr


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    flow = new_flow("ends", trigger="1 second")
    flow.fill(100)
    return flow


def session_of(run: Driver) -> List[int]:
    """Every process of the driver: its Python, its JVM, and Spark's workers, which are another process group."""
    found = subprocess.run(["ps", "-s", str(run.pid), "-o", "pid="], stdout=subprocess.PIPE, text=True, check=True)
    return [int(pid) for pid in found.stdout.split()]


def test_continuous_run_whose_java_is_killed_ends_with_one_sentence(flow: OneFlow, spark: SparkSession) -> None:
    with driver(["-m", "mirror_lib.cli", "run", str(flow.config)]) as run:
        until(flow.all_copied, 120)
        os.kill(java_of(run.pid), signal.SIGKILL)
        assert run.wait(60) == 1, run.output
    (error,) = [line for line in run.output.splitlines() if "error: " in line]
    assert "Spark has ended (check whether it was stopped" in error
    assert "MIR-401" not in run.output
    flow.trigger = "availableNow"
    assert flow.run(spark).error is None
    flow.assert_exact(spark)


@pytest.mark.long
@pytest.mark.parametrize("limit", ["none", "20 KB"])
def test_sigterm_to_every_process_ends_a_run_as_sigterm_to_the_driver_does(
    flow: OneFlow, spark: SparkSession, limit: str
) -> None:
    """As systemd sends it. With a rate limit tasks copy a backlog at that moment."""
    flow.fill(1_000)
    flow.settings = {} if limit == "none" else {"max.bytes.per.second": limit}
    with driver(["-m", "mirror_lib.cli", "run", str(flow.config), "--plain"]) as run:
        full = flow.everything
        until(lambda: flow.copies() == full if limit == "none" else 0 < flow.copies() < full / 2, 120)
        for pid in session_of(run):
            with contextlib.suppress(ProcessLookupError):  # a worker that was idle, or ended with its daemon
                os.kill(pid, signal.SIGTERM)
        assert run.wait(60) == 0, run.output
    assert not re.search(r"^\tat |^Traceback|Exception in thread", run.output, re.MULTILINE), run.output
    flow.trigger, flow.settings = "availableNow", {}
    outcome = flow.run(spark)
    assert outcome.error is None and outcome.recovered == 0
    flow.assert_exact(spark)
