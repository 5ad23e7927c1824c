"""What a translation asks of a flow that places records anew: its passes, where its remote logs are, who feeds them."""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, Collection, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from pyspark.sql import SparkSession

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.facts import Cluster, OffsetRange, TopicDescription, TopicPartition
from mirror_lib.state.records import PartitionKey
from mirror_lib.state.row_passes import RowPassTable
from mirror_lib.topics.policy import remote_topics
from mirror_lib.translate.ahead import PositionsAhead
from mirror_lib.translate.decisions import Decision, Known, decide
from mirror_lib.translate.partition_map import GAP, Place
from mirror_lib.translate.placed import NO_LEADER, Feeds, decide_placed, decision_at, furthest_behind
from mirror_lib.translate.placed_history import PassHistory, ReadPasses
from mirror_lib.translate.survey import Committed, Pair, Survey, of_topic
from mirror_lib.translate.verdicts import TO_DOWNSTREAM

Topics = Mapping[str, TopicDescription]
Pairs = Mapping[TopicPartition, Pair]


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


class PlacedLook:
    """One flow's in one direction, in one driver's life. Reads the passes anew by `refresh`, those that it does not
    know.
    """

    def __init__(self, spark: SparkSession, state: str, flow: ReplicationFlow, direction: str = TO_DOWNSTREAM) -> None:
        self._flow = flow
        self._back = direction != TO_DOWNSTREAM
        self._table = RowPassTable(spark, state)
        self._history = PassHistory()
        self._feeds = Feeds({}, {})
        self._own: Pairs = {}
        self._there: Collection[TopicPartition] = ()
        self._topics: Tuple[Topics, Topics, Sequence[str]] = ({}, {}, ())

    def refresh(self) -> None:
        """Read the passes that came since. Raises StateError."""
        follows = [self._history.add(planned) for planned in self._table.since(self._flow.name, self._history.last)]
        if not all(follows):
            self._history = PassHistory()
            for planned in self._table.since(self._flow.name, -1):
                self._history.add(planned)

    def pairs(
        self, kept: Pairs, selected: Iterable[str], source: Topics, target: Topics, topic: Optional[str] = None
    ) -> Pairs:
        """Those that positions are wanted of: of `kept` those that are, of `topic` where it is given, and all of its
        own of the topics `selected`: records of other topics may lie where those of this one do."""
        names = sorted(selected)
        own = list(names)
        self._topics = source, target, own
        read = [(each, n) for each in own for n in range(source[each].partitions)]
        if self._back:
            read = sorted(feeds_of(self._flow, self._history, *self._topics).sources)
        self._own = {at: Pair(at, at, PartitionKey("", "", *at), "its records are placed anew") for at in read}
        others = {at: pair for at, pair in kept.items() if pair.key.source_topic not in own}
        return {**of_topic(others, topic), **self._own}

    def owns(self, at: TopicPartition) -> bool:
        """Whether a position on this partition is for it to translate."""
        return at in self._own

    def leads(self, at: TopicPartition) -> bool:
        """Whether a position on this partition is one of those that some place hangs on."""
        return at in (self._feeds.sources if self._back else self._feeds.remotes)

    def with_logs(self, found: Survey, there: Cluster, topic: Optional[str]) -> Survey:
        """`found` with the logs of all partitions that the groups may go to. Decided on is only what has to do with
        `topic`, on either side, where it is given."""
        if self._back:
            # What a group has read of, some pass has written down before.
            self.refresh()
        self._feeds = feeds_of(self._flow, self._history, *self._topics)
        to = self._feeds.remotes if self._back else self._feeds.sources
        self._there = {at for at in to if topic in (None, at[0], *(name for name, _ in to[at]))}
        return replace(found, logs={**found.logs, **there.offsets(sorted(self._there), "read_uncommitted")})

    def decide(self, found: Survey, known: Known, ahead: PositionsAhead) -> List[Decision]:
        """A decision for each group and partition that it may go to."""
        kept = replace(found, positions=_only(found.positions, lambda at: at not in self._own))
        placed = replace(found, positions=_only(found.positions, lambda at: at in self._own))
        if self._back:
            decisions = decide_back(placed, known, self._history, self._feeds)
        else:
            decisions = decide_placed(placed, known, self._history, self._feeds, ahead)
        return [*decide(kept, known, ahead), *(each for each in decisions if each.there in self._there)]


def _only(positions: Committed, chosen: Callable[[TopicPartition], bool]) -> Committed:
    found = {group: {at: each for at, each in own.items() if chosen(at)} for group, own in positions.items()}
    return {group: own for group, own in found.items() if own}


def feeds_of(
    flow: ReplicationFlow, history: PassHistory, source: Topics, target: Topics, names: Sequence[str]
) -> Feeds:
    """Which partitions of the topics `names` each remote partition of the passes may hold records of. Pure."""
    same_number = flow.change is not None and flow.change.keeps_partitions
    into: Dict[str, List[str]] = {}
    for name in names:
        for remote in remote_topics(flow, name):
            into.setdefault(remote, []).append(name)
    sources: Dict[TopicPartition, Sequence[TopicPartition]] = {}
    faults: Dict[TopicPartition, str] = {}
    for remote, number in history.remotes:
        fed_by = [(name, n) for name in into.get(remote, []) for n in range(source[name].partitions)]
        own = [at for at in fed_by if not same_number or at[1] == number]
        if own:
            sources[remote, number] = own
        fault = _fault(history, source, target, remote, into.get(remote, []))
        if fault is not None:
            faults[remote, number] = fault
    return Feeds(sources, faults)


def _fault(history: PassHistory, source: Topics, target: Topics, remote: str, names: Sequence[str]) -> Optional[str]:
    if remote not in target or not history.knows(remote=(remote, target[remote].topic_id)):
        return f"{remote} is not the topic that was copied into"
    anew = [name for name in names if not history.knows(source=(name, source[name].topic_id))]
    return f"{anew[0]} was created anew and nothing of it is copied yet" if anew else None
