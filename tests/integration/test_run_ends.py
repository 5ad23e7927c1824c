"""How a run ends, and what is seen of it until then: killed at each step, by a signal, with its Spark; by Prometheus,
and on a terminal. What a second run finds."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List

import pytest
from delta.tables import DeltaTable
from prometheus_client.openmetrics import parser
from pyspark.sql import functions as F

from mirror_lib.errors import EXIT_REFUSED
from mirror_lib.exporter import METRICS
from tests.integration.conftest import Command
from tests.lab.brokers import free_ports
from tests.lab.crash import CrashPoint, Driver, mirror, run_mirror
from tests.lab.dataset import set_configs
from tests.lab.flow_lab import NOON
from tests.lab.one_flow import ABOUT_TO_WRITE, NewFlow, OneFlow, until
from tests.lab.processes import java_of
from tests.lab.terminal import CTRL_C, Terminal, terminal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LANES = "mirror_lib.replication.stage:run_tasks"
POINTS = [
    (*ABOUT_TO_WRITE, "kill driver", "some"),
    (LANES, "before", 1, "kill", "nothing"),
    ("mirror_lib.kafka.fencing:fence", "after", 1, "kill driver", "some"),
    (LANES, "after", 1, "kill", "all"),
    ("mirror_lib.ledger.offset_syncs:OffsetSyncTable.append", "after", 1, "kill", "all"),
    ("mirror_lib.replication.flow:FlowMirror.copy_batch", "after", 1, "kill", "all"),
]


@pytest.mark.parametrize(
    ("function", "when", "call", "how", "copied"),
    [POINTS[0], *(pytest.param(*point, marks=pytest.mark.long) for point in POINTS[1:])],
)
def test_copy_is_exact_after_a_driver_killed(
    spark: SparkSession, new_flow: NewFlow, function: str, when: str, call: int, how: str, copied: str
) -> None:
    """The next run completes the copy, with no record lost or doubled."""
    flow = new_flow("crash", records=600)
    crash = CrashPoint(function, when, call, flow.directory / "died", how)
    # Some die in continuous mode, and what they leave behind is the same.
    flow.trigger = "1 second" if how == "kill driver" else "availableNow"
    assert run_mirror(flow.config, crash=crash) == -9
    assert crash.reached
    before, everything = flow.copies(), flow.everything
    assert {"nothing": before == 0, "some": before < everything, "all": before == everything}[copied]
    flow.fill(200)
    flow.trigger = "availableNow"
    flow.settings["tasks.max"] = 3 if "fencing" in function else 2  # lanes are the same whatever tasks.max is
    flow.copy(spark, exact=True)


# --- continuous runs ----------------------------------------------------------------------------------------------


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    return new_flow("ends", trigger="1 second", records=100)


def session_of(run: Driver) -> List[int]:
    """Every process of the driver: its Python, its JVM, and Spark's workers, which are another process group."""
    found = subprocess.run(["ps", "-s", str(run.pid), "-o", "pid="], stdout=subprocess.PIPE, text=True, check=True)
    return [int(pid) for pid in found.stdout.split()]


@pytest.mark.long
def test_continuous_run_whose_java_is_killed_ends_with_one_sentence(flow: OneFlow, spark: SparkSession) -> None:
    with mirror("run", flow.config) as run:
        until(flow.all_copied, 300)
        os.kill(java_of(run.pid), signal.SIGKILL)
        assert run.wait(60) == 1, run.output
    (error,) = [line for line in run.output.splitlines() if "error: " in line]
    assert "Spark has ended (check whether it was stopped" in error
    assert "MIR-401" not in run.output
    flow.trigger = "availableNow"
    flow.copy(spark, exact=True)


def test_stop_within_a_stage_leaves_nothing_to_find(spark: SparkSession, flow: OneFlow) -> None:
    """The stage would last a minute. What it appended is in the ledger and in the table of runs."""
    flow.settings["tail.seconds"] = 60
    with mirror("run", flow.config) as running:
        until(lambda: flow.copies() > 0, 90)
        flow.fill(200)
        until(flow.all_copied, 90)
        running.process.send_signal(signal.SIGTERM)
        assert running.wait() == 0, running.output
    assert sum(row[3] for row in flow.ledger(spark)) == flow.everything
    runs = spark.read.format("delta").load(str(flow.state / "runs"))
    ended = runs.where("outcome = 'stopped'").collect()
    assert [(row["records"], row["bytes"] > 0) for row in ended] == [(flow.everything, True)]
    flow.assert_exact(spark)


@pytest.mark.long
def test_sigterm_to_every_process_ends_a_run_as_sigterm_to_the_driver_does(flow: OneFlow, spark: SparkSession) -> None:
    """As systemd sends it, while tasks copy a backlog."""
    flow.fill(1_000)
    flow.settings = {"max.bytes.per.second": "20 KB"}
    with mirror("run", flow.config, "--plain") as run:
        until(lambda: 0 < flow.copies() < flow.everything / 2, 300)
        for pid in session_of(run):
            with contextlib.suppress(ProcessLookupError):  # a worker that was idle, or ended with its daemon
                os.kill(pid, signal.SIGTERM)
        assert run.wait(60) == 0, run.output
    assert not re.search(r"^\tat |^Traceback|Exception in thread", run.output, re.MULTILINE), run.output
    flow.trigger, flow.settings = "availableNow", {}
    outcome = flow.run(spark)
    assert outcome.error is None and outcome.recovered == 0
    flow.assert_exact(spark)


