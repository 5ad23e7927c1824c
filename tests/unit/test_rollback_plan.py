"""Commits of a run and their undoing: a group that another client moved meanwhile stays where it is."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

import pytest

from mirror_lib.facts import CommittedOffset, ConsumerGroup, GroupMember
from mirror_lib.groups.moves import ANOTHER_TOPIC, MOVED_MEANWHILE, REFUSED, GroupMover, UndoneOffset, plan_undo
from mirror_lib.ledger.records import GroupOffset

ORDERS = ("A.orders", 0)
EMPTY = ConsumerGroup("billing", "Empty", True, ())
LIVE = ConsumerGroup("billing", "Stable", False, (GroupMember("/h"),))


def move(previous: Optional[int], new: Optional[int], group: str = "billing", before: str = "") -> GroupOffset:
    return GroupOffset("B", group, *ORDERS, previous, before, new, "now", "orders", 99, "exact", "commit")


def undo(moves: List[GroupOffset], present: Optional[int], group: Optional[ConsumerGroup] = EMPTY) -> UndoneOffset:
    at = {} if present is None else {ORDERS: CommittedOffset(present, "now")}
    groups: Dict[str, ConsumerGroup] = {} if group is None else {"billing": group}
    (found,) = plan_undo(moves, {"billing": at}, groups)
    return found


def goes_back_to(found: UndoneOffset) -> object:
    return found.action if found.move is None else (found.move.new_offset, found.move.metadata)


CHANGED = "another client or a later run committed since: left unchanged"


@pytest.mark.parametrize(
    ("moves", "present", "back_to"),
    [
        pytest.param([move(5, 10, before="then")], 10, (5, "then"), id="one move"),
        pytest.param([move(None, 10)], 10, (None, ""), id="the first commit is deleted"),
        pytest.param([move(5, 10, before="then"), move(10, 20), move(20, 30)], 30, (5, "then"), id="several moves"),
        pytest.param(
            *([move(None, 10), move(15, 20, before="a consumer's"), move(20, 30)], 30, (15, "a consumer's")),
            id="another client between two moves",
        ),
        pytest.param([move(None, 10), move(None, 20)], 20, (None, ""), id="refused, and made later"),
        pytest.param([move(5, 10, before="then"), move(10, 20), move(10, 25)], 25, (5, "then"), id="refused between"),
        pytest.param([move(5, 10, before="then"), move(10, 20)], 10, (5, "then"), id="the last was never made"),
        pytest.param([move(None, 10), move(10, 20), move(10, 25)], 10, (None, ""), id="the last two were never made"),
        pytest.param([move(None, 10)], None, "already there", id="never made, and not there"),
        pytest.param([move(5, 10)], 5, "already there", id="never made"),
        *(pytest.param([move(5, 10)], present, CHANGED, id=f"now at {present}") for present in (11, 9, None)),
    ],
)
def test_group_goes_back_to_where_it_was_unless_another_client_committed(
    moves: List[GroupOffset], present: Optional[int], back_to: object
) -> None:
    assert goes_back_to(undo(moves, present)) == back_to


def test_group_whose_offset_cannot_be_read_is_refused() -> None:
    for before in (None, 5):
        (found,) = plan_undo([move(before, 10)], {}, {})
        assert (found.move, found.action) == (None, REFUSED) and found.action.startswith("refused: ")


def test_group_with_members_is_left_alone() -> None:
    for group in (LIVE, replace(EMPTY, state="PreparingRebalance")):
        assert goes_back_to(undo([move(5, 10)], 10, group)) == "the group has members: left alone"


@pytest.mark.parametrize(
    ("before", "after", "recreated", "reason"),
    [
        pytest.param(5, 5, (), None, id="repeated"),
        pytest.param(5, 10, (), None, id="carried out"),
        pytest.param(5, 12, (), MOVED_MEANWHILE, id="moved before it is repeated"),
        pytest.param(7, 7, (), MOVED_MEANWHILE, id="moved since the decision"),
        pytest.param(5, 5, ("A.orders",), ANOTHER_TOPIC, id="another topic"),
    ],
)
def test_commit_without_an_answer_is_repeated_only_where_the_group_did_not_move(
    before: int, after: int, recreated: Tuple[str, ...], reason: Optional[str]
) -> None:
    at = [before]

    def commit(_: str, offsets: Mapping[object, object], worth_repeating: Callable[[], bool]) -> Dict[object, object]:
        at[0] = after
        return dict.fromkeys(offsets, None if worth_repeating() else "no answer")

    table: Any = SimpleNamespace(latest=lambda *_: {}, append=lambda *given, **numbers: None)
    cluster: Any = SimpleNamespace(alias="B", commit_offsets=commit)
    cluster.committed_offsets = lambda groups: {"billing": {ORDERS: CommittedOffset(at[0])}}
    made = GroupMover(table, "A->B", "run", cluster, lambda: recreated).move([move(5, 10)])
    assert list(made.values()) == [reason]
    assert at == [after if before == 5 and not recreated else before]
