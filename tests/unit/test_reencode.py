"""Records out of batches and batches out of records; kafka-python's own reader and builder are the judges."""

from __future__ import annotations

import random
from pathlib import Path
from typing import List, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecordsBuilder
from kafka.record.util import encode_varint as kafkas_varint

from mirror_lib.errors import BatchError
from mirror_lib.kafka.record_batch import (
    SMALL,
    SMALL_VARINTS,
    Record,
    checked_payload,
    decode_varint,
    encode_varint,
    new_batch,
    read_header,
    rehead,
    split_batches,
)
from mirror_lib.kafka.reencoder import RecordTooLarge, build_batches, read_records

from .logs import marker, whole
from .test_batch import Header, Row, rows_of, with_field

DATA = Path(__file__).parent / "data"
CODECS = ("gzip", "snappy", "lz4", "zstd")
LONG_MAX = (1 << 63) - 1
LONG_MIN = -(1 << 63)

payloads = st.one_of(st.none(), st.just(b""), st.binary(max_size=300))
rows_of_any_kind = st.tuples(
    st.one_of(st.sampled_from([-1, 0, -5, 4_102_444_800_000]), st.integers(-(1 << 61), 1 << 61)),
    payloads,
    payloads,
    st.lists(st.tuples(st.sampled_from(["h", "", "ключ"]), payloads), max_size=3),
)


def built(rows: List[Tuple[int, Row]], codec: int = 0) -> bytes:
    """What a broker would hold: records at given offsets, gaps included, built by kafka-python."""
    builder = MemoryRecordsBuilder(2, codec, 1 << 26, offset=0)
    for offset, (timestamp, key, value, headers) in rows:
        builder.skip(offset - builder.next_offset())
        assert builder.append(timestamp, key, value, headers)
    builder.close()
    return bytes(builder.buffer())


def body(value: bytes) -> bytes:
    return encode_varint(-1) + encode_varint(len(value)) + value + b"\x00"


def plain(record: Record) -> Tuple[int, Row]:
    """The record, read by kafka-python."""
    [batch] = build_batches([record], 0, -1, -1, -1, 1 << 24)
    [(_, row)] = rows_of(whole(batch.pieces))
    return record.offset, row


@settings(max_examples=80)
@given(st.lists(rows_of_any_kind, min_size=1, max_size=30), st.integers(0, 4), st.data())
def test_reencoded_records_are_what_the_source_held_without_the_gaps(
    rows: List[Row], codec: int, data: st.DataObject
) -> None:
    steps = data.draw(st.lists(st.integers(1, 300), min_size=len(rows), max_size=len(rows)))
    offsets = [sum(steps[: i + 1]) - 1 for i in range(len(rows))]
    source = built(list(zip(offsets, rows)), codec)
    records = read_records(memoryview(source))
    assert [r.offset for r in records] == offsets
    [copy] = build_batches(records, codec, 5, 1, 70, 1 << 24)
    assert rows_of(whole(copy.pieces)) == list(enumerate(rows))
    assert [o for start, count in copy.runs for o in range(start, start + count)] == offsets
    header = read_header(whole(copy.pieces))
    assert checked_payload(whole(copy.pieces), header) is not None and header.contiguous and not header.log_append_time
    assert (header.codec, header.base_offset, header.record_count) == (codec, 0, len(rows))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 70)
    assert (header.base_timestamp, header.max_timestamp) == (rows[0][0], max(row[0] for row in rows))


def test_offsets_far_into_a_batch_are_read_whatever_their_deltas_length() -> None:
    deltas = [0, 63, 64, 8_191, 8_192, 12_345, 1_048_575, 1_048_576, 5_000_000]
    rows: List[Tuple[int, Row]] = [(delta, (1_000 + n, b"k", b"%d" % n, [])) for n, delta in enumerate(deltas)]
    records = read_records(with_field(built(rows), 0, ">q", 7))
    assert [(record.offset - 7, record.timestamp) for record in records] == [(d, row[0]) for d, row in rows]
    assert [plain(record)[1][2] for record in records] == [row[2] for _, row in rows]


@pytest.mark.parametrize("codec", range(5))
def test_attributes_and_timestamps_at_the_ends_of_a_long_survive(codec: int) -> None:
    times = [LONG_MIN, LONG_MAX, LONG_MIN + 1, -(1 << 62), -1, 0, 63, 64, 1 << 62]
    for turned in (times, times[::-1]):
        records = [Record(i, timestamp, body(b"v"), 0x81 * (i % 2)) for i, timestamp in enumerate(turned)]
        [copy] = build_batches(records, codec, 1, 1, 0, 1 << 24)
        assert read_records(whole(copy.pieces)) == records


