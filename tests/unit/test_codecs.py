"""Codecs against other libraries than the one they are made with."""

from __future__ import annotations

import gzip
import os
import struct
import tracemalloc
from typing import Any, Callable, Dict

import cramjam
import pytest
import zstandard
from kafka import codec as kafka_codec

from mirror_lib.errors import BatchError
from mirror_lib.kafka.codecs import GZIP, LZ4, SNAPPY, ZSTD, compress, decompress, decompress_all

READERS: Dict[int, Callable[[bytes], Any]] = {
    GZIP: gzip.decompress,
    SNAPPY: kafka_codec.snappy_decode,
    LZ4: kafka_codec.lz4_decode,
    ZSTD: lambda data: zstandard.ZstdDecompressor().decompress(data, max_output_size=1 << 24),
}
WRITERS: Dict[int, Callable[[bytes], Any]] = {
    GZIP: gzip.compress,
    SNAPPY: kafka_codec.snappy_encode,
    LZ4: lambda data: kafka_codec.lz4_encode(data, store_size=False),
    ZSTD: zstandard.ZstdCompressor(write_content_size=False).compress,
}
SAMPLES = [b"", b"a", b"value " * 40_000, os.urandom(70_000), b"x" * 65_536 + os.urandom(65_537)]


@pytest.mark.parametrize("codec", READERS)
@pytest.mark.parametrize("sample", SAMPLES[1:], ids=range(1, len(SAMPLES)))
def test_other_libraries_read_what_compress_writes(codec: int, sample: bytes) -> None:
    assert READERS[codec](compress(codec, sample)) == sample


@pytest.mark.parametrize("codec", WRITERS)
@pytest.mark.parametrize("sample", SAMPLES, ids=range(len(SAMPLES)))
def test_decompress_reads_what_other_libraries_write(codec: int, sample: bytes) -> None:
    assert decompress(codec, memoryview(WRITERS[codec](sample))) == sample


def test_forms_of_other_writers_are_read_and_java_can_read_ours() -> None:
    raw = kafka_codec.snappy_encode(b"raw " * 1000, xerial_compatible=False)
    assert decompress(SNAPPY, raw) == b"raw " * 1000
    for codec in (GZIP, ZSTD):
        assert decompress(codec, WRITERS[codec](b"one ") + WRITERS[codec](b"two")) == b"one two"
    # Java reads independent LZ4 blocks only.
    linked = bytes(cramjam.lz4.compress(SAMPLES[2]))
    assert compress(LZ4, SAMPLES[2])[4] & 0x20 and not linked[4] & 0x20
    assert decompress(LZ4, linked) == SAMPLES[2]


def test_gzip_has_no_clock_so_a_retry_writes_the_same_bytes() -> None:
    assert compress(GZIP, b"same")[4:8] == bytes(4)


@pytest.mark.parametrize("codec", WRITERS)
def test_payloads_that_are_damaged_or_too_large_for_a_worker_are_refused(codec: int) -> None:
    packed = WRITERS[codec](SAMPLES[2])
    for bad in (packed[:-3], packed[: len(packed) // 2], b"not compressed at all"):
        with pytest.raises(BatchError, match="cannot be unpacked"):
            decompress(codec, bad)
    large = WRITERS[codec](bytes(2 << 20))
    assert len(decompress(codec, large, limit=2 << 20)) == 2 << 20
    with pytest.raises(BatchError, match="at most 1 MB"):
        decompress(codec, large, limit=1 << 20)
    payloads = [compress(codec, bytes(1000))] * 3
    assert decompress_all(codec, payloads, 3000) == bytes(3000)
    with pytest.raises(BatchError):
        decompress_all(codec, payloads, 2999)


def test_snappy_block_lengths_beyond_the_payload_and_unknown_codecs_are_refused() -> None:
    packed = bytearray(compress(SNAPPY, b"value"))
    for length in (-1, 1 << 30):
        struct.pack_into(">i", packed, 16, length)
        with pytest.raises(BatchError, match="cannot be unpacked"):
            decompress(SNAPPY, packed)
    for use, codec in ((compress, 5), (decompress, 7)):
        with pytest.raises(BatchError, match=f"codec {codec}"):
            use(codec, b"")


@pytest.mark.parametrize("codec", [LZ4, ZSTD])
def test_a_damaged_frame_of_few_bytes_takes_little_memory(codec: int) -> None:
    """It is not tried again with a larger buffer, up to the largest."""
    whole = compress(codec, bytes(100_000))
    for damaged in (whole[:-5], b"j" * len(whole), whole[:6] + b"\xff" * 3 + whole[9:]):
        tracemalloc.start()
        with pytest.raises(BatchError):
            decompress(codec, damaged)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 4 << 20
