"""How much a pass through rows takes on: about what fits its time, shared out so that every partition moves."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict

from mirror_lib.records.engine import bounded, next_offsets
from mirror_lib.records.pass_room import Room
from tests.unit.logs import task_of


def ends(behind: Dict[int, int], offsets: int) -> Dict[int, int]:
    tasks = [replace(task_of(), partition=number, upstream_offset=100, end=100 + n) for number, n in behind.items()]
    return {task.partition: task.end - 100 for task in bounded(tasks, Room(offsets))}


def test_pass_takes_all_where_it_can_and_else_shares_what_it_may_take() -> None:
    assert ends({0: 50, 1: 7}, 1000) == {0: 50, 1: 7}
    assert ends({0: 900, 1: 10, 2: 900}, 110) == {0: 50, 1: 10, 2: 50}
    # Also one that may take less than there are partitions moves each of them.
    assert ends({0: 900, 1: 900}, 1) == {0: 1, 1: 1}


def test_next_pass_takes_what_the_last_one_would_have_done_in_the_time() -> None:
    assert next_offsets(100_000, 100_000, 20.0, 10.0) == 50_000
    assert next_offsets(100_000, 100_000, 0.1, 10.0) == 400_000  # no jump on the word of one quick pass
    assert next_offsets(100_000, 3, 20.0, 10.0) == 1_000
    assert next_offsets(100_000, 0, 20.0, 10.0) == 100_000
