"""The ledger of one partition as a map: who moves by it skips no record and reads none twice, in either direction."""

from __future__ import annotations

from array import array
from random import Random
from typing import Callable, List, Sequence

import pytest
from hypothesis import find, given
from hypothesis import strategies as st

from mirror_lib.errors import StateError
from mirror_lib.ledger.intervals import NO_RUNS, PartitionMap, Place
from tests.unit.offset_histories import History, Triple, histories
from tests.unit.test_reconcile import pairs_of


def mapped(history: History) -> PartitionMap:
    return PartitionMap.of(history.rows, "orders-0")


def every_upstream(history: History) -> range:
    """From the first offset on that the ledger has: without an anchor it has no gap at the start."""
    return range(max(history.start[0], min(row[0] for row in history.rows)), history.end[0] + 1)


GAPS = PartitionMap.of([(0, 0, 5), (8, 7, 5), (15, 13, 0)])
LATE, ANCHORED = PartitionMap.of([(100, 40, 10)]), PartitionMap.of([(90, 40, 0), (100, 41, 10)])


@pytest.mark.parametrize(
    ("found", "place"),
    [
        pytest.param(GAPS.to_downstream(4), Place("inside", 4, 4, 4), id="last record of a run"),
        pytest.param(GAPS.to_downstream(7), Place("gap", 5, 5, 7), id="last offset of a gap"),
        pytest.param(GAPS.to_downstream(8), Place("inside", 7, 5, 7), id="first record after a gap and markers"),
        pytest.param(GAPS.to_downstream(15), Place("end", 13, 12, 13), id="at the ledger's last position"),
        pytest.param(GAPS.to_downstream(19), Place("beyond", 13, 12, 13, beyond_by=4), id="ahead of the mirror"),
        pytest.param(LATE.to_downstream(99), Place("before", 40, 40, 40), id="before the first run"),
        pytest.param(ANCHORED.to_downstream(80), Place("before", 40, 40, 41), id="before the first position"),
        pytest.param(ANCHORED.to_downstream(95), Place("gap", 40, 40, 41), id="after the first position"),
        pytest.param(GAPS.to_upstream(6), Place("gap", 5, 5, 8), id="upstream, among markers"),
        pytest.param(GAPS.to_upstream(7), Place("inside", 5, 5, 8), id="upstream, first record after a gap"),
        pytest.param(GAPS.to_upstream(13), Place("end", 13, 13, 15), id="upstream, end of what is mapped"),
        pytest.param(GAPS.to_upstream(16), Place("beyond", 13, 13, 15, beyond_by=3), id="upstream, ahead"),
        pytest.param(LATE.to_upstream(39), Place("before", 100, 100, 100), id="upstream, before the first run"),
    ],
)
def test_place(found: Place, place: Place) -> None:
    assert found == place


@given(histories())
def test_group_that_moves_downstream_resumes_where_it_stopped(history: History) -> None:
    the_map = mapped(history)
    for g in every_upstream(history):
        place = the_map.to_downstream(g)
        assert place.kind in ("inside", "gap", "end")
        assert place.offset == history.copied.get(g, place.offset)
        for offset in (place.offset, place.earliest, place.latest):
            assert history.read_downstream(offset) == history.read_upstream(g)


@given(histories())
def test_who_moves_upstream_reads_on_where_he_stopped_and_all_that_the_mirror_left_out(history: History) -> None:
    the_map = mapped(history)
    for d in range(the_map.to_downstream(every_upstream(history)[0]).offset, history.end[1] + 1):
        place = the_map.to_upstream(d)
        assert place.kind in ("inside", "gap", "end")
        assert history.read_upstream(place.offset) == history.read_downstream(d)
        assert all(up >= place.offset for up in history.never_copied_after(d) if up >= every_upstream(history)[0])


@given(histories(), st.integers(1, 1000))
def test_who_is_ahead_of_the_mirror_is_told_by_how_much(history: History, ahead: int) -> None:
    place = mapped(history).to_downstream(history.end[0] + ahead)
    assert (place.kind, place.beyond_by, place.offset) == ("beyond", ahead, history.end[1])


@given(histories(), st.randoms(use_true_random=False))
def test_order_and_repetition_of_rows_change_nothing(history: History, random: Random) -> None:
    """Rows are joined where they continue each other or overlap."""
    rows = [*history.rows, *random.choices(history.rows, k=3)]
    random.shuffle(rows)
    merged = PartitionMap.of(rows)
    assert merged == mapped(history) == PartitionMap.of(merged)
    assert merged == PartitionMap.of_flat(array("q", [number for row in rows for number in row]))
    assert dict(pairs_of(merged)) == history.copied and merged.records == len(history.copied)
    assert (merged.upstream_end, merged.downstream_end) == history.end
    for first, second in zip(merged, list(merged)[1:]):
        assert first.upstream_end <= second.upstream_offset and first.downstream_end <= second.downstream_offset
        assert (first.upstream_end, first.downstream_end) != second[:2]


TRIPLES = st.lists(st.tuples(st.integers(0, 25), st.integers(0, 25), st.integers(-1, 6)), min_size=1, max_size=3)
AROUND = histories().map(lambda history: history.rows)


def said(rows: Sequence[Triple], later: Sequence[Triple] = ()) -> object:
    """The map of `rows`, to which `later` ones are added, or why there is none."""
    try:
        built = PartitionMap.of(rows, "orders-0")
        return built.extended(array("q", [number for row in later for number in row]), "orders-0") if later else built
    except StateError as error:
        return str(error)


