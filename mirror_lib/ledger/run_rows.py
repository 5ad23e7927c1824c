"""Makes a DataFrame of many rows of integers with one Python worker of Spark.

As text in a plan (`local_rows`) a ledger row takes some kilobytes of Java's heap, so a few hundred thousand rows fill
it. Here rows are sent as integers and arrive as Arrow columns.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from mirror_lib.spark.jobs import Shipped

# Rows in one Arrow batch from the worker.
ROWS_AT_ONCE = 50_000
TYPES = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64()}

Value = Union[str, int, None]
Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True)
class RunRows:
    """Rows that share the `same` values by column. `flat` has the numbers of row after row, as integers of 64 bits in
    this machine's byte order."""

    same: Mapping[str, Value]
    flat: bytes


def run_rows(
    spark: SparkSession,
    columns: Sequence[Tuple[str, str]],
    numbers: Sequence[str],
    given: Shipped[Sequence[RunRows]],
    same: Optional[Mapping[str, Value]] = None,
) -> DataFrame:
    """A DataFrame with `columns` (name, Spark SQL type: one of TYPES), for use inside the context of `given`.

    `numbers` are the columns in `flat`, in that order; `same` has values of all rows."""
    ddl = ", ".join(f"{name} {type_name}" for name, type_name in columns)

    def make(ones: Batches) -> Iterator[pa.RecordBatch]:
        for _ in ones:  # one row, which triggers the output
            for part in parts(given.value, 8 * len(numbers)):
                yield _batch(columns, numbers, part, same or {})

    return spark.range(0, 1, 1, 1).mapInArrow(make, ddl)


def parts(given: Sequence[RunRows], row_bytes: int, at_once: int = ROWS_AT_ONCE) -> Iterator[List[RunRows]]:
    part: List[RunRows] = []
    rows_left = at_once
    for rows in given:
        left = memoryview(rows.flat)
        while left:
            taken = left[: rows_left * row_bytes]
            part.append(RunRows(rows.same, bytes(taken)))
            left, rows_left = left[len(taken) :], rows_left - len(taken) // row_bytes
            if not rows_left:
                yield part
                part, rows_left = [], at_once
    if part:
        yield part


def _batch(
    columns: Sequence[Tuple[str, str]], numbers: Sequence[str], part: Sequence[RunRows], same: Mapping[str, Value]
) -> pa.RecordBatch:
    width, flat = len(numbers), array("q", b"".join(rows.flat for rows in part))
    own = {name: flat[number::width] for number, name in enumerate(numbers)}
    sizes = (len(rows.flat) // (8 * width) for rows in part)
    which = pa.concat_arrays([pa.repeat(number, size) for number, size in enumerate(sizes)])
    reported = [{**same, **rows.same} for rows in part]
    arrays = [
        pa.array(own[name], TYPES[kind])
        if name in own
        else pa.array([values[name] for values in reported], TYPES[kind]).take(which)
        for name, kind in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in columns])
