"""Fetch requests: to which broker, how often, for which partitions; and how responses are read."""

from __future__ import annotations

import math
import random
import time
from types import SimpleNamespace
from typing import Any, Dict, List, Set, Tuple

import pytest
from kafka.future import Future

from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.connection import Disconnected
from mirror_lib.kafka.fetch_quota import FetchQuota
from mirror_lib.kafka.fetcher import (
    BRIEF_WAIT_MS,
    EMPTY_ANSWERS,
    FIRST_EPOCH,
    FORGOTTEN,
    KNOWS_NEAREST,
    KNOWS_TIERED_STORAGE,
    MAX_WAIT_MS,
    NO_EPOCH,
    PAUSE_SECONDS,
    READ_UNCOMMITTED,
    SESSION_FROM_PARTITIONS,
    SMALL_BYTES,
    WHOLE_SHARE,
    Fetched,
    Fetcher,
    FetchSchedule,
    FetchTurns,
    Gaps,
    Turn,
)
from mirror_lib.kafka.wire import FetchAnswer
from tests.unit.leader import PARTITION, Leader, fetch_answer, part_answer
from tests.unit.logs import Rec, batch_of

DATA = batch_of(0, [Rec(b"1"), Rec(b"2")]).raw()


class Part:
    """A partition of the source that the test moves."""

    def __init__(self, source: TopicPartition = PARTITION) -> None:
        self.source = source
        self.fetch_position = 0
        self.wants = True

    def hungry(self) -> bool:
        return self.wants

    def full(self) -> bool:
        return not self.wants


def fetcher_of(leader: Leader) -> Fetcher:
    return Fetcher(leader, READ_UNCOMMITTED, FetchQuota(None), [PARTITION[0]])  # type: ignore[arg-type]


def reported(fetcher: Fetcher, partition: Part) -> List[Tuple[bool, Fetched]]:
    """What one answer means: whether there is a gap, and what was fetched."""
    while not fetcher._in_flight:
        fetcher.look([partition])
        fetcher.pump()
    return [(gap, found) for _, _, gap, found in fetcher.answers()]


def test_records_come_from_the_leader_where_brokers_prefer_another_replica() -> None:
    def answer(position: int, version: int) -> FetchAnswer:
        if version >= KNOWS_NEAREST:
            return fetch_answer(version, 2, preferred_read_replica=2)
        return fetch_answer(version, 2, DATA)

    fetcher, partition = fetcher_of(Leader(answer)), Part()
    found = [each for _ in range(EMPTY_ANSWERS + 1) for each in reported(fetcher, partition)]
    assert found and all((gap, bytes(each.data)) == (False, DATA) for gap, each in found)


def test_answers_that_only_hold_an_error_are_no_gap() -> None:
    answers = [fetch_answer(13, 4, DATA), *[FetchAnswer(error_code=-1, responses=[])] * EMPTY_ANSWERS]
    fetcher, partition = fetcher_of(Leader(lambda position, version: answers.pop(0))), Part()
    assert [gap for gap, _ in reported(fetcher, partition)] == [False]
    partition.fetch_position = 2
    for _ in range(EMPTY_ANSWERS):
        with pytest.raises(Disconnected):
            reported(fetcher, partition)


def test_fetcher_has_a_request_in_flight_or_reports_how_soon_it_may_send_one() -> None:
    fetcher, partition = fetcher_of(Leader(lambda position, version: fetch_answer(version, 2, DATA))), Part()
    pauses = 0
    for _ in range(200):
        fetcher.look([partition])
        rest = fetcher.pump()
        assert rest == math.inf if fetcher._in_flight else 0 < rest <= PAUSE_SECONDS
        pauses += not fetcher._in_flight
        list(fetcher.answers())
    assert pauses


@pytest.mark.parametrize(("brought", "least", "most"), [(200, 1, 1 / PAUSE_SECONDS + 1), (SMALL_BYTES, 999, 1001)])
def test_small_answers_are_followed_by_a_pause_and_a_backlog_is_fetched_without(
    brought: int, least: int, most: float
) -> None:
    """Requests to a broker in a second, each answered after a millisecond."""
    pace, now, count = FetchSchedule(), 0.0, 0
    while now < 1.0:
        wait = pace.wait(1, now)
        if not wait:
            pace.asked(1, now)
            count += 1
            pace.answered(1, brought, False, now + 0.001)
        now += wait or 0.001
    assert least <= count <= most


