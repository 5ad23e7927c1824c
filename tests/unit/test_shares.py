"""How a pass's lanes are shared out among its tasks: by bytes, and as before as long as that does."""

from __future__ import annotations

from typing import Dict, Mapping

from hypothesis import given
from hypothesis import strategies as st

from mirror_lib.replication.messages import LANES, PartitionReport, PartitionTask
from mirror_lib.replication.task_plans import WORTH_MOVING_BYTES, LaneShares

MB = 1024 * 1024
LOADS = st.dictionaries(st.integers(0, LANES - 1), st.integers(1, 1000 * MB), min_size=1)


def sums(loads: Mapping[int, int], task_of: Mapping[int, int]) -> Dict[int, int]:
    return {number: sum(loads[lane] for lane in loads if task_of[lane] == number) for number in task_of.values()}


@given(LOADS, LOADS, st.integers(1, 16))
def test_each_lane_has_one_task_and_no_task_far_more_than_it_must(
    first: Dict[int, int], then: Dict[int, int], tasks: int
) -> None:
    shares = LaneShares()
    for loads in (first, then):
        task_of = shares.tasks_of(loads, tasks)
        assert set(task_of) == set(loads) and set(task_of.values()) <= set(range(tasks))
        bound = sum(loads.values()) / tasks + max(loads.values())
        assert max(sums(loads, task_of).values()) <= max(bound + WORTH_MOVING_BYTES, bound / 0.8)


def test_two_hot_lanes_have_a_task_each_whatever_their_numbers() -> None:
    for lanes in ((2, 4), (1, 2), (0, 32)):
        task_of = LaneShares().tasks_of({**dict.fromkeys(range(LANES), 1000), **dict.fromkeys(lanes, 500 * MB)}, 2)
        assert {task_of[lane] for lane in lanes} == {0, 1}


def test_lanes_stay_with_their_tasks_while_little_moves() -> None:
    shares = LaneShares()
    before = dict(shares.tasks_of(dict.fromkeys(range(LANES), 1024), 4))
    assert sorted(list(before.values()).count(task) for task in range(4)) == [16] * 4
    for number in range(LANES):
        few = {lane: MB for lane in (number, (number * 7) % LANES)}
        assert shares.tasks_of(few, 4) == {lane: before[lane] for lane in few}


def test_lanes_move_where_a_task_would_have_much_more_than_the_others() -> None:
    shares = LaneShares()
    before = shares.tasks_of(dict.fromkeys(range(8), 1024), 2)
    hot = [lane for lane in before if before[lane] == 0]
    after = shares.tasks_of(dict.fromkeys(hot, 100 * MB), 2)
    assert sorted(sums(dict.fromkeys(hot, 100 * MB), after).values()) == [200 * MB, 200 * MB]


def test_lanes_that_come_one_by_one_are_spread() -> None:
    shares = LaneShares()
    assert [shares.tasks_of({lane: 1024}, 2)[lane] for lane in range(4)] == [0, 1, 0, 1]


def task(end: int) -> PartitionTask:
    return PartitionTask("orders", "A.orders", 3, 1000, 1000, end, None, 1_000_000)


def test_what_is_to_be_copied_is_told_in_bytes_once_a_partition_was_copied() -> None:
    shares = LaneShares()
    guessed = shares.bytes_of(task(2000))
    shares.learn([PartitionReport("orders", "A.orders", 3, 1000, 1000, 0, -1, records=10, bytes=100_000)])
    assert 10_000_000 <= shares.bytes_of(task(2000)) < 10_010_000 and guessed < MB
    assert 100_000 <= shares.bytes_of(task(2**63 - 1)) < 110_000  # without an end: what came last time
    shares.learn([PartitionReport("orders", "A.orders", 3, 1000, 1000, 0, -1)])
    assert shares.bytes_of(task(2**63 - 1)) < 10_000 < shares.bytes_of(task(2000))
