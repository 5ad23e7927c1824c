"""Positions that were ahead of the mirror when they were seen, until it has caught up with them. Pure but for memory.

A group that keeps up with its source is nearly always a little ahead of the mirror: without a memory it would be held
for ever. Where it stood some time ago is exact as soon as the mirror has come that far.
"""

from __future__ import annotations

from typing import Dict, List, Tuple

from mirror_lib.facts import CommittedOffset

# group, topic, partition
GroupPartition = Tuple[str, str, int]
# For each partition; beyond it every second one is forgotten, which costs staleness and nothing else.
REMEMBERED = 64


class PositionsAhead:
    """Remembers committed offsets by group and partition, in the order in which they were seen."""

    def __init__(self) -> None:
        self._seen: Dict[GroupPartition, List[CommittedOffset]] = {}

    def reached(self, of: GroupPartition, now: CommittedOffset, mirrored_until: int) -> CommittedOffset:
        """The newest position that the mirror has reached; `now`, the present one, where there is none.

        `now` is remembered. A group that was reset makes all that lies beyond it untrue.
        """
        if now.offset <= mirrored_until:
            # Kept, since it may not be written in this pass, and the group be ahead again in the next.
            self._seen[of] = [now]
            return now
        seen = [position for position in self._seen.get(of, []) if position.offset < now.offset]
        reached = [position for position in seen if position.offset <= mirrored_until]
        ahead = [position for position in seen if position.offset > mirrored_until]
        # The reached one stays too: until the mirror has come further it is still the answer.
        self._seen[of] = _thinned([*reached[-1:], *ahead, now])
        return reached[-1] if reached else now


def _thinned(positions: List[CommittedOffset]) -> List[CommittedOffset]:
    return positions if len(positions) <= REMEMBERED else [*positions[:-1:2], positions[-1]]
