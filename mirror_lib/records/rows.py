"""Changed rows as they come from Spark in, the same by source and remote partition out. Pure."""

from __future__ import annotations

from typing import Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import pyarrow as pa
import pyarrow.compute as pc

from mirror_lib.log.batch import Record
from mirror_lib.log.varint import decode_varint
from mirror_lib.records.row_columns import NO_ROWS, RowColumns, columns_of

SOURCE = ("source_topic", "source_partition")
REMOTE = ("remote_topic", "remote_partition")

Partition = Tuple[str, int]


class Stretch(NamedTuple):
    """Rows of one source partition that go to one remote partition, in order; `remote` is None where there are none, or
    the source partition has only one.

    `failures` are the rows of the source partition that became no record: upstream offset, and what is wrong. `dead`
    are those of them that go to the dead letter topic, as they came, and `dead_letters` is where.
    """

    source: Partition
    remote: Optional[Partition]
    rows: RowColumns = NO_ROWS
    failures: Sequence[Tuple[int, str]] = ()
    dead: Sequence[Record] = ()
    dead_letters: Optional[Partition] = None


def stretches(rows: pa.RecordBatch) -> Iterator[Stretch]:
    """The rows of `CHANGED_DDL`, perhaps without REMOTE, those of each source and remote partition together. Order
    within a remote partition is kept where the rows of one source partition lie together, and within each source
    partition always."""
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


def made_of(rows: pa.RecordBatch, source: Partition, offset: int) -> pa.RecordBatch:
    """Those at the beginning of `rows` that came of this record of the source."""
    place = (*source, offset)
    columns = [rows.column(name) for name in (*SOURCE, "source_offset")]
    count = 0
    while count < rows.num_rows and tuple(column[count].as_py() for column in columns) == place:
        count += 1
    return rows.slice(0, count)


def _good(rows: pa.RecordBatch, bad: Mapping[Partition, Stretch]) -> Iterator[Stretch]:
    told = REMOTE[0] in rows.schema.names
    for part in _parts(rows, (*SOURCE, *REMOTE) if told else SOURCE):
        source = _place(part, SOURCE)
        also = bad.get(source, Stretch(source, None))
        yield also._replace(remote=_place(part, REMOTE) if told else None, rows=columns_of(part))


def _failures(rows: pa.RecordBatch) -> Stretch:
    failures = list(zip(rows.column("source_offset").to_pylist(), rows.column("failure").to_pylist()))
    if REMOTE[0] not in rows.schema.names or rows.column(REMOTE[0]).null_count:
        return Stretch(_place(rows, SOURCE), None, failures=failures)
    dead = columns_of(rows).records()
    return Stretch(_place(rows, SOURCE), None, dead=dead, dead_letters=_place(rows, REMOTE))


def _parts(rows: pa.RecordBatch, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows that have the same in the columns `names`, together."""
    codes = _codes(rows, names)
    numbers = pc.unique(codes).to_pylist()
    for number in numbers:
        yield rows if len(numbers) == 1 else rows.filter(pc.equal(codes, number))


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
