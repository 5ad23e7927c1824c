"""Fetched batches become outgoing ones: the fast path where it is open, every record once, runs that tell the truth."""

from __future__ import annotations

import os
import struct
from typing import List, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirror_lib.errors import BatchError
from mirror_lib.kafka.fetcher import Fetched
from mirror_lib.kafka.record_batch import Producer, new_batch, read_header
from mirror_lib.kafka.reencoder import Outgoing
from mirror_lib.replication.encoder import (
    BACKLOG_BATCHES,
    JOIN_BELOW_BYTES,
    JOIN_BELOW_COMPRESSED_BYTES,
    JOIN_BELOW_RECORDS,
    Encoder,
)
from tests.unit.logs import (
    CONTROL,
    LOG_APPEND_TIME,
    NOON,
    TRANSACTIONAL,
    LogBatch,
    Rec,
    batch_of,
    fetched,
    marker,
    read_back,
    task_of,
    whole,
)
from tests.unit.test_legacy import ROWS, inner_of, wrapper
from tests.unit.test_reconcile import numbered

PRODUCER = Producer(4711, 3)


def encode(found: Fetched, position: int = 0, sequence: int = 0, **task: int) -> List[Outgoing]:
    return list(Encoder(task_of(**task), PRODUCER, position, sequence).encode(found))


def re_encoded(out: Outgoing) -> bool:
    """Whether it was rebuilt; a batch with a new header keeps its leader epoch."""
    return read_header(whole(out.pieces)).partition_leader_epoch == -1


def copied(outgoing: Sequence[Outgoing]) -> List[Rec]:
    return [rec for each in outgoing for rec in read_back(whole(each.pieces))]


def upstream(outgoing: Sequence[Outgoing]) -> List[int]:
    return [start + i for each in outgoing for start, count in each.runs for i in range(count)]


@pytest.mark.parametrize(("codec", "size"), [(0, JOIN_BELOW_BYTES), (4, JOIN_BELOW_COMPRESSED_BYTES)])
def test_few_records_of_many_bytes_travel_as_they_are(codec: int, size: int) -> None:
    large, small = [Rec(b"%d" % n + os.urandom(size - n)) for n in (0, 500)]
    source = batch_of(1, [large], codec)
    out = encode(fetched([batch_of(0, [small], codec), source, batch_of(2, [small], codec)]))
    assert [re_encoded(each) for each in out] == [True, False, True]
    assert whole(out[1].pieces)[61:] == source.raw()[61:]
    assert copied(out) == [small, large, small]


