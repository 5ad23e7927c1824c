"""Moves of committed offsets: the audit row first, then the commit. Moves in, the broker's reasons out.

Killed between the two, the row tells of a move that was not made; the next pass finds the offset that really stands
there, sees its own row, and makes the move without a second row.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import Dict, List, Mapping, Optional, Sequence, Set

from mirror_lib.facts import CommittedOffset, GroupCluster, TopicPartition
from mirror_lib.state.group_offsets import GroupOffsetTable
from mirror_lib.state.records import GroupOffset, MoveKey

log = logging.getLogger(__name__)

Reasons = Mapping[MoveKey, Optional[str]]


class GroupMover:
    """Moves the groups of one flow, on either cluster. Reads the last moves when made; StateError if it cannot."""

    def __init__(self, table: GroupOffsetTable, flow: str, run_id: str) -> None:
        self._table = table
        self._flow = flow
        self._appends = 0
        self.run_id = run_id
        self.last: Dict[MoveKey, GroupOffset] = {}
        self._made: Set[MoveKey] = set()
        self.read_last()

    def read_last(self) -> None:
        """Read the last moves again: other runs may have made some."""
        self.last = dict(self._table.latest(self._flow))

    def is_written(self, move: GroupOffset) -> bool:
        """Whether the last row says this very move, and it may not have been made yet."""
        return self.last.get(move.key) == move and move.key not in self._made

    def move(self, moves: Sequence[GroupOffset], cluster: GroupCluster, own_rows: bool = False) -> Reasons:
        """Make `moves` on `cluster`: `None` where it was made, else the broker's reason. One refused stops no other.

        With `own_rows` this run writes a row for each, also where another one did before it died or was refused.
        """
        rows = [move for move in moves if own_rows or not self.is_written(move)]
        if rows:
            self._table.append(self._flow, rows, run_id=self.run_id, append_number=self._appends)
            self._appends += 1
            self.last.update({row.key: row for row in rows})
            self._made -= {row.key for row in rows}
        reasons: Dict[MoveKey, Optional[str]] = {}
        for group, own in _by_group(moves).items():
            for (topic, partition), reason in self._make(group, own, cluster).items():
                reasons[cluster.alias, group, topic, partition] = reason
        self._made |= {key for key, reason in reasons.items() if reason is None}
        return reasons

    def _make(
        self, group: str, moves: Sequence[GroupOffset], cluster: GroupCluster
    ) -> Mapping[TopicPartition, Optional[str]]:
        at = {(move.topic, move.partition): move for move in moves}
        offsets = {
            where: CommittedOffset(move.new_offset, move.metadata)
            for where, move in at.items()
            if move.new_offset is not None
        }
        deleted = [where for where, move in at.items() if move.new_offset is None]
        made: Dict[TopicPartition, Optional[str]] = {}
        if offsets:
            made.update(cluster.commit_offsets(group, offsets))
        if deleted:
            made.update(cluster.delete_offsets(group, deleted))
        refused = {f"{topic}-{partition}": why for (topic, partition), why in made.items() if why is not None}
        if refused:
            log.warning("%s: group %s was not moved on %s", cluster.alias, group, refused)
        return made


def _by_group(moves: Sequence[GroupOffset]) -> Mapping[str, List[GroupOffset]]:
    groups: Dict[str, List[GroupOffset]] = defaultdict(list)
    for move in moves:
        groups[move.group].append(move)
    return groups
