"""Turns changed rows, as Arrow columns, into the records of record batches, a whole column at a time."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Iterator, NamedTuple, Optional, Sequence, Tuple, Union

import pyarrow as pa
import pyarrow.compute as pc

from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.record_batch import SMALL, SMALL_VARINTS, encode_varint
from mirror_lib.kafka.reencoder import RECORD_OVERHEAD, runs_of
from mirror_lib.rows.origin import ID_LENGTH, ORIGIN_HEADER, Provenance

SOURCE = ("source_topic", "source_partition")
REMOTE = ("remote_topic", "remote_partition")
BYTES = pa.large_binary()
_VARINTS = pa.array(SMALL_VARINTS[SMALL:] + SMALL_VARINTS[:SMALL], BYTES)  # of -SMALL to SMALL - 1
_NULL = pa.scalar(b"\x01", BYTES)  # a length of -1
_NOTHING = pa.scalar(b"\x00", BYTES)  # attributes, a length or a count of 0
_BETWEEN = pa.scalar(b"", BYTES)
_NO_BYTES = pa.scalar(0, pa.int64())
_ORIGIN_NAME = pa.scalar(encode_varint(len(ORIGIN_HEADER)) + ORIGIN_HEADER.encode(), BYTES)
_ONE_HEADER = pa.scalar(encode_varint(1), BYTES)

# An array with one value for each row, or a scalar for all of them.
Piece = Union[pa.Array, pa.Scalar]


@dataclass(frozen=True)
class RowColumns:
    """Rows in order: upstream offsets, timestamps (ms), the pieces of each body, and the size of each body in bytes."""

    offsets: pa.Array
    timestamps: pa.Array
    pieces: Tuple[Piece, ...]
    sizes: pa.Array

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def first(self) -> int:
        return int(self.offsets[0].as_py())

    @property
    def last(self) -> int:
        return int(self.offsets[-1].as_py())

    @property
    def newest(self) -> int:
        return int(pc.max(self.timestamps).as_py())

    def part(self, start: int, end: int) -> RowColumns:
        """The rows from number `start` to before `end`."""
        if start == 0 and end == len(self):
            return self
        pieces = tuple(piece if isinstance(piece, pa.Scalar) else piece[start:end] for piece in self.pieces)
        return RowColumns(self.offsets[start:end], self.timestamps[start:end], pieces, self.sizes[start:end])

    def within(self, start: int, end: int) -> RowColumns:
        """The rows from offset `start` to before `end`, where offsets ascend."""
        if not len(self) or (start <= self.first and self.last < end):
            return self
        first, after = (int(pc.sum(pc.less(self.offsets, offset)).as_py()) for offset in (start, end))
        return self.part(first, max(first, after))

    def out_of_order(self, behind: int) -> Optional[int]:
        """The first offset that is not above the one before it; for the first row that is `behind`."""
        if not len(self) or self.first <= behind:
            return self.first if len(self) else None
        fallen = pc.less_equal(self.offsets[1:], self.offsets[:-1])
        return int(self.offsets[fallen.index(True).as_py() + 1].as_py()) if pc.any(fallen).as_py() else None

    def runs(self) -> Tuple[Tuple[int, int], ...]:
        """Their offsets as `(first, count)` of each stretch without a gap."""
        whole = self.last - self.first + 1 == len(self)
        return ((self.first, len(self)),) if whole else runs_of(_numbers(self.offsets).tolist())

    def cut(self, most_bytes: int) -> Iterator[RowColumns]:
        """Split into parts of at most `most_bytes` plain bytes, or of one row; the same as `reencoder.cut`."""
        if not len(self):
            return
        ends = _numbers(pc.cumulative_sum(pc.add(self.sizes, RECORD_OVERHEAD)))
        start = done = 0
        while start < len(self):
            end = max(start + 1, bisect_right(ends, done + most_bytes, start))
            yield self.part(start, end)
            start, done = end, ends[end - 1]

    def payload(self) -> bytes:
        """The rows as the records of one uncompressed batch, with offset deltas from 0 on."""
        deltas = varints(pc.subtract(self.timestamps, self.timestamps[0]))  # wraps, as Java's does
        numbers = _VARINTS.slice(SMALL, len(self)) if len(self) <= SMALL else varints(pa.array(range(len(self))))
        inner = (_NOTHING, deltas, numbers)
        lengths = pc.add(pc.add(pc.add(pc.binary_length(deltas), pc.binary_length(numbers)), 1), self.sizes)
        joined = pc.binary_join_element_wise(varints(lengths), *inner, *self.pieces, _BETWEEN)
        bounds = _numbers(joined, 1, len(joined) + 1)
        return bytes(memoryview(joined.buffers()[2])[bounds[0] : bounds[-1]])


NO_ROWS = RowColumns(*(pa.array([], pa.int64()),) * 2, (pa.array([], BYTES),), pa.array([], pa.int64()))


class PartitionRows(NamedTuple):
    """Rows of one source partition for one remote partition, in order. `remote` is None if there are no rows, or they
    do not name it. `failures`: the upstream offsets of rows that became no record, with the reasons."""

    source: TopicPartition
    remote: Optional[TopicPartition]
    rows: RowColumns = NO_ROWS
    failures: Sequence[Tuple[int, str]] = ()


def partition_rows(rows: pa.RecordBatch, provenance: Optional[Provenance]) -> Iterator[PartitionRows]:
    """Group the rows of `CHANGED_DDL`, perhaps without REMOTE, by source and remote partition, in their order. All
    failures of a source partition come with its first group.

    Records get an origin if `provenance` is given. Raises ValueError for a row without an offset or a timestamp, or a
    header without a name.
    """
    reported = REMOTE[0] in rows.schema.names
    failed = pc.is_valid(rows.column("failure"))
    if reported:  # a record for the dead letter topic has a place
        failed = pc.and_(failed, pc.is_null(rows.column(REMOTE[0])))
    bad = {}
    if pc.any(failed).as_py():
        bad = {_place(part, SOURCE): _failures(part) for part in _parts(rows.filter(failed), SOURCE)}
        rows = rows.filter(pc.invert(failed))
    for part in _parts(rows, (*SOURCE, *REMOTE) if reported else SOURCE):
        source = _place(part, SOURCE)
        remote = _place(part, REMOTE) if reported else None
        yield PartitionRows(source, remote, columns_of(part, provenance), bad.pop(source, ()))
    for source, failures in bad.items():
        yield PartitionRows(source, None, failures=failures)


def columns_of(rows: pa.RecordBatch, provenance: Optional[Provenance]) -> RowColumns:
    """The rows of `CHANGED_DDL` of one source partition as columns. Raises ValueError as `partition_rows` does."""
    offsets, timestamps = rows.column("source_offset"), rows.column("timestamp")
    if offsets.null_count or timestamps.null_count:
        raise ValueError("a changed row has no offset or no timestamp")
    headers = _headers(rows.column("headers"), 0 if provenance is None else 1)
    origin = () if provenance is None else _origin(offsets, _place(rows, SOURCE), provenance)
    pieces = (*_sized(rows.column("key")), *_sized(rows.column("value")), *headers, *origin)
    sizes = _NO_BYTES
    for piece in pieces:
        sizes = pc.add(sizes, pc.binary_length(piece))
    return RowColumns(offsets, timestamps, pieces, sizes)


def _origin(offsets: pa.Array, source: TopicPartition, provenance: Provenance) -> Sequence[Piece]:
    before = "/".join([provenance.cluster, *map(str, source), ""]).encode()
    after = ("/" + provenance.topic_ids.get(source[0], "")[:ID_LENGTH]).encode()
    numbers = pc.cast(pc.cast(offsets, pa.string()), BYTES)
    lengths = varints(pc.add(pc.cast(pc.binary_length(numbers), pa.int64()), len(before) + len(after)))
    return _ORIGIN_NAME, lengths, pa.scalar(before, BYTES), numbers, pa.scalar(after, BYTES)


def _failures(rows: pa.RecordBatch) -> Sequence[Tuple[int, str]]:
    return list(zip(rows.column("source_offset").to_pylist(), rows.column("failure").to_pylist()))


def _parts(rows: pa.RecordBatch, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    codes = pa.nulls(rows.num_rows, pa.int64()).fill_null(0)
    for name in names:
        column = pc.dictionary_encode(rows.column(name))
        if column.null_count:
            raise ValueError(f"a changed row has no {name}")
        if len(column.dictionary) > 1:
            codes = pc.add(pc.multiply(codes, len(column.dictionary)), column.indices.cast(pa.int64()))
    numbers = pc.unique(codes).to_pylist()
    for number in numbers:
        yield rows if len(numbers) == 1 else rows.filter(pc.equal(codes, number))


def _place(rows: pa.RecordBatch, names: Tuple[str, str]) -> TopicPartition:
    topic, number = (rows.column(name)[0].as_py() for name in names)
    return str(topic), int(number)


def varints(numbers: pa.Array) -> pa.Array:
    """Each number as a varint. Takes 64-bit integers without nulls."""
    ends = pc.min_max(numbers)
    if len(numbers) and ends["min"].as_py() >= -SMALL and ends["max"].as_py() < SMALL:
        return _VARINTS.take(pc.add(numbers, SMALL))
    return pa.array([encode_varint(number) for number in numbers.to_pylist()], BYTES)


def _sized(column: pa.Array) -> Tuple[Piece, pa.Array]:
    """Each value's length, -1 for null, and its bytes."""
    values = column.cast(BYTES)
    if values.null_count == len(values):
        return _NULL, values.fill_null(b"")
    lengths = pc.binary_length(values)
    return varints(lengths.fill_null(-1)), values.fill_null(b"") if values.null_count else values


def _headers(column: pa.Array, more: int) -> Sequence[Piece]:
    """The headers of each row: their count plus `more`, then each name and value. Null means no headers."""
    counts = pc.list_value_length(column).fill_null(0).cast(pa.int64())
    structs = column.flatten()
    if not len(structs):
        return (_ONE_HEADER if more else _NOTHING,)
    if structs.null_count or structs.field(0).null_count:
        raise ValueError("a changed row has a header without a name")
    each = pc.binary_join_element_wise(*_sized(structs.field(0)), *_sized(structs.field(1)), _BETWEEN)
    ends = pc.cumulative_sum(counts)
    bounds = pa.concat_arrays([pa.array([0], pa.int64()), ends])
    return varints(pc.add(counts, more)), pc.binary_join(pa.LargeListArray.from_arrays(bounds, each), _BETWEEN)


def _numbers(column: pa.Array, buffer: int = 1, count: Optional[int] = None) -> memoryview:
    """The 64-bit integers in a buffer, without an object for each."""
    length = len(column) if count is None else count
    return memoryview(column.buffers()[buffer]).cast("q")[column.offset : column.offset + length]
