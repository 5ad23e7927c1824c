"""Offset syncs of a log with gaps: joined, packed, on their way to the driver and into the ledger."""

from __future__ import annotations

from array import array
from typing import Dict, List, Tuple

from hypothesis import given
from hypothesis import strategies as st

from mirror_lib.ledger.intervals import Runs
from mirror_lib.ledger.records import LedgerRow, LedgerRuns, Position
from mirror_lib.ledger.run_rows import RunRows, parts

ROW = 24


def runs_of(*syncs: Tuple[int, int, int]) -> Runs:
    found = Runs()
    for sync in syncs:
        found.append(*sync)
    return found


def test_runs_that_touch_on_both_sides_are_one() -> None:
    runs = runs_of((0, 5, 10), (10, 15, 1), (12, 16, 4), (16, 21, 2))
    assert list(runs) == [(0, 5, 11), (12, 16, 4), (16, 21, 2)]
    assert (len(runs), runs.upstream_end) == (3, 18)


def test_runs_that_are_taken_back_to_what_they_were_resume_there() -> None:
    runs = runs_of((0, 0, 10))
    before = runs.tobytes()
    runs.append(10, 10, 5)
    again = Runs(before)
    again.append(10, 10, 1)
    assert [run.record_count for each in (Runs(before), runs, again) for run in each] == [10, 15, 11]


offsets = st.integers(0, 2**61)


def test_ledger_rows_of_a_partition_say_where_the_last_of_them_ends() -> None:
    syncs = ((0, 0, 10), (20, 11, 5))
    runs = LedgerRuns(LedgerRow("orders", "A.orders", 0, "a", "b", 0, 0, 0), runs_of(*syncs).tobytes())
    assert list(runs.rows()) == [LedgerRow("orders", "A.orders", 0, "a", "b", *sync) for sync in syncs]
    assert (len(runs), runs.end) == (2, Position(25, 16))


@given(st.lists(st.integers(0, 12), max_size=8), st.integers(1, 7))
def test_rows_on_their_way_are_cut_into_parts_without_one_lost_or_moved(sizes: List[int], at_once: int) -> None:
    flats = [array("q", range(3 * size)).tobytes() for size in sizes]
    given = [RunRows({"topic": str(number)}, flat) for number, flat in enumerate(flats)]
    found = list(parts(given, ROW, at_once))
    assert all(sum(len(rows.flat) for rows in part) == ROW * at_once for part in found[:-1])
    whole: Dict[str, bytes] = {}
    for rows in (rows for part in found for rows in part):
        topic = str(rows.same["topic"])
        whole[topic] = whole.get(topic, b"") + rows.flat
    assert whole == {str(rows.same["topic"]): rows.flat for rows in given if rows.flat}
