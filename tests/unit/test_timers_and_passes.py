"""What of a pass is due, and what of it an operator reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mirror_lib.groups.flow import CycleReport, cycle_line, is_news
from mirror_lib.groups.job import CHECKPOINTS, COMMIT, LEDGER, Timers
from tests.lab.flows import flow_of

AGES = 1e6
QUIET = CycleReport("A->B", "run", 3, 0, 0, 0, 0.04, {"exact": 2, "held": 1})


def timers(**intervals: Any) -> Timers:
    off = {name: None for name in ("sync_group_offsets", "emit_checkpoints", "refresh_groups")}
    fields = {f"{name}_interval": seconds for name, seconds in {**off, **intervals}.items()}
    return Timers(flow_of(**fields))


def test_intervals_run_each_by_itself_and_the_ledger_was_read_at_the_start() -> None:
    due = timers(sync_group_offsets=AGES, emit_checkpoints=1e-9, refresh_groups=AGES)
    assert [due.take(name) for name in (COMMIT, CHECKPOINTS, COMMIT, CHECKPOINTS, LEDGER)] == [
        *(True, True, False, True, False),
    ]
    off = timers(sync_group_offsets=AGES)
    assert not off.take(CHECKPOINTS) and not off.take(LEDGER)


def test_first_cycle_and_one_that_wrote_or_found_something_are_news() -> None:
    assert is_news(QUIET, None) and not is_news(replace(QUIET, seconds=9.0), QUIET)
    for change in ({"committed": 1}, {"refused": 1}, {"checkpoints": 1}, {"verdicts": {"exact": 3}}):
        assert is_news(replace(QUIET, **change), QUIET), change
    not_moved = "1 group not moved, billing: committed by another client"
    assert "billing" in cycle_line(replace(QUIET, not_moved=(not_moved,)))
