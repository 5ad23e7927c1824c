"""What a translation asks of a flow that places records anew: the ledger's ranges and where its remote logs are."""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, Collection, Iterable, List, Mapping, Optional, Sequence, Tuple

from pyspark.sql import SparkSession

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.facts import Cluster, TopicPartition
from mirror_lib.groups.ahead import PositionsAhead
from mirror_lib.groups.decisions import Decision, Known, decide
from mirror_lib.groups.ranges import Feeds, FlowRanges, Topics, decide_back, decide_there, feeds_of
from mirror_lib.groups.survey import Committed, Pair, Survey, of_topic
from mirror_lib.groups.verdicts import TO_DOWNSTREAM
from mirror_lib.ledger.offset_syncs import OffsetSyncTable
from mirror_lib.ledger.records import LedgerRow, PartitionKey

Pairs = Mapping[TopicPartition, Pair]


class RangeLook:
    """One flow's in one direction, in one driver's life. `refresh` reads the ledger where it is not read; `add` has the
    rows that it gained since, and with `forget` it is read anew."""

    def __init__(self, spark: SparkSession, state: str, flow: ReplicationFlow, direction: str = TO_DOWNSTREAM) -> None:
        self._flow = flow
        self._back = direction != TO_DOWNSTREAM
        self._table = OffsetSyncTable(spark, state)
        self._ranges: Optional[FlowRanges] = None
        self._feeds = Feeds()
        self._own: Pairs = {}
        self._there: Collection[TopicPartition] = ()
        self._topics: Tuple[Topics, Topics, Sequence[str]] = ({}, {}, ())

    def refresh(self) -> FlowRanges:
        """Read the ledger where it is not read. Raises StateError."""
        if self._ranges is None:
            self._ranges = FlowRanges()
            for row in self._table.ranges(self._flow.name):
                self._ranges.add(row)
        return self._ranges

    def add(self, rows: Iterable[LedgerRow]) -> None:
        """Range rows that the ledger gained. What is not read yet has them already when it is."""
        if self._ranges is not None:
            for row in rows:
                self._ranges.add(row)

    def forget(self) -> None:
        """Read the ledger anew at the next look."""
        self._ranges = None

    def pairs(
        self, kept: Pairs, selected: Iterable[str], source: Topics, target: Topics, topic: Optional[str] = None
    ) -> Pairs:
        """Those that positions are wanted of: of `kept` those that are, of `topic` where it is given, and all of its
        own of the topics `selected`: records of other topics may lie where those of this one do."""
        own = sorted(selected)
        self._topics = source, target, own
        read = [(each, n) for each in own for n in range(source[each].partitions)]
        if self._back:
            read = sorted(feeds_of(self._flow, self.refresh(), *self._topics).sources)
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
            # What a group has read of is in the ledger by now, mostly.
            self.forget()
        self._feeds = feeds_of(self._flow, self.refresh(), *self._topics)
        to = self._feeds.remotes if self._back else self._feeds.sources
        self._there = {at for at in to if topic in (None, at[0], *(name for name, _ in to[at]))}
        return replace(found, logs={**found.logs, **there.offsets(sorted(self._there), "read_uncommitted")})

    def decide(self, found: Survey, known: Known, ahead: PositionsAhead) -> List[Decision]:
        """A decision for each group and partition that it may go to."""
        kept = replace(found, positions=_only(found.positions, lambda at: at not in self._own))
        placed = replace(found, positions=_only(found.positions, lambda at: at in self._own))
        if self._back:
            decisions = decide_back(placed, known, self._feeds)
        else:
            decisions = decide_there(placed, known, self._feeds, ahead)
        return [*decide(kept, known, ahead), *(each for each in decisions if each.there in self._there)]


def _only(positions: Committed, chosen: Callable[[TopicPartition], bool]) -> Committed:
    found = {group: {at: each for at, each in own.items() if chosen(at)} for group, own in positions.items()}
    return {group: own for group, own in found.items() if own}
