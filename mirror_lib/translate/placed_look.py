"""What a translation asks of a flow that places records anew: its passes, where its remote logs are, who feeds them."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Mapping, Optional, Sequence

from pyspark.sql import SparkSession

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.facts import Cluster, TopicDescription, TopicPartition
from mirror_lib.state.row_passes import RowPassTable
from mirror_lib.topics.naming import remote_topics
from mirror_lib.translate.ahead import PositionsAhead
from mirror_lib.translate.decisions import Decision, Known
from mirror_lib.translate.placed import Feeds, decide_placed
from mirror_lib.translate.placed_history import PassHistory
from mirror_lib.translate.survey import Survey

Topics = Mapping[str, TopicDescription]


class PlacedLook:
    """One flow's, in one driver's life. Reads the passes anew by `refresh`, those that it does not know."""

    def __init__(self, spark: SparkSession, state: str, flow: ReplicationFlow) -> None:
        self._flow = flow
        self._table = RowPassTable(spark, state)
        self._history = PassHistory()
        self._feeds = Feeds({}, {})

    def refresh(self) -> None:
        """Read the passes that came since. Raises StateError."""
        for planned in self._table.since(self._flow.name, self._history.last):
            self._history.add(planned)

    def with_logs(self, found: Survey, source: Topics, target: Cluster, topic: Optional[str]) -> Survey:
        """`found` with the logs of all remote partitions that the groups may have to do with; only those of `topic`,
        on either side, where it is given."""
        feeds = feeds_of(self._flow, self._history, source, target.topics(), sorted({at[0] for at in found.pairs}))
        chosen = {
            remote: sources
            for remote, sources in feeds.sources.items()
            if topic in (None, remote[0], *(name for name, _ in sources))
        }
        self._feeds = Feeds(chosen, feeds.faults)
        return replace(found, logs=target.offsets(sorted(chosen), "read_uncommitted"))

    def decide(self, found: Survey, known: Known, ahead: PositionsAhead) -> List[Decision]:
        """A decision for each group and remote partition."""
        return decide_placed(found, known, self._history, self._feeds, ahead)


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
