"""Rows become records that another client reads as they were, whatever they hold and however Arrow cuts them."""

from __future__ import annotations

from typing import Dict, List, Optional, Set, Tuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from mirror_lib.config.record_change import RecordChange
from mirror_lib.kafka.record_batch import HEADER_SIZE, SMALL, Record
from mirror_lib.kafka.reencoder import build_batches, cut
from mirror_lib.rows.columns import BYTES, REMOTE, PartitionRows, RowColumns, columns_of, partition_rows
from mirror_lib.rows.origin import Provenance
from mirror_lib.rows.transform import RemoteNames, needless
from mirror_lib.rows.writer import _widened
from tests.lab.arrow_rows import with_columns, without

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
EDGES = st.sampled_from([("a", 0, "x", 0), ("a", 1, "x", 1), ("b", 0, "y", 0)])
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


@settings(max_examples=200, deadline=None)
@given(EDGED, st.integers(0, 3), st.booleans(), st.sampled_from([None, PROVENANCE]))
def test_every_record_is_read_back_as_it_was_with_its_origin_as_the_last_header(
    given_rows: List[Tuple[Edge, Content]], cut: int, no_headers: bool, provenance: Optional[Provenance]
) -> None:
    edges, contents = [edge for edge, _ in given_rows], [content for _, content in given_rows]
    rows = rows_of(edges, contents, no_headers).slice(cut)  # a slice has offsets of its own in every buffer
    found = {(*each.source, *(each.remote or ())): read_back(each) for each in partition_rows(rows, provenance)}
    wanted: Dict[Edge, List[Tuple[int, Content]]] = {}
    for offset, (edge, (timestamp, key, value, headers)) in list(enumerate(given_rows))[cut:]:
        origin = f"A/{edge[0]}/{edge[1]}/{offset}/{'Qx7f2k' if edge[0] == 'a' else ''}".encode()
        added = (("mirror.origin", origin),) if provenance else ()
        wanted.setdefault(edge, []).append((offset, (timestamp, key, value, (*headers, *added))))
    assert found == wanted


@settings(max_examples=150, deadline=None)
@given(st.lists(CONTENTS, min_size=1, max_size=40), st.integers(0, 3), st.integers(50, 30_000))
def test_whole_columns_make_the_bytes_that_single_records_make(
    contents: List[Content], gap: int, room: int
) -> None:
    rows = rows_of([("a", 0, "x", 0)] * len(contents), contents)
    offsets = pa.array([5 + n * (1 + gap) for n in range(len(contents))], pa.int64())
    found = columns_of(with_columns(rows, source_offset=offsets), None)
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


def test_rows_that_go_on_in_another_partition_stay_in_order() -> None:
    edges = [("a", 0, "x", 0), ("a", 0, "x", 0), ("a", 1, "x", 0), ("b", 0, "x", 0)]
    found = list(partition_rows(rows_of(edges, [(1, None, b"", ())] * 4), None))
    assert [(each.source, len(each.rows)) for each in found] == [(("a", 0), 2), (("a", 1), 1), (("b", 0), 1)]


def test_header_without_a_name_is_refused() -> None:
    rows = rows_of([("a", 0, "x", 0)], [(1, None, None, ())])
    headers = pa.array([[{"key": None, "value": b"v"}]], HEADERS)
    with pytest.raises(ValueError, match="without a name"):
        columns_of(with_columns(rows, headers=headers), None)


@pytest.mark.parametrize(
    ("change", "gone"),
    [
        (RecordChange(), {"source_topic", "failure", *REMOTE}),
        (RecordChange(where="true"), {"source_topic", *REMOTE}),
        (RecordChange(select="*, null as key"), {"source_topic", *REMOTE}),
        (RecordChange(transform="m:f"), set(REMOTE)),
        (RecordChange(partitioner="key"), {"source_topic", "failure"}),
        (RecordChange(where="true", dead_letter_topic="dead"), {"source_topic"}),
    ],
)
def test_row_comes_without_what_a_task_can_tell(change: RecordChange, gone: Set[str]) -> None:
    assert set(needless(change, RemoteNames({"a": "x"}, {"x": 1}))) == gone
    assert "source_topic" not in needless(change, RemoteNames({"a": "x", "b": "y"}, {"x": 1, "y": 1}))


def test_rows_of_few_columns_are_told_apart_as_those_of_all() -> None:
    edges = [("a", number, "x", number) for number in (0, 0, 1)]
    rows = rows_of(edges, [(1, None, b"%d" % n, ()) for n in range(3)])
    few = without(rows, (*REMOTE, "source_topic", "failure"))
    whole = list(partition_rows(rows, None))
    reported = list(partition_rows(_widened(few, "a"), None))
    assert [(each.source, each.remote, records_of(each.rows)) for each in reported] == [
        (each.source, None, records_of(each.rows)) for each in whole
    ]


# --- the header with a record's origin ---------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 9, 10, 63, 64, 8191, 10**9, 2**62])
def test_origin_names_offsets_of_any_length(offset: int) -> None:
    rows = with_columns(
        rows_of([("a", 0, "x", 0)] * 2, [(1, None, b"v", ())] * 2),
        source_offset=pa.array([offset, offset + 1], pa.int64()),
    )
    found = [each[-1] for _, each in read_back(next(partition_rows(rows, PROVENANCE)))]
    assert found == [(("mirror.origin", b"A/a/0/%d/Qx7f2k" % each),) for each in (offset, offset + 1)]


def test_size_of_a_row_counts_the_header_with_its_origin() -> None:
    rows = rows_of([("a", 0, "x", 0)] * 3, [(1, b"k", b"v" * n, (("h", None),)) for n in range(3)])
    for provenance in (None, PROVENANCE):
        found = columns_of(rows, provenance)
        assert found.sizes.to_pylist() == [len(record.body) for record in records_of(found)]


def test_a_batch_of_more_records_than_two_bytes_count_is_numbered_on() -> None:
    count = 2 * SMALL
    rows = rows_of([("a", 0, "x", 0)] * count, [(n * 5, None, b"", ()) for n in range(count)])
    found = columns_of(rows, None)
    (plain,) = build_batches(records_of(found), 0, 7, 1, 0, 1 << 30)
    assert found.payload() == whole(plain.pieces)[HEADER_SIZE:]
