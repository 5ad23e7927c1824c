"""What a translation asks of a flow that places records anew: its passes, where its remote logs are, who feeds them."""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, Collection, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from pyspark.sql import SparkSession

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.facts import Cluster, TopicDescription, TopicPartition
from mirror_lib.state.records import PartitionKey
from mirror_lib.state.row_passes import RowPassTable
from mirror_lib.topics.naming import remote_topics
from mirror_lib.translate.ahead import PositionsAhead
from mirror_lib.translate.decisions import Decision, Known, decide
from mirror_lib.translate.placed import Feeds, decide_placed
from mirror_lib.translate.placed_back import decide_back
from mirror_lib.translate.placed_history import PassHistory
from mirror_lib.translate.survey import Committed, Pair, Survey, of_topic
from mirror_lib.translate.verdicts import TO_DOWNSTREAM

Topics = Mapping[str, TopicDescription]
Pairs = Mapping[TopicPartition, Pair]


class PlacedLook:
    """One flow's in one direction, in one driver's life. Reads the passes anew by `refresh`, those that it does not
    know.

    Of a flow that keeps the partitions of some topics (`partition.counts.differ: key`) it looks after the others, and
    decides on all of them.
    """

    def __init__(self, spark: SparkSession, state: str, flow: ReplicationFlow, direction: str = TO_DOWNSTREAM) -> None:
        self._flow, self._all = (flow, True) if flow.places_anew else (flow.placing(), False)
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
        own = [each for each in names if self._all or self._history.copies(each, source[each].topic_id)]
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
