"""Histories of a mirrored partition, drawn by hypothesis: what lies where in both logs, and the ledger's rows.

The truth (`copied`) is kept next to the rows that a mirror writes, so that a translation can be judged by what a
consumer would read and not by another translation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, FrozenSet, List, Sequence, Tuple

from hypothesis import strategies as st

# Upstream offset, downstream offset and record count of a row of the ledger.
Triple = Tuple[int, int, int]

RECORD, SKIPPED, MARKER, CUT = "record", "skipped", "marker", "cut"
# What may lie in a source's log and is not copied: no one reads it either.
INVISIBLE = ("aborted", "control", "compacted")


@dataclass(frozen=True)
class History:
    """`copied` maps upstream to downstream offsets of every copied record; `skipped` are records that the mirror left
    out. Rows are as a mirror writes them: a position wherever a pass ends behind a gap or a marker."""

    rows: Tuple[Triple, ...]
    copied: Dict[int, int]
    skipped: FrozenSet[int]
    start: Tuple[int, int]
    end: Tuple[int, int]

    def read_downstream(self, offset: int) -> List[int]:
        """Source offsets of the records that a consumer reads which starts at `offset` of the remote topic."""
        return [up for up, down in sorted(self.copied.items()) if down >= offset]

    def read_upstream(self, offset: int) -> List[int]:
        """The same on the source, without what the mirror left out."""
        return [up for up in sorted(self.copied) if up >= offset]

    def never_copied_after(self, downstream_offset: int) -> List[int]:
        """Left-out records behind the last one read by who is at `downstream_offset`, which he has not read."""
        read = [up for up, down in self.copied.items() if down < downstream_offset]
        return [up for up in sorted(self.skipped) if up > max(read, default=-1)]


def histories() -> st.SearchStrategy[History]:
    """Passes with gaps, markers, cuts and ledger rows that are repeated by a crash in other cuts."""
    event = st.sampled_from([RECORD] * 5 + [MARKER, CUT, SKIPPED, *INVISIBLE])
    passes = st.lists(st.lists(event, max_size=10), min_size=1, max_size=4)
    start = st.tuples(st.integers(0, 4), st.integers(0, 4))
    repeats = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 4), st.integers(0, 4)), max_size=4)
    return st.builds(_history, start, passes, st.booleans(), repeats)


def _history(
    start: Tuple[int, int], passes: Sequence[Sequence[str]], anchored: bool, repeats: Sequence[Tuple[int, int, int]]
) -> History:
    up, down = start
    rows: List[Triple] = [(up, down, 0)] if anchored else []
    copied: Dict[int, int] = {}
    skipped = set()
    for events in passes:
        run: List[int] = []
        for event in [*events, CUT]:
            if event != RECORD and run:
                rows.append((run[0], copied[run[0]], len(run)))
                run = []
            if event == RECORD:
                copied[up] = down
                run.append(up)
            if event == SKIPPED:
                skipped.add(up)
            up += event not in (MARKER, CUT)
            down += event in (MARKER, RECORD)
        if not rows or (rows[-1][0] + rows[-1][2], rows[-1][1] + rows[-1][2]) != (up, down):
            rows.append((up, down, 0))
    again = [_part_of(rows[which % len(rows)], front, back) for which, front, back in repeats]
    return History((*rows, *again), copied, frozenset(skipped), start, (up, down))


def _part_of(row: Triple, front: int, back: int) -> Triple:
    """What a driver writes that was killed before the ledger: the same records, found again in other cuts."""
    front = min(front, row[2])
    return row[0] + front, row[1] + front, max(row[2] - front - back, 0)