def scraped(port: int) -> Dict[str, float]:
    """By name without prefix, with the topic or the side behind it where there is one. Empty while nothing listens."""
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=accept)
    found: Dict[str, float] = {}
    with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=30) as answer:
        families: Any = parser.text_string_to_metric_families(answer.read().decode())  # type: ignore[no-untyped-call]
        for sample in (sample for family in families for sample in family.samples):
            last = sample.labels.get("topic") or sample.labels.get("side") or sample.labels.get("state")
            found[sample.name[len("kafka_mirror_") :] + (f" {last}" if last else "")] = sample.value
    return found


def test_scrape_of_a_continuous_run_counts_what_was_written_until_sigterm_ends_it(
    flow: OneFlow, spark: SparkSession
) -> None:
    (port,), textfile, config = free_ports(1), flow.directory / "mirror.prom", flow.config
    config.write_text(f"{config.read_text()}metrics.port: {port}\nmetrics.textfile: {textfile}\n")
    with mirror("run", config) as running:
        until(lambda: scraped(port).get("records_total") == flow.everything, 180, "the first records")
        flow.fill(200)
        until(lambda: scraped(port).get("records_total") == flow.everything, 60, "the later records")
        until(lambda: scraped(port)["lag_records"] == 0, 60, "no lag")
        found = scraped(port)
        running.process.terminate()
        assert running.wait(60) == 0
    assert found[f"topic_records_total {flow.topic}"] == found["records_total"]
    assert found[f"topic_bytes_total {flow.topic}"] == found["bytes_total"] > 0
    assert found[f"topic_lag_records {flow.topic}"] == found["stopped_partitions"] == 0
    assert (found["running"], found["topics"], found["topics_omitted"]) == (1, 1, 0)
    assert found["cycles_total"] >= 2 and "lag_seconds" not in found
    # Of the older format, which node_exporter reads, names of counters are not understood by the newer parser.
    lines, labels = textfile.read_text().splitlines(), 'flow="source->target",source="source",target="target"'
    assert f"kafka_mirror_records_total{{{labels}}} {found['records_total']}" in lines
    assert "kafka_mirror_running 0.0" in lines
    flow.assert_exact(spark)


HEADING = "FLOW                   RECORDS/S   BYTES/S   LAG RECORDS    LAG TIME         ETA"


def table_of(running: Terminal) -> List[str]:
    """The lines of the table that is visible, which must be one; empty before there is any."""
    screen = running.paper.screen
    assert screen.count(HEADING) <= 1, screen
    return screen[screen.index(HEADING) :] if HEADING in screen else []


def test_run_on_a_terminal_shows_a_table_that_the_jvm_does_not_tear(flow: OneFlow) -> None:
    """One live table, whatever the JVM prints meanwhile, and a sane terminal afterwards."""
    flow.fill(900)
    flow.settings = {"max.bytes.per.second": "25 KB", "batch.max.seconds": 2}
    command = [sys.executable, "-m", "mirror_lib.cli", "run", str(flow.config)]
    with terminal(command) as running:
        # A backlog: its bar, and the topic with its worst partition.
        until(lambda: any("%" in row for row in table_of(running)), 300, "a backlog")
        row = next(row for row in table_of(running) if row.startswith("source->target "))
        assert re.fullmatch(r"source->target +[\d.]+ +[\d.]+ K?B +[\d,]+\d +\d+ \w+( +\d+ \w+)?", row), row
        (topic,) = [row for row in table_of(running) if row.startswith(flow.topic)]
        assert re.fullmatch(rf"{flow.topic} +[\d,]+\d +[012] +[\d,]+\d", topic), topic
        # Java's dump of its threads goes straight to the terminal that Java was started with.
        os.kill(java_of(running.process.pid), signal.SIGQUIT)
        until(lambda: any(row.startswith("JNI global ref") for row in running.paper.rows), 30, "the dump of threads")
        assert any(row.startswith("Full thread dump") for row in running.paper.rows)
        until(lambda: bool(table_of(running)), 30, "a table below the dump")
        flow.settings = {}
        running.press(CTRL_C)
        assert running.wait(60) == 0
    table = table_of(running)
    assert table, "\n".join(running.paper.rows[-70:])
    assert table[1].startswith("source->target ") and "stopping: the cycles that run are finished first" in table
    # The two names do not fit on a line of this terminal.
    assert f"  {flow.remote_topic}" in table, "the summary of the run"
    assert table[table.index(f"  {flow.remote_topic}") - 1].startswith(flow.topic)
    assert running.paper.cursor_visible


