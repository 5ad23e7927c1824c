"""What of flows that place records anew is compared: pure decisions before both logs are read."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, Sequence, Tuple

from mirror_lib.facts import OffsetRange, TopicDescription
from mirror_lib.state.row_passes import REMOTE, SOURCE, PassRow, RowPass
from mirror_lib.topics.plan import CopiedTopic
from mirror_lib.verify.placed_range import Passes, PlacedCopy, growths, placed_copy

ORDERS = CopiedTopic(TopicDescription("orders", "id", 2), "there", "remote id", 2, keyed_over=3)


def source(number: int, start: int, end: int, topic_id: str = "id") -> PassRow:
    return PassRow(SOURCE, "orders", topic_id, number, start, end)


def remote(number: int, offset: int) -> PassRow:
    return PassRow(REMOTE, "there", "remote id", number, offset)


def passes_of(*passes: RowPass) -> Passes:
    firsts: Dict[Tuple[object, ...], Tuple[int, PassRow]] = {}
    for each in passes:
        for row in each.rows:
            firsts.setdefault((row.side, row.topic, row.topic_id, row.partition), (each.number, row))
    known = tuple(firsts.values())
    grown = {each.number: each for each in passes if each.number in growths(known).values()}
    return Passes(known, passes[-1], grown)


def compared(passes: Passes, starts: Sequence[int] = (0, 0), by_number: bool = False) -> PlacedCopy:
    """`starts` are the present ones of both logs, of the source's and of the remote ones."""
    ours, theirs = ({(name, n): OffsetRange(start, 99) for n in range(3)} for name, start in zip(
        ("orders", "there"), starts))  # fmt: skip
    return placed_copy([ORDERS], passes, by_number, ours, theirs)


FIRST = RowPass(0, (source(0, 30, 40), source(1, 0, 40), *(remote(n, 5 + n) for n in range(3))))
LAST = RowPass(1, (source(0, 40, 40), source(1, 40, 40), *(remote(n, 30) for n in range(3))))


def test_from_where_the_flow_began_to_its_last_pass_is_compared_on_both_sides() -> None:
    found = compared(passes_of(FIRST, LAST))
    assert [each.log for each in found.origins] == [OffsetRange(30, 40), OffsetRange(0, 40)]
    assert [each.log for each in found.remotes] == [OffsetRange(5, 30), OffsetRange(6, 30), OffsetRange(7, 30)]
    assert not any([each.expired for each in found.origins] + [each.expired for each in found.remotes])
    assert not found.under_way
    assert compared(passes_of(FIRST)).under_way


def test_what_expired_since_is_counted_and_not_looked_for() -> None:
    found = compared(passes_of(FIRST, LAST), (35, 7))
    assert [(each.log.log_start, each.expired) for each in found.origins] == [(35, 5), (35, 35)]
    assert [(each.log.log_start, each.expired) for each in found.remotes] == [(7, 2), (7, 1), (7, 0)]
    assert [each.log for each in compared(passes_of(FIRST, LAST), (50, 0)).origins] == [OffsetRange(40, 40)] * 2


def test_topic_of_which_there_is_another_by_now_is_not_compared_with_it() -> None:
    other = RowPass(0, (source(0, 0, 9, "other id"), *(remote(n, 0) for n in range(3))))
    assert compared(passes_of(other, RowPass(1, other.rows))).origins == ()


def test_remote_topic_that_took_the_name_of_the_one_copied_to_is_told_from_one_that_is_not_begun() -> None:
    gone = [replace(row, topic_id="gone") if row.side == REMOTE else row for row in FIRST.rows]
    assert compared(passes_of(RowPass(0, tuple(gone)))).others == {"there"}
    assert compared(passes_of(RowPass(0, FIRST.of(SOURCE)))).others == compared(passes_of(FIRST)).others == set()


def test_of_a_remote_topic_that_grew_what_was_copied_since_is_compared_where_keys_move() -> None:
    small = RowPass(0, (source(0, 0, 10), source(1, 0, 10), remote(0, 0), remote(1, 0)))
    wide = RowPass(1, (source(0, 10, 20), source(1, 10, 20), remote(0, 11), remote(1, 9), remote(2, 0)))
    passes = passes_of(small, wide, RowPass(2, LAST.rows))
    found = compared(passes)
    assert [each.log.log_start for each in found.origins] == [10, 10]
    assert [each.log.log_start for each in found.remotes] == [11, 9, 0]
    assert list(found.grown) == ["there"] and found.counts() == {"there": 3}
    kept = compared(passes, by_number=True)
    assert [each.log.log_start for each in kept.origins] + [each.log.log_start for each in kept.remotes] == [0] * 5
