"""Commits translated offsets and undoes a run's commits: audit row, second check, commit.

After a crash between row and commit the row records a commit that was not made; the next cycle finds the committed
offset, sees its own row, and commits without a second row. Undo resets an offset unless something has changed it since.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Callable, Collection, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from mirror_lib.facts import CommittedOffset, ConsumerGroup, TopicPartition
from mirror_lib.groups.translation import NO_ANSWER
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.ledger.compaction import Upkeep
from mirror_lib.ledger.group_offsets import GroupOffsetTable
from mirror_lib.ledger.records import GroupOffset, MoveKey
from mirror_lib.text import UNPRINTED

log = logging.getLogger(__name__)

Reasons = Mapping[MoveKey, Optional[str]]
Made = Mapping[TopicPartition, Optional[str]]
Offsets = Mapping[TopicPartition, CommittedOffset]

# How old may be what is known of where a group stands when it is moved. Kafka has no commit that is made only if the
# offset is still the one that was seen.
FRESH_SECONDS = 1.0
CHECKED_AT_ONCE = 1000
MOVED_MEANWHILE = "another client committed an offset meanwhile"
ANOTHER_TOPIC = "the topic was deleted or re-created meanwhile"


class GroupMover:
    """Commits offsets for the groups of one flow on `cluster`. Reads the last audit rows when created; raises
    `StateError` if it cannot.

    `changed` names topics of the cluster that were re-created since the decisions. `upkeep` is called after each
    append.
    """

    def __init__(
        self,
        table: GroupOffsetTable,
        flow: str,
        run_id: str,
        cluster: KafkaCluster,
        changed: Callable[[], Collection[str]] = tuple,
        upkeep: Optional[Upkeep] = None,
    ) -> None:
        self._table = table
        self._flow = flow
        self._cluster, self._changed = cluster, changed
        self._appends = -1
        self.run_id = run_id
        self._upkeep = upkeep
        self.last: Dict[MoveKey, GroupOffset] = {}
        self._made: Set[MoveKey] = set()
        self.read_last()

    def read_last(self, present: Mapping[MoveKey, Optional[int]] = MappingProxyType({})) -> None:
        """Other runs may have written some. `present`: the offsets of groups now."""
        self.last = dict(self._table.latest(self._flow, present))

    def is_written(self, move: GroupOffset) -> bool:
        """Whether the last audit row is this one, and its commit may not have been made yet."""
        return self.last.get(move.key) == move and move.key not in self._made

    def move(self, moves: Sequence[GroupOffset], own_rows: bool = False) -> Reasons:
        """Commit `moves`. Returns `None` for an offset that is there now, otherwise the reason. A refusal does not stop
        the others.

        With `own_rows` this run writes an audit row for each commit, also if another run wrote one before it was killed
        or refused.
        """
        rows = [move for move in moves if own_rows or not self.is_written(move)]
        if rows:
            # One that fails may have been committed all the same: its number is not used again for other rows.
            self._appends += 1
            self._table.append(self._flow, rows, run_id=self.run_id, append_number=self._appends)
            if self._upkeep is not None:
                self._upkeep.committed()
            self.last.update({row.key: row for row in rows})
            self._made -= {row.key for row in rows}
        groups: Dict[str, List[GroupOffset]] = defaultdict(list)
        for move in moves:
            groups[move.group].append(move)
        reasons = {
            (self._cluster.alias, group, *where): reason
            for group, made in self._made_by_group(groups)
            for where, reason in made.items()
        }
        self._made |= {key for key, reason in reasons.items() if reason is None}
        return reasons

    def _made_by_group(self, moves: Mapping[str, Sequence[GroupOffset]]) -> Iterator[Tuple[str, Made]]:
        """Commit group by group. Writing rows takes time, and a process may be suspended, so the committed offsets are
        read again before each commit."""
        waiting = list(moves)
        current: Mapping[str, Offsets] = {}
        recreated: Collection[str] = ()
        until, looked = 0, 0.0
        for at, group in enumerate(waiting):
            if at >= until or time.monotonic() - looked >= FRESH_SECONDS:
                # The topics first: to list them may take longer than what is known of a group stays fresh.
                until, recreated = at + CHECKED_AT_ONCE, self._changed()
                looked, current = time.monotonic(), self._cluster.committed_offsets(waiting[at:until])
            own = {(move.topic, move.partition): move for move in moves[group]}
            settled = _settled(own, current.get(group), recreated)
            going = {where: move for where, move in own.items() if where not in settled}
            made = {**settled, **self._make(group, going)}
            refused = {f"{topic}-{partition}": why for (topic, partition), why in made.items() if why is not None}
            if refused:
                log.warning("%s: offsets of group %s were not committed on %s", self._cluster.alias, group, refused)
            yield group, made

    def _make(self, group: str, moves: Mapping[TopicPartition, GroupOffset]) -> Made:
        seen: Made = {}

        def worth_repeating() -> bool:
            # An order without an answer may be carried out, now or later, and the group may have gone on since.
            nonlocal seen
            recreated = self._changed()
            seen = _settled(moves, self._cluster.committed_offsets([group]).get(group), recreated)
            return len(seen) < len(moves) and not any(seen.values())

        offsets = {
            where: CommittedOffset(move.new_offset, move.metadata)
            for where, move in moves.items()
            if move.new_offset is not None
        }
        deleted = [where for where in moves if where not in offsets]
        made: Dict[TopicPartition, Optional[str]] = {}
        if offsets:
            made.update(self._cluster.commit_offsets(group, offsets, worth_repeating))
        if deleted:
            made.update(self._cluster.delete_offsets(group, deleted, worth_repeating))
        # An offset that a broker refused is unchanged, and its reason says more than silence.
        reported = {where: why for where, why in seen.items() if made[where] is not None and why != NO_ANSWER}
        return {**made, **reported}


def _settled(
    moves: Mapping[TopicPartition, GroupOffset], current: Optional[Offsets], recreated: Collection[str]
) -> Made:
    """The commits of one group that are not needed or not allowed from its `current` offset: `None` if it is there,
    otherwise the reason."""
    if current is None:
        return dict.fromkeys(moves, NO_ANSWER)
    found = {where: current[where].offset if where in current else None for where in moves}
    moved = {
        where: None if found[where] == move.new_offset else MOVED_MEANWHILE
        for where, move in moves.items()
        if found[where] != move.previous_offset
    }
    return {**moved, **{where: ANOTHER_TOPIC for where in moves if where[0] in recreated}}


PUT_BACK = "put back"
REFUSED = f"refused: {NO_ANSWER}"


@dataclass(frozen=True)
class UndoneOffset:
    """Undoes a run for a group on one partition: its `present_offset`, and the one to restore (`back_to`), `None` if
    the offset is deleted or nothing is done."""

    cluster: str
    group: str
    topic: str
    partition: int
    present_offset: Optional[int]
    back_to: Optional[int]
    action: str
    # The commit that restores it; `None` if nothing is done.
    move: Optional[GroupOffset] = field(default=None, metadata=UNPRINTED)


def plan_undo(
    moves: Sequence[GroupOffset],
    present: Mapping[str, Mapping[TopicPartition, CommittedOffset]],
    groups: Mapping[str, ConsumerGroup],
) -> List[UndoneOffset]:
    """Decide for each group and partition of `moves`, the audit rows of one run on one cluster in order.

    The group returns to its offset before the first row, if it is at the offset that the last row committed or found.
    (A row is written before its commit, which a crash or the broker may have prevented.) If another client moved the
    group between two rows, only the later rows are undone. A group that is not in `present` gave no answer.
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
) -> UndoneOffset:
    if last.group not in present:
        return UndoneOffset(*last.key, None, None, REFUSED)
    committed = present[last.group].get((last.topic, last.partition))
    at = None if committed is None else committed.offset
    group = groups.get(last.group)
    if at == first.previous_offset:
        return UndoneOffset(*last.key, at, None, "already there")
    if at not in (last.new_offset, last.previous_offset):
        return UndoneOffset(*last.key, at, None, "another client or a later run committed since: left unchanged")
    if group is not None and group.has_members:
        return UndoneOffset(*last.key, at, None, "the group has members: left alone")
    move = replace(
        last,
        previous_offset=at,
        previous_metadata="" if committed is None else committed.metadata,
        new_offset=first.previous_offset,
        metadata=first.previous_metadata,
        verdict=PUT_BACK,
        action="rollback",
    )
    return UndoneOffset(*last.key, at, move.new_offset, PUT_BACK, move)
