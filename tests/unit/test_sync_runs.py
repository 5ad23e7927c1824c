"""Offset syncs of a log with gaps: joined, packed, on their way to the driver and into the ledger."""

from __future__ import annotations

from array import array
from itertools import chain
from typing import List, Tuple
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from mirror_lib.ledger.intervals import Runs
from mirror_lib.ledger.run_rows import packed, unpacked

COLUMNS = (("place", "int"), ("topic", "string"), ("up", "bigint"), ("down", "bigint"), ("run", "string"))


def runs_of(*syncs: Tuple[int, int, int]) -> Runs:
    found = Runs()
    for sync in syncs:
        found.append(*sync)
    return found


def test_runs_that_touch_on_both_sides_are_one() -> None:
    runs = runs_of((0, 5, 10), (10, 15, 1), (12, 16, 4), (16, 21, 2))
    assert list(runs) == [(0, 5, 11), (12, 16, 4), (16, 21, 2)]
    assert (len(runs), runs.upstream_end) == (3, 18)


offsets = st.integers(0, 2**61)


@given(st.lists(st.lists(st.tuples(offsets, offsets), max_size=12), min_size=1, max_size=8), st.integers(1, 7))
def test_rows_on_their_way_are_neither_lost_nor_moved(runs: List[List[Tuple[int, int]]], at_once: int) -> None:
    same = [
        {"topic": None if number == 3 else f"topic-{number % 5}", "place": number % 2, "run": "r"}
        for number in range(8)
    ]
    sent = [(own, array("q", chain.from_iterable(run)).tobytes()) for own, run in zip(same, runs)]
    with patch("mirror_lib.ledger.run_rows.ROWS_AT_ONCE", at_once):
        batches = list(unpacked(packed(COLUMNS, ("up", "down"), sent)))
    assert all(batch.num_rows == at_once for batch in batches[:-1])
    assert {str(kind) for batch in batches for kind in batch.schema.types} <= {"int32", "string", "int64"}
    found = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    rows = [(own["place"], own["topic"], up, down, "r") for own, run in zip(same, runs) for up, down in run]
    assert found == rows
