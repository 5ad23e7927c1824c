"""A DataFrame in, its rows in the driver out as Arrow's columns, in order. A million rows are a second that way."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Iterator, List, Sequence, Tuple

import pyarrow as pa
from pyspark.sql import DataFrame

if TYPE_CHECKING:
    # `array` takes no parameter at run time before Python 3.9.
    Offsets = array[int]


def arrow_batches(rows: DataFrame) -> List[pa.RecordBatch]:
    """Run the query; what its rows are, in the order of its partitions. No rows, no batches."""
    # Spark has a public way since 4.0. What that calls has been there since 3.0.
    spark_rows: Any = rows
    if hasattr(rows, "toArrow"):
        return list(spark_rows.toArrow().to_batches())
    return list(spark_rows._collect_as_arrow())


def interleaved(
    batches: Sequence[pa.RecordBatch], first: str, key: Sequence[str], numbers: Sequence[str]
) -> Iterator[Tuple[Tuple[Any, ...], Offsets]]:
    """The `key` of each group of rows, and its `numbers` (of 64 bits) in one column: all of a row, then the next row's.

    `first` is true in the first row of a group, which alone has to have a key. ValueError where a number is missing.
    """
    current: Tuple[Any, ...] = ()
    flat = array("q")
    for batch in batches:
        columns = [_numbers(batch, name) for name in numbers]
        starts = [i for i, begins in enumerate(batch.column(first).to_pylist()) if begins]
        # What stands before the first start goes on with the group of the batch before.
        flat += _woven([column[: min(starts, default=len(column))] for column in columns])
        for start, end in zip(starts, [*starts[1:], batch.num_rows]):
            if flat:
                yield current, flat
            current = tuple(batch.column(name)[start].as_py() for name in key)
            flat = _woven([column[start:end] for column in columns])
    if flat:
        yield current, flat


def _numbers(batch: pa.RecordBatch, name: str) -> Offsets:
    column = batch.column(name)
    if column.null_count:
        raise ValueError(f"a row has no {name}")
    found = array("q")
    found.frombytes(memoryview(column.buffers()[1])[8 * column.offset : 8 * (column.offset + len(column))])
    return found


def _woven(columns: Sequence[Offsets]) -> Offsets:
    woven = array("q", bytes(8 * sum(map(len, columns))))
    for i, column in enumerate(columns):
        woven[i :: len(columns)] = column
    return woven
