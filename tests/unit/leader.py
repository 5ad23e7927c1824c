"""A cluster of one broker that answers fetches of one partition as it is asked to, for what asks and judges answers."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any, Callable, Collection, Dict, Mapping

from kafka.future import Future
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.consumer import FetchRequest

from mirror_lib.kafka.fetcher import BY_TOPIC_ID
from mirror_lib.kafka.wire import FetchAnswer

PARTITION = ("orders", 0)
TOPIC_ID = uuid.UUID(int=7)


class Leader:
    """Stands for a `LogClient`. `answer` makes an answer of a position, and of the version that was asked by."""

    alias = "source"

    def __init__(self, answer: Callable[[int, int], FetchAnswer]) -> None:
        self._answer = answer

    def leader(self, partition: object) -> int:
        return 1

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, uuid.UUID]:
        return dict.fromkeys(topics, TOPIC_ID)

    def send(self, node: int, request: Any) -> Any:
        version = BrokerVersionData(api_versions={request.API_KEY: (4, 17)}).api_version(request)
        return Future().success(self._answer(request.topics[0].partitions[0].fetch_offset, version))

    def call(self, node: int, request: Any) -> Any:
        if isinstance(request, FetchRequest):
            return self.send(node, request).value
        return SimpleNamespace(version=0)  # of before tiered storage


def fetch_answer(version: int, end: int, records: bytes = b"", **changes: Any) -> FetchAnswer:
    """About `PARTITION`; `changes` are the ones of its part."""
    name, topic_id = ("", TOPIC_ID) if version >= BY_TOPIC_ID else (PARTITION[0], None)
    topic = FetchAnswer.FetchableTopicResponse(
        topic=name, topic_id=topic_id, partitions=[part_answer(0, end, records, **changes)]
    )
    return FetchAnswer(responses=[topic])


def part_answer(number: int, end: int, records: bytes = b"", **changes: Any) -> Any:
    """One partition's part of an answer."""
    some: Dict[str, Any] = {"high_watermark": end, "last_stable_offset": end, "log_start_offset": 0, **changes}
    return FetchAnswer.FetchableTopicResponse.PartitionData(partition_index=number, records=memoryview(records), **some)
