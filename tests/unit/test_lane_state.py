"""What a lane hands to its next cycle: the producer, and the sequences that the target expects of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List

import pytest

from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.record_batch import Producer
from mirror_lib.replication.messages import EPOCH_KEPT_SECONDS, PartitionReport, Stop
from mirror_lib.replication.task_plans import FENCE_LASTS_SECONDS, LaneState

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
