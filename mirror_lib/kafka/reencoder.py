"""Decodes a record batch of any magic into records, and builds batches of format v2 from records. Pure.

This is the slow path. Only each record's length, timestamp delta and offset delta are rewritten; key, value and headers
do not change. Messages of magic 0 and 1 (Kafka before 0.11) get bodies of format v2.
"""

from __future__ import annotations

import struct
import zlib
from operator import itemgetter
from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple

from mirror_lib.errors import BatchError
from mirror_lib.kafka.codecs import compress, decompress, decompress_all
from mirror_lib.kafka.record_batch import (
    CODEC,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC_AT,
    SIGNED,
    SMALL,
    SMALL_VARINTS,
    Batch,
    BatchHeader,
    Buffer,
    Record,
    checked_payload,
    decode_varint,
    encode_varint,
    new_batch,
    next_sequence,
    read_header,
    split_batches,
    wrap64,
)

NO_TIMESTAMP = -1

_HEADER = struct.Struct(">qiIbb")
_LONG = struct.Struct(">q")
_TIMESTAMP_AND_KEY = struct.Struct(">qi")
_INT = struct.Struct(">i")
NO_HEADERS = b"\x00"
_NULL = encode_varint(-1)


class _Message(NamedTuple):
    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: Optional[bytes]
    value: Optional[bytes]


def read_messages(entry: Buffer) -> List[Record]:
    """The records of one whole entry of magic 0 or 1, a plain message or a compressed wrapper of many.

    Magic 0 has no timestamp: -1. Raises BatchError for a corrupt entry, or a nesting that no Kafka release writes.
    """
    outer = _read_message(entry)
    codec = outer.attributes & CODEC
    if not codec:
        return [_record(outer, outer.offset, outer.timestamp)]
    payload = decompress(codec, outer.value or b"")
    entries = list(split_batches(payload))
    if not entries or sum(map(len, entries)) != len(payload):
        raise BatchError(f"the compressed message at offset {outer.offset} is corrupt: its content is truncated")
    inner = [_read_message(message) for message in entries]
    if any(message.magic != outer.magic or message.attributes & CODEC for message in inner):
        raise BatchError(f"the compressed message at offset {outer.offset} holds messages of another kind")
    base = _base_offset(outer, inner)
    if outer.attributes & LOG_APPEND_TIME and outer.magic == 1:
        return [_record(message, base + message.offset, outer.timestamp) for message in inner]
    return [_record(message, base + message.offset, message.timestamp) for message in inner]


def last_offset(entry: Buffer) -> int:
    """Offset of the last record in one whole entry of magic 0 or 1."""
    (offset,) = _LONG.unpack_from(entry)
    # A wrapper has its last message's offset. If a client left it at 0, only the messages have it (`_base_offset`).
    return offset or read_messages(entry)[-1].offset


def _read_message(entry: Buffer) -> _Message:
    data = bytes(entry)
    offset, length, crc, magic, attributes = _HEADER.unpack_from(data)
    if magic not in (0, 1):
        raise BatchError(f"the message at offset {offset} has magic {magic}, not 0 or 1")
    if length + 12 != len(data) or zlib.crc32(data[MAGIC_AT:]) != crc:
        raise BatchError(f"the message at offset {offset} is corrupt: its CRC or length does not match")
    try:
        if magic:
            timestamp, key_length = _TIMESTAMP_AND_KEY.unpack_from(data, _HEADER.size)
            at = _HEADER.size + _TIMESTAMP_AND_KEY.size
        else:
            timestamp, (key_length,), at = NO_TIMESTAMP, _INT.unpack_from(data, _HEADER.size), _HEADER.size + 4
        key_end = at + key_length if key_length > 0 else at
        (value_length,) = _INT.unpack_from(data, key_end)
    except struct.error as error:
        raise BatchError(f"the message at offset {offset} is corrupt: it is truncated") from error
    if key_end + 4 + (value_length if value_length > 0 else 0) != len(data):
        raise BatchError(f"the message at offset {offset} is corrupt: key and value do not match its length")
    key = None if key_length < 0 else data[at:key_end]
    value = None if value_length < 0 else data[key_end + 4 :]
    return _Message(offset, magic, attributes, timestamp, key, value)


def _base_offset(outer: _Message, inner: List[_Message]) -> int:
    """The offset to add to inner offsets: in magic 1 they start at 0, and the wrapper has the last one's (KIP-31)."""
    if outer.magic == 0 or outer.offset == 0:  # some versions of librdkafka left a wrapper's offset at 0
        return 0
    if outer.offset < inner[-1].offset:
        raise BatchError(
            f"the compressed message at offset {outer.offset} is corrupt: its messages have later offsets than it"
        )
    return outer.offset - inner[-1].offset


