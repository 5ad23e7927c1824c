"""Record batch format v2 (KIP-98): splits a fetch response into batches, reads headers, and replaces them. Pure.

A batch has a header of 61 bytes, then records, perhaps compressed. Integers are big-endian; inside records they are
zig-zag varints, seven bits a byte, lowest first.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Iterator, NamedTuple, Optional, Tuple, Union

import google_crc32c

from mirror_lib.errors import BatchError

Buffer = Union[bytes, bytearray, memoryview]
# One batch, in pieces.
Batch = Tuple[Buffer, ...]

HEADER_SIZE = 61
MAX_SEQUENCE = 0x7FFFFFFF

_LOG_OVERHEAD = 12  # base offset and length, which the length does not count
_MIN_LEGACY_SIZE = 14  # of a magic 0 entry: CRC, magic, attributes, key length, value length
MAGIC_AT = 16  # of an entry's format version: 0, 1 or 2
_CRC_FROM = 21

_ENTRY = struct.Struct(">qi")
_HEADER = struct.Struct(">qiibIhiqqqhii")
_BEFORE_CRC = struct.Struct(">qiibI")
_AFTER_CRC = struct.Struct(">hiqqqhii")

# Bits of a batch's attributes.
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
CODEC = 0x07


@dataclass(frozen=True)
class Producer:
    """A producer id (int64) and epoch (int16), the same in every batch that a lane appends."""

    producer_id: int
    epoch: int


class Record(NamedTuple):
    """One record; its key, value and headers have the same bytes as on the source.

    `offset` is upstream, `timestamp` in milliseconds (-1: none). `body` is the part after the offset delta in format
    v2: key, value and headers with their lengths. `attributes` is the record's own byte, 0 in all Kafka releases.
    """

    offset: int
    timestamp: int
    body: bytes
    attributes: int = 0


class BatchHeader(NamedTuple):
    """The header of a record batch of format v2, field by field as it is on the wire."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & CODEC

    @property
    def log_append_time(self) -> bool:
        """LogAppendTime: the broker set the time, and every record's timestamp is `max_timestamp`."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def control(self) -> bool:
        """A transaction marker, never a user's data."""
        return bool(self.attributes & CONTROL)

    @property
    def last_offset(self) -> int:
        """Offset of the last record that was ever in the batch; compaction does not change it."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The lowest offset at which the next batch can start."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def contiguous(self) -> bool:
        """Whether the offsets inside have no gap: no record is missing."""
        return self.record_count == self.last_offset_delta + 1

    @property
    def can_rehead(self) -> bool:
        """Whether the batch can be copied by a new header alone: it is data, has no gap, and has CreateTime."""
        return self.record_count == self.last_offset_delta + 1 and not self.attributes & (CONTROL | LOG_APPEND_TIME)


def split_batches(data: Buffer) -> Iterator[memoryview]:
    """Whole entries (v2 batches, or magic 0/1 messages) of a fetch response's records, without a copy.

    An incomplete last entry is ignored, as in a consumer. Raises BatchError for an impossible length.
    """
    view = memoryview(data)
    size, at = len(view), 0
    while at + _LOG_OVERHEAD <= size:
        offset, length = _ENTRY.unpack_from(view, at)
        if length < _MIN_LEGACY_SIZE:
            raise BatchError(f"the record batch at offset {offset} is corrupt: its length is {length}")
        end = at + _LOG_OVERHEAD + length
        if end > size:
            return
        yield view[at:end]
        at = end


def split_entries(data: Buffer) -> Iterator[Tuple[memoryview, Optional[BatchHeader]]]:
    """The same with headers; None for messages of magic 0 and 1. Raises BatchError for an unknown magic, too."""
    for entry in split_batches(data):
        if entry[MAGIC_AT] < 2:
            yield entry, None
        elif entry[MAGIC_AT] == 2 and len(entry) >= HEADER_SIZE:
            # Equals `read_header` without its checks: they take the most time, and a response may have 10,000 batches.
            yield entry, tuple.__new__(BatchHeader, _HEADER.unpack_from(entry))
        else:
            yield entry, read_header(entry)


def read_header(batch: Buffer) -> BatchHeader:
    """Header of one whole batch of format v2. Raises BatchError for another magic or a wrong length."""
    if len(batch) < HEADER_SIZE:
        raise BatchError(f"a record batch of {len(batch)} bytes is shorter than its header")
    header = BatchHeader(*_HEADER.unpack_from(batch))
    if header.magic != 2:
        raise BatchError(f"the record batch at offset {header.base_offset} has magic {header.magic}, not 2")
    if header.batch_length != len(batch) - _LOG_OVERHEAD:
        raise BatchError(
            f"the record batch at offset {header.base_offset} says {header.batch_length} bytes "
            f"and has {len(batch) - _LOG_OVERHEAD}"
        )
    return header


def checked_payload(batch: Buffer, header: BatchHeader) -> bytes:
    """The bytes after the header. Raises BatchError if the CRC32C (from the attributes on) does not match."""
    payload = bytes(batch[HEADER_SIZE:])  # google_crc32c takes bytes only
    if google_crc32c.extend(google_crc32c.value(bytes(batch[_CRC_FROM:HEADER_SIZE])), payload) != header.crc:
        raise BatchError(
            f"the record batch at offset {header.base_offset} is corrupt: its CRC does not match",
            hint="check the source broker's disk and the network; a replica may still hold it whole",
        )
    return payload


def rehead(batch: Buffer, producer_id: int, producer_epoch: int, base_sequence: int) -> Tuple[bytes, bytes]:
    """Make the batch appendable under our producer: base offset 0, not transactional, new CRC, else unchanged.

    Returns two pieces, the header and the payload. Raises BatchError if the source's CRC does not match, because a new
    CRC would hide the damage. Raises BatchError also if `can_rehead` is false: the broker would refuse the batch or
    assign other offsets.
    """
    header = read_header(batch)
    if not header.can_rehead:
        raise BatchError(f"the record batch at offset {header.base_offset} cannot be copied as it is; re-encode it")
    payload = checked_payload(batch, header)
    # With a delete horizon (KIP-534) the base timestamp is the time at which the cleaner may remove tombstones. Deltas
    # are relative to it in any case. Without the flag it is an ordinary base, and the target's cleaner sets its own.
    attributes = header.attributes & ~(TRANSACTIONAL | DELETE_HORIZON)
    after_crc = _AFTER_CRC.pack(
        attributes, *header[6:9], producer_id, producer_epoch, base_sequence, header.record_count
    )
    return _header(header.partition_leader_epoch, after_crc, payload), payload


def new_batch(
    codec: int,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    payload: bytes,
) -> Tuple[bytes, bytes]:
    """A batch of `payload`: `record_count` records with offset deltas from 0 on, already compressed with `codec`.

    Returns two pieces, the header and the payload."""
    tail = _AFTER_CRC.pack(
        codec, record_count - 1, base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, record_count
    )
    return _header(-1, tail, payload), payload


def _header(partition_leader_epoch: int, after_crc: bytes, payload: bytes) -> bytes:
    crc = google_crc32c.extend(google_crc32c.value(after_crc), payload)
    length = HEADER_SIZE - _LOG_OVERHEAD + len(payload)
    return _BEFORE_CRC.pack(0, length, partition_leader_epoch, 2, crc) + after_crc


def next_sequence(base_sequence: int, record_count: int) -> int:
    """Base sequence of the next batch after one of `record_count` records; after 2^31 - 1 Kafka continues at 0.

    -1 (no sequence) stays -1.
    """
    return base_sequence if base_sequence < 0 else (base_sequence + record_count) & MAX_SEQUENCE


_BITS64 = 0xFFFFFFFFFFFFFFFF
_SIGN64 = 1 << 63


# By a value of 14 bits: its bytes at the end of a varint, and its two bytes with more to follow.
_ENDED = tuple(bytes((raw,)) if raw < 0x80 else bytes((raw & 0x7F | 0x80, raw >> 7)) for raw in range(1 << 14))
_UNENDED = tuple(bytes((raw & 0x7F | 0x80, raw >> 7 | 0x80)) for raw in range(1 << 14))


def wrap64(value: int) -> int:
    """`value` wrapped to Java's long: Kafka adds and subtracts timestamps modulo 2^64."""
    return ((value + _SIGN64) & _BITS64) - _SIGN64


