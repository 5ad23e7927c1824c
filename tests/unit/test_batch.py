"""Splitting, reading and re-heading record batches; kafka-python's own reader is the judge."""

from __future__ import annotations

import struct
from typing import Any, Callable, List, Optional, Sequence, Tuple

import pytest
from google_crc32c import value as crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecords
from kafka.record.memory_records import MemoryRecordsBuilder

from mirror_lib.errors import BatchError
from mirror_lib.kafka.record_batch import (
    TRANSACTIONAL,
    checked_payload,
    next_sequence,
    read_header,
    rehead,
    split_batches,
    split_entries,
)

from .logs import whole

Header = Tuple[str, Optional[bytes]]
Row = Tuple[int, Optional[bytes], Optional[bytes], List[Header]]  # timestamp, key, value, headers

ROWS: List[Row] = [(1_700_000_000_000 + i, b"key", b"value %d" % i, [("h", b"1"), ("h", b"")]) for i in range(5)]


def built(rows: Sequence[Row], codec: int = 0, offset: int = 0, **producer: Any) -> bytes:
    builder = MemoryRecordsBuilder(2, codec, 1 << 24, offset=0, **producer)
    for timestamp, key, value, headers in rows:
        assert builder.append(timestamp, key, value, headers)
    builder.close()
    return with_field(bytes(builder.buffer()), 0, ">q", offset)


def with_field(batch: bytes, at: int, form: str, value: int) -> bytes:
    """The batch with one header field set, as a broker sets it: the CRC made right again where it covers the field."""
    changed = bytearray(batch)
    struct.pack_into(form, changed, at, value)
    if at >= 21:
        struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def rows_of(data: bytes) -> List[Tuple[int, Row]]:
    batches = list(MemoryRecords(data))
    assert all(batch.validate_crc() for batch in batches)
    return [(r.offset, (r.timestamp, r.key, r.value, r.headers)) for batch in batches for r in batch]


def test_split_yields_every_whole_batch_and_leaves_out_the_one_cut_off() -> None:
    one, two = built(ROWS), built(ROWS[:2], offset=5)
    assert [bytes(b) for b in split_batches(one + two)] == [one, two]
    for cut in (1, 11, 12, 40, len(two) - 1):
        assert [bytes(b) for b in split_batches(one + two[:cut])] == [one]
    assert list(split_batches(b"")) == []


def test_header_says_what_the_builder_was_told() -> None:
    batch = built(ROWS, codec=4, offset=70, producer_id=9, producer_epoch=3, base_sequence=11, transactional=True)
    header = read_header(batch)
    assert (header.magic, header.codec, header.record_count) == (2, 4, 5)
    assert (header.base_offset, header.last_offset, header.next_offset) == (70, 74, 75)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, 11)
    assert header.attributes & TRANSACTIONAL and header.contiguous and header.can_rehead
    assert not header.control and not header.log_append_time
    assert checked_payload(batch, header) is not None


def test_entries_have_the_header_of_their_format() -> None:
    one, two = built(ROWS, codec=4), built(ROWS[:2], offset=5)
    old = with_field(built(ROWS[:1], offset=7), 16, ">b", 1)
    entries = [(bytes(entry), header) for entry, header in split_entries(one + two + old)]
    assert entries == [(one, read_header(one)), (two, read_header(two)), (old, None)]


BATCH = built(ROWS, offset=70)


@pytest.mark.parametrize(
    ("read", "data", "words"),
    [
        (split_batches, struct.pack(">qi", 7, 3) + bytes(60), "offset 7 is corrupt"),
        (split_batches, struct.pack(">qi", 7, -1) + bytes(60), "length is -1"),
        (read_header, with_field(BATCH, 16, ">b", 1), "magic 1"),
        (read_header, BATCH + b"x", "bytes and has"),
        (read_header, BATCH[:60], "shorter"),
        (split_entries, struct.pack(">qiib", 7, 40, 0, 2) + bytes(35), "of 52 bytes is shorter than its header"),
        *((split_entries, BATCH + with_field(BATCH, 16, ">b", magic), f"at offset 70 has magic {magic}, not 2")
          for magic in (3, 4, 127)),
    ],
)  # fmt: skip
def test_data_that_is_no_batch_is_refused(read: Callable[[bytes], Any], data: bytes, words: str) -> None:
    with pytest.raises(BatchError, match=words):
        list(read(data))


@pytest.mark.parametrize(
    ("at", "form", "value"),
    [(21, ">h", 0x08), (21, ">h", 0x20), (23, ">i", 7)],
    ids=["LogAppendTime", "control", "offsets with gaps"],
)
def test_rehead_refuses_a_batch_that_a_producer_may_not_write(at: int, form: str, value: int) -> None:
    with pytest.raises(BatchError, match="re-encode"):
        rehead(with_field(built(ROWS), at, form, value), 1, 1, 0)


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 1 << 60),
            st.one_of(st.none(), st.binary(max_size=40)),
            st.one_of(st.none(), st.binary(max_size=200)),
            st.lists(st.tuples(st.text(max_size=4), st.one_of(st.none(), st.binary(max_size=5))), max_size=3),
        ),
        min_size=1,
        max_size=30,
    ),
    st.integers(0, 4),
    st.integers(0, 1 << 50),
    st.booleans(),
    st.sampled_from([0, 0x40]),
)
def test_rehead_keeps_every_record_takes_our_producer_and_drops_the_delete_horizon(
    rows: List[Row], codec: int, offset: int, transactional: bool, horizon: int
) -> None:
    theirs = {"producer_id": 4, "producer_epoch": 2, "base_sequence": 17} if transactional else {}
    source = built(rows, codec, offset, transactional=transactional, **theirs)
    source = with_field(source, 21, ">h", read_header(source).attributes | horizon)
    copy = whole(rehead(memoryview(source), 1 << 40, 12, 1234))
    assert rows_of(copy) == list(enumerate(rows))
    header, before = read_header(copy), read_header(source)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1 << 40, 12, 1234)
    assert header[6:9] == before[6:9] and header.attributes == before.codec and copy[61:] == source[61:]


def test_rehead_refuses_a_batch_with_any_flipped_bit() -> None:
    source = built(ROWS, offset=42)
    for bit in range(21 * 8, len(source) * 8):
        damaged = bytearray(source)
        damaged[bit // 8] ^= 1 << bit % 8
        # Some header fields close the fast path before the CRC is looked at; all others must fall to the CRC.
        with pytest.raises(BatchError, match="offset 42"):
            rehead(bytes(damaged), 1, 1, 0)
    # The control: with a right CRC the same damage passes.
    sealed = with_field(source, len(source) - 8, ">b", 0x40)
    assert whole(rehead(sealed, 1, 1, 0))[61:] != source[61:]


def test_sequence_after_the_largest_is_zero() -> None:
    assert next_sequence(5, 10) == 15
    assert next_sequence(0x7FFFFFFF, 1) == 0
    assert next_sequence(0x7FFFFFFF - 2, 10) == 7
    assert next_sequence(-1, 10) == -1
