"""What of a pass is due, and what of it an operator reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.groups.flow import CycleReport, cycle_json, cycle_line, is_news
from mirror_lib.groups.job import CHECKPOINTS, COMMIT, IDLE_SECONDS, LEDGER, Timers

AGES = 1e6
QUIET = CycleReport("A->B", "run", 3, 0, 0, 0, 0.04, {"exact": 2, "held": 1})


def timers(**intervals: Any) -> Timers:
    source, target = (ClusterConfig(alias, {"bootstrap.servers": "h:1"}) for alias in "AB")
    off = {name: None for name in ("sync_group_offsets", "emit_checkpoints", "refresh_groups")}
    fields = {f"{name}_interval": seconds for name, seconds in {**off, **intervals}.items()}
    return Timers(replace(ReplicationFlow(source, target), **fields))


def test_first_pass_commits_and_tells_and_the_next_one_waits_for_its_interval() -> None:
    due = timers(sync_group_offsets=AGES, emit_checkpoints=AGES)
    assert [due.take(name) for name in (COMMIT, CHECKPOINTS)] == [True, True]
    assert [due.take(name) for name in (COMMIT, CHECKPOINTS)] == [False, False]


def test_ledger_that_was_read_at_the_start_is_not_due_at_once() -> None:
    assert not timers(refresh_groups=AGES).take(LEDGER)


def test_what_is_switched_off_is_never_due() -> None:
    due = timers(sync_group_offsets=AGES)
    assert not due.take(CHECKPOINTS) and not due.take(LEDGER)


def test_intervals_run_each_by_itself() -> None:
    due = timers(sync_group_offsets=AGES, emit_checkpoints=1e-9)
    assert [due.take(COMMIT), due.take(CHECKPOINTS), due.take(COMMIT), due.take(CHECKPOINTS)] == [
        *(True, True, False, True),
    ]


def test_triggers_come_as_often_as_the_shortest_interval_and_with_none_at_all_now_and_then() -> None:
    assert timers(sync_group_offsets=7.0, emit_checkpoints=60.0, refresh_groups=600.0).shortest == 7.0
    assert timers().shortest == IDLE_SECONDS


def test_groups_that_need_the_operator_are_named() -> None:
    report = replace(QUIET, not_moved=("1 group not moved, billing: committed by another client",))
    assert "billing" in cycle_line(report) and cycle_json(report)["not_moved"] == report.not_moved


def test_first_pass_is_news_and_the_same_again_is_not() -> None:
    assert is_news(QUIET, None)
    assert not is_news(replace(QUIET, seconds=9.0), QUIET)


def test_pass_that_wrote_or_found_something_is_news() -> None:
    for change in (
        {"committed": 1},
        {"refused": 1},
        {"checkpoints": 1},
        {"verdicts": {"exact": 3}},
    ):
        assert is_news(replace(QUIET, **change), QUIET), change


def test_line_names_what_was_found_and_what_was_written() -> None:
    assert cycle_line(QUIET) == "A->B groups · 3 positions: 2 exact, 1 held · 0.0 s"
    busy = replace(QUIET, positions=12_000, committed=1_500, refused=2, checkpoints=3, verdicts={})
    assert [part.replace(" ", "").replace(",", "") for part in cycle_line(busy).split(" · ")[1:-1]] == [
        *("12000positions", "1500committed", "2refused", "3checkpoints"),
    ]
    assert cycle_line(replace(QUIET, unreadable=("group a: silent",))).endswith(" · 1 unreadable · 0.0 s")


def test_json_has_every_number_of_the_pass() -> None:
    assert cycle_json(QUIET) == {
        "flow": "A->B",
        "run_id": "run",
        "positions": 3,
        "committed": 0,
        "refused": 0,
        "checkpoints": 0,
        "seconds": 0.04,
        "verdicts": {"exact": 2, "held": 1},
        "unreadable": (),
        "not_moved": (),
    }
