"""What a translation asks of a flow that places records anew: its passes, where its remote logs are, who feeds them."""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, Dict, List, Mapping, Optional, Sequence

from pyspark.sql import SparkSession

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.facts import Cluster, TopicDescription, TopicPartition
from mirror_lib.state.records import PartitionKey
from mirror_lib.state.row_passes import RowPassTable
from mirror_lib.topics.naming import remote_topics
from mirror_lib.translate.ahead import PositionsAhead
from mirror_lib.translate.decisions import Decision, Known, decide
from mirror_lib.translate.placed import Feeds, decide_placed
from mirror_lib.translate.placed_history import PassHistory
from mirror_lib.translate.survey import Committed, Pair, Survey

Topics = Mapping[str, TopicDescription]
Pairs = Mapping[TopicPartition, Pair]


class PlacedLook:
    """One flow's, in one driver's life. Reads the passes anew by `refresh`, those that it does not know.

    Of a flow that keeps the partitions of some topics (`partition.counts.differ: key`) it looks after the others, and
    decides on all of them.
    """

    def __init__(self, spark: SparkSession, state: str, flow: ReplicationFlow) -> None:
        self._flow, self._all = (flow, True) if flow.places_anew else (flow.placing(), False)
        self._table = RowPassTable(spark, state)
        self._history = PassHistory()
        self._feeds = Feeds({}, {})
        self._own: Mapping[TopicPartition, Pair] = {}

    def refresh(self) -> None:
        """Read the passes that came since. Raises StateError."""
        follows = [self._history.add(planned) for planned in self._table.since(self._flow.name, self._history.last)]
        if not all(follows):
            self._history = PassHistory()
            for planned in self._table.since(self._flow.name, -1):
                self._history.add(planned)

    def pairs(self, kept: Pairs, source: Topics, topic: Optional[str]) -> Pairs:
        """Those that positions are wanted of: `kept`, which `topic` bounds where it is given, and the flow's own."""
        names = sorted({pair.key.source_topic for pair in kept.values()})
        own = [each for each in names if self._all or self._history.copies(each, source[each].topic_id)]
        self._own = {(each, n): _alone(each, n) for each in own for n in range(source[each].partitions)}
        others = {here: pair for here, pair in kept.items() if pair.key.source_topic not in own}
        return {
            **{here: pair for here, pair in others.items() if topic in (None, here[0], pair.there[0])},
            **self._own,
        }

    def with_logs(self, found: Survey, source: Topics, target: Cluster, topic: Optional[str]) -> Survey:
        """`found` with the logs of all remote partitions that the groups may have to do with; only those of `topic`,
        on either side, where it is given."""
        feeds = feeds_of(self._flow, self._history, source, target.topics(), sorted({at[0] for at in self._own}))
        chosen = {
            remote: sources
            for remote, sources in feeds.sources.items()
            if topic in (None, remote[0], *(name for name, _ in sources))
        }
        self._feeds = Feeds(chosen, feeds.faults)
        return replace(found, logs={**found.logs, **target.offsets(sorted(chosen), "read_uncommitted")})

    def decide(self, found: Survey, known: Known, ahead: PositionsAhead) -> List[Decision]:
        """A decision for each group and remote partition."""
        kept = replace(found, positions=_only(found.positions, lambda at: at not in self._own))
        placed = replace(found, positions=_only(found.positions, lambda at: at in self._own))
        return [*decide(kept, known, ahead), *decide_placed(placed, known, self._history, self._feeds, ahead)]


def _alone(topic: str, number: int) -> Pair:
    """A partition that no other stands for."""
    at = (topic, number)
    return Pair(at, at, PartitionKey("", "", topic, number), "its records are placed anew")


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
