"""A continuous `mirror run` whose clusters stop answering and answer again: what it prints, and when it resumes."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import List

import pytest

from mirror_lib.ledger.table_reader import TableReader
from tests.lab.brokers import KafkaBroker, background, clusters
from tests.lab.checkout import ROOT
from tests.lab.one_flow import OneFlow, until

pytestmark = pytest.mark.long


class PlainRun:
    """`mirror run` with plain lines."""

    def __init__(self, flow: OneFlow, directory: Path) -> None:
        self._lines = directory / "lines"
        command = [sys.executable, "-m", "mirror_lib.cli", "run", str(flow.config)]
        self.process = background(command, self._lines, own_session=False, cwd=ROOT)

    def lines(self) -> List[str]:
        """What it printed, without the times."""
        return [line[20:] for line in self._lines.read_text().splitlines()]

    def outages(self) -> List[str]:
        """Its lines of outages: that they begin, and that they end."""
        return [line for line in self.lines() if " unreachable since " in line or " back after " in line]


def outage_is_reported_once(run: PlainRun, flow: OneFlow, broker: KafkaBroker, side: str, pause: bool = False) -> None:
    """Stop the broker of this side until that is reported, then start it again until new records are copied."""
    seen, before = len(run.outages()), len(run.lines())
    (broker.pause if pause else broker.stop)()
    until(lambda: len(run.outages()) > seen, 20, "the outage")
    at = [n for n, line in enumerate(run.lines()) if n >= before and f" {side} unreachable since " in line]
    assert len(at) == 1
    (broker.resume if pause else broker.restart)()
    until(lambda: len(run.outages()) > seen + 1, 60, "the end of the outage")
    assert len(run.outages()) == seen + 2
    flow.fill(10)
    until(flow.all_copied, 150, "the records after the outage")
    lines = run.lines()[at[0] :]
    (back,) = [n for n, line in enumerate(lines) if f" {side} back after " in line]
    assert re.fullmatch(rf"source->target {side} unreachable since \d\d:\d\d:\d\d", lines[0]), lines[0]
    assert re.fullmatch(rf"source->target {side} back after (\d+ s|\d\.\d s|\d+ min)", lines[back]), lines[back]
    assert not [line for line in lines[:back] if "all committed records copied" in line]


def test_outage_of_either_cluster_is_reported_at_its_begin_and_end_and_a_stop_in_it_is_no_kill(tmp_path: Path) -> None:
    with clusters(["source", "target"], tmp_path) as (source, target):
        flow = OneFlow(source, target, "orders", tmp_path, trigger="1 second")
        flow.fill(100)
        run = PlainRun(flow, tmp_path)
        try:
            until(lambda: any("all committed records copied" in line for line in run.lines()), 120, "the copy")
            assert run.outages() == []
            outage_is_reported_once(run, flow, source, "source")
            outage_is_reported_once(run, flow, target, "target", pause=True)
            assert flow.differences() == []
            source.stop()
            until(lambda: " unreachable since " in run.outages()[-1], 20, "the outage")
            time.sleep(6)  # until the driver itself waits for an answer of the source
            run.process.terminate()
            assert run.process.wait(30) == 0
            rows = TableReader(str(flow.state)).rows("runs", ("kind", "outcome", "records", "at"), "source->target")
            last = max(rows, key=lambda row: float(row["at"].timestamp()))
            assert (last["kind"], last["outcome"]) == ("ended", "stopped") and last["records"]
        finally:
            run.process.kill()