@pytest.mark.parametrize("codec", [0, 4])
def test_small_batches_are_joined_where_many_of_them_wait_and_travel_as_they_are_where_few_do(codec: int) -> None:
    batches = [batch_of(20 * n, numbered(20), codec) for n in range(2 * BACKLOG_BATCHES)]
    backlog, few = encode(fetched(batches)), encode(fetched(batches[: BACKLOG_BATCHES // 2]))
    assert len(backlog) < 4 and all(re_encoded(each) for each in backlog)
    assert len(few) == BACKLOG_BATCHES // 2 and not any(re_encoded(each) for each in few)
    for out, sent in ((backlog, batches), (few, batches[: BACKLOG_BATCHES // 2])):
        assert copied(out) == [rec for batch in sent for _, rec in batch.records]
        assert upstream(out) == list(range(20 * len(sent)))


def test_tiny_batches_of_unlike_codecs_are_not_mixed() -> None:
    out = encode(fetched([batch_of(n, [rec], codec=n // 5) for n, rec in enumerate(numbered(15))]))
    assert [read_header(whole(each.pieces)).codec for each in out] == [0, 1, 2]
    assert upstream(out) == list(range(15))


def test_records_before_the_suspected_end_go_one_by_one_and_those_after_it_together() -> None:
    out = encode(fetched([batch_of(0, numbered(20)), batch_of(20, numbered(20, "w"))]), isolate_until=20)
    assert [each.record_count for each in out] == [1] * 20 + [20]


def test_transactions_of_few_records_travel_together_across_their_markers() -> None:
    batches = []
    for n in range(0, 90, 3):
        batches += [batch_of(n, numbered(2, f"{n}."), 4, TRANSACTIONAL, producer_id=1), marker(n + 2, 1, commit=True)]
    [out] = encode(fetched(batches))
    assert upstream([out]) == [n for n in range(90) if n % 3 < 2]
    assert copied([out]) == [rec for n in range(0, 90, 3) for rec in numbered(2, f"{n}.")]
    assert not read_header(whole(out.pieces)).attributes & TRANSACTIONAL


INNER = inner_of([0, 1, 2], 1)


@pytest.mark.parametrize(("data", "first"), [(INNER, 0), (wrapper(42, 1, 1, INNER), 40)], ids=["plain", "wrapped"])
def test_magic_1_messages_become_batches_of_today(data: bytes, first: int) -> None:
    encoder = Encoder(task_of(), PRODUCER, 0, 0)
    out = list(encoder.encode(Fetched(0, 100, (), data)))
    assert (upstream(out), encoder.position) == ([first, first + 1, first + 2], first + 3)
    assert copied(out) == [Rec(value, key, timestamp) for timestamp, key, value in ROWS]


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("how", ["a flipped bit", "records that cannot be read"])
def test_tiny_batches_before_a_damaged_one_are_copied_and_it_is_named(how: str, codec: int) -> None:
    raws = [batch_of(n, [rec], codec).raw() for n, rec in enumerate(numbered(9))]
    if how == "a flipped bit":
        raws[5] = raws[5][:-1] + bytes([raws[5][-1] ^ 1])
    else:
        raws[5] = struct.pack(">q", 5) + b"".join(new_batch(codec, 2, 0, 0, -1, -1, -1, raws[5][61:]))[8:]
    out: List[Outgoing] = []
    encoder = Encoder(task_of(), PRODUCER, 0, 0)
    with pytest.raises(BatchError, match="the record batch at offset 5 "):
        out.extend(encoder.encode(Fetched(0, 100, (), b"".join(raws))))
    assert upstream(out) == list(range(5))
    assert encoder.position == 5


@st.composite
def logs(draw: st.DrawFn) -> List[LogBatch]:
    batches, offset, number = [], 0, 0
    for _ in range(draw(st.integers(1, 6))):
        offset += draw(st.integers(0, 2))
        count = draw(st.integers(1, 40))
        recs = [
            Rec(
                draw(st.sampled_from([None, b"", b"value" * draw(st.integers(1, 30))])),
                b"%d" % (number + i),
                NOON + draw(st.integers(-5, 5)),
                (("h", None), ("h", b"2")) if draw(st.booleans()) else (),
            )
            for i in range(count)
        ]
        batch = batch_of(offset, recs, draw(st.integers(0, 4)), draw(st.sampled_from([0, 0, 0, LOG_APPEND_TIME])))
        batches.append(batch.without(draw(st.sets(st.integers(offset, offset + count - 1), max_size=3))))
        offset, number = offset + count, number + count
        if draw(st.integers(0, 4)) == 0:
            batches.append(marker(offset))
            offset += 1
    return batches


@settings(max_examples=150)
@given(logs(), st.data())
def test_every_record_from_the_position_on_is_there_once_in_order(batches: List[LogBatch], data: st.DataObject) -> None:
    position = data.draw(st.integers(0, batches[-1].next))
    limit = data.draw(st.sampled_from([600, 2000, 1 << 20]))
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, len(batches)), max_size=3))), len(batches)]
    encoder = Encoder(task_of(max_message_bytes=limit), PRODUCER, position, 0)
    out = [each for a, b in zip(cuts, cuts[1:]) for each in encoder.encode(fetched(batches[a:b]))]
    records = [
        (offset, rec._replace(timestamp=batch.latest) if batch.attributes else rec)
        for batch in batches
        for offset, rec in batch.records
        if offset >= position and not batch.attributes & CONTROL
    ]
    assert upstream(out) == [offset for offset, _ in records]
    assert copied(out) == [rec for _, rec in records]
    assert encoder.position == max(position, batches[-1].next)
    sequence = 0
    for each in out:
        header = read_header(whole(each.pieces))
        assert each.size <= limit and header.contiguous and not header.log_append_time
        assert Producer(header.producer_id, header.producer_epoch) == PRODUCER
        assert (header.base_sequence, header.record_count) == (sequence, each.record_count)
        assert each.next_upstream > each.runs[-1][0]
        sequence += each.record_count
    rehead = {each.runs[0][0] for each in out if not re_encoded(each)}
    assert rehead == {
        batch.base
        for batch in batches
        if batch.base >= position
        and not batch.attributes
        and len(batch.records) == batch.next - batch.base >= JOIN_BELOW_RECORDS
        and len(batch.raw()) <= limit
    }
