"""How many rows go to Python at once: never more bytes than memory has, whatever records come."""

from __future__ import annotations

from typing import List, Tuple

from hypothesis import given
from hypothesis import strategies as st

from mirror_lib.records.rows_at_once import CAREFUL_PASSES, FEW_ROWS, MOST_BYTES, RowsAtOnce

PASSES = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**12), st.booleans()))


@given(PASSES)
def test_rows_whose_bytes_spark_does_not_mind_are_together_no_larger_than_the_bound(
    passes: List[Tuple[int, int, bool]],
) -> None:
    at_once = RowsAtOnce(counts=False)
    for done, (records, nbytes, large) in enumerate(passes, 1):
        at_once.learn(records, nbytes, large)
        rows, largest = at_once.next()
        careful = any(each[2] for each in passes[max(0, done - CAREFUL_PASSES) : done])
        assert (rows, largest) == (FEW_ROWS, None) if careful else 0 < rows * (largest or 0) <= MOST_BYTES


def test_default_size_limit_of_brokers_fits_where_records_are_that_large() -> None:
    at_once = RowsAtOnce(counts=False)
    at_once.learn(100, 100 * 1024 * 1024, False)
    assert at_once.next().largest == 1024 * 1024


def test_no_row_is_too_large_where_spark_minds_bytes() -> None:
    at_once = RowsAtOnce(counts=True)
    at_once.learn(1000, 1_000_000, True)
    assert at_once.next().largest is None and at_once.next().rows > FEW_ROWS
