"""Record batches as they lie in a partition's log, built record by record: with gaps, markers and compaction."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Collection, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import google_crc32c
from kafka.record.memory_records import MemoryRecords

from mirror_lib.kafka.codecs import compress
from mirror_lib.kafka.fetcher import Fetched
from mirror_lib.kafka.record_batch import Batch, encode_varint
from mirror_lib.replication.messages import PartitionTask

NOON = 1_700_000_000_000
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x08, 0x10, 0x20

Header = Tuple[str, Optional[bytes]]


class Rec(NamedTuple):
    """A record as a user sees it."""

    value: Optional[bytes]
    key: Optional[bytes] = b"k"
    timestamp: int = NOON
    headers: Tuple[Header, ...] = ()


@dataclass(frozen=True)
class LogBatch:
    """A batch in a log: records with their offsets, and the offset of the last one that was ever in it.

    `latest` is its largest timestamp; under LogAppendTime the broker's time, which it keeps when records go.
    """

    base: int
    records: Tuple[Tuple[int, Rec], ...]
    last: int
    codec: int = 0
    attributes: int = 0
    producer_id: int = -1
    appended_at: Optional[int] = None

    @property
    def next(self) -> int:
        return self.last + 1

    @property
    def latest(self) -> int:
        if self.appended_at is not None:
            return self.appended_at
        return max((rec.timestamp for _, rec in self.records), default=-1)

    def without(self, offsets: Collection[int]) -> LogBatch:
        """As the cleaner leaves it."""
        kept = tuple((offset, rec) for offset, rec in self.records if offset not in offsets)
        appended_at = self.latest if self.attributes & LOG_APPEND_TIME else None
        return LogBatch(self.base, kept, self.last, self.codec, self.attributes, self.producer_id, appended_at)

    def raw(self) -> bytes:
        first = self.records[0][1].timestamp if self.records else -1
        plain = b"".join(_record(offset - self.base, rec, first) for offset, rec in self.records)
        tail = struct.pack(
            ">hiqqqhii",
            self.codec | self.attributes,
            self.last - self.base,
            first,
            self.latest,
            self.producer_id,
            0,
            -1,
            len(self.records),
        ) + (compress(self.codec, plain) if self.records else b"")
        return struct.pack(">qiibI", self.base, 9 + len(tail), 0, 2, google_crc32c.value(tail)) + tail


def batch_of(base: int, recs: Sequence[Rec], codec: int = 0, attributes: int = 0, producer_id: int = -1) -> LogBatch:
    numbered = tuple((base + i, rec) for i, rec in enumerate(recs))
    return LogBatch(base, numbered, base + len(recs) - 1, codec, attributes, producer_id)


def marker(base: int, producer_id: int = 7, commit: bool = False) -> LogBatch:
    """The control batch that ends a transaction; a fence leaves one of these."""
    record = Rec(struct.pack(">hi", 0, 0), struct.pack(">hh", 0, int(commit)))
    return batch_of(base, [record], attributes=TRANSACTIONAL | CONTROL, producer_id=producer_id)


def _record(offset_delta: int, rec: Rec, first_timestamp: int) -> bytes:
    body = b"\x00" + encode_varint(rec.timestamp - first_timestamp) + encode_varint(offset_delta)
    body += _bytes(rec.key) + _bytes(rec.value) + encode_varint(len(rec.headers))
    for name, value in rec.headers:
        body += _bytes(name.encode()) + _bytes(value)
    return encode_varint(len(body)) + body


def _bytes(value: Optional[bytes]) -> bytes:
    return encode_varint(-1) if value is None else encode_varint(len(value)) + value


def fetched(batches: Iterable[LogBatch], aborted: Sequence[Tuple[int, int]] = (), end: int = 1 << 40) -> Fetched:
    return Fetched(0, end, tuple(aborted), b"".join(batch.raw() for batch in batches))


def read_back(data: bytes) -> List[Rec]:
    """What another client finds in batches."""
    found, batches = [], MemoryRecords(bytes(data))
    while batches.has_next():
        for record in batches.next_batch():
            found.append(Rec(record.value, record.key, record.timestamp, tuple(record.headers)))
    return found


def task_of(**changes: object) -> PartitionTask:
    fields = {
        "topic": "orders",
        "remote_topic": "A.orders",
        "partition": 0,
        "upstream_offset": 0,
        "downstream_offset": 0,
        "end": 1 << 40,
        "sequence": 0,
        "source_topic_id": "",
        "remote_topic_id": "",
        "max_message_bytes": 1 << 20,
        **changes,
    }
    return PartitionTask(**fields)  # type: ignore[arg-type]


def whole(pieces: Batch) -> bytes:
    """A batch that comes in pieces, as one."""
    return b"".join(pieces)