def _record(message: _Message, offset: int, timestamp: int) -> Record:
    return Record(offset, timestamp, _field(message.key) + _field(message.value) + NO_HEADERS)


def _field(content: Optional[bytes]) -> bytes:
    if content is None:
        return _NULL
    length = len(content)
    return (SMALL_VARINTS[length] if length < SMALL else encode_varint(length)) + content


# Maximum bytes of a record without its body: length 5, attributes 1, timestamp delta 10, offset delta 5.
RECORD_OVERHEAD = 21
# A part compresses worse than the whole; the margin avoids a second split.
_SPLIT_MARGIN = 0.9
_FAR = 1 << 62
_BODY = itemgetter(2)
_ONE_BYTE = tuple(b"%c" % value for value in range(256))


class RecordTooLarge(BatchError):
    """A record alone exceeds the target's batch limit. `size` is the batch's size in bytes."""

    def __init__(self, upstream_offset: int, size: int, max_bytes: int) -> None:
        super().__init__(
            f"the record at offset {upstream_offset} needs a batch of {size} bytes; the remote topic takes {max_bytes}",
            hint="raise max.message.bytes of the remote topic",
        )
        self.upstream_offset = upstream_offset
        self.size = size


class Outgoing(NamedTuple):
    """A batch for the remote log, in pieces.

    `runs` are the upstream offsets of its records in order, `(upstream_offset, record_count)` for each stretch
    without a gap; downstream the records follow one another from the batch's base offset on. `next_upstream` is the
    upstream offset after it. `last_timestamp` is its newest timestamp, by which the target computes the age of its
    producer.
    """

    pieces: Batch
    record_count: int
    runs: Tuple[Tuple[int, int], ...]
    next_upstream: int
    last_timestamp: int

    @property
    def size(self) -> int:
        return sum(map(len, self.pieces))


def read_records(batch: Buffer) -> List[Record]:
    """Every record of one whole entry of any magic and codec, with upstream offsets; none if compaction emptied it.

    Under LogAppendTime all records have the batch's timestamp. Raises BatchError for a corrupt entry, an unknown codec,
    or a control batch.
    """
    if batch[MAGIC_AT] < 2:
        return read_messages(batch)
    return read_batches([(batch, read_header(batch))])


def read_batches(batches: Sequence[Tuple[Buffer, BatchHeader]]) -> List[Record]:
    """The same for consecutive batches of format v2 with one codec, unpacked together. An error names the first one."""
    first = batches[0][1]
    # A batch that compaction emptied is a bare header, with nothing to unpack under any codec.
    payloads = [payload for payload in map(_records_part, batches) if payload]
    try:
        plain = decompress_all(first.codec, payloads)
        records, end = _decode(plain, [header for _, header in batches])
        if end != len(plain):
            raise BatchError(f"its {len(records)} records end at byte {end} of {len(plain)}")
        return records
    except (BatchError, IndexError) as error:
        raise BatchError(f"the record batch at offset {first.base_offset} cannot be read: {error}") from error


def _records_part(entry: Tuple[Buffer, BatchHeader]) -> bytes:
    batch, header = entry
    if header.control:
        raise BatchError(f"the batch at offset {header.base_offset} is a transaction marker and holds no records")
    return checked_payload(batch, header)


def build_batches(
    records: Sequence[Record], codec: int, producer_id: int, producer_epoch: int, base_sequence: int, max_bytes: int
) -> Iterator[Outgoing]:
    """Yield `records` (offsets ascending) in batches of at most `max_bytes` bytes each, header included, after
    compression.

    Offsets inside a batch run from 0 without a gap, timestamps are CreateTime, the sequence continues from batch to
    batch. RecordTooLarge for a record that does not fit alone, after the records before it.
    """
    waiting = cut(records, None if codec else max_bytes - HEADER_SIZE)[::-1]
    while waiting:
        piece = waiting.pop()
        outgoing = _build(piece, codec, producer_id, producer_epoch, base_sequence)
        if outgoing.size <= max_bytes:
            yield outgoing
            base_sequence = next_sequence(base_sequence, len(piece))
        elif len(piece) == 1:
            raise RecordTooLarge(piece[0].offset, outgoing.size, max_bytes)
        else:
            room = int(_plain_size(piece) * max_bytes / outgoing.size * _SPLIT_MARGIN)
            waiting += cut(piece, room)[::-1]


