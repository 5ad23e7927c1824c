"""From what two clusters tell to a decision for each group and partition, and the words in which it is shown."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any, Dict, List, Optional, Tuple

from mirror_lib.facts import CommittedOffset, ConsumerGroup, OffsetRange
from mirror_lib.groups.decisions import (
    NO_ANSWER,
    Decision,
    Known,
    Outcome,
    PositionsAhead,
    decide,
    left_on_source,
    not_moved,
)
from mirror_lib.groups.map import FlowMaps
from mirror_lib.groups.report import plan_lines, planned_offset, would
from mirror_lib.groups.survey import Pair, Survey
from mirror_lib.ledger.records import GroupOffset, PartitionKey

HERE, THERE = ("orders", 0), ("A.orders", 0)
KEY = PartitionKey("u1", "u2", "orders", 0)
MAPS = FlowMaps({KEY: array("q", [0, 50, 100, 100, 155, 20])})
EMPTY = ConsumerGroup("billing", "Empty", False, ())
FOUND = Survey(
    pairs={HERE: Pair(HERE, THERE, KEY)},
    positions={"billing": {HERE: CommittedOffset(40, "m")}},
    present={"billing": {}},
    groups={},
    logs={THERE: OffsetRange(50, 175)},
    ends={HERE: 100},
)


def decided(moves: Optional[Dict[Tuple[str, str, str, int], GroupOffset]] = None, **changes: Any) -> Decision:
    (found,) = decide(replace(FOUND, **changes), Known(MAPS, moves or {}, "B"), PositionsAhead())
    return found


def shown(decision: Decision) -> List[str]:
    """The cells of its row from its offset on."""
    return plan_lines([planned_offset(Outcome(decision, would(decision)))])[1].split()[2:]


def test_group_that_is_absent_on_the_other_side_is_written_and_one_of_unknown_state_is_not() -> None:
    decision = decided()
    assert shown(decision) == ["40", "A.orders-0", "90", "exact", "commit"]
    assert decision.move("B") == GroupOffset("B", "billing", *THERE, None, "", 90, "m", "orders", 40, "exact", "commit")
    # It has offsets there, so it exists, and a client may be working with it.
    there = {"billing": {("other", 3): CommittedOffset(7)}}
    for present, groups, verdict in (
        (there, {}, f"untranslatable: {NO_ANSWER}"),
        ({}, {}, f"untranslatable: {NO_ANSWER}"),
        (there, {"billing": EMPTY}, "exact"),
    ):
        assert decided(present=present, groups=groups).translation.verdict == verdict


def test_offset_that_a_group_was_translated_from_is_found_on_the_source_alone() -> None:
    over = GroupOffset("B", "billing", *THERE, None, "", 90, "m", "orders", 40, "exact", "commit")
    back = replace(over, cluster="A", topic="orders", from_topic="A.orders", from_offset=90, new_offset=40)
    undone = replace(over, group="other", action="undo")
    assert left_on_source([over, back, undone], "A") == {("A", "billing", "orders", 0): 40}


def test_rows_that_contradict_each_other_make_a_partition_untranslatable_and_no_other() -> None:
    other = PartitionKey("u1", "u2", "orders", 1)
    maps = FlowMaps({KEY: array("q", [0, 50, 100, 10, 200, 100]), other: array("q", [0, 0, 100])})
    pairs = {HERE: FOUND.pairs[HERE], ("orders", 1): Pair(("orders", 1), ("A.orders", 1), other)}
    positions = {"billing": {at: CommittedOffset(40) for at in pairs}}
    logs = {pair.there: OffsetRange(0, 200) for pair in pairs.values()}
    found = decide(replace(FOUND, pairs=pairs, positions=positions, logs=logs), Known(maps, {}, "B"), PositionsAhead())
    assert found[0].translation.verdict.startswith("untranslatable: the ledger contradicts itself on orders-0")
    assert found[1].translation.verdict == "exact" and maps.contradicted


def test_plan_says_where_metadata_is_dropped_or_was() -> None:
    grown: Dict[str, Any] = {"ends": {HERE: 120}}
    dropped = decided(**grown)
    assert dropped.move("B").metadata == "" and planned_offset(Outcome(dropped, would(dropped))).metadata_dropped
    grown["groups"] = {"billing": EMPTY}
    for metadata, lost in (("", True), ("m", False)):
        there = decided(present={"billing": {THERE: CommittedOffset(90, metadata)}}, **grown)
        assert there.already_there and there.drops_metadata is lost
    assert not decided().drops_metadata


def test_group_that_mirrormaker_synced_is_moved_and_one_that_committed_for_itself_is_not() -> None:
    """By its checkpoints: the offset and its metadata."""
    simple = replace(EMPTY, simple=True)
    synced = frozenset({("billing", *THERE, CommittedOffset(60, "m"))})
    for offset, metadata, moved in ((60, "m", True), (61, "m", False), (60, "", False)):
        present = {"billing": {THERE: CommittedOffset(offset, metadata)}}
        found = replace(FOUND, present=present, groups={"billing": simple})
        (decision,) = decide(found, Known(MAPS, {}, "B", synced=synced), PositionsAhead())
        assert decision.translation.commit is moved
        assert bool(not_moved([decision])) is not moved
        assert moved or decision.translation.verdict == "committed by another client"
    # Not once the mirror has moved the group: the commit is a later one of the same offset.
    key = ("B", "billing", *THERE)
    moved_on = {key: GroupOffset(*key, 55, "", 70, "", "orders", 20, "exact", "commit")}
    again = replace(FOUND, present={"billing": {THERE: CommittedOffset(60, "m")}}, groups={"billing": simple})
    (later,) = decide(again, Known(MAPS, moved_on, "B", synced=synced), PositionsAhead())
    assert later.translation.verdict == "committed by another client"
