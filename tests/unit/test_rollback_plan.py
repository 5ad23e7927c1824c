"""Undoing a run: each group goes back to where it stood, and what another client did since is not undone with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Optional

import pytest

from mirror_lib.facts import CommittedOffset, ConsumerGroup, GroupMember
from mirror_lib.groups.moves import REFUSED, Undo, plan_undo
from mirror_lib.groups.report import UNDONE, undone_offset
from mirror_lib.ledger.records import GroupOffset
from mirror_lib.text import document_of, table_lines

ORDERS = ("A.orders", 0)
EMPTY = ConsumerGroup("billing", "Empty", True, ())
LIVE = ConsumerGroup("billing", "Stable", False, (GroupMember("/h"),))


def move(previous: Optional[int], new: Optional[int], group: str = "billing", before: str = "") -> GroupOffset:
    return GroupOffset("B", group, *ORDERS, previous, before, new, "now", "orders", 99, "exact", "commit")


def undo(moves: List[GroupOffset], present: Optional[int], group: Optional[ConsumerGroup] = EMPTY) -> Undo:
    at = {} if present is None else {ORDERS: CommittedOffset(present, "now")}
    groups: Dict[str, ConsumerGroup] = {} if group is None else {"billing": group}
    (found,) = plan_undo(moves, {"billing": at}, groups)
    return found


def goes_back_to(found: Undo) -> object:
    return found.done if found.move is None else (found.move.new_offset, found.move.metadata)


def test_group_goes_back_to_its_offset_and_metadata_of_before() -> None:
    assert goes_back_to(undo([move(5, 10, before="then")], 10)) == (5, "then")


def test_first_write_is_deleted() -> None:
    assert goes_back_to(undo([move(None, 10)], 10)) == (None, "")


@pytest.mark.parametrize("before", [None, 5])
def test_group_that_does_not_tell_where_it_stands_is_not_said_to_be_undone(before: Optional[int]) -> None:
    (found,) = plan_undo([move(before, 10)], {}, {})
    assert (found.move, found.done) == (None, REFUSED) and found.done.startswith("refused: ")


def test_several_moves_of_one_run_are_undone_as_one() -> None:
    assert goes_back_to(undo([move(5, 10, before="then"), move(10, 20), move(20, 30)], 30)) == (5, "then")


def test_what_somebody_else_did_between_two_moves_is_not_undone_with_them() -> None:
    assert goes_back_to(undo([move(None, 10), move(15, 20, before="a consumer's"), move(20, 30)], 30)) == (
        15,
        "a consumer's",
    )


def test_move_that_was_refused_and_made_later_goes_back_to_where_the_group_really_stood() -> None:
    assert goes_back_to(undo([move(None, 10), move(None, 20)], 20)) == (None, "")


def test_move_that_was_refused_between_others_does_not_end_what_is_undone() -> None:
    assert goes_back_to(undo([move(5, 10, before="then"), move(10, 20), move(10, 25)], 25)) == (5, "then")


def test_moves_before_one_that_was_never_made_are_undone() -> None:
    assert goes_back_to(undo([move(5, 10, before="then"), move(10, 20)], 10)) == (5, "then")
    assert goes_back_to(undo([move(None, 10), move(10, 20), move(10, 25)], 10)) == (None, "")


def test_move_that_was_written_down_and_never_made_needs_no_undo() -> None:
    assert goes_back_to(undo([move(None, 10)], None, None)) == "already there"
    assert goes_back_to(undo([move(5, 10)], 5)) == "already there"


@pytest.mark.parametrize("present", [11, 9, None])
def test_group_that_moved_since_is_left_alone(present: Optional[int]) -> None:
    assert goes_back_to(undo([move(5, 10)], present)) == "another client committed since: left unchanged"


@pytest.mark.parametrize("state", ["Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"])
def test_group_with_members_is_left_alone(state: str) -> None:
    for group in (replace(LIVE, state=state), replace(EMPTY, state=state)):
        assert goes_back_to(undo([move(5, 10)], 10, group)) == "the group has members: left alone"


def test_undo_of_an_undo_brings_the_first_move_back() -> None:
    first = undo([move(None, 10)], 10).move
    assert first is not None and (first.previous_offset, first.new_offset, first.action) == (10, None, "rollback")
    second = undo([first], None, None).move
    assert second is not None
    assert (second.previous_offset, second.new_offset, second.metadata) == (None, 10, "now")


def test_groups_are_undone_each_by_itself() -> None:
    moves = [move(5, 10), move(None, 7, "audit")]
    present = {"billing": {ORDERS: CommittedOffset(10)}, "audit": {ORDERS: CommittedOffset(8)}}
    audit, billing = plan_undo(moves, present, {"billing": EMPTY})
    assert (audit.undone.group, audit.move, billing.undone.group) == ("audit", None, "billing")
    assert goes_back_to(billing) == (5, "")


def test_table_and_json_say_what_happens_to_each() -> None:
    undos = [undo([move(None, 10)], 10), undo([move(5, 10)], 11)]
    assert [line.split() for line in table_lines(UNDONE, map(undone_offset, undos))[1:]] == [
        ["billing", "A.orders", "0", "10", "none", "put", "back"],
        ["billing", "A.orders", "0", "11", "-", "another", "client", "committed", "since:", "left", "unchanged"],
    ]
    assert document_of(undone_offset(replace(undos[0], done="refused: why"))) == {
        "cluster": "B",
        "group": "billing",
        "topic": "A.orders",
        "partition": 0,
        "present_offset": 10,
        "back_to": None,
        "action": "refused: why",
    }
