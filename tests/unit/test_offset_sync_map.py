"""The runs of one partition as a map: merging changes no answer, contradictions are refused, cutting counts."""

from __future__ import annotations

from random import Random
from typing import Dict, List, Sequence, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_lib.errors import StateError
from mirror_lib.state.offset_map import cut_front, downstream_end, downstream_of, merge_packed, merge_runs, upstream_end
from mirror_lib.state.records import OffsetSync, packed


def sync(upstream: int, downstream: int, count: int) -> OffsetSync:
    return OffsetSync("orders", 0, upstream, downstream, count)


def pairs(syncs: Sequence[OffsetSync]) -> Dict[int, int]:
    """The map record by record."""
    return {s.upstream_offset + i: s.downstream_offset + i for s in syncs for i in range(s.record_count)}


@st.composite
def true_runs(draw: st.DrawFn) -> Tuple[OffsetSync, ...]:
    """Runs as a copier writes them: in order, with gaps on either side or none."""
    upstream, downstream, runs = draw(st.integers(0, 5)), draw(st.integers(0, 5)), []
    for count in draw(st.lists(st.integers(0, 6), min_size=1, max_size=12)):
        runs.append(sync(upstream, downstream, count))
        upstream += count + draw(st.sampled_from([0, 0, 1, 7]))
        downstream += count + draw(st.sampled_from([0, 0, 1]))
    return tuple(runs)


@given(true_runs(), st.randoms(use_true_random=False))
def test_merging_keeps_every_pair_whatever_the_order_and_repetition(
    runs: Tuple[OffsetSync, ...], random: Random
) -> None:
    rows: List[OffsetSync] = [*runs, *random.choices(runs, k=3)]
    random.shuffle(rows)

    merged = merge_runs(rows)

    assert pairs(merged) == pairs(runs)
    assert merge_runs(merged) == merged == tuple(merge_packed(packed("orders", 0, rows)))
    ends = [(upstream_end(run), downstream_end(run)) for run in merged]
    assert ends[-1] == (upstream_end(runs[-1]), downstream_end(runs[-1]))
    assert all(end[0] <= m.upstream_offset and end[1] <= m.downstream_offset for end, m in zip(ends, merged[1:]))


@given(true_runs())
def test_no_two_merged_runs_continue_each_other_on_both_sides(runs: Tuple[OffsetSync, ...]) -> None:
    merged = merge_runs(runs)

    for first, second in zip(merged, merged[1:]):
        assert (upstream_end(first), downstream_end(first)) != (second.upstream_offset, second.downstream_offset)


def test_a_million_records_copied_in_order_are_one_run() -> None:
    assert merge_runs([sync(n * 1000, n * 1000, 1000) for n in range(1000)]) == (sync(0, 0, 1_000_000),)


def test_overlapping_rows_that_say_the_same_are_taken_once() -> None:
    assert merge_runs([sync(0, 5, 10), sync(4, 9, 10), sync(2, 7, 3)]) == (sync(0, 5, 14),)


def test_a_position_between_runs_is_dropped_and_a_last_one_is_kept() -> None:
    assert merge_runs([sync(0, 0, 5), sync(6, 5, 0), sync(8, 6, 2), sync(14, 8, 0)]) == (
        sync(0, 0, 5),
        sync(8, 6, 2),
        sync(14, 8, 0),
    )


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([sync(0, 0, 5), sync(4, 5, 1)], id="one upstream offset at two places"),
        pytest.param([sync(0, 0, 5), sync(5, 4, 1)], id="one downstream offset for two records"),
        pytest.param([sync(0, 10, 5), sync(5, 0, 5)], id="out of order"),
        pytest.param([sync(0, 0, 5), sync(0, 5, 5)], id="copied twice"),
        pytest.param([sync(10, 20, 5), sync(12, 10, 0)], id="a position inside a run, elsewhere"),
    ],
)
def test_rows_that_contradict_each_other_are_refused(rows: List[OffsetSync]) -> None:
    with pytest.raises(StateError, match="contradicts itself on orders-0"):
        merge_runs(rows)
    with pytest.raises(StateError, match="contradicts itself on orders-0"):
        merge_packed(packed("orders", 0, rows))


@given(true_runs(), st.integers(0, 80))
def test_the_next_record_downstream_is_the_first_one_at_or_after_the_upstream_offset(
    runs: Tuple[OffsetSync, ...], upstream: int
) -> None:
    merged = merge_runs(runs)
    later = [downstream for offset, downstream in sorted(pairs(runs).items()) if offset >= upstream]

    found = downstream_of([run for run in merged if run.record_count], upstream)

    if later:
        assert found == later[0]


@given(true_runs(), st.integers(0, 60), st.integers(0, 60))
def test_cutting_keeps_the_pairs_that_both_logs_still_hold_and_counts_the_others(
    runs: Tuple[OffsetSync, ...], upstream_start: int, downstream_start: int
) -> None:
    before = pairs(runs)
    held = {u: d for u, d in before.items() if u >= upstream_start and d >= downstream_start}

    cut = cut_front(packed("orders", 0, merge_runs(runs)), upstream_start, downstream_start)

    assert pairs(cut.runs) == held
    assert cut.expired_upstream == sum(u < upstream_start for u in before)
    assert cut.expired_downstream == sum(u >= upstream_start and d < downstream_start for u, d in before.items())


def test_rows_of_a_source_that_was_truncated_are_told_from_other_contradictions() -> None:
    with pytest.raises(StateError, match="the source was truncated there, if an incident `data lost` says so"):
        merge_runs([sync(0, 0, 100), sync(80, 100, 20)])
    with pytest.raises(StateError) as refused:
        merge_runs([sync(0, 5, 5), sync(5, 0, 1)])
    assert "truncated" not in str(refused.value)
