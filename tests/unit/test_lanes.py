"""Lanes: a partition's lane follows from names alone. Tasks share lanes, remember the producer ids of each, and hand a
lane's producer and sequences to the next cycle."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_lib.errors import FencedError
from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.record_batch import Producer
from mirror_lib.replication.flow import LaneIds
from mirror_lib.replication.journal import Journal
from mirror_lib.replication.messages import (
    EPOCH_KEPT_SECONDS,
    LANES,
    PartitionReport,
    Stop,
    TaskPlan,
    TaskReport,
    lane_of,
    transactional_id,
)
from mirror_lib.replication.task_plans import FENCE_LASTS_SECONDS, LaneState, tasks_of
from tests.unit.logs import task_of

NAMES = st.text("abcdefghijklmnopqrstuvwxyzABC0123456789._-", min_size=1, max_size=30)


@given(NAMES, st.integers(1, LANES))
def test_partitions_of_one_topic_have_lanes_of_their_own_as_far_as_they_go(topic: str, partitions: int) -> None:
    lanes = {lane_of(topic, partition) for partition in range(partitions)}
    assert len(lanes) == partitions and lanes <= set(range(LANES))


def test_lanes_are_the_same_for_every_driver_and_release() -> None:
    """Another answer than an earlier release's would leave that release's lanes unfenced. Python hashes texts by
    another seed in each process: an answer by these would differ from run to run."""
    places = [("A.orders", 0), ("A.orders", 1), ("A.payments", 0), ("B.x_y-z", 7)]
    assert (LANES, [lane_of(*place) for place in places]) == (64, [22, 23, 2, 7])


def test_other_lanes_flows_and_mirrors_have_other_transactional_ids() -> None:
    ids = {
        transactional_id(name, flow, lane) for name in ("m", "n") for flow in ("A->B", "B->A") for lane in range(LANES)
    }
    assert len(ids) == 4 * LANES


MANY = 1_000_000
LOADS = st.dictionaries(st.integers(0, LANES - 1), st.integers(1, 1000 * MANY), min_size=1)


@given(LOADS, st.integers(1, 16))
def test_each_lane_has_one_task_and_no_task_far_more_than_it_must(loads: Dict[int, int], tasks: int) -> None:
    task_of = tasks_of(loads, tasks)
    assert set(task_of) == set(loads) and set(task_of.values()) <= set(range(tasks))
    sums = [sum(loads[lane] for lane in loads if task_of[lane] == task) for task in range(tasks)]
    assert max(sums) <= sum(loads.values()) / tasks + max(loads.values())


def test_hot_lanes_have_a_task_each() -> None:
    for lanes in ((2, 4), (1, 2), (0, 32)):
        task_of = tasks_of({**dict.fromkeys(range(LANES), 1000), **dict.fromkeys(lanes, 500 * MANY)}, 2)
        assert {task_of[lane] for lane in lanes} == {0, 1}


class Table(Journal):
    """Keeps ids of one flow, and counts the times that it was written to."""

    def __init__(self) -> None:
        self.kept: Dict[int, FrozenSet[int]] = {}
        self.writes = 0

    def producer_ids(self) -> Dict[int, FrozenSet[int]]:
        return dict(self.kept)

    def add_producer_ids(self, ids: Sequence[Tuple[int, int]]) -> None:
        self.writes += 1
        for lane, number in ids:
            self.kept[lane] = self.kept.get(lane, frozenset()) | {number}


def report(**producers: int) -> TaskReport:
    given = {int(lane[4:]): Producer(number, 0) for lane, number in producers.items()}
    return TaskReport(0, given, False, (), 0.0)


def reported(ids: LaneIds, lane: int = 3) -> Optional[Mapping[int, FrozenSet[int]]]:
    """What the plan of a task with that lane gets."""
    partition = next(number for number in range(LANES) if lane_of("A.orders", number) == lane)
    [plan] = ids.reported([TaskPlan(0, "A->B", {}, {}, (task_of(partition=partition),), "A", "B", {}, {})])
    return plan.known_ids


def test_new_ids_are_written_down_once_and_known_to_later_lives() -> None:
    table = Table()
    ids = LaneIds("A->B", table)
    assert reported(ids) == {3: frozenset()}
    ids.learn([report(lane3=70), report(lane5=71)])
    ids.learn([report(lane3=70), report(lane5=71)])
    ids.learn([report(lane3=80)])
    assert reported(ids) == reported(LaneIds("A->B", table)) == {3: frozenset([70, 80])}
    assert reported(ids, 5) == {5: frozenset([71])}
    assert table.writes == 2


def test_driver_that_was_overtaken_by_another_ends_before_it_believes_its_own_look() -> None:
    table = Table()
    ids = LaneIds("A->B", table)
    LaneIds("A->B", table).learn([report(lane3=70)])
    with pytest.raises(FencedError):
        ids.learn([report(lane3=80)])
    assert table.kept == {3: frozenset([70])}
    own = LaneIds("A->B", None)  # a flow with remote topics of its own needs no ids
    own.learn([report(lane3=70)])
    assert reported(own) is None


FIRST, NEXT_EPOCH = Producer(4711, 1), Producer(4711, 2)
NOW = 1_800_000_000.0
PART = PartitionReport("payments", "A.payments", 0, 0, 0, 5, -1)


def parts(**sequences: int) -> List[PartitionReport]:
    return [PartitionReport(name, f"A.{name}", 0, 0, 0, sequence, -1) for name, sequence in sequences.items()]


def copied(**sequences: int) -> List[PartitionReport]:
    return [replace(part, records=1) for part in parts(**sequences)]


HELD = LaneState().after(FIRST, parts(orders=10, payments=3), NOW)
ORDERS, PAYMENTS = ("A.orders", 0), ("A.payments", 0)


@pytest.mark.parametrize(
    ("producer", "reports", "sequences"),
    [
        pytest.param(FIRST, parts(payments=5, audit=1), {ORDERS: 10, PAYMENTS: 5, ("A.audit", 0): 1}, id="same epoch"),
        pytest.param(NEXT_EPOCH, parts(payments=5), {ORDERS: 0, PAYMENTS: 5}, id="a new epoch counts from zero"),
        # The lane scans the remote log of a partition without a sequence again.
        pytest.param(FIRST, [replace(PART, sequence=None)], {ORDERS: 10}, id="the next sequence is unknown"),
        pytest.param(FIRST, [replace(PART, stopped=Stop("x", refused=True))], {ORDERS: 10}, id="refused"),
    ],
)
def test_next_cycle_has_the_producer_and_the_sequences_that_the_target_expects(
    producer: Producer, reports: List[PartitionReport], sequences: Dict[TopicPartition, int]
) -> None:
    state = HELD.after(producer, reports, NOW)
    assert (state.producer, state.sequences) == (producer, sequences)


def test_lost_lane_is_fenced_again() -> None:
    assert HELD.after(None, [], NOW) == LaneState()


@pytest.mark.parametrize(("confirmed", "lasts"), [(True, FENCE_LASTS_SECONDS), (False, EPOCH_KEPT_SECONDS)])
def test_coordinator_is_asked_before_it_or_the_brokers_forget_the_fence(confirmed: bool, lasts: int) -> None:
    """Appends confirm a fence, but do not go to the coordinator. The producer is named to the coordinator: the fence
    must not take the lane back from a driver that took it over."""
    state = HELD.after(FIRST, copied(orders=10), NOW + lasts - 1) if confirmed else HELD
    assert state.fenced_at == NOW and state.current(NOW + lasts - 1) == state
    late = state.current(NOW + lasts)
    assert late.sequences == {} and late.producer == FIRST
    # Coordinators forget after seven days and brokers after one, unless configured otherwise. Lanes at rest must not
    # come near that; a plan may wait for its task as long again.
    assert FENCE_LASTS_SECONDS <= 2 * 24 * 3600 and 2 * EPOCH_KEPT_SECONDS <= 24 * 3600
    assert HELD.current(NOW - 1).sequences == {}, "the clock went back"


def test_appends_confirm_a_lane_and_idle_cycles_do_not() -> None:
    assert HELD.after(FIRST, copied(orders=20), NOW + 60).confirmed_at == NOW + 60
    assert HELD.after(FIRST, parts(orders=10), NOW + 60).confirmed_at == NOW
    assert HELD.after(NEXT_EPOCH, parts(orders=0), NOW + 60).confirmed_at == NOW + 60
