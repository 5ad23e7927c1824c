"""What a translation remembers: when each of its works is due, and positions of groups that are a little ahead of the
mirror, of which it takes the newest that the mirror has reached, never one beyond."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Tuple

from hypothesis import given
from hypothesis import strategies as st

from mirror_lib.facts import CommittedOffset
from mirror_lib.groups.decisions import REMEMBERED, PositionsAhead
from mirror_lib.groups.job import CHECKPOINTS, COMMIT, LEDGER, Timers
from tests.lab.flows import flow_of

OF = ("billing", "orders", 0)


def reached(ahead: PositionsAhead, now: int, mirrored_until: int) -> int:
    found = ahead.reached(OF, CommittedOffset(now, f"m{now}"), mirrored_until)
    assert found.metadata == f"m{found.offset}"
    return found.offset


def test_intervals_run_each_by_itself_and_the_ledger_was_read_at_the_start() -> None:
    checkpoints = flow_of(sync_group_offsets_interval=1e6, emit_checkpoints_interval=1e-9, refresh_groups_interval=1e6)
    due = Timers(checkpoints)
    taken = [due.take(name) for name in (COMMIT, CHECKPOINTS, COMMIT, CHECKPOINTS, LEDGER)]
    assert taken == [True, True, False, True, False]
    off = Timers(replace(checkpoints, emit_checkpoints_interval=None, refresh_groups_interval=None))
    assert not off.take(CHECKPOINTS) and not off.take(LEDGER)


def test_memory_is_bounded_and_a_thinned_one_still_follows_the_mirror() -> None:
    ahead, seconds = PositionsAhead(), 40 * REMEMBERED
    for now in range(seconds):
        assert reached(ahead, now + 1, 0) == now + 1
    positions = [reached(ahead, seconds + 1, until) for until in range(1, seconds)]
    assert positions == sorted(positions)
    lags = [until - at for until, at in enumerate(positions, 1) if at <= seconds]
    assert len(lags) > seconds / 2 and len(set(positions)) <= REMEMBERED + 1


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=60))
def test_answer_is_a_true_position_not_beyond_the_present_one_and_the_newest_there_is(
    steps: List[Tuple[int, int]],
) -> None:
    ahead, until = PositionsAhead(), 0
    seen: List[int] = []
    for now, more in steps:
        until = max(until, more)
        seen = [*(offset for offset in seen if offset < now), now]
        mirrored = [offset for offset in seen if offset <= until]
        assert reached(ahead, now, until) == (mirrored[-1] if mirrored else now)
