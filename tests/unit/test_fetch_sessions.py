"""What a broker remembers of a fetch session is what the partitions want, however they move and whatever it forgets."""

from __future__ import annotations

import random
import time
from types import SimpleNamespace
from typing import Any, Dict, List, Mapping

import pytest
from kafka.future import Future

from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.fetch_quota import FetchQuota
from mirror_lib.kafka.fetcher import (
    FIRST_EPOCH,
    FORGOTTEN,
    KNOWS_TIERED_STORAGE,
    NO_EPOCH,
    READ_UNCOMMITTED,
    SESSION_FROM_PARTITIONS,
    Fetcher,
)
from mirror_lib.kafka.wire import FetchAnswer
from tests.unit.leader import part_answer

TOPIC = "orders"
PARTITIONS = SESSION_FROM_PARTITIONS + 20
SESSION_ID = 7


class Part:
    """A partition of the source that is moved by the test."""

    def __init__(self, number: int) -> None:
        self.source = (TOPIC, number)
        self.fetch_position = 0
        self.wants = True

    def hungry(self) -> bool:
        return self.wants

    def full(self) -> bool:
        return not self.wants


class Broker:
    """Stands for a `LogClient` of one broker that keeps a fetch session as KIP-227 says, and answers at once."""

    alias = "source"

    def __init__(self, chance: random.Random, tiered: bool) -> None:
        self._chance = chance
        self._local_start = 10**9 if tiered else 0
        self.session: Dict[TopicPartition, int] = {}
        # What the last request was about, and how many partitions it named.
        self.asked: Dict[TopicPartition, int] = {}
        self.named: List[int] = []
        self.ends: Dict[TopicPartition, int] = {}

    def leader(self, partition: TopicPartition) -> int:
        return 1

    def topic_ids(self, topics: object) -> Mapping[str, Any]:
        return {}

    def call(self, node: int, request: Any) -> Any:
        part = SimpleNamespace(error_code=0, offset=self._local_start)
        return SimpleNamespace(version=KNOWS_TIERED_STORAGE, topics=[SimpleNamespace(partitions=[part])])

    def send(self, node: int, request: Any) -> Any:
        positions = {
            (topic.topic, part.partition): part.fetch_offset for topic in request.topics for part in topic.partitions
        }
        self.named.append(len(positions))
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
def test_broker_is_asked_for_what_is_wanted_from_where_it_is_wanted(seed: int, tiered: bool) -> None:
    chance = random.Random(seed)
    broker, parts = Broker(chance, tiered), [Part(number) for number in range(PARTITIONS)]
    fetcher = Fetcher(broker, READ_UNCOMMITTED, FetchQuota(None), [TOPIC])  # type: ignore[arg-type]
    fetcher.look(parts)
    whole = 0
    for _ in range(100):
        while fetcher.idle():
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


def test_request_of_a_session_names_only_partitions_that_moved() -> None:
    broker, parts = Broker(random.Random(0), False), [Part(number) for number in range(PARTITIONS)]
    broker._brought = lambda: []  # type: ignore[method-assign]
    broker._chance.random = lambda: 1.0  # type: ignore[method-assign]
    fetcher = Fetcher(broker, READ_UNCOMMITTED, FetchQuota(None), [TOPIC])  # type: ignore[arg-type]
    fetcher.look(parts)
    for step in range(3):
        while fetcher.idle():
            fetcher.pump()
        list(fetcher.answers())
        parts[step].fetch_position += 1
        fetcher.look([parts[step]])
    assert broker.named == [PARTITIONS, 1, 1]
