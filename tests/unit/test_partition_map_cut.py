"""Rows of one partition as the fewest runs: merging changes no pair, and cutting keeps and counts the right ones."""

from __future__ import annotations

from array import array
from random import Random
from typing import Dict, Iterable, List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_lib.errors import StateError
from mirror_lib.ledger.intervals import NO_RUNS, PartitionMap, Run


def pairs(runs: Iterable[Run]) -> Dict[int, int]:
    """The map record by record."""
    return {up + i: down + i for up, down, count in runs for i in range(count)}


@st.composite
def true_runs(draw: st.DrawFn) -> Tuple[Run, ...]:
    """Runs as a copier writes them: in order, with gaps on either side or none."""
    upstream, downstream, runs = draw(st.integers(0, 5)), draw(st.integers(0, 5)), []
    for count in draw(st.lists(st.integers(0, 6), min_size=1, max_size=12)):
        runs.append(Run(upstream, downstream, count))
        upstream += count + draw(st.sampled_from([0, 0, 1, 7]))
        downstream += count + draw(st.sampled_from([0, 0, 1]))
    return tuple(runs)


@given(true_runs(), st.randoms(use_true_random=False))
def test_merging_keeps_every_pair_whatever_the_order_and_repetition(runs: Tuple[Run, ...], random: Random) -> None:
    rows: List[Run] = [*runs, *random.choices(runs, k=3)]
    random.shuffle(rows)

    merged = PartitionMap.of(rows)

    assert pairs(merged) == pairs(runs) and merged.records == len(pairs(runs))
    assert PartitionMap.of(merged) == merged == PartitionMap.of_flat(array("q", [n for row in runs for n in row]))
    assert (merged.upstream_end, merged.downstream_end) == (runs[-1].upstream_end, runs[-1].downstream_end)
    for first, second in zip(merged, list(merged)[1:]):
        assert first.upstream_end <= second.upstream_offset and first.downstream_end <= second.downstream_offset
        assert (first.upstream_end, first.downstream_end) != second[:2]


def test_overlapping_rows_that_say_the_same_are_taken_once() -> None:
    assert list(PartitionMap.of([(0, 5, 10), (4, 9, 10), (2, 7, 3)])) == [(0, 5, 14)]


@pytest.mark.parametrize("turn", [1, -1], ids=["in order", "turned"])
def test_a_position_between_runs_is_dropped_and_a_last_one_is_kept(turn: int) -> None:
    rows = [(0, 0, 5), (6, 5, 0), (8, 6, 2), (14, 8, 0)]
    assert list(PartitionMap.of(rows[::turn])) == [(0, 0, 5), (8, 6, 2), (14, 8, 0)]


@given(true_runs(), st.integers(0, 60), st.integers(0, 60))
def test_cutting_keeps_the_pairs_that_both_logs_still_hold_and_counts_the_others(
    runs: Tuple[Run, ...], upstream_start: int, downstream_start: int
) -> None:
    before, whole = pairs(runs), PartitionMap.of(runs)
    held = {u: d for u, d in before.items() if u >= upstream_start and d >= downstream_start}

    kept, expired_upstream, expired_downstream = whole.cut(upstream_start, downstream_start)

    assert pairs(kept) == held
    assert expired_upstream == sum(u < upstream_start for u in before)
    assert expired_downstream == sum(u >= upstream_start and d < downstream_start for u, d in before.items())
    assert whole == PartitionMap.of(runs)
    assert kept == (PartitionMap.of(kept) if len(kept) else NO_RUNS)


def test_rows_of_a_source_that_was_truncated_are_told_from_other_contradictions() -> None:
    with pytest.raises(StateError, match="the source was truncated there if the table incidents has a row"):
        PartitionMap.of([(0, 0, 100), (80, 100, 20)])
    with pytest.raises(StateError) as refused:
        PartitionMap.of([(0, 5, 5), (5, 0, 1)])
    assert "truncated" not in str(refused.value)
