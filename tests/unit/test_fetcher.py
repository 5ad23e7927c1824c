"""What is made of a broker's answers: only one that looked at the log says anything of it."""

from __future__ import annotations

import math
from typing import List, Tuple

import pytest

from mirror_lib.kafka.connection import Disconnected
from mirror_lib.kafka.fetch_quota import FetchQuota
from mirror_lib.kafka.fetcher import EMPTY_ANSWERS, KNOWS_NEAREST, PAUSE_SECONDS, READ_UNCOMMITTED, Fetched, Fetcher
from mirror_lib.kafka.wire import FetchAnswer
from tests.unit.leader import PARTITION, Leader, fetch_answer
from tests.unit.logs import Rec, batch_of

DATA = batch_of(0, [Rec(b"1"), Rec(b"2")]).raw()


class Wanting:
    """A partition that wants what comes next."""

    source = PARTITION

    def __init__(self) -> None:
        self.fetch_position = 0

    def hungry(self) -> bool:
        return True

    def full(self) -> bool:
        return False


def fetcher_of(leader: Leader) -> Fetcher:
    return Fetcher(leader, READ_UNCOMMITTED, FetchQuota(None), [PARTITION[0]])  # type: ignore[arg-type]


def reported(fetcher: Fetcher, partition: Wanting) -> List[Tuple[bool, Fetched]]:
    """What one answer means: whether there is a gap, and what was fetched."""
    while fetcher.idle():
        fetcher.look([partition])
        fetcher.pump()
    return [(gap, found) for _, _, gap, found in fetcher.answers()]


def test_records_come_from_the_leader_where_brokers_name_another_replica_to_read_from() -> None:
    def answer(position: int, version: int) -> FetchAnswer:
        if version >= KNOWS_NEAREST:
            return fetch_answer(version, 2, preferred_read_replica=2)
        return fetch_answer(version, 2, DATA)

    fetcher, partition = fetcher_of(Leader(answer)), Wanting()
    found = [each for _ in range(EMPTY_ANSWERS + 1) for each in reported(fetcher, partition)]
    assert found and not any(gap for gap, _ in found)
    assert all(bytes(each.data) == DATA for _, each in found)


def test_answers_that_only_hold_an_error_are_no_gap() -> None:
    answers = [fetch_answer(13, 4, DATA), *[FetchAnswer(error_code=-1, responses=[])] * EMPTY_ANSWERS]
    fetcher, partition = fetcher_of(Leader(lambda position, version: answers.pop(0))), Wanting()
    assert [gap for gap, _ in reported(fetcher, partition)] == [False]
    partition.fetch_position = 2
    for _ in range(EMPTY_ANSWERS):
        with pytest.raises(Disconnected):
            reported(fetcher, partition)


def test_a_broker_is_asked_or_it_is_told_how_soon_it_may_be() -> None:
    """Who waits for a broker that no one asked waits in vain."""
    fetcher, partition = fetcher_of(Leader(lambda position, version: fetch_answer(version, 2, DATA))), Wanting()
    passed_over = 0
    for _ in range(200):
        fetcher.look([partition])
        rest = fetcher.pump()
        assert (0 < rest <= PAUSE_SECONDS) if fetcher.idle() else rest == math.inf
        passed_over += fetcher.idle()
        list(fetcher.answers())
    assert passed_over
