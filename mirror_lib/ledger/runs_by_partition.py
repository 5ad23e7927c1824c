"""Groups the ledger's offset syncs by partition and joins adjacent runs, with Arrow, in parts that fit Java's heap.

Whole columns are compared at once: ten million rows take some seconds. A part contains some of the keys. If these have
too many rows, it contains a range of their upstream offsets only.
"""

from __future__ import annotations

from array import array
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mirror_lib.ledger.intervals import Numbers, woven

KEY = "key"
NUMBERS = ("upstream_offset", "downstream_offset", "record_count")


def runs_by_key(rows: pa.Table) -> Dict[int, Numbers]:
    """`rows` (columns KEY and NUMBERS, 64 bits each) by key and in upstream order, flat as in
    `mirror_lib.ledger.intervals`.

    Rows with the same shift that touch, overlap or repeat become one run. Nothing else is checked: contradictory rows
    are all kept. Raises ValueError if a number is missing.
    """
    if not rows.num_rows:
        return {}
    runs = joined(rows)
    starts = _starts(runs)
    keys = runs.column(KEY).take(starts).to_pylist()
    columns = [_offsets(runs.column(name)) for name in NUMBERS]
    bounds = [*starts.to_pylist(), runs.num_rows]
    spans = zip(keys, bounds, bounds[1:])
    return {key: woven([column[start:end] for column in columns]) for key, start, end in spans}


def joined(rows: pa.Table) -> pa.Table:
    """`rows`, grouped by key and in upstream order; ranges with the same shift that touch become one row.

    Also for a part of a key's rows: `runs_by_key` of the concatenated results equals that of the rows. Raises
    ValueError if a number is missing.
    """
    missing = [name for name in NUMBERS if rows.column(name).null_count]
    if missing:
        raise ValueError(f"a row has no {missing[0]}")
    rows = rows.combine_chunks()
    in_order = pc.sort_indices(rows, [(name, "ascending") for name in (KEY, *NUMBERS)])
    return _joined(rows.take(in_order)) if rows.num_rows else rows


def _starts(rows: pa.Table) -> pa.Array:
    """The indices of the first rows of each stretch of one key."""
    here, before = _neighbours(_column(rows, KEY))
    changes = pc.indices_nonzero(pc.not_equal(here, before)).cast(pa.int64())
    return pa.concat_arrays([pa.array([0], pa.int64()), pc.add(changes, 1)])


def _joined(rows: pa.Table) -> pa.Table:
    upstream, count = _column(rows, NUMBERS[0]), _column(rows, NUMBERS[2])
    ends = pc.add(upstream, count)
    shift, last_shift = _neighbours(pc.subtract(_column(rows, NUMBERS[1]), upstream))
    end, last_end = _neighbours(ends)
    key, last_key = _neighbours(_column(rows, KEY))
    continues = pc.equal(key, last_key)
    for more in (
        pc.equal(shift, last_shift),
        pc.less_equal(upstream.slice(1), last_end),
        pc.greater_equal(end, last_end),
        pc.greater_equal(_neighbours(count)[1], 0),
    ):
        continues = pc.and_(continues, more)
    if not pc.any(continues).as_py():
        return rows
    begins = pc.indices_nonzero(pc.invert(continues)).cast(pa.int64())
    firsts = pa.concat_arrays([pa.array([0], pa.int64()), pc.add(begins, 1)])
    lasts = pa.concat_arrays([begins, pa.array([rows.num_rows - 1], pa.int64())])
    runs = rows.take(firsts)
    counts = pc.subtract(ends.take(lasts), _column(runs, NUMBERS[0]))
    return runs.set_column(runs.schema.get_field_index(NUMBERS[2]), NUMBERS[2], counts)


def _neighbours(column: pa.Array) -> Tuple[pa.Array, pa.Array]:
    return column.slice(1), column.slice(0, len(column) - 1)


def _column(rows: pa.Table, name: str) -> pa.Array:
    chunks = rows.column(name).combine_chunks()
    return chunks.combine_chunks() if isinstance(chunks, pa.ChunkedArray) else chunks


def _offsets(column: Any) -> Numbers:
    found = array("q")
    for chunk in column.chunks:
        found.frombytes(memoryview(chunk.buffers()[1])[8 * chunk.offset : 8 * (chunk.offset + len(chunk))])
    return found


# Rows read at once: each takes 32 bytes in the JVM, several times. Spark's default heap is 1 GB.
ROWS_AT_ONCE = 2_500_000
UPSTREAM = NUMBERS[0]
# Parts are cut at these steps, so that a part exceeds its share by at most a quarter.
STEPS_A_PART = 4


def bigint_columns(rows: DataFrame) -> pa.Table:
    """Run a query whose columns are all of type bigint, and return its rows in the order of its partitions."""
    # Spark has a public method since 4.0; the method that it calls exists since 3.0.
    spark_rows: Any = rows
    schema = pa.schema([(name, pa.int64()) for name in rows.columns])
    # The cast drops the schema's null flags, which may differ between the parts of a table.
    if hasattr(rows, "toArrow"):
        return spark_rows.toArrow().cast(schema)
    batches = spark_rows._collect_as_arrow()
    return pa.Table.from_batches(batches).cast(schema) if batches else schema.empty_table()


def parts_of(rows: int) -> int:
    return rows // ROWS_AT_ONCE + 1


def runs_in_parts(numbers: DataFrame, parts: int) -> Mapping[int, Numbers]:
    """`runs_by_key` of `numbers` (columns KEY and NUMBERS), read in about `parts` parts.

    With more than one part, every query of `numbers` must return rows of the same table version.
    """
    if parts == 1:
        return runs_by_key(bigint_columns(numbers))
    by_key: Dict[int, Numbers] = {}
    for keys, bounds in _planned(numbers, parts):
        own = numbers.where(keys)
        if not bounds:
            by_key.update(runs_by_key(bigint_columns(own)))
            continue
        # Each part is sorted and joined alone, which mostly makes it smaller; concatenated they are in order.
        stretches = [joined(bigint_columns(own.where(stretch))) for stretch in _stretches(bounds)]
        by_key.update(runs_by_key(pa.concat_tables(stretches)))
    return by_key


def _planned(numbers: DataFrame, parts: int) -> Iterator[Tuple[Column, Sequence[int]]]:
    """Conditions of keys to read together, and the ordered upstream offsets at which to cut their rows; mostly none."""
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
    # Rows without an offset are included, so that the later check refuses them.
    return [upstream.isNull() | (upstream < bounds[0]), *between, upstream >= bounds[-1]]
