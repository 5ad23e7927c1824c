"""Formats decisions with their outcomes, and undone commits, as lines and JSON of `mirror groups`. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Optional, Sequence

from mirror_lib.groups.decisions import Decision, Outcome, verdict_counts
from mirror_lib.groups.translation import BEFORE_FIRST
from mirror_lib.ledger.records import NO_PARTITION
from mirror_lib.text import Column, counted, table_lines

if TYPE_CHECKING:
    from mirror_lib.groups.moves import Undo


def would(decision: Decision) -> str:
    if decision.translation.commit:
        return "commit"
    return "none: already there" if decision.already_there else "none"


def _remark(row: Outcome) -> Optional[str]:
    earlier = ["earlier records are not copied"] * (row.decision.translation.verdict == BEFORE_FIRST)
    return ", ".join([*earlier, *["metadata dropped"] * row.decision.drops_metadata]) or None


def _to(row: Outcome) -> str:
    topic, number = row.decision.there
    return topic if number == NO_PARTITION else f"{topic}-{number}"


NUMBER = "{}".format
_PLAN = (
    Column("Group", lambda row: row.decision.group),
    Column("From", lambda row: "{}-{}".format(*row.decision.here)),
    Column("Offset", lambda row: row.decision.position.offset, NUMBER),
    Column("To", _to),
    Column("To offset", lambda row: row.decision.translation.new_offset, NUMBER),
    Column("Present", lambda row: row.decision.present_offset, NUMBER),
    Column("Re-read", lambda row: row.decision.translation.reread, NUMBER),
    Column("Verdict", lambda row: row.decision.translation.verdict),
    Column("Action", lambda row: row.done),
    Column("Remark", _remark),
)
# Columns that are shown only if a row has another text.
_NOTHING = {"Present": ("-",), "Re-read": ("-", "0"), "Remark": ("-",)}


def plan_lines(rows: Sequence[Outcome], columns: Optional[int] = None) -> List[str]:
    """Without the columns in which no row has a value, so that a row fits a terminal."""
    shown = [each for each in _PLAN if any(each.text(row) not in _NOTHING.get(each.title, ()) for row in rows)]
    return table_lines(shown, rows, columns)


def plan_json(row: Outcome) -> Dict[str, object]:
    decision, translation = row.decision, row.decision.translation
    return {
        "group": decision.group,
        "topic": decision.here[0],
        "partition": decision.here[1],
        "offset": decision.position.offset,
        "to_topic": decision.there[0],
        "to_partition": None if decision.there[1] == NO_PARTITION else decision.there[1],
        "to_offset": translation.new_offset,
        "present_offset": decision.present_offset,
        "re_read": translation.reread,
        "lost": translation.lost,
        "verdict": translation.verdict,
        "action": row.done,
        "metadata_dropped": decision.drops_metadata,
    }


def summary(rows: Sequence[Outcome]) -> str:
    if not rows:
        return "no group has a committed offset on a topic of this flow"
    counts = verdict_counts(row.decision for row in rows)
    listed = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
    return f"{counted(len(rows), 'position')}: {listed}"


def _back_to(undo: Undo) -> object:
    if undo.move is None:
        return None
    return "none" if undo.move.new_offset is None else undo.move.new_offset


_UNDO = (
    Column("Group", lambda undo: undo.undone.group),
    Column("Topic", lambda undo: undo.undone.topic),
    Column("Partition", lambda undo: undo.undone.partition, NUMBER),
    Column("Present", lambda undo: undo.present, NUMBER),
    Column("Goes back to", _back_to, NUMBER),
    Column("Action", lambda undo: undo.done),
)


def undo_lines(undos: Sequence[Undo], columns: Optional[int] = None) -> List[str]:
    return table_lines(_UNDO, undos, columns)


def undo_json(undo: Undo) -> Dict[str, object]:
    """One row as a JSON document. `back_to` is null if the offset is deleted or nothing is done."""
    return {
        "cluster": undo.undone.cluster,
        "group": undo.undone.group,
        "topic": undo.undone.topic,
        "partition": undo.undone.partition,
        "present_offset": undo.present,
        "back_to": undo.move.new_offset if undo.move else None,
        "action": undo.done,
    }
