"""Undo: what a run moved goes back to where it stood, unless somebody has moved it since. Moves in, moves out. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Sequence

from mirror_lib.columns import aligned
from mirror_lib.facts import CommittedOffset, ConsumerGroup, TopicPartition
from mirror_lib.groups.verdicts import UNTOLD
from mirror_lib.ledger.records import GroupOffset, MoveKey

PUT_BACK = "put back"
REFUSED = f"refused: {UNTOLD}"


@dataclass(frozen=True)
class Undo:
    """What undoing a run does about a group and partition: `why` says it; `move` is `None` for nothing."""

    undone: GroupOffset
    present: Optional[int]
    why: str
    move: Optional[GroupOffset] = None


def plan_undo(
    moves: Sequence[GroupOffset],
    present: Mapping[str, Mapping[TopicPartition, CommittedOffset]],
    groups: Mapping[str, ConsumerGroup],
) -> List[Undo]:
    """Decide for each group and partition that `moves`, one run's on one cluster in order, touched.

    It goes back to where it stood before the first of them, if it still stands where the last one put it, or found it:
    a row is written before its move, which a crash or the broker may have stopped. Where somebody else moved it between
    two of them, only what the run did after that is undone. A group that is not in `present` did not tell.
    """
    first: Dict[MoveKey, GroupOffset] = {}
    last: Dict[MoveKey, GroupOffset] = {}
    for move in moves:
        before = last.get(move.key)
        if before is None or move.previous_offset not in (before.new_offset, before.previous_offset):
            first[move.key] = move
        last[move.key] = move
    return [_undo(first[key], last[key], present, groups) for key in sorted(last)]


def _undo(
    first: GroupOffset,
    last: GroupOffset,
    present: Mapping[str, Mapping[TopicPartition, CommittedOffset]],
    groups: Mapping[str, ConsumerGroup],
) -> Undo:
    if last.group not in present:
        return Undo(last, None, REFUSED)
    committed = present[last.group].get((last.topic, last.partition))
    at = None if committed is None else committed.offset
    group = groups.get(last.group)
    if at == first.previous_offset:
        return Undo(last, at, "stands there already")
    if at not in (last.new_offset, last.previous_offset):
        return Undo(last, at, "moved since by somebody else: left alone")
    if group is not None and group.has_members:
        return Undo(last, at, "the group has members: left alone")
    move = GroupOffset(
        cluster=last.cluster,
        group=last.group,
        topic=last.topic,
        partition=last.partition,
        previous_offset=at,
        previous_metadata="" if committed is None else committed.metadata,
        new_offset=first.previous_offset,
        metadata=first.previous_metadata,
        from_topic=last.from_topic,
        from_offset=last.from_offset,
        verdict=PUT_BACK,
        action="rollback",
    )
    return Undo(last, at, PUT_BACK, move)


def undo_lines(undos: Sequence[Undo], outcomes: Mapping[MoveKey, str]) -> List[str]:
    """A header and one line for each group and partition; `outcomes` where the undo was carried out."""
    header = ["GROUP", "TOPIC", "PARTITION", "PRESENT", "GOES BACK TO", "ACTION"]
    return aligned([header, *(_cells(undo, outcomes) for undo in undos)], right=(2, 3, 4))


def undo_json(undo: Undo, outcomes: Mapping[MoveKey, str]) -> Dict[str, object]:
    """One row as a JSON document; `back_to` is null where the offset is to be deleted or nothing is done."""
    return {
        "cluster": undo.undone.cluster,
        "group": undo.undone.group,
        "topic": undo.undone.topic,
        "partition": undo.undone.partition,
        "present_offset": undo.present,
        "back_to": undo.move.new_offset if undo.move else None,
        "action": outcomes.get(undo.undone.key, undo.why),
    }


def _cells(undo: Undo, outcomes: Mapping[MoveKey, str]) -> List[str]:
    back = "-" if undo.move is None else "none" if undo.move.new_offset is None else str(undo.move.new_offset)
    at = "-" if undo.present is None else str(undo.present)
    where = [undo.undone.group, undo.undone.topic, str(undo.undone.partition)]
    return [*where, at, back, outcomes.get(undo.undone.key, undo.why)]
