"""Decides about each group and partition of a survey, from the flow's maps and the last offset commits.

A group that keeps up with its source is nearly always a little ahead of the mirror, where no offset can be translated.
Its position is remembered and translated exactly once the mirror has copied that far. Pure but for that memory.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import AbstractSet, Dict, Iterable, List, Mapping, Optional, Set, Tuple

from mirror_lib.facts import CommittedOffset, TopicPartition
from mirror_lib.groups.map import FlowMaps
from mirror_lib.groups.survey import Pair, Survey
from mirror_lib.groups.translation import (
    BEFORE_FIRST,
    CLAMPED,
    COMMIT,
    EXACT,
    TO_DOWNSTREAM,
    WAYS_OUT,
    GroupPosition,
    Translation,
    TranslationRules,
    translate,
)
from mirror_lib.ledger.intervals import PartitionMap
from mirror_lib.ledger.records import GroupOffset, MoveKey
from mirror_lib.text import counted, some

# group, topic, partition
GroupPartition = Tuple[str, str, int]
# Per partition. Above this number every second one is dropped; the translated offset is then older, never wrong.
REMEMBERED = 64


class PositionsAhead:
    """Remembers committed offsets by group and partition, in the order in which they were seen."""

    def __init__(self) -> None:
        self._seen: Dict[GroupPartition, List[CommittedOffset]] = {}

    def reached(self, of: GroupPartition, now: CommittedOffset, mirrored_until: int) -> CommittedOffset:
        """The newest remembered position that the mirror has copied; `now`, the present one, if there is none.

        Remembers `now`. After a reset of the group, positions after `now` are no longer valid.
        """
        if now.offset <= mirrored_until:
            # Kept: it may not be committed in this cycle, and the group may be ahead of the mirror in the next one.
            self._seen[of] = [now]
            return now
        seen = [position for position in self._seen.get(of, []) if position.offset < now.offset]
        reached = [position for position in seen if position.offset <= mirrored_until]
        ahead = [position for position in seen if position.offset > mirrored_until]
        # The reached position stays too: it is the answer until the mirror has copied more.
        kept = [*reached[-1:], *ahead, now]
        self._seen[of] = kept if len(kept) <= REMEMBERED else [*kept[:-1:2], now]
        return reached[-1] if reached else now


# The end of a partition without copied records: every position is ahead of it.
NOTHING_MIRRORED = -1

NO_ANSWER = "the other cluster does not answer with the group's committed offset"


@dataclass(frozen=True)
class Decision:
    """The decision about one group on one partition. `present` is its offset on the other side, `None` for none."""

    group: str
    here: TopicPartition
    there: TopicPartition
    position: CommittedOffset
    present: Optional[CommittedOffset]
    translation: Translation

    @property
    def present_offset(self) -> Optional[int]:
        return None if self.present is None else self.present.offset

    @property
    def already_there(self) -> bool:
        """Whether the group is at this offset or at an equivalent one."""
        return not self.translation.commit and self.translation.verdict in (EXACT, CLAMPED, BEFORE_FIRST)

    @property
    def drops_metadata(self) -> bool:
        """Whether the group loses the metadata of its offset, or has lost it."""
        dropped = bool(self.position.metadata) and not self.translation.metadata
        lost = self.already_there and self.present is not None and not self.present.metadata
        return dropped and (self.translation.commit or lost)

    def key(self, cluster: str) -> MoveKey:
        return (cluster, self.group, *self.there)

    def move(self, cluster: str) -> GroupOffset:
        return GroupOffset(
            *self.key(cluster),
            previous_offset=self.present_offset,
            previous_metadata="" if self.present is None else self.present.metadata,
            new_offset=self.translation.new_offset,
            metadata=self.translation.metadata,
            from_topic=self.here[0],
            from_offset=self.position.offset,
            verdict=self.translation.verdict,
            action=COMMIT,
        )


@dataclass(frozen=True)
class Outcome:
    """One decision and its result, or what would be done: `done` names it in a word or two for a table."""

    decision: Decision
    done: str


# Group, remote topic, partition, and what MirrorMaker may have committed there.
SyncedOffset = Tuple[str, str, int, CommittedOffset]


@dataclass(frozen=True)
class Known:
    """The facts for decisions in addition to the survey: the maps, the rules, and `moves`, the last audit rows of
    `cluster`, which is written to.

    `synced` has what MirrorMaker committed. `left_at` has, on the way back, the offsets of the source from which groups
    were last translated.
    """

    maps: FlowMaps
    moves: Mapping[MoveKey, GroupOffset]
    cluster: str
    direction: str = TO_DOWNSTREAM
    rules: TranslationRules = field(default_factory=TranslationRules)
    synced: AbstractSet[SyncedOffset] = frozenset()
    left_at: Mapping[MoveKey, int] = field(default_factory=dict)


def decide(found: Survey, known: Known, ahead: PositionsAhead) -> List[Decision]:
    """In the order of group, topic and partition."""
    return [
        _decision(group, found.pairs[here], position, found, known, ahead)
        for group, positions in sorted(found.positions.items())
        for here, position in sorted(positions.items())
    ]


def _has_answer(group: str, found: Survey) -> bool:
    """Whether the other side has answered completely about the group. A group with offsets must also be described:
    otherwise it was created just now, or its coordinator did not answer, and consumers may be using it."""
    return group in found.present and (not found.present[group] or group in found.groups)


def _decision(
    group: str, pair: Pair, now: CommittedOffset, found: Survey, known: Known, ahead: PositionsAhead
) -> Decision:
    a_map = pair.missing or (known.maps.of(pair.key) if _has_answer(group, found) else NO_ANSWER)
    end = NOTHING_MIRRORED
    if isinstance(a_map, PartitionMap):
        end = a_map.upstream_end if known.direction == TO_DOWNSTREAM else a_map.downstream_end
    position = ahead.reached((group, *pair.here), now, end)
    where = (known.cluster, group, *pair.there)
    present, last = found.present.get(group, {}).get(pair.there), known.moves.get(where)
    # A later commit of the same offset is not MirrorMaker's.
    synced = last is None and present is not None and (group, *pair.there, present) in known.synced
    facts = GroupPosition(
        position=position,
        direction=known.direction,
        map=a_map,
        log=found.logs.get(pair.there),
        present=present,
        group=found.groups.get(group),
        last=last,
        by_mirrormaker=synced,
        own_log=found.own_logs.get(pair.here),
        left_at=known.left_at.get(where),
    )
    return Decision(group, pair.here, pair.there, position, present, translate(facts, known.rules))


def left_on_source(moves: Iterable[GroupOffset], source: str) -> Dict[MoveKey, int]:
    """By partition of the cluster `source`, the offset from which each group was last translated."""
    last = (each for each in moves if each.cluster != source and each.action == COMMIT)
    return {(source, each.group, each.from_topic, each.partition): each.from_offset for each in last}


def not_moved(decisions: Iterable[Decision]) -> Tuple[str, ...]:
    """A sentence for each verdict that stays until the operator acts: the groups, and what to do."""
    groups: Dict[str, Set[str]] = {}
    for each in decisions:
        if each.translation.verdict in WAYS_OUT:
            groups.setdefault(each.translation.verdict, set()).add(each.group)
    return tuple(
        f"{counted(len(names), 'group')} not moved, {some(sorted(names), 3)}: {verdict}; {WAYS_OUT[verdict]}"
        for verdict, names in sorted(groups.items())
    )


def verdict_counts(decisions: Iterable[Decision]) -> Dict[str, int]:
    """The number of decisions by verdict, without the part after a verdict's colon."""
    return dict(Counter(decision.translation.verdict.split(":")[0] for decision in decisions))
