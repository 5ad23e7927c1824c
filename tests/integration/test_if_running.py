"""A second run of a flow: refused while another process copies it, whether on this machine or on another; ends with 0
where a schedule asks for that; waits for the other's end or fences it where it is asked to. A killed run blocks none
that is refused."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any, Dict, List

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from mirror_lib.cli import main
from mirror_lib.errors import EXIT_REFUSED
from tests.lab.crash import mirror
from tests.lab.one_flow import NewFlow, OneFlow, until

pytestmark = pytest.mark.long

FLOW = "source->target"


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    flow = new_flow("overlap", records=1_200)
    flow.settings = {"max.bytes.per.second": "15 KB", "batch.max.seconds": 2}
    return flow


def run_once(flow: OneFlow, capsys: pytest.CaptureFixture[str], *options: str) -> List[Dict[str, Any]]:
    """The documents of a run that ends with 0."""
    capsys.readouterr()
    assert main(["run", str(flow.config), "--once", "--json", *options]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def copying(flow: OneFlow) -> bool:
    """Whether records are copied by a run whose first row is written: Delta remembers a table that it did not find."""
    first = flow.state / "runs" / "_delta_log" / "00000000000000000000.json"
    return first.exists() and flow.copies() > 200


def assert_nothing_else_changes_the_flow(flow: OneFlow, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["takeover"], ["cutover", "run"], ["cutover", "back"]):
        assert main([*command, str(flow.config), "--execute"]) == EXIT_REFUSED
        assert "MIR-301" in capsys.readouterr().err


def test_later_run_is_refused_or_exits_or_fences_the_first(
    flow: OneFlow, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    with mirror("run", flow.config, "--once") as first:
        until(lambda: copying(flow), 120)
        flow.settings = {}
        before = flow.copies()
        assert main(["run", str(flow.config), "--once"]) == EXIT_REFUSED
        assert str(first.pid) in capsys.readouterr().err
        assert_nothing_else_changes_the_flow(flow, capsys)
        assert run_once(flow, capsys, "--if-running", "exit")[-1]["already_running"]
        until(lambda: flow.copies() > before, 60)
        assert "already_running" not in run_once(flow, capsys, "--take-over")[-1]
        assert first.wait(300) == 3 and "another driver fenced this flow" in first.output
    flow.assert_exact(spark)


def test_run_on_another_machine_is_found_by_its_heartbeats(
    flow: OneFlow, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flow.trigger = "2 seconds"
    flow.settings["emit.heartbeats.enabled"] = "true"
    # No lock that both see, as on another machine.
    with mirror("run", flow.config, TMPDIR=str(tmp_path)) as first:
        until(lambda: copying(flow), 120)
        flow.settings = {"emit.heartbeats.enabled": "true"}
        before = flow.copies()
        assert main(["run", str(flow.config), "--once"]) == EXIT_REFUSED
        assert "heartbeats" in capsys.readouterr().err
        until(lambda: flow.copies() > before, 60)
        runs = DeltaTable.forPath(spark, str(flow.state / "runs"))
        (run_id,) = {row["run_id"] for row in runs.toDF().collect()}
        runs.update(set={"driver": F.lit("elsewhere process 1")})
        assert_nothing_else_changes_the_flow(flow, capsys)
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
    flow: OneFlow, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    with mirror("run", flow.config, "--once") as killed:
        until(lambda: copying(flow), 120)
        killed.end()
    flow.settings = {}
    runs = DeltaTable.forPath(spark, str(flow.state / "runs"))
    (here,) = {row["driver"] for row in runs.toDF().collect()}
    runs.update(set={"driver": F.lit("elsewhere process 1")})
    (document,) = run_once(flow, capsys, "--if-running", "exit")
    assert document["already_running"] and document["flow"] == FLOW
    runs.update(set={"at": F.expr("at - interval 10 minutes")})
    assert not any("already_running" in each for each in run_once(flow, capsys, "--if-running", "exit"))
    # Of a process of this machine it is known at once.
    runs.update(F.expr("driver = 'elsewhere process 1'"), {"at": F.current_timestamp(), "driver": F.lit(here)})
    assert not any("already_running" in each for each in run_once(flow, capsys, "--if-running", "exit"))
    flow.assert_exact(spark)
    # A run that ended blocks none.
    assert not any("already_running" in each for each in run_once(flow, capsys, "--if-running", "exit"))
