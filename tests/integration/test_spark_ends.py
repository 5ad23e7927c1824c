"""A Spark that ends under a flow: it is said so, and no one waits for it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from typing import TYPE_CHECKING, List

import pytest

from tests.lab.crash import Driver, mirror
from tests.lab.one_flow import NewFlow, OneFlow, until
from tests.lab.processes import java_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    return new_flow("ends", trigger="1 second", records=100)


def session_of(run: Driver) -> List[int]:
    """Every process of the driver: its Python, its JVM, and Spark's workers, which are another process group."""
    found = subprocess.run(["ps", "-s", str(run.pid), "-o", "pid="], stdout=subprocess.PIPE, text=True, check=True)
    return [int(pid) for pid in found.stdout.split()]


def test_continuous_run_whose_java_is_killed_ends_with_one_sentence(flow: OneFlow, spark: SparkSession) -> None:
    with mirror("run", flow.config) as run:
        until(flow.all_copied, 120)
        os.kill(java_of(run.pid), signal.SIGKILL)
        assert run.wait(60) == 1, run.output
    (error,) = [line for line in run.output.splitlines() if "error: " in line]
    assert "Spark has ended (check whether it was stopped" in error
    assert "MIR-401" not in run.output
    flow.trigger = "availableNow"
    flow.copy(spark, exact=True)


@pytest.mark.long
@pytest.mark.parametrize("limit", ["none", "20 KB"])
def test_sigterm_to_every_process_ends_a_run_as_sigterm_to_the_driver_does(
    flow: OneFlow, spark: SparkSession, limit: str
) -> None:
    """As systemd sends it. With a rate limit tasks copy a backlog at that moment."""
    flow.fill(1_000)
    flow.settings = {} if limit == "none" else {"max.bytes.per.second": limit}
    with mirror("run", flow.config, "--plain") as run:
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