def test_pause_is_of_one_broker_and_of_small_answers_alone() -> None:
    pace = FetchSchedule()
    pace.asked(1, 0.0)
    pace.answered(1, 200, False, 0.001)
    assert pace.wait(1, 0.001) == PAUSE_SECONDS - 0.001 and pace.wait(2, 0.001) == 0
    pace.asked(1, 10.0)
    pace.answered(1, 0, False, 10.4)  # the end of a long poll
    assert pace.wait(1, 10.5) == 0


def test_requests_for_all_partitions_of_a_session_take_a_small_part_of_the_time() -> None:
    pace = FetchSchedule()
    for sent, answered, rest in ((0.0, 0.02, round(20 / WHOLE_SHARE)), (1.0, 3.0, MAX_WAIT_MS)):
        pace.asked(1, sent)
        pace.answered(1, 0, True, answered)
        assert pace.rest_ms(1, answered) == rest and pace.rest_ms(2, answered) == 0
    assert pace.rest_ms(1, 9.0) == 0


ORDERS, PAYMENTS, REFUNDS = ("orders", 0), ("payments", 0), ("refunds", 0)
ALL = [ORDERS, PAYMENTS, REFUNDS]
NODE = 1


def ask(turn: FetchTurns, wanted: List[TopicPartition], brief: bool = False) -> Turn:
    return turn.next(NODE, dict.fromkeys(wanted, 0), brief, False)


def turns(turn: FetchTurns, times: int, wanted: List[TopicPartition]) -> List[List[TopicPartition]]:
    return [list(ask(turn, wanted).positions) for _ in range(times)]


def test_partition_that_had_records_is_asked_for_last() -> None:
    turn = FetchTurns(lambda _: False)
    turn.answered(ALL, [ORDERS], set())
    assert (turns(turn, 1, ALL), ask(turn, ALL).max_wait_ms) == ([[PAYMENTS, REFUNDS, ORDERS]], MAX_WAIT_MS)
    assert ask(turn, ALL, brief=True).max_wait_ms == BRIEF_WAIT_MS


def test_partition_without_records_below_its_end_is_asked_for_alone_until_it_has_an_answer() -> None:
    turn = FetchTurns(lambda _: False)
    turn.answered(ALL, [], {PAYMENTS})
    assert ask(turn, ALL) == ({PAYMENTS: 0}, 0)
    turn.answered([PAYMENTS], [PAYMENTS], set())
    assert turns(turn, 1, ALL) == [[ORDERS, REFUNDS, PAYMENTS]]


def test_partitions_that_wait_for_tiered_storage_take_turns() -> None:
    stored: Set[TopicPartition] = {ORDERS, PAYMENTS}
    turn = FetchTurns(stored.__contains__)
    turn.answered(ALL, [], stored)
    assert turns(turn, 4, ALL) == [[ORDERS], [REFUNDS], [PAYMENTS], [REFUNDS]]
    assert ask(turn, ALL, brief=True) == ({ORDERS: 0}, MAX_WAIT_MS)


def gaps_reported(gaps: Gaps, times: int, position: int = 40) -> List[bool]:
    """Of so many answers without data."""
    return [gaps.answered(PARTITION, position, empty=True) for _ in range(times)]


@pytest.mark.parametrize("local_start", [-1, 0, 40])
def test_offsets_are_a_gap_after_several_empty_answers_about_what_the_leader_stores_itself(local_start: int) -> None:
    assert gaps_reported(Gaps(lambda _: local_start), EMPTY_ANSWERS) == [False] * (EMPTY_ANSWERS - 1) + [True]