@pytest.mark.long
def test_every_metric_is_exported_by_a_run_with_a_lag(flow: OneFlow) -> None:
    """The source may delete in ten hours what a rate limit leaves uncopied when that is read, after a minute."""
    flow.fill(300)
    set_configs(flow.source, flow.topic, {"retention.ms": str(round((time.time() - NOON / 1000 + 36_000) * 1000))})
    dead = f"{flow.topic}-dead"
    flow.settings = {"max.bytes.per.second": 1000, "where": "offset % 2 = 0", "dead.letter.topic": dead}
    (port,), config = free_ports(1), flow.config
    config.write_text(f"{config.read_text()}metrics.port: {port}\n")
    wanted = {each.name[len("kafka_mirror_") :] for each in METRICS} - {"run_success"}  # which the textfile has
    found: Dict[str, float] = {}

    def all_seen() -> bool:
        found.update(scraped(port))
        return wanted <= {name.split()[0] for name in found}

    with mirror("run", config):
        until(all_seen, 180)
        flow.fill(3_000)
        until(lambda: scraped(port)["lag_records"] > 8_000, 60, "the lag of records that came during the query")
    assert 35_000 < found["retention_left_seconds"] <= 36_000


# --- a second run: refused while another process copies; ends with 0, waits or fences where it is asked to ------------


@pytest.fixture
def slow(new_flow: NewFlow) -> OneFlow:
    return new_flow("overlap", records=3_000, settings={"max.bytes.per.second": "15 KB", "batch.max.seconds": 2})


def runs_already(slow: OneFlow, command: Command, *options: str) -> bool:
    """Whether a run, which ends with 0, leaves the flow to another one."""
    done = command("run", slow.config, "--once", "--json", *options)
    assert done.code == 0
    return any("already_running" in each for each in done.documents)


def copying(slow: OneFlow) -> bool:
    """Whether records are copied by a run whose first row is written: Delta remembers a table that it did not find."""
    first = slow.state / "runs" / "_delta_log" / "00000000000000000000.json"
    return first.exists() and slow.copies() > 200


def assert_nothing_else_changes(slow: OneFlow, command: Command) -> None:
    for words in (["takeover"], ["cutover", "run"], ["cutover", "back"]):
        refused = command(*words, slow.config, "--execute")
        assert refused.code == EXIT_REFUSED and "MIR-301" in refused.err


@pytest.mark.long
def test_later_run_is_refused_or_exits_or_fences_the_first(
    slow: OneFlow, spark: SparkSession, command: Command
) -> None:
    with mirror("run", slow.config, "--once") as first:
        until(lambda: copying(slow), 300)
        slow.settings = {}
        before = slow.copies()
        refused = command("run", slow.config, "--once")
        assert refused.code == EXIT_REFUSED and str(first.pid) in refused.err
        assert runs_already(slow, command, "--if-running", "exit")
        two, back = slow.directory / "two.yaml", f"flows:\n  target->source: {{topics: [{slow.topic}-back]}}\n"
        two.write_text(slow.config.read_text().replace("flows:\n", back))
        done = command("run", two, "--once", "--json", "--if-running", "exit")
        found = [each["flow"] for each in done.documents]
        assert (done.code, found[0], {*found[1:]}) == (0, "source->target", {"target->source"})
        assert_nothing_else_changes(slow, command)
        until(lambda: slow.copies() > before, 60)
        assert not runs_already(slow, command, "--take-over")
        assert first.wait(300) == 3 and "another driver fenced this flow" in first.output
    slow.assert_exact(spark)


@pytest.mark.long
def test_run_on_another_machine_is_found_by_its_heartbeats(
    slow: OneFlow, spark: SparkSession, tmp_path: Path, command: Command
) -> None:
    slow.trigger = "2 seconds"
    slow.settings["emit.heartbeats.enabled"] = "true"
    # No lock that both see, as on another machine.
    with mirror("run", slow.config, TMPDIR=str(tmp_path)) as first:
        until(lambda: copying(slow), 300)
        slow.settings = {"emit.heartbeats.enabled": "true"}
        before = slow.copies()
        refused = command("run", slow.config, "--once")
        assert refused.code == EXIT_REFUSED and "heartbeats" in refused.err
        until(lambda: slow.copies() > before, 60)
        runs = DeltaTable.forPath(spark, str(slow.state / "runs"))
        (run_id,) = {row["run_id"] for row in runs.toDF().collect()}
        runs.update(set={"driver": F.lit("elsewhere process 1")})
        assert_nothing_else_changes(slow, command)
        (tmp_path / "another").mkdir()
        words = ("run", slow.config, "--once", "--if-running", "wait")
        with mirror(*words) as stopped, mirror(*words, TMPDIR=str(tmp_path / "another")) as second:
            for each in (stopped, second):
                assert each.process.stdout is not None
                assert any(run_id in line for line in each.process.stdout)
            stopped.process.send_signal(signal.SIGTERM)
            assert stopped.wait(30) == 0
            first.end()
            assert second.wait(120) == 0
    slow.assert_exact(spark)
