"""Batches in, a produce request out in pieces, so that no batch is copied into it. Versions 3 to 8 of the API."""

from __future__ import annotations

import struct
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from kafka.protocol.api_header import RequestHeader

from mirror_lib.facts import TopicPartition

Buffer = Union[bytes, bytearray, memoryview]
Batch = Tuple[Buffer, ...]

ACK_ALL = -1
_HEAD = struct.Struct(">hhii")  # no transactional id, acks, timeout, number of topics
_I16, _I32, _PART = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">ii")


class ProduceRequest:
    """One batch, in pieces, for each partition; answered when all replicas in sync have it.

    Has what kafka-python's connections want of a request.
    """

    API_KEY = 0
    API_VERSION: Optional[int] = None
    name = "ProduceRequest"
    # The last one before the protocol's newer encoding. All brokers since 2.4 know it, those before one that will do.
    min_version = _min_version = 3
    max_version = _max_version = 8

    def __init__(self, batches: Sequence[Tuple[TopicPartition, Batch]], timeout_ms: int) -> None:
        self._batches = batches
        self._timeout_ms = timeout_ms
        self.header: Any = None

    def expect_response(self) -> bool:
        """Always."""
        return True

    def with_header(self, correlation_id: int, client_id: str) -> None:
        """Called when it is about to be sent."""
        self.header = RequestHeader(
            request_api_key=self.API_KEY,
            request_api_version=self.API_VERSION,
            correlation_id=correlation_id,
            client_id=client_id,
        )

    def encode(self, framed: bool = True, header: bool = True) -> Tuple[Buffer, ...]:
        """What is sent, the batches' own bytes among it."""
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
        pieces[0] = _I32.pack(sum(map(len, pieces))) + bytes(pieces[0])
        return tuple(pieces)
