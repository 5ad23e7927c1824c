"""How a stage's lanes are shared out among its tasks: by what they have to copy."""

from __future__ import annotations

from typing import Dict

from hypothesis import given
from hypothesis import strategies as st

from mirror_lib.replication.messages import LANES
from mirror_lib.replication.task_plans import tasks_of

MANY = 1_000_000
LOADS = st.dictionaries(st.integers(0, LANES - 1), st.integers(1, 1000 * MANY), min_size=1)


@given(LOADS, st.integers(1, 16))
def test_each_lane_has_one_task_and_no_task_far_more_than_it_must(loads: Dict[int, int], tasks: int) -> None:
    task_of = tasks_of(loads, tasks)
    assert set(task_of) == set(loads) and set(task_of.values()) <= set(range(tasks))
    sums = [sum(loads[lane] for lane in loads if task_of[lane] == task) for task in range(tasks)]
    assert max(sums) <= sum(loads.values()) / tasks + max(loads.values())


def test_two_hot_lanes_have_a_task_each_whatever_their_numbers() -> None:
    for lanes in ((2, 4), (1, 2), (0, 32)):
        task_of = tasks_of({**dict.fromkeys(range(LANES), 1000), **dict.fromkeys(lanes, 500 * MANY)}, 2)
        assert {task_of[lane] for lane in lanes} == {0, 1}


def test_lanes_without_an_end_are_spread_by_their_number() -> None:
    task_of = tasks_of({lane: 2**63 - lane for lane in range(LANES)}, 4)
    assert sorted(list(task_of.values()).count(task) for task in range(4)) == [16] * 4
