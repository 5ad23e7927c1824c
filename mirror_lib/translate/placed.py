"""Groups of a flow that places records anew: positions and passes in, a decision for each remote partition out.

A remote partition holds records of several source partitions. Behind the place given here lies every record that the
group has not read; some that it has read lie there too, at most those of the passes that it is in. Pure but for memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Collection, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union, cast

from mirror_lib.facts import CommittedOffset, OffsetRange, TopicPartition
from mirror_lib.translate.ahead import PositionsAhead
from mirror_lib.translate.decisions import UNTOLD, Decision, Known, facts_of, is_told
from mirror_lib.translate.partition_map import BEFORE, BEYOND, GAP, Place
from mirror_lib.translate.placed_history import PassHistory, ReadPasses
from mirror_lib.translate.survey import Survey
from mirror_lib.translate.verdicts import Translation, translate_to, untranslatable

Positions = Mapping[TopicPartition, CommittedOffset]
NO_LEADER = "the other cluster's partition has no leader now"


@dataclass(frozen=True)
class Feeds:
    """Which source partitions each remote partition may hold records of; `faults` say why one has no history."""

    sources: Mapping[TopicPartition, Sequence[TopicPartition]]
    faults: Mapping[TopicPartition, str]

    @property
    def remotes(self) -> Mapping[TopicPartition, Sequence[TopicPartition]]:
        """The same by source partition."""
        found: Dict[TopicPartition, List[TopicPartition]] = {}
        for remote, sources in sorted(self.sources.items()):
            for at in sources:
                found.setdefault(at, []).append(remote)
        return found


def decide_placed(
    found: Survey, known: Known, history: PassHistory, feeds: Feeds, ahead: PositionsAhead
) -> List[Decision]:
    """A decision for each group and remote partition that may hold records of a topic that the group reads."""
    return list(_decisions(found, known, history, feeds, ahead))


def _decisions(
    found: Survey, known: Known, history: PassHistory, feeds: Feeds, ahead: PositionsAhead
) -> Iterator[Decision]:
    for group in sorted(found.positions):
        own = {
            at: ahead.reached((group, *at), position, history.end(at))
            for at, position in found.positions[group].items()
        }
        for remote in sorted(feeds.sources):
            read = {at: history.read(at, own[at].offset) for at in feeds.sources[remote] if at in own}
            if read:
                place = placed_at(remote, read, found.logs.get(remote), history, feeds)
                yield decision_at(group, (furthest_behind(read), remote), own, place, found, known)


def furthest_behind(read: Mapping[TopicPartition, ReadPasses]) -> TopicPartition:
    """The partition that holds the others back. It stands for them in tables and in the audit."""
    return min(sorted(read), key=lambda at: read[at].whole)


def decision_at(
    group: str,
    ends: Tuple[TopicPartition, TopicPartition],
    own: Positions,
    place: Union[Place, str],
    found: Survey,
    known: Known,
) -> Decision:
    """The decision on a group whose positions are `own`, from the first of `ends` to `place` on the second, or a phrase
    on why there is none."""
    here, there = ends
    # By passes the earliest place is given, so a later one that is lower says nothing of a log that lost its tail.
    facts = replace(facts_of(group, own[here], "", there, found, known), only_ours=False)
    why_not = UNTOLD if not is_told(group, found) else place if isinstance(place, str) else None
    made = Translation(untranslatable(why_not)) if why_not else translate_to(cast(Place, place), facts, known.rules)
    return Decision(group, here, there, own[here], facts.present, made)


def placed_at(
    remote: TopicPartition,
    read: Mapping[TopicPartition, ReadPasses],
    log: Optional[OffsetRange],
    history: PassHistory,
    feeds: Feeds,
) -> Union[Place, str]:
    """The first place on the remote log behind which all lies that was not read, or a phrase on why there is none."""
    fault = feeds.faults.get(remote)
    if fault is not None:
        return fault
    without = [at for at in feeds.sources[remote] if at not in read and history.copied(at)]
    if without:
        topic, number = without[0]
        return f"there is no position on {topic}-{number}, whose records lie there too"
    if log is None:
        return NO_LEADER
    stands, furthest = _between(remote, read.values(), log, history)
    before = [at for at in sorted(read) if read[at].before]
    first = history.stood(remote, -1)
    if before and not (history.complete and first is not None and first <= log.log_start):
        # Others may have copied what it has not read, to before the first place.
        topic, number = before[0]
        return f"the group has not read all that lies before what this ledger knows of {topic}-{number}"
    beyond_by = max(each.beyond_by for each in read.values())
    return Place(BEYOND if beyond_by else BEFORE if before else GAP, stands, furthest, stands, beyond_by)


def _between(
    remote: TopicPartition, read: Collection[ReadPasses], log: OffsetRange, history: PassHistory
) -> Tuple[int, int]:
    """Behind the first all lies that was not read, before the second all that was."""
    whole, none = min(each.whole for each in read), max(each.none for each in read)
    stands = history.stood(remote, whole)
    furthest = history.stood(remote, none)
    assert stands is not None
    return stands, max(stands, log.end if furthest is None else furthest)