def test_empty_answers_about_tiered_storage_are_no_gap_and_others_count_for_one_position_in_a_row() -> None:
    tiered = Gaps(lambda _: 41)
    assert not any(gaps_reported(tiered, 50)) and tiered.stored(PARTITION)
    assert not tiered.answered(PARTITION, 40, empty=False) and not tiered.stored(PARTITION)
    gaps = Gaps(lambda _: -1)
    assert not any(gaps_reported(gaps, EMPTY_ANSWERS - 1, 40) + gaps_reported(gaps, EMPTY_ANSWERS - 1, 41))
    gaps.answered(PARTITION, 41, empty=False)
    assert not any(gaps_reported(gaps, EMPTY_ANSWERS - 1, 41))


TOPIC = "orders"
PARTITIONS = SESSION_FROM_PARTITIONS + 20
SESSION_ID = 7


class Broker(Leader):
    """Keeps a fetch session as KIP-227 says, and answers at once."""

    def __init__(self, chance: random.Random, tiered: bool) -> None:
        self._chance = chance
        self._local_start = 10**9 if tiered else 0
        self.session: Dict[TopicPartition, int] = {}
        self.asked: Dict[TopicPartition, int] = {}  # by the last request
        self.ends: Dict[TopicPartition, int] = {}

    def call(self, node: int, request: Any) -> Any:
        part = SimpleNamespace(error_code=0, offset=self._local_start)
        return SimpleNamespace(version=KNOWS_TIERED_STORAGE, topics=[SimpleNamespace(partitions=[part])])

    def send(self, node: int, request: Any) -> Any:
        positions = {
            (topic.topic, part.partition): part.fetch_offset for topic in request.topics for part in topic.partitions
        }
        if request.session_epoch == NO_EPOCH:
            self.asked = positions
            return Future().success(FetchAnswer(responses=self._brought()))
        if self._chance.random() < 0.05:
            self.session, self.asked = {}, {}
            return Future().success(FetchAnswer(error_code=FORGOTTEN[0], responses=[]))
        if request.session_epoch == FIRST_EPOCH:
            self.session = {}
        self.session.update(positions)
        for topic in request.forgotten_topics_data:
            for number in topic.partitions:
                del self.session[(topic.topic, number)]
        self.asked = dict(self.session)
        time.sleep(0.002)  # as a broker that walks many
        return Future().success(FetchAnswer(session_id=SESSION_ID, responses=self._brought()))

    def _brought(self) -> List[Any]:
        """The data of partitions that were written to; some have none before their end, and are asked for alone."""
        for each in self._chance.sample(sorted(self.asked), min(3, len(self.asked))):
            self.ends[each] = self.ends.get(each, 0) + 100
        parts = [self._part(each, at) for each, at in self.asked.items()]
        return [FetchAnswer.FetchableTopicResponse(topic=TOPIC, partitions=parts)]

    def _part(self, partition: TopicPartition, at: int) -> Any:
        end = self.ends.get(partition, 0)
        brought = (end - at) * (self._chance.random() < 0.9)
        return part_answer(partition[1], end, bytes(brought))


@pytest.mark.parametrize(("seed", "tiered"), [(seed, seed % 2 == 1) for seed in range(6)])
def test_requests_name_the_wanted_partitions_at_their_positions(seed: int, tiered: bool) -> None:
    chance = random.Random(seed)
    broker, parts = Broker(chance, tiered), [Part((TOPIC, number)) for number in range(PARTITIONS)]
    fetcher = Fetcher(broker, READ_UNCOMMITTED, FetchQuota(None), [TOPIC])  # type: ignore[arg-type]
    fetcher.look(parts)
    whole = 0
    for _ in range(100):
        while not fetcher._in_flight:
            fetcher.pump()
        wanted = {part.source: part.fetch_position for part in parts if part.wants}
        assert broker.asked.items() <= wanted.items()
        if len(broker.asked) >= SESSION_FROM_PARTITIONS:
            whole += 1
            # Only partitions that wait for tiered storage are left out.
            assert tiered or broker.asked == wanted
        for (_, number), _, gap, found in fetcher.answers():
            parts[number].fetch_position = found.end if gap else parts[number].fetch_position + len(found.data)
            fetcher.look([parts[number]])
        moved = chance.sample(parts, chance.randrange(4))
        for part in moved:
            part.wants = chance.random() < 0.8
        fetcher.look(moved)
    assert 0 < whole < 100
