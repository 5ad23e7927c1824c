"""The live screen on a terminal of its own, without a mirror: lines of others stay whole, the terminal stays sane."""

from __future__ import annotations

import re
import sys

from mirror_lib.text import wrapped
from tests.lab.one_flow import until
from tests.lab.terminal import COLUMNS, CTRL_C, LINES, Terminal, terminal

# Another process writes to the same terminal in pieces, as a JVM does.
PROGRAM = """\
import os, subprocess, sys, threading, time
from mirror_lib.metrics import FlowMetrics
from mirror_lib.progress import after
from mirror_lib.screen import screen_on_terminal

OTHER = '''
import os, time
for n in range(300):
    for piece in (b"line ", b"%03d " % n, b"x" * (n % 60) + b" " + b"y" * (n % 50), b" end" + chr(10).encode()):
        os.write(1 + n % 2, piece)
    time.sleep(0.005)
'''
stop = threading.Event()
with screen_on_terminal(["A->B"]) as screen:
    other = subprocess.Popen([sys.executable, "-c", OTHER])
    with screen.drawn(stop):
        metrics = FlowMetrics("A->B", 0, 500, 5000, 10.0, 10.0, 1500, 3.0, 0, 0, "copying")
        screen.show(after(metrics, None, time.monotonic()))
        print("printed", flush=True)
        print("logged", file=sys.stderr, flush=True)
        try:
            other.wait(60)
            exec(sys.argv[1])
        finally:
            stop.set()
print("summary", sys.stdout.isatty(), sys.stderr.isatty())
"""


STOPPING = "stopping: the cycles that run are finished first"


def on_screen(ending: str = "", **environment: str) -> Terminal:
    """The program after its end; with an `ending` it was interrupted there."""
    with terminal([sys.executable, "-c", PROGRAM, ending], **environment) as running:
        if ending:
            until(lambda: any("line 299" in row for row in running.paper.rows), 60)
            running.press(CTRL_C)
        running.wait(60)
        return running


def assert_lines_are_whole(running: Terminal) -> None:
    lines = [f"line {n:03d} {'x' * (n % 60)} {'y' * (n % 50)} end" for n in range(300)]
    assert {part for line in lines for part in wrapped(line, COLUMNS)} <= set(running.paper.rows)


def test_lines_of_other_processes_are_whole_and_above_the_table() -> None:
    running = on_screen()
    assert running.code == 0
    assert_lines_are_whole(running)
    rows = [row.rstrip() for row in running.paper.rows]
    heading, flow, *rest = rows[-6:]
    assert heading == "FLOW                   RECORDS/S   BYTES/S   LAG RECORDS    LAG TIME         ETA"
    assert re.fullmatch(r"A->B {26}50 {5}500 B {9}1,500 {7}3\.0 s {8}\d\d s", flow), flow
    assert rest == ["  ━━━━━━────────────────── 25 %  copying", STOPPING, "summary True True", ""]
    assert {"printed", "logged"} <= set(rows) and sum(row.startswith("FLOW") for row in rows) == 1
    assert running.paper.cursor_visible


def test_interrupted_program_leaves_the_terminal_as_it_was() -> None:
    running = on_screen("time.sleep(60)")
    assert running.code != 0 and running.paper.cursor_visible
    assert any("KeyboardInterrupt" in row for row in running.paper.screen) and len(running.paper.screen) <= LINES


def test_terminal_without_utf_8_gets_ascii() -> None:
    running = on_screen(PYTHONIOENCODING="latin-1")
    assert any("######------------------ 25 %  copying" in row for row in running.paper.rows)
