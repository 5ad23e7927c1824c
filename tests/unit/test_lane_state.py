"""What a lane hands to its next pass: the producer, and the sequences that the target expects of it."""

from __future__ import annotations

from dataclasses import replace
from typing import List

from mirror_lib.kafka.record_batch import Producer
from mirror_lib.replication.messages import EPOCH_KEPT_SECONDS, PartitionReport, Stop
from mirror_lib.replication.task_plans import FENCE_LASTS_SECONDS, LaneState

FIRST, NEXT_EPOCH = Producer(4711, 1), Producer(4711, 2)
NOW = 1_800_000_000.0


def parts(**sequences: int) -> List[PartitionReport]:
    return [PartitionReport(name, f"A.{name}", 0, 0, 0, sequence, -1) for name, sequence in sequences.items()]


def copied(**sequences: int) -> List[PartitionReport]:
    return [replace(part, records=1) for part in parts(**sequences)]


def test_next_pass_goes_on_with_the_producer_and_its_sequences() -> None:
    state = LaneState().after(FIRST, parts(orders=10), NOW).after(FIRST, parts(payments=5), NOW)
    assert state.producer == FIRST
    assert state.sequences == {("A.orders", 0): 10, ("A.payments", 0): 5}


def test_new_epoch_counts_from_zero_also_where_nothing_was_copied() -> None:
    state = LaneState().after(FIRST, parts(orders=10, payments=5), NOW).after(NEXT_EPOCH, parts(payments=3), NOW)
    assert state.producer == NEXT_EPOCH
    assert state.sequences == {("A.orders", 0): 0, ("A.payments", 0): 3}


def test_partition_whose_next_sequence_is_not_known_is_looked_at_again_by_the_same_holder() -> None:
    unknown = [replace(part, sequence=None) for part in parts(payments=5)]
    state = LaneState().after(FIRST, parts(orders=10, payments=3), NOW).after(FIRST, unknown, NOW)
    assert (state.producer, state.sequences) == (FIRST, {("A.orders", 0): 10})


def test_lane_that_was_lost_is_fenced_anew() -> None:
    assert LaneState().after(FIRST, parts(orders=10), NOW).after(None, [], NOW) == LaneState()


def test_partition_that_was_never_fenced_has_no_sequence() -> None:
    assert ("A.other", 0) not in LaneState().after(FIRST, parts(orders=10), NOW).sequences


def test_fence_is_put_up_again_before_the_coordinator_forgets_it() -> None:
    # Appends confirm it, but do not go to the coordinator.
    state = LaneState().after(FIRST, parts(orders=10), NOW)
    state = state.after(FIRST, copied(orders=10), NOW + FENCE_LASTS_SECONDS - 1)
    assert state.current(NOW + FENCE_LASTS_SECONDS - 1) == state
    aged = state.current(NOW + FENCE_LASTS_SECONDS)
    assert not aged.sequences
    # Named when the fence is put up again: it must not take the lane back from a driver that took it over.
    assert aged.producer == FIRST
    # Brokers forget after seven days unless configured otherwise; lanes at rest must not come near that.
    assert FENCE_LASTS_SECONDS <= 2 * 24 * 3600


def test_using_a_lane_again_does_not_make_its_fence_younger() -> None:
    state = LaneState().after(FIRST, parts(orders=10), NOW)
    assert state.after(FIRST, parts(orders=20), NOW + 60).fenced_at == NOW


def test_driver_that_stood_still_asks_whether_the_lane_is_still_its_own() -> None:
    state = LaneState().after(FIRST, parts(orders=10), NOW)
    assert state.current(NOW + EPOCH_KEPT_SECONDS - 1) == state
    late = state.current(NOW + EPOCH_KEPT_SECONDS)
    # The producer is named to the coordinator, which knows whether another driver took the lane over.
    assert late.sequences == {} and late.producer == FIRST
    # Brokers forget after a day unless configured otherwise; a plan may wait for its task as long again.
    assert 2 * EPOCH_KEPT_SECONDS <= 24 * 3600


def test_appends_that_were_taken_confirm_a_lane_and_idle_passes_do_not() -> None:
    state = LaneState().after(FIRST, parts(orders=10), NOW)
    assert state.after(FIRST, copied(orders=20), NOW + 60).confirmed_at == NOW + 60
    assert state.after(FIRST, parts(orders=10), NOW + 60).confirmed_at == NOW
    assert state.after(NEXT_EPOCH, parts(orders=0), NOW + 60).confirmed_at == NOW + 60


def test_lane_is_asked_about_after_the_clock_went_back() -> None:
    assert LaneState().after(FIRST, parts(orders=10), NOW).current(NOW - 1).sequences == {}


def test_partition_that_was_refused_is_looked_at_again_before_anything_is_written() -> None:
    orders, payments = parts(orders=10, payments=5)
    state = LaneState().after(FIRST, [replace(orders, stopped=Stop("x", refused=True)), payments], NOW)
    assert state.sequences == {("A.payments", 0): 5}
