"""Parses a Fetch response (versions 4 to 13) without copying its records: they are views of the receive buffer."""

from __future__ import annotations

import struct
import uuid
from typing import Any, List, NamedTuple, Optional, Tuple

KNOWS_LOG_START, KNOWS_SESSIONS, KNOWS_NEAREST, COMPACT, BY_TOPIC_ID = 5, 7, 11, 12, 13

# The broker names no preferred read replica.
NO_REPLICA = -1

_I16, _I32, _I64 = (struct.Struct(kind) for kind in (">h", ">i", ">q"))
_PART = struct.Struct(">ihqq")  # index, error code, high watermark, last stable offset
_SESSION = struct.Struct(">hi")
_ABORTED = struct.Struct(">qq")


class Aborted(NamedTuple):
    """An aborted transaction that overlaps the records."""

    producer_id: int
    first_offset: int


class PartAnswer(NamedTuple):
    """One partition of the response; the field names are the protocol's."""

    partition_index: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: Tuple[Aborted, ...]
    preferred_read_replica: int
    records: Optional[memoryview]


class TopicAnswer(NamedTuple):
    """One topic of the response, by name, or from version 13 on by id alone."""

    topic: str
    topic_id: Optional[uuid.UUID]
    partitions: List[PartAnswer]


class FetchAnswer(NamedTuple):
    """A whole Fetch response; the field names are the protocol's."""

    throttle_time_ms: int
    error_code: int
    session_id: int
    responses: List[TopicAnswer]


def read_answer(view: memoryview, version: int) -> FetchAnswer:
    """Parse the body of a response of that version. Raises `struct.error` if the body is too short."""
    reader = _Reader(view, version >= COMPACT)
    (throttled,) = reader.take(_I32)
    error_code, session_id = reader.take(_SESSION) if version >= KNOWS_SESSIONS else (0, 0)
    return FetchAnswer(throttled, error_code, session_id, [_topic(reader, version) for _ in range(reader.count())])


def _topic(reader: _Reader, version: int) -> TopicAnswer:
    topic_id = uuid.UUID(bytes=bytes(reader.bytes(16))) if version >= BY_TOPIC_ID else None
    name = "" if version >= BY_TOPIC_ID else reader.text()
    found = TopicAnswer(name, topic_id, [_part(reader, version) for _ in range(reader.count())])
    reader.pass_tags()
    return found


def _part(reader: _Reader, version: int) -> PartAnswer:
    index, error_code, high_watermark, last_stable = reader.take(_PART)
    (log_start,) = reader.take(_I64) if version >= KNOWS_LOG_START else (-1,)
    aborted = tuple(_aborted(reader) for _ in range(reader.count()))
    (nearest,) = reader.take(_I32) if version >= KNOWS_NEAREST else (NO_REPLICA,)
    size = reader.count(none=-1)
    records = None if size < 0 else reader.bytes(size)
    reader.pass_tags()
    return PartAnswer(index, error_code, high_watermark, last_stable, log_start, aborted, nearest, records)


def _aborted(reader: _Reader) -> Aborted:
    found = Aborted(*reader.take(_ABORTED))
    reader.pass_tags()
    return found


class _Reader:
    """Reads one value after another. `compact` selects the protocol's newer encoding (KIP-482)."""

    def __init__(self, view: memoryview, compact: bool) -> None:
        self._view = view
        self._compact = compact
        self._at = 0

    def take(self, kind: struct.Struct) -> Tuple[Any, ...]:
        at, self._at = self._at, self._at + kind.size
        return kind.unpack_from(self._view, at)

    def count(self, none: int = 0) -> int:
        """The length of the array or byte string that follows; `none` for null."""
        found = self._varint() - 1 if self._compact else int(self.take(_I32)[0])
        return found if found >= 0 else none

    def text(self) -> str:
        size = self._varint() - 1 if self._compact else self.take(_I16)[0]
        return str(self.bytes(size), "utf-8")

    def bytes(self, size: int) -> memoryview:
        at, self._at = self._at, self._at + size
        if self._at > len(self._view):
            raise struct.error(f"{size} bytes at {at} go beyond the answer's {len(self._view)}")
        return self._view[at : self._at]

    def pass_tags(self) -> None:
        if self._compact:
            for _ in range(self._varint()):
                self._varint()
                self.bytes(self._varint())

    def _varint(self) -> int:
        found = shift = 0
        while True:
            byte = self.bytes(1)[0]
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found
            shift += 7
