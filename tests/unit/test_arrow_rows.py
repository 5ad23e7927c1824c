"""Rows that come as Arrow's batches, cut anywhere, taken apart by group."""

from __future__ import annotations

from typing import Any, List

import pyarrow as pa
import pytest

from mirror_lib.state.arrow_rows import interleaved

ROWS = [(True, "a", 1, 10), (None, None, 2, 20), (None, None, 3, 30), (True, "b", 4, 40), (True, "c", 5, 50)]
GROUPS = [(("a",), [1, 10, 2, 20, 3, 30]), (("b",), [4, 40]), (("c",), [5, 50])]


def batch(rows: List[Any]) -> pa.RecordBatch:
    types = (pa.bool_(), pa.string(), pa.int64(), pa.int64())
    columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(types)]
    return pa.RecordBatch.from_arrays(columns, ["first", "key", "x", "y"])


def groups(batches: List[pa.RecordBatch]) -> List[Any]:
    return [(key, list(flat)) for key, flat in interleaved(batches, "first", ["key"], ["x", "y"])]


@pytest.mark.parametrize("cut", range(len(ROWS) + 1))
def test_group_is_whole_wherever_batches_are_cut(cut: int) -> None:
    assert groups([batch(ROWS[:cut]), batch(ROWS[cut:])]) == GROUPS
    whole = batch(ROWS)
    assert groups([whole.slice(0, cut), whole.slice(cut)]) == GROUPS
    assert groups([]) == []


def test_number_that_is_missing_is_named() -> None:
    with pytest.raises(ValueError, match="a row has no y"):
        groups([batch([(True, "a", 1, None)])])
