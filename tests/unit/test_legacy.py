"""Messages of magic 0 and 1, built and judged by kafka-python, and whole ones built by hand where it cannot."""

from __future__ import annotations

import struct
import zlib
from typing import List, Optional, Sequence, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecordsBuilder

from mirror_lib.errors import BatchError
from mirror_lib.kafka.codecs import compress
from mirror_lib.kafka.record_batch import Record, split_batches
from mirror_lib.kafka.reencoder import build_batches, read_records

from .logs import whole
from .test_batch import rows_of

Row = Tuple[int, Optional[bytes], Optional[bytes]]  # timestamp, key, value

payloads = st.one_of(st.none(), st.just(b""), st.binary(max_size=100))
ROWS: List[Row] = [(1_000, b"k", b"v"), (900, None, b""), (1_100, b"", None)]


def message(offset: int, magic: int, attributes: int, row: Row) -> bytes:
    timestamp, key, value = row
    rest = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    for part in (key, value):
        rest += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    return struct.pack(">qiI", offset, len(rest) + 4, zlib.crc32(rest)) + rest


def wrapper(offset: int, magic: int, codec: int, inner: bytes, timestamp: int = 0, attributes: int = 0) -> bytes:
    return message(offset, magic, codec | attributes, (timestamp, None, compress(codec, inner)))


def inner_of(offsets: Sequence[int], magic: int) -> bytes:
    return b"".join(message(offset, magic, 0, row) for offset, row in zip(offsets, ROWS))


def read(data: bytes) -> List[Record]:
    return [record for entry in split_batches(data) for record in read_records(entry)]


def rows(records: Sequence[Record]) -> List[Row]:
    """Timestamp, key and value after a trip through a batch of format v2, by kafka-python."""
    data = whole(next(build_batches(records, 0, -1, -1, -1, 1 << 24)).pieces)
    assert all(row[3] == [] for _, row in rows_of(data))
    return [row[:3] for _, row in rows_of(data)]


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 1 << 60), payloads, payloads), min_size=1, max_size=10),
    st.sampled_from([(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)]),
)
def test_messages_become_records_of_format_v2(given_rows: List[Row], magic_and_codec: Tuple[int, int]) -> None:
    magic, codec = magic_and_codec
    builder = MemoryRecordsBuilder(magic, codec, 1 << 24)
    for row in given_rows:
        assert builder.append(*row)
    builder.close()
    records = read(bytes(builder.buffer()))
    assert [record.offset for record in records] == list(range(len(given_rows)))
    assert rows(records) == [(row[0] if magic else -1, row[1], row[2]) for row in given_rows]


@pytest.mark.parametrize("codec", [1, 2, 3])
@pytest.mark.parametrize(
    ("magic", "at", "inner", "offsets"),
    [
        pytest.param(1, 102, [0, 1, 2], [100, 101, 102], id="relative"),
        pytest.param(1, 109, [0, 4, 9], [100, 104, 109], id="relative, compacted"),
        pytest.param(1, 0, [0, 1, 2], [0, 1, 2], id="a wrapper at offset 0"),
        pytest.param(0, 102, [100, 101, 102], [100, 101, 102], id="absolute"),
    ],
)
def test_offsets_in_a_wrapper_end_at_its_own_or_are_absolute(
    magic: int, at: int, inner: List[int], offsets: List[int], codec: int
) -> None:
    records = read(wrapper(at, magic, codec, inner_of(inner, magic)))
    assert [each.offset for each in records] == offsets
    assert rows(records) == [(timestamp if magic else -1, key, value) for timestamp, key, value in ROWS]


def test_log_append_time_is_of_the_wrapper_or_of_a_plain_message() -> None:
    inner = inner_of([0, 1, 2], 1)
    assert [each.timestamp for each in read(wrapper(2, 1, 1, inner, 7_777, attributes=0x08))] == [7_777] * 3
    assert [each.timestamp for each in read(wrapper(2, 1, 1, inner, 7_777))] == [1_000, 900, 1_100]
    assert [each.timestamp for each in read(message(5, 1, 0x08, (4_242, b"k", b"v")))] == [4_242]


@pytest.mark.parametrize("magic", [0, 1])
def test_a_flipped_bit_is_refused_with_the_offset(magic: int) -> None:
    source = bytearray(message(31, magic, 0, (1_000, b"key", b"value")))
    for at in [*range(12, 16), *range(17, len(source))]:
        source[at] ^= 0x04
        with pytest.raises(BatchError, match="offset 31"):
            read_records(source)
        source[at] ^= 0x04
    assert len(read_records(source)) == 1


INNER = inner_of([0, 1, 2], 1)


def lengths(form: str, *values: int) -> bytes:
    """A message with a right CRC whose key and value have these lengths."""
    rest = struct.pack(">bbq", 1, 0, 0) + struct.pack(form, *values)
    return struct.pack(">qiI", 9, len(rest) + 4, zlib.crc32(rest)) + rest


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        pytest.param(wrapper(2, 1, 1, INNER[:-1] + bytes([INNER[-1] ^ 1])), "CRC or length", id="a flipped bit inside"),
        pytest.param(wrapper(2, 1, 1, b""), "truncated", id="empty"),
        pytest.param(wrapper(2, 1, 1, INNER[:-1]), "truncated", id="cut off"),
        pytest.param(wrapper(2, 1, 1, inner_of([0, 1, 2], 0)), "another kind", id="magic mixed"),
        pytest.param(wrapper(2, 1, 1, wrapper(2, 1, 1, INNER)), "another kind", id="nested"),
        pytest.param(wrapper(1, 1, 1, INNER), "later offsets", id="offset too small"),
        pytest.param(message(2, 1, 5, (0, None, b"x")), "codec 5", id="codec"),
        pytest.param(lengths(">ii", 900, -1), "offset 9 is corrupt", id="key too long"),
        pytest.param(lengths(">ii", -1, 5), "offset 9 is corrupt", id="value too long"),
        pytest.param(lengths(">iib", -1, -1, 0), "offset 9 is corrupt", id="bytes left"),
    ],
)
def test_messages_that_no_kafka_writes_are_refused(entry: bytes, reason: str) -> None:
    with pytest.raises(BatchError, match=reason):
        read(entry)
