"""Offset syncs of a log with gaps: joined, packed, on their way to the driver and into the ledger."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Dict, List, Tuple

from hypothesis import given
from hypothesis import strategies as st

from mirror_lib.replicate.lanes import from_text, nothing_copied, to_text
from mirror_lib.replicate.sync_runs import MOST_SYNCS, MOST_SYNCS_OF_STAGE, SyncRuns, gathered, most_syncs
from mirror_lib.state.records import LedgerRow, LedgerRuns, OffsetSync, Position
from mirror_lib.state.run_rows import RunRows, parts

ROW = 24


def runs_of(*syncs: Tuple[int, int, int], partition: int = 0) -> SyncRuns:
    found = SyncRuns(("orders", partition))
    for sync in syncs:
        found.add(*sync)
    return found


def test_runs_that_touch_on_both_sides_are_one() -> None:
    told = list(runs_of((0, 5, 10), (10, 15, 1), (12, 16, 4), (16, 21, 2)))
    assert told == [OffsetSync("orders", 0, *sync) for sync in ((0, 5, 11), (12, 16, 4), (16, 21, 2))]


def test_what_was_told_stays_as_it_was_when_more_comes() -> None:
    runs = runs_of((0, 0, 10))
    told = runs.now()
    runs.add(10, 10, 5)
    runs.clear()
    assert [sync.record_count for sync in told] == [10] and not len(runs)


def test_partitions_of_which_nothing_was_acknowledged_are_not_told() -> None:
    (told,) = gathered([runs_of(), runs_of((0, 0, 1), partition=1)])
    assert list(told) == [OffsetSync("orders", 1, 0, 0, 1)]


def test_what_reaches_the_driver_at_once_is_shared_out_among_many_tasks() -> None:
    assert [most_syncs(tasks) for tasks in (0, 1, 8)] == [MOST_SYNCS] * 3
    assert [tasks * most_syncs(tasks) for tasks in (16, 64, 1000)] == [MOST_SYNCS_OF_STAGE] * 3


offsets = st.integers(0, 2**61)


@given(st.lists(st.tuples(offsets, offsets, st.integers(0, 2**61))))
def test_a_report_brings_them_to_the_driver_as_they_are(syncs: List[Tuple[int, int, int]]) -> None:
    report = replace(nothing_copied(3), syncs=gathered([runs_of(*syncs), runs_of((7, 8, 9), partition=1)]))
    assert from_text(to_text(report)) == report


def test_ledger_rows_of_a_partition_say_where_the_last_of_them_ends() -> None:
    syncs = ((0, 0, 10), (20, 11, 5))
    (told,) = gathered([runs_of(*syncs)])
    runs = LedgerRuns("orders", "A.orders", 0, "a", "b", told.flat)
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
