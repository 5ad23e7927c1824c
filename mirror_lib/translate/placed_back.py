"""The way back of groups of a flow that places records anew: positions on remote partitions and passes in, a decision
for each source partition out. Pure.

Before the place given here lies no record that the group has not read on the target.
"""

from __future__ import annotations

from typing import Iterator, List, Mapping, Optional, Union

from mirror_lib.facts import OffsetRange, TopicPartition
from mirror_lib.translate.decisions import Decision, Known
from mirror_lib.translate.partition_map import GAP, Place
from mirror_lib.translate.placed import NO_LEADER, Feeds, decision_at, furthest_behind
from mirror_lib.translate.placed_history import PassHistory, ReadPasses
from mirror_lib.translate.survey import Survey


def decide_back(found: Survey, known: Known, history: PassHistory, feeds: Feeds) -> List[Decision]:
    """A decision for each group and source partition of which records may lie where the group reads."""
    return list(_decisions(found, known, history, feeds))


def _decisions(found: Survey, known: Known, history: PassHistory, feeds: Feeds) -> Iterator[Decision]:
    remotes = feeds.remotes
    for group, own in sorted(found.positions.items()):
        read = {at: history.read_remote(at, own[at].offset) for at in own}
        for source in sorted(remotes):
            through = {at: read[at] for at in remotes[source] if at in read}
            if through:
                place = place_back(source, through, found.logs.get(source), history, feeds)
                yield decision_at(group, (furthest_behind(through), source), own, place, found, known)


def place_back(
    source: TopicPartition,
    read: Mapping[TopicPartition, ReadPasses],
    log: Optional[OffsetRange],
    history: PassHistory,
    feeds: Feeds,
) -> Union[Place, str]:
    """The last place on the source's log before which all was read, or a phrase on why there is none.

    In a remote topic a record of a source partition may lie on any partition, so the one that is furthest behind
    decides. A remote topic of which the group reads nothing has none of its own: each has all records.
    """
    topics = {topic for topic, _ in read}
    remotes = [at for at in feeds.remotes[source] if at[0] in topics]
    faults = [feeds.faults[at] for at in remotes if at in feeds.faults]
    if faults:
        return faults[0]
    without = [at for at in remotes if at not in read and history.received(at)]
    if without:
        return f"there is no position on {_name(without[0])}, where its records may lie too"
    before = [at for at in remotes if at in read and read[at].before]
    if before:
        return f"{_name(before[0])} was not read up to where this ledger begins"
    if log is None:
        return NO_LEADER
    ended = history.ended(source, min(each.whole for each in read.values()))
    if ended is None:
        return "another process, whose ledger is another one, copied what comes next"
    furthest = max(ended, history.begins(source, max(each.none for each in read.values())))
    return Place(GAP, ended, furthest, ended)


def _name(at: TopicPartition) -> str:
    return f"{at[0]}-{at[1]}"
