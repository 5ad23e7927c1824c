"""`mirror run` on a terminal: one live table, whatever the JVM prints meanwhile, and a sane terminal afterwards."""

from __future__ import annotations

import os
import re
import signal
import sys
from typing import List

import pytest

from tests.lab.one_flow import NewFlow, OneFlow, until
from tests.lab.processes import java_of
from tests.lab.terminal import CTRL_C, Terminal, terminal

HEADING = "FLOW                   RECORDS/S   BYTES/S   LAG RECORDS    LAG TIME         ETA"


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    return new_flow("seen", trigger="1 second", records=1_000)


def table_of(running: Terminal) -> List[str]:
    """The lines of the table that is visible, which must be one; empty before there is any."""
    screen = running.paper.screen
    assert screen.count(HEADING) <= 1, screen
    return screen[screen.index(HEADING) :] if HEADING in screen else []


def test_run_on_a_terminal_shows_a_table_that_the_jvm_does_not_tear(flow: OneFlow) -> None:
    flow.settings = {"max.bytes.per.second": "25 KB", "batch.max.seconds": 2}
    command = [sys.executable, "-m", "mirror_lib.cli", "run", str(flow.config)]
    with terminal(command) as running:
        # A backlog: its bar, and the topic with its worst partition.
        until(lambda: any("%" in row for row in table_of(running)), 120, "a backlog")
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
def test_plain_run_on_a_terminal_prints_lines(flow: OneFlow) -> None:
    command = [sys.executable, "-m", "mirror_lib.cli", "run", str(flow.config), "--once", "--plain"]
    with terminal(command) as running:
        assert running.wait(120) == 0
    rows = running.paper.rows
    assert HEADING not in rows
    line = r"source->target all committed records copied · [\d,]+ records/s"
    assert [row for row in rows if re.match(line, row)], rows
