"""Changed rows in as Arrow's columns, records as a record batch of format v2 holds them out. Pure.

A record's body is what follows its offset delta: key, value and headers, each with its length (KIP-98).
"""

from __future__ import annotations

from typing import Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import pyarrow as pa
import pyarrow.compute as pc

from mirror_lib.log.batch import Record
from mirror_lib.log.varint import SMALL, SMALL_VARINTS, decode_varint, encode_varint

SOURCE = ("source_topic", "source_partition")
REMOTE = ("remote_topic", "remote_partition")
NULL = b"\x01"  # a length of -1
NOTHING = b"\x00"  # a length or a count of 0
_NO_BYTES = memoryview(b"")

Partition = Tuple[str, int]


class Stretch(NamedTuple):
    """Rows of one source partition that go to one remote partition, in order; `remote` is None where there are none.

    `failures` are the rows of the source partition that became no record: upstream offset, and what is wrong. `dead`
    are those of them that go to the dead letter topic, as they came, and `dead_letters` is where.
    """

    source: Partition
    remote: Optional[Partition]
    records: List[Record]
    failures: Sequence[Tuple[int, str]] = ()
    dead: Sequence[Record] = ()
    dead_letters: Optional[Partition] = None


def stretches(rows: pa.RecordBatch) -> Iterator[Stretch]:
    """The rows of `CHANGED_DDL`, those of each source and remote partition together. Order within a remote partition
    is kept where the rows of one source partition lie together, and within each source partition always."""
    failed = pc.is_valid(rows.column("failure"))
    if not pc.any(failed).as_py():
        yield from _good(rows, {})
        return
    bad = {each.source: each for each in map(_failures, _parts(rows.filter(failed), SOURCE))}
    seen: List[Partition] = []
    for stretch in _good(rows.filter(pc.invert(failed)), bad):
        seen.append(stretch.source)
        yield stretch
    yield from (each for source, each in bad.items() if source not in seen)


def _good(rows: pa.RecordBatch, bad: Mapping[Partition, Stretch]) -> Iterator[Stretch]:
    for part in _parts(rows, (*SOURCE, *REMOTE)):
        source = _place(part, SOURCE)
        also = bad.get(source, Stretch(source, None, []))
        yield also._replace(remote=_place(part, REMOTE), records=records_of(part))


def _failures(rows: pa.RecordBatch) -> Stretch:
    failures = list(zip(rows.column("source_offset").to_pylist(), rows.column("failure").to_pylist()))
    if rows.column("remote_topic").null_count:
        return Stretch(_place(rows, SOURCE), None, [], failures)
    return Stretch(_place(rows, SOURCE), None, [], (), records_of(rows), _place(rows, REMOTE))


def _parts(rows: pa.RecordBatch, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows that have the same in the columns `names`, together."""
    codes = _codes(rows, names)
    numbers = pc.unique(codes).to_pylist()
    for number in numbers:
        yield rows if len(numbers) == 1 else rows.filter(pc.equal(codes, number))


def records_of(rows: pa.RecordBatch) -> List[Record]:
    """Every row as a record, with its upstream offset. ValueError for a record without a timestamp."""
    offsets, timestamps = rows.column("source_offset"), rows.column("timestamp")
    if offsets.null_count or timestamps.null_count:
        raise ValueError("a changed row has no offset or no timestamp")
    new, parts = tuple.__new__, (_lengths_and_bytes(rows.column(name)) for name in ("key", "value"))
    (key_lengths, keys), (value_lengths, values) = parts
    bodies = map(b"".join, zip(key_lengths, keys, value_lengths, values, _headers(rows.column("headers"))))
    return [
        new(Record, (offset, timestamp, body, 0))
        for offset, timestamp, body in zip(offsets.to_pylist(), timestamps.to_pylist(), bodies)
    ]


def headers_of(body: bytes) -> Iterator[Tuple[bytes, Optional[bytes]]]:
    """The headers of a record's body: names and values."""
    _, at = _value_at(body, 0)
    _, at = _value_at(body, at)
    count, at = decode_varint(body, at)
    for _ in range(count):
        name, at = _value_at(body, at)
        value, at = _value_at(body, at)
        yield name or b"", value


def _value_at(body: bytes, at: int) -> Tuple[Optional[bytes], int]:
    """A value with its length before it, and where the next thing starts."""
    length, at = decode_varint(body, at)
    return (None, at) if length < 0 else (body[at : at + length], at + length)


def _codes(rows: pa.RecordBatch, names: Sequence[str]) -> pa.Array:
    """A number for each row, the same where these columns are. ValueError where one of them is null."""
    codes = pa.nulls(rows.num_rows, pa.int64()).fill_null(0)
    for name in names:
        column = pc.dictionary_encode(rows.column(name))
        if column.null_count:
            raise ValueError(f"a changed row has no {name}")
        if len(column.dictionary) > 1:
            codes = pc.add(pc.multiply(codes, len(column.dictionary)), column.indices.cast(pa.int64()))
    return codes


def _place(rows: pa.RecordBatch, names: Tuple[str, str]) -> Partition:
    topic, number = (rows.column(name)[0].as_py() for name in names)
    return str(topic), int(number)


def _lengths_and_bytes(column: pa.Array) -> Tuple[List[bytes], List[memoryview]]:
    """Each value's length as a varint, that of null being -1, and its bytes."""
    if column.null_count == len(column):
        return [NULL] * len(column), [_NO_BYTES] * len(column)
    offsets, data = _offsets(column), _data(column)
    small, limit = SMALL_VARINTS, SMALL
    cuts = list(zip(offsets, offsets[1:]))
    values = [data[start:end] for start, end in cuts]
    lengths = [small[end - start] if end - start < limit else encode_varint(end - start) for start, end in cuts]
    if column.null_count:
        lengths = [length if there else NULL for length, there in zip(lengths, column.is_valid().to_pylist())]
    return lengths, values


def _headers(column: pa.Array) -> Sequence[bytes]:
    """The headers of each row: their count, then each name and value. Null is no headers."""
    bounds = _offsets(column)
    first, last = bounds[0], bounds[-1]
    if first == last:
        return [NOTHING] * len(column)
    structs = column.values.slice(first, last - first)
    names, values = (_lengths_and_bytes(structs.field(i)) for i in (0, 1))
    each = list(map(b"".join, zip(*names, *values)))
    if structs.null_count or structs.field(0).null_count:
        raise ValueError("a changed row has a header without a name")
    cuts = ((start - first, end - first) for start, end in zip(bounds, bounds[1:]))
    return [encode_varint(end - start) + b"".join(each[start:end]) for start, end in cuts]


def _offsets(column: pa.Array) -> List[int]:
    """Where each value begins, and where the last one ends."""
    wide = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
    numbers = memoryview(column.buffers()[1]).cast("q" if wide or pa.types.is_large_list(column.type) else "i")
    return numbers[column.offset : column.offset + len(column) + 1].tolist()


def _data(column: pa.Array) -> memoryview:
    data = column.buffers()[2]
    return memoryview(b"" if data is None else data)
