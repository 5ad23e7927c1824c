"""No one is passed over for long: partitions that are large, or led by a slow broker, take their turns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Dict, List, Mapping, Sequence

from kafka.future import Future

from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.fetch_quota import FetchQuota
from mirror_lib.kafka.fetcher import PAUSE_SECONDS, READ_UNCOMMITTED, Fetcher
from mirror_lib.kafka.producer import IN_FLIGHT, Appender
from mirror_lib.kafka.record_batch import Batch
from mirror_lib.kafka.wire import FetchAnswer
from tests.unit.leader import part_answer
from tests.unit.logs import Rec, batch_of


class Ready:
    """A partition of the target that always has another batch of `size`."""

    def __init__(self, number: int, size: int) -> None:
        self.remote = ("orders", number)
        self.taken = 0
        self._size = size

    def ready_bytes(self) -> int:
        return self._size

    def take_ready(self) -> Batch:
        self.taken += 1
        return (bytes(8),)


class Target:
    """Takes requests, and answers none."""

    alias = "target"

    def leader(self, partition: TopicPartition) -> int:
        return 1

    def send(self, node: int, request: Any) -> Any:
        return Future()


def test_partitions_with_large_batches_take_turns_at_being_appended_to() -> None:
    appender = Appender(Target())  # type: ignore[arg-type]
    ready = [Ready(number, 900_000) for number in range(IN_FLIGHT)]
    appender.pump(ready)
    assert [each.taken for each in ready] == [1] * IN_FLIGHT


class Wanting:
    """A partition of the source that always wants more."""

    def __init__(self, source: TopicPartition) -> None:
        self.source = source
        self.fetch_position = 0

    def hungry(self) -> bool:
        return True

    def full(self) -> bool:
        return False


class Source:
    """Two brokers: `slow` leads the topic of that name and answers when it is asked to, the other at once."""

    alias = "source"

    def __init__(self, brings: Mapping[str, bytes]) -> None:
        self._brings = brings
        self.asked: List[Sequence[TopicPartition]] = []
        self.open: Dict[int, Any] = {}

    def leader(self, partition: TopicPartition) -> int:
        return 2 if partition[0] == "slow" else 1

    def topic_ids(self, topics: object) -> Mapping[str, object]:
        return {}

    def call(self, node: int, request: Any) -> Any:
        return SimpleNamespace(version=0)  # of before tiered storage

    def send(self, node: int, request: Any) -> Any:
        wanted = [(topic.topic, part.partition) for topic in request.topics for part in topic.partitions]
        self.asked.append(wanted)
        brings = [self._brings.get(name, b"") for name, _ in wanted]
        parts = [part_answer(number, 9, data) for (_, number), data in zip(wanted, brings)]
        kind = FetchAnswer.FetchableTopicResponse
        topics = [kind(topic=name, partitions=[part]) for (name, _), part in zip(wanted, parts)]
        future = self.open[node] = Future()
        return future if node == 2 else future.success(FetchAnswer(responses=topics))


class Unbounded(FetchQuota):
    """Limits nothing, and takes down for how many brokers it is asked."""

    def __init__(self) -> None:
        super().__init__(None)
        self.brokers: List[int] = []

    def grant(self, brokers: int) -> int:
        self.brokers.append(brokers)
        return super().grant(brokers)


def test_broker_that_is_asked_again_in_a_moment_has_its_share_of_what_may_be_brought() -> None:
    source, quota = Source({"small": batch_of(0, [Rec(b"1")]).raw()}), Unbounded()
    fetcher = Fetcher(source, READ_UNCOMMITTED, quota, ["small", "slow"])  # type: ignore[arg-type]
    fetcher.look([Wanting(("small", 0))])
    assert fetcher.pump() > PAUSE_SECONDS
    list(fetcher.answers())
    fetcher.look([Wanting(("slow", 0))])
    assert fetcher.pump() <= PAUSE_SECONDS
    assert quota.brokers == [1, 2]
