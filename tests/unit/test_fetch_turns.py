"""Whom a broker is asked about: everyone gets a turn, and no one waits for one that tiered storage keeps waiting."""

from __future__ import annotations

from typing import List, Set

from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.fetcher import (
    BRIEF_WAIT_MS,
    IDLE_ANSWERS,
    MAX_WAIT_MS,
    SESSION_FROM_PARTITIONS,
    FetchTurns,
    Turn,
)

ORDERS, PAYMENTS, REFUNDS = ("orders", 0), ("payments", 0), ("refunds", 0)
ALL = [ORDERS, PAYMENTS, REFUNDS]
NODE = 1


def ask(turn: FetchTurns, wanted: List[TopicPartition], brief: bool = False) -> Turn:
    return turn.next(NODE, dict.fromkeys(wanted, 0), brief, False)


def turns(turn: FetchTurns, times: int, wanted: List[TopicPartition]) -> List[List[TopicPartition]]:
    return [list(ask(turn, wanted).positions) for _ in range(times)]


def test_who_was_served_comes_last() -> None:
    turn = FetchTurns(lambda _: False)
    turn.answered(ALL, [ORDERS], set())
    assert (turns(turn, 1, ALL), ask(turn, ALL).max_wait_ms) == ([[PAYMENTS, REFUNDS, ORDERS]], MAX_WAIT_MS)
    assert ask(turn, ALL, brief=True).max_wait_ms == BRIEF_WAIT_MS


def test_who_got_nothing_below_its_end_is_asked_for_alone_until_it_is_settled() -> None:
    turn = FetchTurns(lambda _: False)
    turn.answered(ALL, [], {PAYMENTS})
    assert ask(turn, ALL) == ({PAYMENTS: 0}, 0)
    turn.answered([PAYMENTS], [PAYMENTS], set())
    assert turns(turn, 1, ALL) == [[ORDERS, REFUNDS, PAYMENTS]]


def test_others_are_asked_for_between_two_questions_about_one_that_waits_for_tiered_storage() -> None:
    turn = FetchTurns(lambda partition: partition == PAYMENTS)
    turn.answered(ALL, [], {PAYMENTS})
    assert turns(turn, 4, ALL) == [[PAYMENTS], [ORDERS, REFUNDS]] * 2
    assert turns(turn, 2, [PAYMENTS]) == [[PAYMENTS]] * 2


def test_those_that_wait_for_tiered_storage_take_turns() -> None:
    stored: Set[TopicPartition] = {ORDERS, PAYMENTS}
    turn = FetchTurns(stored.__contains__)
    turn.answered(ALL, [], stored)
    assert turns(turn, 4, ALL) == [[ORDERS], [REFUNDS], [PAYMENTS], [REFUNDS]]
    assert ask(turn, ALL, brief=True) == ({ORDERS: 0}, MAX_WAIT_MS)


def test_busy_partitions_of_a_session_are_asked_for_without_the_idle_ones_until_all_are_due() -> None:
    turn, wanted = FetchTurns(lambda _: False), {("orders", number): 0 for number in range(SESSION_FROM_PARTITIONS)}
    assert turn.next(NODE, wanted, False, True, 30) == (wanted, MAX_WAIT_MS)
    turn.answered(wanted, [ORDERS], set())
    for _ in range(IDLE_ANSWERS):
        assert turn.next(NODE, wanted, False, True, 30) == ({ORDERS: 0}, 30)
        assert turn.next(NODE, wanted, False, True, 0) == (wanted, 0)
        turn.answered([ORDERS], [], set())
    assert turn.next(NODE, wanted, False, True, 30) == (wanted, MAX_WAIT_MS)
    turn.answered(wanted, wanted, set())
    assert turn.next(NODE, wanted, False, True, 30) == (wanted, MAX_WAIT_MS)
