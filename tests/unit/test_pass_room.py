"""How far passes of rows may go by the rates of their flow: no pass is a jump in the dark, and what is owed waits."""

from __future__ import annotations

from mirror_lib.records.pass_room import LARGEST_RECORD, PASS, Room, RoomToRead, offsets_by_rate, owed, together
from mirror_lib.replicate.rates import FLOW, NO_RATES, RateShare, TaskRates

MB = 1024 * 1024


def test_every_partition_moves_unless_its_topic_has_no_room() -> None:
    wanted = {("logs", 0): 900, ("logs", 1): 900, ("audit", 0): 5, ("other", 0): 900}
    room = Room(1000, {0: 100, 1: 0}, {"logs": 0, "audit": 1})
    assert room.shares(wanted) == {("logs", 0): 50, ("logs", 1): 50, ("audit", 0): 0, ("other", 0): 900}
    assert Room(0).shares(wanted) == dict.fromkeys(wanted, 0)
    assert Room(2).shares(wanted) == dict.fromkeys(wanted, 1)


def test_first_pass_takes_records_for_the_largest_and_later_ones_grow_by_what_was_read() -> None:
    rates, own = TaskRates(flow=RateShare(2 * LARGEST_RECORD)), RoomToRead()
    assert own.room(rates, 100_000).offsets == 10
    for expected in (40, 160, 640):
        last = own.room(rates, 100_000).offsets
        own.learn({FLOW: last * 100}, {FLOW: last})
        assert own.room(rates, 100_000).offsets == expected
    own.learn({FLOW: 640 * LARGEST_RECORD}, {FLOW: 640})
    assert own.room(rates, 100_000).offsets == 10
    assert own.room(rates, 3).offsets == 3
    assert RoomToRead().room(NO_RATES, 100_000) == Room(100_000)


def test_what_is_owed_has_no_room_and_tells_for_how_long() -> None:
    rates = TaskRates(RateShare(MB, 0.5 * MB), {3: RateShare(MB, -2.0 * MB)}, {"logs": 3})
    assert owed(rates) == {3: 2.0}
    assert RoomToRead().room(rates, 1000) == Room(5, {3: 0}, {"logs": 3})
    assert owed(NO_RATES) == {}


def test_bytes_of_a_pass_bound_it_as_a_rate_does() -> None:
    own = RoomToRead()
    own.learn({PASS: 0, FLOW: 0}, {PASS: 10, FLOW: 10})
    assert own.room(TaskRates(pass_bytes=MB), 1000).offsets == 40  # nothing was in those offsets
    own.learn({FLOW: 10_000, PASS: 10_000}, offsets_by_rate([("orders", 10)], NO_RATES))
    assert own.room(TaskRates(pass_bytes=20_000), 1000).offsets == 20


def test_shares_of_all_tasks_are_the_rate() -> None:
    part = TaskRates(RateShare(10, -1), {0: RateShare(4, 2)}, {"logs": 0}, 100)
    other = TaskRates(RateShare(30, -3), {}, {"logs": 0}, 200)
    assert together([part, other]) == TaskRates(RateShare(40, -4), {0: RateShare(4, 2)}, {"logs": 0}, 150)
    assert together([NO_RATES]) == NO_RATES
    assert offsets_by_rate([("logs", 7), ("other", 2)], part) == {FLOW: 9, PASS: 9, 0: 7}