@given(AROUND, st.integers(0, 30), TRIPLES | st.just([]), st.lists(st.integers(0, 30), max_size=4))
def test_rows_that_are_added_anywhere_say_what_they_say_together_with_the_map(
    rows: List[Triple], begun: int, others: List[Triple], again: List[int]
) -> None:
    first = sorted(rows)[: begun + 1]
    known = PartitionMap.of(first)
    kept = list(zip(known._upstream, known._downstream, known._counts))
    later = [*others, *(rows[i] for i in again if i < len(rows))]

    assert said(first, later) == said([*kept, *later])


@given(histories(), st.data())
def test_missing_rows_make_nobody_skip_a_record(history: History, data: st.DataObject) -> None:
    """Except before the first row that is left, and there the place says so."""
    rows = data.draw(st.lists(st.sampled_from(history.rows), min_size=1))
    left = PartitionMap.of(rows)
    for g in every_upstream(history):
        place = left.to_downstream(g)
        if place.kind != "before":
            assert set(history.read_upstream(g)) <= set(history.read_downstream(place.offset))


Formula = Callable[[History, int], int]


def newest_sync_plus_distance(history: History, g: int) -> int:
    """MirrorMaker 2 up to 3.4: one sync, and the distance from it."""
    up, down = max(history.copied.items())
    return down + (g - up)


def after_the_hole(history: History, g: int) -> int:
    """Takes a row that is missing for a gap in the source, and continues after it."""
    middle = history.rows[len(history.rows) // 2]
    return PartitionMap.of([row for row in history.rows if row != middle]).to_downstream(g).latest


def literal(history: History, g: int) -> int:
    return g


def skips(history: History, formula: Formula) -> bool:
    if not history.copied or len(set(history.rows)) < 2:
        return False
    upstream = range(every_upstream(history)[0], max(history.copied) + 1)
    return any(not set(history.read_upstream(g)) <= set(history.read_downstream(formula(history, g))) for g in upstream)


@pytest.mark.parametrize("formula", [newest_sync_plus_distance, after_the_hole, literal])
def test_formula_that_skips_records_is_caught(formula: Formula) -> None:
    find(histories(), lambda history: skips(history, formula))


@given(histories())
def test_runs_have_every_record(history: History) -> None:
    assert {up + i: down + i for up, down, count in mapped(history) for i in range(count)} == history.copied


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([(0, 0, 5), (4, 5, 1)], id="one upstream offset at two places"),
        pytest.param([(0, 0, 5), (5, 4, 1)], id="one downstream offset for two records"),
        pytest.param([(0, 10, 5), (5, 0, 5)], id="out of order"),
        pytest.param([(0, 0, 5), (0, 5, 5)], id="copied twice"),
        pytest.param([(10, 20, 5), (12, 10, 0)], id="a position inside a run, elsewhere"),
        pytest.param([(400, 0, 200), (500, 200, 0), (500, 200, 9)], id="source truncated and copied on"),
    ],
)
def test_rows_that_contradict_each_other_are_refused(rows: Sequence[Triple]) -> None:
    with pytest.raises(StateError, match=r"the ledger contradicts itself on orders-0: .* yet .*"):
        PartitionMap.of(rows, "orders-0")
    with pytest.raises(StateError):
        PartitionMap.of(rows[::-1], "orders-0")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        pytest.param([], "there are no rows", id="no rows"),
        pytest.param([(0, 0, 5), (-1, 5, 2)], "number -1", id="negative offset"),
        pytest.param([(0, 0, 5), (5, 5, -2)], "number -2", id="negative count"),
        pytest.param([(0, 0, 5), (None, 5, 2)], "not three whole numbers", id="null"),
        pytest.param([(0, 0, 5), (5, 5, 2**63)], "63 bits", id="too large"),
        pytest.param([(0, 0, 5), (5, 5)], "not three whole numbers", id="a column missing"),
        pytest.param(
            *([(0, 0, 100), (80, 100, 20)], "the source was truncated there if the table events has a row"),
            id="truncated source",
        ),
    ],
)
def test_rows_that_no_mirror_writes_are_refused(rows: List[Triple], said: str) -> None:
    with pytest.raises(StateError, match=said) as refused:
        PartitionMap.of(rows, "orders-0")
    assert "orders-0" in str(refused.value)


@pytest.mark.parametrize("turn", [1, -1], ids=["in order", "turned"])
def test_a_position_between_runs_is_dropped_and_a_last_one_is_kept(turn: int) -> None:
    rows = [(0, 0, 5), (6, 5, 0), (8, 6, 2), (14, 8, 0)]
    assert list(PartitionMap.of(rows[::turn])) == [(0, 0, 5), (8, 6, 2), (14, 8, 0)]


@given(histories(), st.integers(0, 60), st.integers(0, 60))
def test_cutting_keeps_the_pairs_that_both_logs_still_hold_and_counts_the_others(
    history: History, upstream_start: int, downstream_start: int
) -> None:
    before, whole = history.copied, mapped(history)
    held = {u: d for u, d in before.items() if u >= upstream_start and d >= downstream_start}

    kept, expired_upstream, expired_downstream = whole.cut(upstream_start, downstream_start)

    assert dict(pairs_of(kept)) == held
    assert expired_upstream == sum(u < upstream_start for u in before)
    assert expired_downstream == sum(u >= upstream_start and d < downstream_start for u, d in before.items())
    assert whole == mapped(history)
    assert kept == (PartitionMap.of(kept) if len(kept) else NO_RUNS)
