"""A record batch of any kind in, its records out; records in, batches that any broker accepts out. Pure: the slow path.

Only each record's length, timestamp delta and offset delta are rewritten; key, value and headers stay as they were.
"""

from __future__ import annotations

from operator import itemgetter
from typing import List, NamedTuple, Optional, Sequence, Tuple

from mirror_lib.errors import BatchError
from mirror_lib.kafka.codecs import compress, decompress_all
from mirror_lib.kafka.legacy import read_messages
from mirror_lib.kafka.record_batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    BatchHeader,
    Buffer,
    Record,
    checked_payload,
    magic_of,
    new_batch,
    next_sequence,
    read_header,
)
from mirror_lib.kafka.varint import SIGNED, SMALL, SMALL_VARINTS, decode_varint, encode_varint, wrap64

__all__ = ["Built", "Record", "RecordTooLarge", "build_batches", "cut", "read_batches", "read_records", "same_records"]

# What a record may have beside its body: length 5, attributes 1, timestamp delta 10, offset delta 5 bytes.
RECORD_OVERHEAD = 21
# A piece compresses worse than the whole; aiming lower saves a second split.
_SPLIT_MARGIN = 0.9
_FAR = 1 << 62
_BODY = itemgetter(2)
_ONE_BYTE = tuple(b"%c" % value for value in range(256))


class RecordTooLarge(BatchError):
    """One record makes a batch over the target's limit, even alone. `size` is that batch's bytes."""

    def __init__(self, upstream_offset: int, size: int, max_bytes: int) -> None:
        super().__init__(
            f"the record at offset {upstream_offset} needs a batch of {size} bytes; the remote topic takes {max_bytes}",
            hint="raise max.message.bytes of the remote topic",
        )
        self.upstream_offset = upstream_offset
        self.size = size


class Built(NamedTuple):
    """One batch ready to append.

    `runs` are the upstream offsets of its records in order, `(upstream_offset, record_count)` for each stretch
    without a gap; downstream the records follow one another from the batch's base offset on.
    """

    data: bytes
    record_count: int
    runs: Tuple[Tuple[int, int], ...]


def read_records(batch: Buffer) -> List[Record]:
    """Every record of one whole entry of any magic and codec, with upstream offsets; none if compaction emptied it.

    Under LogAppendTime a record's timestamp is the batch's. BatchError: corrupt, unknown codec, or a control batch.
    """
    if magic_of(batch) < 2:
        return read_messages(batch)
    return read_batches([(batch, read_header(batch))])


def read_batches(batches: Sequence[Tuple[Buffer, BatchHeader]]) -> List[Record]:
    """The same for neighbours of format v2 under one codec, unpacked in one go. An error names the first of them."""
    first = batches[0][1]
    # A batch that compaction emptied is a bare header: there is nothing to unpack, whatever its codec.
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
) -> List[Built]:
    """`records` (offsets ascending) in batches of at most `max_bytes` bytes each, header included, after compression.

    Offsets inside a batch run from 0 without a gap, timestamps are CreateTime, the sequence goes on from batch to
    batch. RecordTooLarge for a record that does not fit alone.
    """
    built: List[Built] = []
    waiting = cut(records, None if codec else max_bytes - HEADER_SIZE)[::-1]
    while waiting:
        piece = waiting.pop()
        data = _build(piece, codec, producer_id, producer_epoch, base_sequence)
        if len(data) <= max_bytes:
            built.append(Built(data, len(piece), runs_of([record.offset for record in piece])))
            base_sequence = next_sequence(base_sequence, len(piece))
        elif len(piece) == 1:
            raise RecordTooLarge(piece[0].offset, len(data), max_bytes)
        else:
            room = int(_plain_size(piece) * max_bytes / len(data) * _SPLIT_MARGIN)
            waiting += cut(piece, room)[::-1]
    return built


def same_records(one: Sequence[Record], other: Sequence[Record]) -> bool:
    """Whether both hold the same records in the same order: timestamps and bytes. Offsets may differ."""
    return len(one) == len(other) and all(a[1:] == b[1:] for a, b in zip(one, other))


def _decode(data: bytes, headers: Sequence[BatchHeader]) -> Tuple[List[Record], int]:
    """Records of plain payloads in a row, and where they end. Short things are written out: a call costs more."""
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
    # Out here even a small delta can pass the end of a long; Java's sum wraps, and so must ours.
    return [Record(offset, wrap64(timestamp), body, flags) for offset, timestamp, body, flags in records]


def _build(records: Sequence[Record], codec: int, producer_id: int, producer_epoch: int, base_sequence: int) -> bytes:
    pieces = new_batch(
        codec,
        len(records),
        records[0].timestamp,
        max(map(itemgetter(1), records)),
        producer_id,
        producer_epoch,
        base_sequence,
        compress(codec, _encode(records)),
    )
    return b"".join(pieces)


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
    """Pieces of at most `room` plain bytes, or of one record; all in one where `room` is None."""
    if not records:
        return []
    # Mostly all fits: that is found out without a look at each.
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
    """Ascending offsets as `(first, count)` of each stretch without a gap."""
    first, count = offsets[0], len(offsets)
    if offsets[-1] - first + 1 == count:
        return ((first, count),)
    starts = [0, *(i for i in range(1, count) if offsets[i] != offsets[i - 1] + 1)]
    return tuple((offsets[a], b - a) for a, b in zip(starts, [*starts[1:], count]))
