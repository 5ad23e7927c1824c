"""Sends record batches to the target with up to five requests in flight to each broker, and reports acknowledgements.

A request has at most one batch of each partition, so the broker distinguishes a retry from a new batch and keeps the
order (KIP-98, KIP-360). A batch is copied once, when its request is sent. Uses versions 3 to 8 of the Produce API.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass
from typing import Any, Deque, Dict, Iterable, Iterator, List, Optional, Protocol, Sequence, Tuple

from kafka.protocol.api_header import RequestHeader

from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.connection import Disconnected, Future, LogClient, name_of
from mirror_lib.kafka.record_batch import Batch, Buffer

ACK_ALL = -1
_HEAD = struct.Struct(">hhii")  # no transactional id, acks, timeout, number of topics
_I16, _I32, _PART = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">ii")


class ProduceRequest:
    """One batch, in pieces, for each partition; the broker answers when all in-sync replicas have it.

    Implements the request interface of kafka-python's connections.
    """

    API_KEY = 0
    API_VERSION: Optional[int] = None
    name = "ProduceRequest"
    # The last version before the protocol's newer encoding (KIP-482). Brokers since 2.4 support it, older ones an
    # earlier version of this range.
    min_version = _min_version = 3
    max_version = _max_version = 8

    def __init__(self, batches: Sequence[Tuple[TopicPartition, Batch]], timeout_ms: int) -> None:
        self._batches = batches
        self._timeout_ms = timeout_ms
        self.header: Any = None

    def expect_response(self) -> bool:
        return True

    def with_header(self, correlation_id: int, client_id: str) -> None:
        self.header = RequestHeader(
            request_api_key=self.API_KEY,
            request_api_version=self.API_VERSION,
            correlation_id=correlation_id,
            client_id=client_id,
        )

    def encode(self, framed: bool = True, header: bool = True) -> bytes:
        topics: Dict[str, List[Tuple[int, Batch]]] = {}
        for (topic, number), batch in self._batches:
            topics.setdefault(topic, []).append((number, batch))
        pieces: List[Buffer] = []
        between = self.header.encode(flexible=False) + _HEAD.pack(-1, ACK_ALL, self._timeout_ms, len(topics))
        for topic, parts in topics.items():
            name = topic.encode()
            between += _I16.pack(len(name)) + name + _I32.pack(len(parts))
            for number, batch in parts:
                pieces += [between + _PART.pack(number, sum(map(len, batch))), *batch]
                between = b""
        return b"".join([_I32.pack(sum(map(len, pieces))), *pieces])


IN_FLIGHT = 5
MAX_REQUEST_BYTES = 1024 * 1024
PRODUCE_TIMEOUT_MS = 30_000


class Appendable(Protocol):
    """A partition with batches to append, in order."""

    remote: TopicPartition

    def ready_bytes(self) -> int:
        """Size of the next batch; 0 if there is none, or if it must wait for an acknowledgement."""

    def take_ready(self) -> Batch:
        """The next batch, in pieces; it counts as in flight from now on."""


@dataclass(frozen=True)
class Acknowledgement:
    """The broker's answer for the oldest batch in flight of one partition."""

    remote: TopicPartition
    error_code: int
    base_offset: int
    error_message: str


class Appender:
    """Sends the partitions' batches, with up to IN_FLIGHT requests in flight to each of the target's brokers."""

    def __init__(self, client: LogClient) -> None:
        self._client = client
        self._in_flight: Dict[int, Deque[Future]] = {}
        # The number of each partition's last request: a partition with large batches must not always come first.
        self._sent_at: Dict[TopicPartition, int] = {}
        self._sent = 0

    def idle(self) -> bool:
        return not any(self._in_flight.values())

    def pump(self, partitions: Iterable[Appendable]) -> None:
        """Send ready batches to brokers with fewer than IN_FLIGHT requests. Raises `Disconnected` without a leader."""
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
                requests.append(self._client.send(node, _produce_request(chosen)))

    def acknowledgements(self) -> Iterator[Acknowledgement]:
        """Responses so far, oldest first for each broker. Raises `Disconnected` when a request failed."""
        for requests in self._in_flight.values():
            while requests and requests[0].is_done:
                future = requests.popleft()
                if not future.succeeded():
                    raise Disconnected(f"{self._client.alias}: produce request failed: {future.exception}")
                for topic in future.value.responses:
                    for part in topic.partition_responses:
                        place, message = (topic.name, part.index), part.error_message or ""
                        yield Acknowledgement(place, part.error_code, part.base_offset, message)


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