def _decode(data: bytes, headers: Sequence[BatchHeader]) -> Tuple[List[Record], int]:
    """Records of concatenated uncompressed payloads, and the index of their end. Short varints are decoded inline,
    because a function call costs more."""
    records: List[Record] = []
    append, new, signed, at = records.append, tuple.__new__, SIGNED, 0
    for header in headers:
        base_offset, base_timestamp = header.base_offset, header.base_timestamp
        for _ in range(header.record_count):
            byte = data[at]
            if byte < 0x80:
                length, at = signed[byte], at + 1
            elif data[at + 1] < 0x80:
                length, at = signed[data[at + 1] << 7 | byte & 0x7F], at + 2
            else:
                length, at = decode_varint(data, at)
            end = at + length
            attributes = data[at]
            byte = data[at + 1]
            if byte < 0x80:
                timestamp, at = base_timestamp + signed[byte], at + 2
            elif data[at + 2] < 0x80:
                timestamp, at = base_timestamp + signed[data[at + 2] << 7 | byte & 0x7F], at + 3
            else:
                delta, at = decode_varint(data, at + 1)
                timestamp = wrap64(base_timestamp + delta)
            byte = data[at]
            if byte < 0x80:
                offset, at = base_offset + signed[byte], at + 1
            elif data[at + 1] < 0x80:
                offset, at = base_offset + signed[data[at + 1] << 7 | byte & 0x7F], at + 2
            else:
                delta, at = decode_varint(data, at)
                offset = base_offset + delta
            if at > end:
                raise BatchError(f"record {len(records)} is shorter than its own fields")
            append(new(Record, (offset, timestamp, data[at:end], attributes)))
            at = end
        if header.attributes & LOG_APPEND_TIME or not -_FAR < base_timestamp < _FAR:
            start = len(records) - header.record_count
            records[start:] = _with_timestamps(header, records[start:])
    return records, at


def _with_timestamps(header: BatchHeader, records: List[Record]) -> List[Record]:
    if header.log_append_time:
        new, timestamp = tuple.__new__, header.max_timestamp
        return [new(Record, (offset, timestamp, body, flags)) for offset, _, body, flags in records]
    # With such a base timestamp even a small delta can overflow a long. Java's sum wraps, so this one must wrap too.
    return [Record(offset, wrap64(timestamp), body, flags) for offset, timestamp, body, flags in records]


def _build(
    records: Sequence[Record], codec: int, producer_id: int, producer_epoch: int, base_sequence: int
) -> Outgoing:
    count, newest, payload = len(records), max(map(itemgetter(1), records)), compress(codec, _encode(records))
    pieces = new_batch(
        codec, count, records[0].timestamp, newest, producer_id, producer_epoch, base_sequence, payload
    )
    return Outgoing(pieces, count, runs_of([each.offset for each in records]), records[-1].offset + 1, newest)


def _encode(records: Sequence[Record]) -> bytes:
    parts: List[bytes] = []
    append = parts.append
    small, limit, one_byte = SMALL_VARINTS, SMALL, _ONE_BYTE
    base_timestamp = records[0].timestamp
    for index, (_, timestamp, body, attributes) in enumerate(records):
        delta = timestamp - base_timestamp
        head = (
            one_byte[attributes]
            + (small[delta] if -limit <= delta < limit else encode_varint(wrap64(delta)))
            + (small[index] if index < limit else encode_varint(index))
        )
        length = len(head) + len(body)
        append(small[length] if length < limit else encode_varint(length))
        append(head)
        append(body)
    return b"".join(parts)


def _plain_size(records: Sequence[Record]) -> int:
    return sum(map(len, map(_BODY, records))) + RECORD_OVERHEAD * len(records)


def cut(records: Sequence[Record], room: Optional[int]) -> List[Sequence[Record]]:
    """Split into parts of at most `room` uncompressed bytes, or of one record; one part if `room` is None."""
    if not records:
        return []
    # Mostly everything fits, so the total comes first.
    if room is None or _plain_size(records) <= room:
        return [records]
    pieces, start, size = [], 0, 0
    for index, record in enumerate(records):
        needs = len(record.body) + RECORD_OVERHEAD
        if size + needs > room and index > start:
            pieces.append(records[start:index])
            start, size = index, 0
        size += needs
    return [*pieces, records[start:]]


def runs_of(offsets: Sequence[int]) -> Tuple[Tuple[int, int], ...]:
    """Ascending offsets as `(first, count)` of each range without a gap."""
    first, count = offsets[0], len(offsets)
    if offsets[-1] - first + 1 == count:
        return ((first, count),)
    starts = [0, *(i for i in range(1, count) if offsets[i] != offsets[i - 1] + 1)]
    return tuple((offsets[a], b - a) for a, b in zip(starts, [*starts[1:], count]))
