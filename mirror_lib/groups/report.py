"""Formats decisions with their outcomes, and undone commits, as lines and JSON of `mirror groups`. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional, Sequence

from mirror_lib.groups.decisions import Decision, Outcome, verdict_counts
from mirror_lib.groups.translation import BEFORE_FIRST
from mirror_lib.ledger.records import NO_PARTITION
from mirror_lib.text import NUMBER, Column, counted, table_lines


def would(decision: Decision) -> str:
    if decision.translation.commit:
        return "commit"
    return "none: already there" if decision.already_there else "none"


@dataclass(frozen=True)
class PlannedOffset:
    """The committed `offset` of a group on one partition, its place on the other cluster (`to_topic`, `to_partition`,
    `to_offset`; `None` if there is none), and the `present_offset` there. `re_read`: offsets that the group then reads
    again, at most; `lost`: offsets that it skips unread. `metadata_dropped`: the metadata is not committed."""

    group: str
    topic: str
    partition: int
    offset: int
    to_topic: str
    to_partition: Optional[int]
    to_offset: Optional[int]
    present_offset: Optional[int]
    re_read: Optional[int]
    lost: int
    verdict: str
    action: str
    metadata_dropped: bool


def planned_offset(row: Outcome) -> PlannedOffset:
    decision, translation = row.decision, row.decision.translation
    to_topic, number = decision.there
    return PlannedOffset(
        *(decision.group, *decision.here, decision.position.offset),
        *(to_topic, None if number == NO_PARTITION else number),
        translation.new_offset,
        decision.present_offset,
        translation.reread,
        translation.lost,
        translation.verdict,
        row.done,
        decision.drops_metadata,
    )


def _remark(row: PlannedOffset) -> Optional[str]:
    earlier = ["earlier records are not copied"] * (row.verdict == BEFORE_FIRST)
    return ", ".join([*earlier, *["metadata dropped"] * row.metadata_dropped]) or None


_PLAN = (
    Column("Group", lambda row: row.group),
    Column("From", lambda row: f"{row.topic}-{row.partition}"),
    Column("Offset", lambda row: row.offset, NUMBER),
    Column("To", lambda row: row.to_topic if row.to_partition is None else f"{row.to_topic}-{row.to_partition}"),
    Column("To offset", lambda row: row.to_offset, NUMBER),
    Column("Present", lambda row: row.present_offset, NUMBER),
    Column("Re-read", lambda row: row.re_read, NUMBER),
    Column("Verdict", lambda row: row.verdict),
    Column("Action", lambda row: row.action),
    Column("Remark", _remark),
)
# Columns that are shown only if a row has another text.
_NOTHING = {"Present": ("-",), "Re-read": ("-", "0"), "Remark": ("-",)}


def plan_lines(rows: Sequence[PlannedOffset], columns: Optional[int] = None) -> List[str]:
    """Without the columns in which no row has a value, so that a row fits a terminal."""
    shown = [each for each in _PLAN if any(each.text(row) not in _NOTHING.get(each.title, ()) for row in rows)]
    return table_lines(shown, rows, columns)


def summary(rows: Sequence[Outcome]) -> str:
    if not rows:
        return "no group has a committed offset on a topic of this flow"
    counts = verdict_counts(row.decision for row in rows)
    listed = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
    return f"{counted(len(rows), 'position')}: {listed}"


UNDONE = (
    Column("Group", lambda row: row.group),
    Column("Topic", lambda row: row.topic),
    Column("Partition", lambda row: row.partition, NUMBER),
    Column("Present", lambda row: row.present_offset, NUMBER),
    Column("Goes back to", lambda row: "none" if row.move is not None and row.back_to is None else row.back_to, NUMBER),
    Column("Action", lambda row: row.action),
)
