"""Changed rows in, the same with large ones marked out: where Spark does not mind how many bytes go to Python at once.

A marked row has no key, value or headers, and an offset below 0. At it a task ends its pass.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mirror_lib.records.read_bytes import CONTENT_BYTES
from mirror_lib.records.rows import SOURCE, Partition

OFFSET = "source_offset"
_CONTENT = ("key", "value", "headers")
_LARGE = "is_large"


class LargeRow(NamedTuple):
    """Where a marked row came from."""

    source: Partition
    offset: int


def marked(rows: DataFrame, most_bytes: Optional[int]) -> DataFrame:
    """`rows` in columns of `CHANGED_DDL`, those marked whose key, value and headers have more bytes together; with None
    there are no such."""
    if most_bytes is None:
        return rows
    sized = rows.withColumn(_LARGE, F.expr(f"{CONTENT_BYTES} > {most_bytes}"))
    told = {OFFSET: f"case when {_LARGE} then -1 - {OFFSET} else {OFFSET} end"}
    told.update((name, f"case when {_LARGE} then null else {name} end") for name in _CONTENT)
    return sized.select(*(F.expr(told.get(name, name)).alias(name) for name in rows.columns))


def before_large(rows: pa.RecordBatch) -> Tuple[pa.RecordBatch, Optional[LargeRow]]:
    """The rows before the first marked one, and that."""
    offsets = rows.column(OFFSET)
    if not len(offsets) or pc.min(offsets).as_py() >= 0:
        return rows, None
    at = pc.less(offsets, 0).index(True).as_py()
    topic, number = (rows.column(name)[at].as_py() for name in SOURCE)
    return rows.slice(0, at), LargeRow((topic, number), -1 - offsets[at].as_py())
