"""Formats decisions and their outcomes as the lines and JSON of `mirror groups plan`. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence

from mirror_lib.groups.decisions import Decision, verdict_counts
from mirror_lib.groups.translation import BEFORE_FIRST
from mirror_lib.ledger.records import NO_PARTITION
from mirror_lib.text import aligned, counted

# Columns of the table, and what stands in one that has nothing to say.
_HEADER = ("GROUP", "FROM", "OFFSET", "TO", "TO OFFSET", "PRESENT", "RE-READ", "VERDICT", "ACTION", "REMARK")
_RIGHT = ("OFFSET", "TO OFFSET", "PRESENT", "RE-READ")
_NOTHING = {"PRESENT": {"-"}, "RE-READ": {"-", "0"}, "REMARK": {"-"}}


@dataclass(frozen=True)
class PlannedMove:
    """One row of the table: a decision, and its planned or actual result."""

    decision: Decision
    action: str


def would(decision: Decision) -> str:
    if decision.translation.commit:
        return "commit"
    return "none: already there" if decision.already_there else "none"


def plan_lines(moves: Sequence[PlannedMove], columns: Optional[int] = None) -> List[str]:
    """PRESENT, RE-READ and REMARK appear only if a row has a value, so that a row fits a terminal."""
    rows = [_cells(move) for move in moves]
    by_column = zip(_HEADER, zip(*rows))
    reported = [i for i, (name, cells) in enumerate(by_column) if not set(cells) <= _NOTHING.get(name, set())]
    shown = [[row[i] for i in reported] for row in (_HEADER, *rows)]
    return aligned(shown, [at for at, i in enumerate(reported) if _HEADER[i] in _RIGHT], columns)


def _cells(move: PlannedMove) -> List[str]:
    decision, translation = move.decision, move.decision.translation
    present = None if decision.present is None else decision.present.offset
    numbers = (translation.new_offset, present, translation.reread)
    new, at_present, reread = ("-" if number is None else str(number) for number in numbers)
    (topic, number), (to_topic, to_number) = decision.here, decision.there
    to = to_topic if to_number == NO_PARTITION else f"{to_topic}-{to_number}"
    where = [f"{topic}-{number}", str(decision.position.offset), to]
    remarks = ["earlier records are not copied"] * (translation.verdict == BEFORE_FIRST)
    remark = ", ".join([*remarks, *["metadata dropped"] * decision.drops_metadata]) or "-"
    return [decision.group, *where, new, at_present, reread, translation.verdict, move.action, remark]


def plan_json(move: PlannedMove) -> Dict[str, object]:
    decision, translation = move.decision, move.decision.translation
    present: Optional[int] = None if decision.present is None else decision.present.offset
    return {
        "group": decision.group,
        "topic": decision.here[0],
        "partition": decision.here[1],
        "offset": decision.position.offset,
        "to_topic": decision.there[0],
        "to_partition": None if decision.there[1] == NO_PARTITION else decision.there[1],
        "to_offset": translation.new_offset,
        "present_offset": present,
        "re_read": translation.reread,
        "lost": translation.lost,
        "verdict": translation.verdict,
        "action": move.action,
        "metadata_dropped": decision.drops_metadata,
    }


def summary(moves: Sequence[PlannedMove]) -> str:
    if not moves:
        return "no group has a committed offset on a topic of this flow"
    counts = verdict_counts(move.decision for move in moves)
    listed = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
    return f"{counted(len(moves), 'position')}: {listed}"
