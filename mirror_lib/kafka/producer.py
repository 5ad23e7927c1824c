"""Produce requests to the target: batches that are ready in, acknowledged base offsets or the broker's reason out.

One request holds at most one batch of each partition, and up to five requests are in flight to a broker: so the
broker can tell a retry from a new batch, and order is kept (KIP-98, KIP-360).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Deque, Dict, Iterator, List, Protocol, Sequence, Tuple

from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.connection import Disconnected, Future, LogClient, name_of
from mirror_lib.kafka.produce_request import Batch, ProduceRequest

IN_FLIGHT = 5
MAX_REQUEST_BYTES = 1024 * 1024
PRODUCE_TIMEOUT_MS = 30_000


class Appendable(Protocol):
    """A partition with batches to append, in order."""

    @property
    def remote(self) -> TopicPartition:
        """(remote topic, partition)."""

    def ready_bytes(self) -> int:
        """Size of the next batch; 0 if there is none, or if it must wait for an acknowledgement."""

    def take_ready(self) -> Batch:
        """The next batch, in pieces, now in flight."""


@dataclass(frozen=True)
class Acknowledgement:
    """The broker's answer for the oldest batch in flight of one partition."""

    remote: TopicPartition
    error_code: int
    base_offset: int
    error_message: str


class Appender:
    """Keeps the pipes to the target's brokers full."""

    def __init__(self, client: LogClient) -> None:
        self._client = client
        self._in_flight: Dict[int, Deque[Tuple[Future, List[TopicPartition]]]] = {}
        # When each partition had a batch in a request, the last time: one with large batches must not go first always.
        self._sent_at: Dict[TopicPartition, int] = {}
        self._sent = 0

    def idle(self) -> bool:
        """True when nothing is in flight."""
        return not any(self._in_flight.values())

    def pump(self, partitions: Sequence[Appendable]) -> None:
        """Send whatever is ready to the brokers that have room. Raises `Disconnected` for a leaderless partition."""
        by_node: Dict[int, List[Appendable]] = {}
        for partition in partitions:
            if partition.ready_bytes():
                node = self._client.leader(partition.remote)
                if node is None:
                    raise Disconnected(f"{self._client.alias}: {name_of(partition.remote)} has no leader")
                by_node.setdefault(node, []).append(partition)
        for node, ready in by_node.items():
            requests = self._in_flight.setdefault(node, deque())
            while len(requests) < IN_FLIGHT and any(partition.ready_bytes() for partition in ready):
                chosen = _choose(sorted(ready, key=lambda each: self._sent_at.get(each.remote, 0)))
                self._sent += 1
                self._sent_at.update(dict.fromkeys((each.remote for each in chosen), self._sent))
                future = self._client.send(node, _produce_request(chosen))
                requests.append((future, [p.remote for p in chosen]))

    def acknowledgements(self) -> Iterator[Acknowledgement]:
        """Answers that have come, oldest first for each broker. Raises `Disconnected` when one will never come."""
        for requests in self._in_flight.values():
            while requests and requests[0][0].is_done:
                future, _ = requests.popleft()
                if not future.succeeded():
                    raise Disconnected(f"{self._client.alias}: produce request failed: {future.exception}")
                yield from _answers(future.value)


def _choose(ready: Sequence[Appendable]) -> List[Appendable]:
    chosen: List[Appendable] = []
    size = 0
    for partition in ready:
        nbytes = partition.ready_bytes()
        if nbytes and (not chosen or size + nbytes <= MAX_REQUEST_BYTES):
            chosen.append(partition)
            size += nbytes
    return chosen


def _produce_request(chosen: Sequence[Appendable]) -> ProduceRequest:
    return ProduceRequest([(partition.remote, partition.take_ready()) for partition in chosen], PRODUCE_TIMEOUT_MS)


def _answers(response: Any) -> Iterator[Acknowledgement]:
    for topic in response.responses:
        for part in topic.partition_responses:
            yield Acknowledgement(
                remote=(topic.name, part.index),
                error_code=part.error_code,
                base_offset=part.base_offset,
                error_message=getattr(part, "error_message", None) or "",
            )
