"""Positions in, a fetch request out: one question to one broker about several partitions. Pure."""

from __future__ import annotations

import uuid
from typing import Any, Dict, Iterable, List, Mapping, Optional

from mirror_lib.log.connection import Partition, by_topic
from mirror_lib.log.fetch_answer import BY_TOPIC_ID, KNOWS_NEAREST
from mirror_lib.log.fetch_session import Asked
from mirror_lib.log.fetch_turns import MAX_WAIT_MS
from mirror_lib.log.wire import FetchRequestOfViews


def fetch_request(
    positions: Mapping[Partition, int],
    isolation: int,
    max_bytes: int,
    partition_max_bytes: int,
    max_wait_ms: int = MAX_WAIT_MS,
    asked: Optional[Asked] = None,
    limits: Mapping[Partition, int] = {},
    ids: Mapping[str, uuid.UUID] = {},
) -> FetchRequestOfViews:
    """One request for several partitions. The broker sends at least one whole batch of the first that has data.

    `asked` says it within a session, `limits` beats `partition_max_bytes`. With `ids` of all topics it asks by id where
    the broker can (KIP-516): another topic that was given the name gives then an error, and none of its records.
    Without them it asks so that no broker names another replica to read from instead (KIP-392).
    """
    asked = asked or Asked(positions=positions)
    topics: Dict[str, List[Any]] = {}
    for (topic, number), position in asked.positions.items():
        part = _part(number, position, limits.get((topic, number), partition_max_bytes))
        topics.setdefault(topic, []).append(part)
    return FetchRequestOfViews(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=asked.session_id,
        session_epoch=asked.epoch,
        topics=[
            FetchRequestOfViews.FetchTopic(topic=name, topic_id=ids.get(name), partitions=parts)
            for name, parts in topics.items()
        ],
        forgotten_topics_data=_forgotten(asked.forgotten, ids),
        rack_id="",
        min_version=4,
        max_version=BY_TOPIC_ID if ids else KNOWS_NEAREST - 1,
    )


def _part(number: int, position: int, max_bytes: int) -> Any:
    return FetchRequestOfViews.FetchTopic.FetchPartition(
        partition=number,
        fetch_offset=position,
        partition_max_bytes=max_bytes,
        log_start_offset=-1,
        current_leader_epoch=-1,
        last_fetched_epoch=-1,
    )


def _forgotten(partitions: Iterable[Partition], ids: Mapping[str, uuid.UUID]) -> List[Any]:
    kind = FetchRequestOfViews.ForgottenTopic
    topics = by_topic(partitions).items()
    return [kind(topic=name, topic_id=ids.get(name), partitions=numbers) for name, numbers in topics]
