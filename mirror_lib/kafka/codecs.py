"""Compresses and decompresses the records of a batch with Kafka's codecs, framed as Java's client frames them.

Ids: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, Callable, Dict, List, Sequence, TypeVar, Union

import cramjam

from mirror_lib.errors import BatchError

Buffer = Union[bytes, bytearray, memoryview]
Packer = TypeVar("Packer")

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

# Protects a worker's memory from a damaged or hostile payload. Producers limit a record before compression
# (max.request.size, 1 MB unless raised), so real batches stay two orders of magnitude below this.
MAX_DECOMPRESSED = 256 << 20

_GZIP_WBITS = 31
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 << 10
# Version 1, independent blocks of at most 64 KB, no checksums; 0x82 is this header's checksum. Java's reader refuses
# linked blocks, which most libraries write by default.
_LZ4_HEADER = bytes.fromhex("04224d18604082")
_LZ4_BLOCK = 64 << 10
_LZ4_STORED = 0x80000000
_LZ4_END = bytes(4)
_INT = struct.Struct(">i")
_LITTLE_UINT = struct.Struct("<I")


def compress(codec: int, data: Buffer) -> bytes:
    """Compress `data` so that every Kafka client can read it. Raises BatchError for an unknown codec."""
    if not codec:
        return bytes(data)
    return _of(_COMPRESS, codec)(data)


def decompress(codec: int, data: Buffer, limit: int = MAX_DECOMPRESSED) -> bytes:
    """Decompress `data`. Raises BatchError for an unknown codec, corrupt data, or a result above `limit` bytes."""
    if not codec:
        return bytes(data)
    unpack = _of(_DECOMPRESS, codec)
    try:
        return unpack(data, limit)
    except (cramjam.DecompressionError, zlib.error, struct.error, EOFError, OverflowError) as error:
        raise BatchError(
            f"a {CODEC_NAMES[codec]} payload of {len(data)} bytes cannot be unpacked "
            f"into at most {limit >> 20} MB: {error}"
        ) from error


def decompress_all(codec: int, payloads: Sequence[bytes], limit: int = MAX_DECOMPRESSED) -> bytes:
    """Decompress `payloads` and join the results; `limit` applies to their sum. Raises what `decompress` raises.

    Frames of zstd are unpacked in one call: one setup takes longer than unpacking 100 of them.
    """
    if codec in (0, ZSTD) and payloads:
        return decompress(codec, b"".join(payloads), limit)
    parts: List[bytes] = []
    for payload in payloads:
        parts.append(decompress(codec, payload, limit))
        limit -= len(parts[-1])
    return b"".join(parts)


def _of(table: Dict[int, Packer], codec: int) -> Packer:
    if codec not in table:
        raise BatchError(f"compression codec {codec} is not known", hint="upgrade: a newer Kafka may have added it")
    return table[codec]


def _gzip(data: Buffer) -> bytes:
    packer = zlib.compressobj(-1, zlib.DEFLATED, _GZIP_WBITS)
    return packer.compress(data) + packer.flush()


def _gunzip(data: Buffer, limit: int) -> bytes:
    rest, parts, room = bytes(data), [], limit
    while True:  # a gzip file is a sequence of members
        member = zlib.decompressobj(_GZIP_WBITS)
        parts.append(member.decompress(rest, room + 1))
        room -= len(parts[-1])
        if room < 0:
            raise OverflowError("it is larger")
        if not member.eof:
            raise EOFError("it is cut off")
        rest = member.unused_data
        if not rest:
            return b"".join(parts)


def _snappy(data: Buffer) -> bytes:
    view, parts = memoryview(data), [_XERIAL_HEADER]
    for at in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[at : at + _XERIAL_BLOCK]))
        parts += (_INT.pack(len(block)), block)
    return b"".join(parts)


def _unsnappy(data: Buffer, limit: int) -> bytes:
    blocks = _xerial_blocks(data) if bytes(data[:8]) == _XERIAL_MAGIC else [data]  # librdkafka writes one raw block
    if sum(cramjam.snappy.decompress_raw_len(block) for block in blocks) > limit:
        raise OverflowError("it is larger")
    return b"".join(bytes(cramjam.snappy.decompress_raw(block)) for block in blocks)


def _xerial_blocks(data: Buffer) -> List[Buffer]:
    blocks: List[Buffer] = []
    view, at = memoryview(data), 16
    while at < len(view):
        (size,) = _INT.unpack_from(view, at)
        at += 4 + size
        if size < 0 or at > len(view):
            raise EOFError("a block is cut off")
        blocks.append(view[at - size : at])
    return blocks


def _lz4(data: Buffer) -> bytes:
    view, parts = memoryview(data), [_LZ4_HEADER]
    for at in range(0, len(view), _LZ4_BLOCK):
        plain = view[at : at + _LZ4_BLOCK]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            parts += (_LITTLE_UINT.pack(len(block)), block)
        else:
            parts += (_LITTLE_UINT.pack(len(plain) | _LZ4_STORED), bytes(plain))
    parts.append(_LZ4_END)
    return b"".join(parts)


def _growing(codec: Any, ratio: int) -> Callable[[Buffer, int], bytes]:
    """Decompresses with a cramjam module into a buffer that grows while it is too small: frames need not contain their
    decompressed size. No byte of a frame stands for more than `ratio` bytes."""

    def unpack(data: Buffer, limit: int) -> bytes:
        size, most = 1024 + 8 * len(data), min(limit, 1024 + ratio * len(data))
        while True:
            out = bytearray(min(size, most))
            try:
                return bytes(memoryview(out)[: codec.decompress_into(data, out)])
            except cramjam.DecompressionError:
                if size >= most:
                    raise
            size *= 8

    return unpack


def _zstd(data: Buffer) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=3))


_COMPRESS: Dict[int, Callable[[Buffer], bytes]] = {GZIP: _gzip, SNAPPY: _snappy, LZ4: _lz4, ZSTD: _zstd}
_DECOMPRESS: Dict[int, Callable[[Buffer, int], bytes]] = {
    GZIP: _gunzip,
    SNAPPY: _unsnappy,
    LZ4: _growing(cramjam.lz4, 255),  # a byte adds at most 255 to the length of a match
    ZSTD: _growing(cramjam.zstd, 32 << 10),  # a block repeats one byte over at most 128 KB, in 4 bytes
}
