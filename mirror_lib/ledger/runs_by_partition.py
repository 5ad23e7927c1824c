"""Loads the offset syncs of many partitions from an Arrow table, by partition and in upstream order. Pure.

Rows that continue each other are joined here and not by `mirror_lib.ledger.intervals`, so that the driver holds 24 bytes
for a true run and not for each row. Whole columns are compared at once: ten million rows in order take a few seconds.
"""

from __future__ import annotations

from array import array
from typing import Any, Dict, List, Tuple

import pyarrow as pa
import pyarrow.compute as pc

from mirror_lib.ledger.intervals import Numbers, woven

KEY = "key"
NUMBERS = ("upstream_offset", "downstream_offset", "record_count")
# Stretches of rows of one key are put in order one by one; of more than so many it is quicker to sort the rows.
MOST_STRETCHES = 100_000


def runs_by_key(rows: pa.Table, most_stretches: int = MOST_STRETCHES) -> Dict[int, Numbers]:
    """`rows` (columns KEY and NUMBERS, 64 bits each) by key and in upstream order, flat as in
    `mirror_lib.ledger.intervals`.

    Rows of one line that touch are one run, also if they are stated twice. Nothing is checked here: rows that
    contradict each other are all there. ValueError where a number is missing.
    """
    if not rows.num_rows:
        return {}
    runs = joined(rows, most_stretches)
    starts = _starts(runs)
    keys = runs.column(KEY).take(starts).to_pylist()
    columns = [_offsets(runs.column(name)) for name in NUMBERS]
    bounds = [*starts.to_pylist(), runs.num_rows]
    spans = zip(keys, bounds, bounds[1:])
    return {key: woven([column[start:end] for column in columns]) for key, start, end in spans}


def joined(rows: pa.Table, most_stretches: int = MOST_STRETCHES) -> pa.Table:
    """`rows` with those of each key together and in upstream order; what lies on one line and touches is one row.

    Of some of a key's rows, too: such tables behind each other are as good for `runs_by_key` as the rows themselves.
    ValueError where a number is missing.
    """
    missing = [name for name in NUMBERS if rows.column(name).null_count]
    if missing:
        raise ValueError(f"a row has no {missing[0]}")
    return _joined(_in_order(rows.combine_chunks(), most_stretches)) if rows.num_rows else rows


def _in_order(rows: pa.Table, most_stretches: int) -> pa.Table:
    """The rows of each key together, in upstream order."""
    starts = _starts(rows)
    if len(starts) <= most_stretches:
        rows = _stretches_in_order(rows, starts.to_pylist())
        if not pc.any(_falls(rows)).as_py():
            return rows
    return rows.take(pc.sort_indices(rows, [(name, "ascending") for name in (KEY, *NUMBERS)]))


def _stretches_in_order(rows: pa.Table, starts: List[int]) -> pa.Table:
    heads = [rows.column(name).take(pa.array(starts)).to_pylist() for name in (KEY, *NUMBERS)]
    stretches = list(zip(zip(*heads), starts, [*starts[1:], rows.num_rows]))
    in_order = sorted(stretches)
    if in_order == stretches:
        return rows
    return pa.concat_tables([rows.slice(start, end - start) for _, start, end in in_order]).combine_chunks()


def _starts(rows: pa.Table) -> pa.Array:
    """Where another key begins."""
    here, before = _beside(_column(rows, KEY))
    changes = pc.indices_nonzero(pc.not_equal(here, before)).cast(pa.int64())
    return pa.concat_arrays([pa.array([0], pa.int64()), pc.add(changes, 1)])


def _falls(rows: pa.Table) -> pa.Array:
    """For each row but the first: whether it belongs before the one before it. Keys may come in any order."""
    equal_so_far = pc.equal(*_beside(_column(rows, KEY)))
    fallen = pc.and_(equal_so_far, False)
    for name in NUMBERS:
        here, before = _beside(_column(rows, name))
        fallen = pc.or_(fallen, pc.and_(equal_so_far, pc.less(here, before)))
        equal_so_far = pc.and_(equal_so_far, pc.equal(here, before))
    return fallen


def _joined(rows: pa.Table) -> pa.Table:
    """Rows of one line that touch the row before them are one."""
    upstream, count = _column(rows, NUMBERS[0]), _column(rows, NUMBERS[2])
    ends = pc.add(upstream, count)
    shift, last_shift = _beside(pc.subtract(_column(rows, NUMBERS[1]), upstream))
    end, last_end = _beside(ends)
    key, last_key = _beside(_column(rows, KEY))
    continues = pc.equal(key, last_key)
    for more in (
        pc.equal(shift, last_shift),
        pc.less_equal(upstream.slice(1), last_end),
        pc.greater_equal(end, last_end),
        pc.greater_equal(_beside(count)[1], 0),
    ):
        continues = pc.and_(continues, more)
    if not pc.any(continues).as_py():
        return rows
    begins = pc.indices_nonzero(pc.invert(continues)).cast(pa.int64())
    firsts = pa.concat_arrays([pa.array([0], pa.int64()), pc.add(begins, 1)])
    lasts = pa.concat_arrays([begins, pa.array([rows.num_rows - 1], pa.int64())])
    runs = rows.take(firsts)
    return _with(runs, NUMBERS[2], pc.subtract(ends.take(lasts), _column(runs, NUMBERS[0])))


def _beside(column: pa.Array) -> Tuple[pa.Array, pa.Array]:
    """Each value but the first, and the one before it."""
    return column.slice(1), column.slice(0, len(column) - 1)


def _column(rows: pa.Table, name: str) -> pa.Array:
    chunks = rows.column(name).combine_chunks()
    return chunks.combine_chunks() if isinstance(chunks, pa.ChunkedArray) else chunks


def _with(rows: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), name, column)


def _offsets(column: Any) -> Numbers:
    found = array("q")
    for chunk in column.chunks:
        found.frombytes(memoryview(chunk.buffers()[1])[8 * chunk.offset : 8 * (chunk.offset + len(chunk))])
    return found