def encode_varint(value: int) -> bytes:
    """The 1 to 10 bytes of a signed integer of up to 64 bits."""
    rest = (value << 1 ^ value >> 63) & _BITS64
    if rest < 1 << 28:
        return _ENDED[rest] if rest < 1 << 14 else _UNENDED[rest & 0x3FFF] + _ENDED[rest >> 14]
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def decode_varint(data: Union[bytes, bytearray, memoryview], at: int) -> Tuple[int, int]:
    """The signed integer that starts at `at`, and the index after it. Raises IndexError past the end of `data`."""
    raw = shift = 0
    while True:
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return raw >> 1 ^ -(raw & 1), at
        shift += 7
        if shift > 63:
            raise BatchError(f"a record is corrupt: the integer that ends at byte {at} has no end")


def decode_bytes(data: bytes, at: int) -> Tuple[Optional[bytes], int]:
    """The byte string after its length that starts at `at`, None for null, and the index after it."""
    size, at = decode_varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


# Nearly all numbers in records are small, and a look-up is three times as fast as encoding. Indexed by the number, from
# -SMALL to SMALL - 1.
SMALL = 1 << 13
SMALL_VARINTS = tuple(encode_varint(value) for value in (*range(SMALL), *range(-SMALL, 0)))
# The signed value of a varint of one or two bytes, by its 7 or 14 bits.
SIGNED = tuple(raw >> 1 ^ -(raw & 1) for raw in range(1 << 14))
