"""A second run of a flow: refused while another process copies it, whether on this machine or on another; ends with 0
where a schedule asks for that; waits for the other's end or fences it where it is asked to. A killed run blocks none
that is refused."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from mirror_lib.errors import EXIT_REFUSED
from tests.integration.conftest import Command
from tests.lab.crash import mirror
from tests.lab.one_flow import NewFlow, OneFlow, until

pytestmark = pytest.mark.long


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    flow = new_flow("overlap", records=3_000)
    flow.settings = {"max.bytes.per.second": "15 KB", "batch.max.seconds": 2}
    return flow


def runs_already(flow: OneFlow, command: Command, *options: str) -> bool:
    """Whether a run, which ends with 0, leaves the flow to another one."""
    done = command("run", flow.config, "--once", "--json", *options)
    assert done.code == 0
    return any("already_running" in each for each in done.documents)


def copying(flow: OneFlow) -> bool:
    """Whether records are copied by a run whose first row is written: Delta remembers a table that it did not find."""
    first = flow.state / "runs" / "_delta_log" / "00000000000000000000.json"
    return first.exists() and flow.copies() > 200


def assert_nothing_else_changes(flow: OneFlow, command: Command) -> None:
    for words in (["takeover"], ["cutover", "run"], ["cutover", "back"]):
        refused = command(*words, flow.config, "--execute")
        assert refused.code == EXIT_REFUSED and "MIR-301" in refused.err


def test_later_run_is_refused_or_exits_or_fences_the_first(
    flow: OneFlow, spark: SparkSession, command: Command
) -> None:
    with mirror("run", flow.config, "--once") as first:
        until(lambda: copying(flow), 120)
        flow.settings = {}
        before = flow.copies()
        refused = command("run", flow.config, "--once")
        assert refused.code == EXIT_REFUSED and str(first.pid) in refused.err
        assert runs_already(flow, command, "--if-running", "exit")
        assert_nothing_else_changes(flow, command)
        until(lambda: flow.copies() > before, 60)
        assert not runs_already(flow, command, "--take-over")
        assert first.wait(300) == 3 and "another driver fenced this flow" in first.output
    flow.assert_exact(spark)


def test_run_on_another_machine_is_found_by_its_heartbeats(
    flow: OneFlow, spark: SparkSession, tmp_path: Path, command: Command
) -> None:
    flow.trigger = "2 seconds"
    flow.settings["emit.heartbeats.enabled"] = "true"
    # No lock that both see, as on another machine.
    with mirror("run", flow.config, TMPDIR=str(tmp_path)) as first:
        until(lambda: copying(flow), 120)
        flow.settings = {"emit.heartbeats.enabled": "true"}
        before = flow.copies()
        refused = command("run", flow.config, "--once")
        assert refused.code == EXIT_REFUSED and "heartbeats" in refused.err
        until(lambda: flow.copies() > before, 60)
        runs = DeltaTable.forPath(spark, str(flow.state / "runs"))
        (run_id,) = {row["run_id"] for row in runs.toDF().collect()}
        runs.update(set={"driver": F.lit("elsewhere process 1")})
        assert_nothing_else_changes(flow, command)
        (tmp_path / "another").mkdir()
        words = ("run", flow.config, "--once", "--if-running", "wait")
        with mirror(*words) as stopped, mirror(*words, TMPDIR=str(tmp_path / "another")) as second:
            for each in (stopped, second):
                assert each.process.stdout is not None
                assert any(run_id in line for line in each.process.stdout)
            stopped.process.send_signal(signal.SIGTERM)
            assert stopped.wait(30) == 0
            first.end()
            assert second.wait(120) == 0
    flow.assert_exact(spark)


def test_a_killed_run_blocks_no_longer_than_its_last_sign_of_life_counts(
    flow: OneFlow, spark: SparkSession, command: Command
) -> None:
    with mirror("run", flow.config, "--once") as killed:
        until(lambda: copying(flow), 120)
        killed.end()
    flow.settings = {}
    runs = DeltaTable.forPath(spark, str(flow.state / "runs"))
    (here,) = {row["driver"] for row in runs.toDF().collect()}
    runs.update(set={"driver": F.lit("elsewhere process 1")})
    assert runs_already(flow, command, "--if-running", "exit")
    runs.update(set={"at": F.expr("at - interval 10 minutes")})
    assert not runs_already(flow, command, "--if-running", "exit")
    # Of a process of this machine it is known at once.
    runs.update(F.expr("driver = 'elsewhere process 1'"), {"at": F.current_timestamp(), "driver": F.lit(here)})
    assert not runs_already(flow, command, "--if-running", "exit")
    flow.assert_exact(spark)
    # A run that ended blocks none.
    assert not runs_already(flow, command, "--if-running", "exit")
