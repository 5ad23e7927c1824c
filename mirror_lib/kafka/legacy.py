"""A message of magic 0 or 1 in (Kafka before 0.11), its records out, with bodies as format v2 writes them. Pure."""

from __future__ import annotations

import struct
import zlib
from typing import List, NamedTuple, Optional

from mirror_lib.errors import BatchError
from mirror_lib.kafka.codecs import LZ4, decompress, mend_lz4_header
from mirror_lib.kafka.record_batch import Buffer, Record, split_batches
from mirror_lib.kafka.varint import SMALL, SMALL_VARINTS, encode_varint

NO_TIMESTAMP = -1

_CODEC = 0x07
_LOG_APPEND_TIME = 0x08
_MAGIC_AT = 16
_HEADER = struct.Struct(">qiIbb")
_LONG = struct.Struct(">q")
_TIMESTAMP_AND_KEY = struct.Struct(">qi")
_INT = struct.Struct(">i")
_NO_HEADERS = b"\x00"
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

    Magic 0 has no timestamp: -1. BatchError: corrupt, or nested in a way that no Kafka writes.
    """
    outer = _read_message(entry)
    codec = outer.attributes & _CODEC
    if not codec:
        return [_record(outer, outer.offset, outer.timestamp)]
    packed = outer.value or b""
    if codec == LZ4 and outer.magic == 0:
        packed = mend_lz4_header(packed)
    payload = decompress(codec, packed)
    entries = list(split_batches(payload))
    if not entries or sum(map(len, entries)) != len(payload):
        raise BatchError(f"the compressed message at offset {outer.offset} is corrupt: what it holds is cut off")
    inner = [_read_message(message) for message in entries]
    _check_inner(outer, inner)
    base = _base_offset(outer, inner)
    if outer.attributes & _LOG_APPEND_TIME and outer.magic == 1:
        return [_record(message, base + message.offset, outer.timestamp) for message in inner]
    return [_record(message, base + message.offset, message.timestamp) for message in inner]


def last_offset(entry: Buffer) -> int:
    """Offset of the last record in one whole entry of magic 0 or 1."""
    (offset,) = _LONG.unpack_from(entry)
    # A wrapper has its last message's offset; where a client left it at 0, only the messages know (`_base_offset`).
    return offset or read_messages(entry)[-1].offset


def _read_message(entry: Buffer) -> _Message:
    data = bytes(entry)
    offset, length, crc, magic, attributes = _HEADER.unpack_from(data)
    if magic not in (0, 1):
        raise BatchError(f"the message at offset {offset} has magic {magic}, not 0 or 1")
    if length + 12 != len(data) or zlib.crc32(data[_MAGIC_AT:]) != crc:
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
        raise BatchError(f"the message at offset {offset} is corrupt: it is cut off") from error
    if key_end + 4 + (value_length if value_length > 0 else 0) != len(data):
        raise BatchError(f"the message at offset {offset} is corrupt: key and value do not fill it")
    key = None if key_length < 0 else data[at:key_end]
    value = None if value_length < 0 else data[key_end + 4 :]
    return _Message(offset, magic, attributes, timestamp, key, value)


def _check_inner(outer: _Message, inner: List[_Message]) -> None:
    if any(message.magic != outer.magic or message.attributes & _CODEC for message in inner):
        raise BatchError(f"the compressed message at offset {outer.offset} holds messages of another kind")


def _base_offset(outer: _Message, inner: List[_Message]) -> int:
    """What to add to inner offsets: in magic 1 they count from 0, and the wrapper has that of the last (KIP-31)."""
    if outer.magic == 0 or outer.offset == 0:  # some versions of librdkafka left a wrapper's offset at 0
        return 0
    if outer.offset < inner[-1].offset:
        raise BatchError(f"the compressed message at offset {outer.offset} is corrupt: its messages lie past it")
    return outer.offset - inner[-1].offset


def _record(message: _Message, offset: int, timestamp: int) -> Record:
    return Record(offset, timestamp, _field(message.key) + _field(message.value) + _NO_HEADERS)


def _field(content: Optional[bytes]) -> bytes:
    if content is None:
        return _NULL
    length = len(content)
    return (SMALL_VARINTS[length] if length < SMALL else encode_varint(length)) + content
