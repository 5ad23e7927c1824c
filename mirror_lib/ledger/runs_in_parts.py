"""The ledger's numbers as a DataFrame in, the runs of each key out, asked for in parts that Java's heap has room for.

A part is of some of the keys, and where these have too many rows of a stretch of upstream offsets.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mirror_lib.ledger.intervals import Numbers
from mirror_lib.ledger.runs_by_partition import KEY, NUMBERS, joined, runs_by_key

# 32 bytes each on their way through the JVM, several times over. Spark's default heap is 1 GB.
ROWS_AT_ONCE = 2_500_000
UPSTREAM = NUMBERS[0]
# Rows are cut at such steps, so that a part is at most a quarter more than its share.
STEPS_A_PART = 4


def bigint_columns(rows: DataFrame) -> pa.Table:
    """Run the query, whose columns are all of type bigint; what its rows are, in the order of its partitions."""
    # Spark has a public way since 4.0. What that calls has been there since 3.0.
    spark_rows: Any = rows
    schema = pa.schema([(name, pa.int64()) for name in rows.columns])
    # Both say which columns have no nulls, which is not the same of every part of a table.
    if hasattr(rows, "toArrow"):
        return spark_rows.toArrow().cast(schema)
    batches = spark_rows._collect_as_arrow()
    return pa.Table.from_batches(batches).cast(schema) if batches else schema.empty_table()


def parts_of(rows: int) -> int:
    """In how many parts so many rows are to be read."""
    return rows // ROWS_AT_ONCE + 1


def runs_in_parts(numbers: DataFrame, parts: int) -> Mapping[int, Numbers]:
    """What `runs_by_key` says of `numbers` (columns KEY and NUMBERS), read in about `parts`.

    With more than one part the rows must be those of one version of the table, however often they are asked for.
    """
    if parts == 1:
        return runs_by_key(bigint_columns(numbers))
    by_key: Dict[int, Numbers] = {}
    for keys, bounds in _planned(numbers, parts):
        own = numbers.where(keys)
        if not bounds:
            by_key.update(runs_by_key(bigint_columns(own)))
            continue
        # Each is put in order alone and is shorter then, mostly; behind each other they are in order as they come.
        stretches = [joined(bigint_columns(own.where(stretch))) for stretch in _stretches(bounds)]
        by_key.update(runs_by_key(pa.concat_tables(stretches)))
    return by_key


def _planned(numbers: DataFrame, parts: int) -> Iterator[Tuple[Column, Sequence[int]]]:
    """Which keys are read together, and the upstream offsets where their rows are cut, in order: none, mostly."""
    which = f"pmod({KEY}, {parts})"
    steps = STEPS_A_PART * parts
    fractions = ", ".join(f"{number / steps}D" for number in range(1, steps))
    bounds = F.expr(f"percentile_approx({UPSTREAM}, array({fractions}))").alias("bounds")
    counted = numbers.groupBy(F.expr(which).alias("part")).agg(F.count(F.lit(1)).alias("rows"), bounds)
    for part, rows, found in counted.collect():
        pieces = min(parts, round(rows / ROWS_AT_ONCE))
        chosen = {found[number * steps // pieces - 1] for number in range(1, pieces)} if found else ()
        yield F.expr(f"{which} = {part}"), sorted(chosen)


def _stretches(bounds: Sequence[int]) -> List[Column]:
    upstream = F.col(UPSTREAM)
    between = [(upstream >= start) & (upstream < end) for start, end in zip(bounds, bounds[1:])]
    # A row that lacks its offset is to be met by whoever refuses it.
    return [upstream.isNull() | (upstream < bounds[0]), *between, upstream >= bounds[-1]]