@pytest.mark.parametrize("codec", range(5))
def test_a_record_too_large_even_alone_is_named(codec: int) -> None:
    noise = random.Random(7).getrandbits(8 * 5000).to_bytes(5000, "big")
    records = [Record(10 + i, 0, body(noise if i == 3 else b"small")) for i in range(6)]
    before = []
    with pytest.raises(RecordTooLarge, match="offset 13") as caught:
        for each in build_batches(records, codec, 1, 1, 0, 4000):
            before.append(each.record_count)
    assert (caught.value.upstream_offset, sum(before)) == (13, 3)
    assert list(build_batches(records, codec, 1, 1, 0, caught.value.size))
    with pytest.raises(RecordTooLarge):
        list(build_batches(records, codec, 1, 1, 0, caught.value.size - 1))


def test_batches_are_not_split_before_they_must() -> None:
    records = [Record(i, 0, body(b"same value " * 20)) for i in range(500)]
    assert len(list(build_batches(records, 4, 1, 1, 0, 10_000))) == 1
    assert 10 < len(list(build_batches(records, 0, 1, 1, 0, 10_000))) < 15


FIELDS = b"\x00\x00\x00" + body(b"value")
ONE_RECORD = encode_varint(len(FIELDS)) + FIELDS


@pytest.mark.parametrize(
    ("count", "payload", "words"),
    [
        *((count, 2 * ONE_RECORD, "cannot be read") for count in (0, 1, 3)),
        *((1, encode_varint(len(FIELDS) + change) + FIELDS, "cannot be read") for change in (-1, 1, 40, -64)),
        # The first record's last field is the second one's length.
        (2, bytes.fromhex("04 00 00 06 00 00 00"), "shorter than its own fields"),
        (1, b"\xff" * 11, "no end"),
    ],
)
def test_payload_that_does_not_hold_its_records_is_refused_although_the_crc_holds(
    count: int, payload: bytes, words: str
) -> None:
    batch = b"".join(new_batch(0, count, 0, 0, -1, -1, -1, payload))
    assert checked_payload(batch, read_header(batch)) is not None
    with pytest.raises(BatchError, match=words):
        read_records(batch)


def test_markers_are_refused_as_data() -> None:
    with pytest.raises(BatchError):
        read_records(marker(90).raw())


def test_varints_are_kafkas_and_are_read_back() -> None:
    edges = [side for bits in range(6, 63) for side in ((1 << bits) - 1, 1 << bits, -(1 << bits), -(1 << bits) - 1)]
    for value in (0, -1, *edges, LONG_MAX, LONG_MIN):
        out = bytearray()
        kafkas_varint(value, out.append)
        assert encode_varint(value) == out and decode_varint(bytes(out) + b"\xff", 0) == (value, len(out))
    for value in (0, 300, SMALL - 1, -1, -300, -SMALL):
        assert SMALL_VARINTS[value] == encode_varint(value)


def _producer_record(i: int, first_timestamp: int) -> Tuple[int, Row]:
    headers: List[Header] = [("h", b"v%d" % i), ("h", None), ("h", b"")] if i % 3 == 0 else []
    value = b"0123456789" * 7000 if i == 20 else b"value of record %d" % i
    return i, (
        1_700_000_000_000 + 37 * i - 1000 * (i % 13) if i else first_timestamp,
        None if i % 5 == 0 else b"" if i % 5 == 1 else b"key%d" % (i % 4),
        None if i % 7 == 0 else b"" if i % 7 == 1 else value,
        headers,
    )


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("client", "first_timestamp"), [("java", 0), ("librdkafka", 1)])
def test_a_real_brokers_log_reads_as_produced(client: str, first_timestamp: int, codec: str) -> None:
    [batch] = split_batches((DATA / f"{client}-{codec}.log").read_bytes())
    assert read_header(batch).codec == 1 + CODECS.index(codec)
    records = read_records(batch)
    expected = [_producer_record(i, first_timestamp) for i in range(40)]
    assert [plain(record) for record in records] == expected
    assert rows_of(whole(rehead(batch, 7, 0, 0))) == expected
    [copy] = build_batches(records, read_header(batch).codec, 7, 0, 0, 1 << 20)
    assert rows_of(whole(copy.pieces)) == expected
