"""Rows become records that another client reads as they were, whatever they hold and however Arrow cuts them; and the
header with a record's origin."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from mirror_lib.kafka.record_batch import HEADER_SIZE, SMALL, Record
from mirror_lib.kafka.reencoder import build_batches, cut, read_records
from mirror_lib.rows.columns import BYTES, REMOTE, PartitionRows, RowColumns, columns_of, partition_rows
from mirror_lib.rows.origin import Origin, Provenance, origin_cluster, origin_of
from mirror_lib.rows.writer import _widened
from tests.lab.arrow_rows import with_columns, without
from tests.unit.logs import Rec, batch_of

from .logs import whole

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("source_topic", pa.string()),
        ("source_partition", pa.int32()),
        ("source_offset", pa.int64()),
        ("remote_topic", pa.string()),
        ("remote_partition", pa.int32()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("failure", pa.string()),
    ]
)

Header = Tuple[str, Optional[bytes]]
Content = Tuple[int, Optional[bytes], Optional[bytes], Tuple[Header, ...]]
Edge = Tuple[str, int, str, int]
PROVENANCE = Provenance("A", {"a": "Qx7f2kLmNo", "b": ""})

# Lengths around those where a varint becomes a byte longer.
BLOBS = st.one_of(st.none(), st.binary(max_size=70), st.sampled_from([63, 64, 8191, 8192, 20_000]).map(bytes))
NAMES = st.text(st.characters(codec="utf-8"), max_size=70)
TIMES = st.integers(-(2**40), 2**42)
CONTENTS = st.tuples(TIMES, BLOBS, BLOBS, st.lists(st.tuples(NAMES, BLOBS), max_size=3).map(tuple))
EDGES = st.sampled_from([("a", 0, "x", 0), ("a", 1, "x", 1), ("b", 0, "x", 0)])
EDGED = st.lists(st.tuples(EDGES, CONTENTS), max_size=12)


def rows_of(
    edges: List[Tuple[str, int, str, int]], contents: List[Content], no_headers: bool = False
) -> pa.RecordBatch:
    columns: Dict[str, List[object]] = {name: [] for name in SCHEMA.names}
    for offset, (edge, (timestamp, key, value, headers)) in enumerate(zip(edges, contents)):
        given_headers = None if no_headers and not headers else [{"key": n, "value": v} for n, v in headers]
        row = (edge[0], edge[1], offset, edge[2], edge[3], timestamp, key, value, given_headers, None)
        for name, cell in zip(SCHEMA.names, row):
            columns[name].append(cell)
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


def records_of(rows: RowColumns) -> List[Record]:
    bodies = pc.binary_join_element_wise(*rows.pieces, pa.scalar(b"", BYTES))
    return list(map(Record, *(column.to_pylist() for column in (rows.offsets, rows.timestamps, bodies))))


def read_back(stretch: PartitionRows) -> List[Tuple[int, Content]]:
    """What kafka-python finds in the batches, with the upstream offsets that were given for them."""
    found: List[Tuple[int, Content]] = []
    for built in build_batches(records_of(stretch.rows), 0, 7, 1, 0, 1 << 20):
        offsets = (start + i for start, count in built.runs for i in range(count))
        for batch in MemoryRecords(whole(built.pieces)):
            assert batch.validate_crc()
            for offset, record in zip(offsets, batch):
                headers = tuple((name, value) for name, value in record.headers)
                found.append((offset, (record.timestamp, record.key, record.value, headers)))
    return found


@settings(max_examples=200)
@given(EDGED, st.integers(0, 3), st.booleans(), st.sampled_from([None, PROVENANCE]))
def test_every_record_is_read_back_as_it_was_with_its_origin_as_the_last_header(
    given_rows: List[Tuple[Edge, Content]], cut: int, no_headers: bool, provenance: Optional[Provenance]
) -> None:
    edges, contents = [edge for edge, _ in given_rows], [content for _, content in given_rows]
    rows = rows_of(edges, contents, no_headers).slice(cut)  # a slice has offsets of its own in every buffer
    stretches = list(partition_rows(rows, provenance))
    found = {(*each.source, *(each.remote or ())): read_back(each) for each in stretches}
    wanted: Dict[Edge, List[Tuple[int, Content]]] = {}
    for offset, (edge, (timestamp, key, value, headers)) in list(enumerate(given_rows))[cut:]:
        origin = f"A/{edge[0]}/{edge[1]}/{offset}/{'Qx7f2k' if edge[0] == 'a' else ''}".encode()
        added = (("mirror.origin", origin),) if provenance else ()
        wanted.setdefault(edge, []).append((offset, (timestamp, key, value, (*headers, *added))))
    assert found == wanted
    for each in stretches if provenance else ():
        origins = [origin_of(bytes(record.body)) for record in records_of(each.rows)]
        assert [(*at.source, at.offset) for at in origins if at] == [(*each.source, at) for at, _ in read_back(each)]


@settings(max_examples=150)
@given(
    st.lists(CONTENTS, min_size=1, max_size=40),
    *(st.integers(0, 3), st.integers(50, 30_000), st.sampled_from([None, PROVENANCE])),
)
def test_whole_columns_make_the_bytes_that_single_records_make(
    contents: List[Content], gap: int, room: int, provenance: Optional[Provenance]
) -> None:
    rows = rows_of([("a", 0, "x", 0)] * len(contents), contents)
    offsets = pa.array([5 + n * (1 + gap) for n in range(len(contents))], pa.int64())
    found = columns_of(with_columns(rows, source_offset=offsets), provenance)
    wanted = cut(records_of(found), room)
    parts = list(found.cut(room))
    assert [(part.payload(), part.runs(), part.newest) for part in parts] == [
        (whole(plain.pieces)[HEADER_SIZE:], plain.runs, max(record.timestamp for record in piece))
        for piece in wanted
        for plain in build_batches(piece, 0, 7, 1, 0, 1 << 30)
    ]


def test_row_that_failed_is_a_record_only_where_the_dead_letter_topic_gives_it_a_place() -> None:
    rows = rows_of([("a", 0, "x", 0)] * 4, [(1, None, b"%d" % n, ()) for n in range(4)])
    failure = pa.array([None, "not a number", None, "too long"], pa.string())
    rows, reasons = with_columns(rows, failure=failure), [(1, "not a number"), (3, "too long")]
    places = pa.array(["x", None, "x", None], pa.string()), pa.array([0, None, 0, None], pa.int32())
    (found,) = partition_rows(with_columns(rows, remote_topic=places[0], remote_partition=places[1]), None)
    assert ([record.offset for record in records_of(found.rows)], found.failures) == ([0, 2], reasons)
    (without_places,) = partition_rows(without(rows, REMOTE), None)
    assert (without_places.remote, without_places.failures, len(without_places.rows)) == (None, reasons, 2)
    (dead,) = partition_rows(with_columns(rows.slice(1, 1), remote_topic=pa.array(["dead"], pa.string())), None)
    assert (dead.remote, dead.failures, len(dead.rows)) == (("dead", 0), (), 1)


def test_rows_of_few_columns_are_told_apart_as_those_of_all() -> None:
    edges = [("a", number, "x", number) for number in (0, 0, 1)]
    rows = rows_of(edges, [(1, None, b"%d" % n, ()) for n in range(3)])
    few = without(rows, (*REMOTE, "source_topic", "failure"))
    whole = list(partition_rows(rows, None))
    reported = list(partition_rows(_widened(few, "a"), None))
    assert [(each.source, each.remote, records_of(each.rows)) for each in reported] == [
        (each.source, None, records_of(each.rows)) for each in whole
    ]


@pytest.mark.parametrize("offset", [0, 9, 10, 63, 64, 8191, 10**9, 2**62])
def test_origin_names_offsets_of_any_length(offset: int) -> None:
    rows = with_columns(
        rows_of([("a", 0, "x", 0)] * 2, [(1, None, b"v", ())] * 2),
        source_offset=pa.array([offset, offset + 1], pa.int64()),
    )
    found = [each[-1] for _, each in read_back(next(partition_rows(rows, PROVENANCE)))]
    assert found == [(("mirror.origin", b"A/a/0/%d/Qx7f2k" % each),) for each in (offset, offset + 1)]


def test_a_batch_of_more_records_than_two_bytes_count_is_numbered_on() -> None:
    count = 2 * SMALL
    rows = rows_of([("a", 0, "x", 0)] * count, [(n * 5, None, b"", ()) for n in range(count)])
    found = columns_of(rows, None)
    (plain,) = build_batches(records_of(found), 0, 7, 1, 0, 1 << 30)
    assert found.payload() == whole(plain.pieces)[HEADER_SIZE:]


ORIGIN = Origin("A", "orders", 3, 1234, "Qx7f2k")
OWN = ("mirror.origin", b"A/orders/3/1234/Qx7f2k")


def body(*headers: Header) -> bytes:
    """Of a record that is in a log."""
    (record,) = read_records(batch_of(0, [Rec(b"v", headers=headers)]).raw())
    return bytes(record.body)


def test_newest_of_several_origins_counts_also_where_it_cannot_be_read() -> None:
    assert origin_of(body(OWN, ("mirror.origin", b"?"))) is None
    hop = ("mirror.origin", b"B/A.orders/3/99/zzzzzz")
    assert origin_of(body(OWN, hop)) == Origin("B", "A.orders", 3, 99, "zzzzzz")
    assert origin_of(body(hop, ("trace", b"1"), OWN, ("trace", b"2"))) == ORIGIN


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(None, id="no headers"),
        pytest.param(("mirror.origin", None), id="null"),
        pytest.param(("mirror.origin", b"A/orders/3/1234"), id="without an id"),
        pytest.param(("mirror.origin", b"A/orders/3/1234/Qx7f2k/more"), id="more parts"),
        pytest.param(("mirror.origin", b"A/orders/three/1234/Qx7f2k"), id="partition that is no number"),
        pytest.param(("mirror.origin", b"A/orders/3/-1/Qx7f2k"), id="negative offset"),
        pytest.param(("mirror.origin", "A/orders/3/²/Qx7f2k".encode()), id="digit that is no decimal"),
        pytest.param(("mirror.origin", "A/orders/3/١٢/Qx7f2k".encode()), id="decimals of another script"),
        pytest.param(("mirror.origin", b"A/orders/3/" + b"9" * 5000 + b"/Qx7f2k"), id="number of 5000 digits"),
        pytest.param(("mirror.origin", b"\xff\xfe\x00"), id="no text"),
        pytest.param(("Mirror.Origin", OWN[1]), id="another name"),
        pytest.param(("mirror.origin.x", OWN[1]), id="longer name"),
    ],
)
def test_header_that_is_no_origin_is_none_and_fails_nothing(header: Optional[Header]) -> None:
    assert origin_of(body() if header is None else body(header)) is None


def test_origin_may_have_no_topic_id_and_the_name_of_a_mirror() -> None:
    assert origin_of(body(("mirror.origin", b"A/orders/3/1234/"))) == ORIGIN._replace(topic_id="")
    assert (origin_cluster("mirror", "A"), origin_cluster("eu", "A")) == ("A", "eu:A")
    assert origin_of(body(("mirror.origin", b"eu:A/orders/3/1234/Qx7f2k"))) == ORIGIN._replace(cluster="eu:A")
