"""Translates groups of repartitioning flows from the ledger's ranges.

A range says that source records between two upstream offsets are stored between two downstream offsets of a remote
partition. A group resumes in each remote partition at the start of the first range that it has not read completely. No
unread record is before that offset; records after it may be read a second time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import (
    Callable,
    Collection,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
    Union,
)

from pyspark.sql import SparkSession

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.facts import Cluster, CommittedOffset, OffsetRange, TopicDescription, TopicPartition
from mirror_lib.groups.decisions import NO_ANSWER, Decision, Known, PositionsAhead, decide, facts_of, has_answer
from mirror_lib.groups.survey import Committed, Pair, Survey, of_topic
from mirror_lib.groups.translation import TO_DOWNSTREAM, Translation, translate_to, untranslatable
from mirror_lib.ledger.intervals import BEFORE, BEYOND, GAP, Place
from mirror_lib.ledger.offset_syncs import OffsetSyncTable
from mirror_lib.ledger.records import NO_PARTITION, LedgerRow, PartitionKey
from mirror_lib.topics.policy import remote_topics

Positions = Mapping[TopicPartition, CommittedOffset]
Topics = Mapping[str, TopicDescription]
NO_LEADER = "the other cluster's partition has no leader now"


class Span(NamedTuple):
    """The offsets of one log that the ledger has rows of: from the first to before the last."""

    begin: int
    end: int

    def with_(self, begin: int, end: int) -> Span:
        """A span that covers both."""
        return Span(min(self.begin, begin), max(self.end, end))


class Identity(NamedTuple):
    """A partition of the topic with this id."""

    topic: str
    topic_id: str
    partition: int

    @property
    def place(self) -> TopicPartition:
        """(topic, partition)."""
        return self.topic, self.partition


class _Steps(NamedTuple):
    """The ranges of one log against the other log, prepared for lookups.

    `ends` are the ends of ranges in order; `lowest` has for each the lowest offset in the other log of any range that
    ends there or later. `starts` are their starts in order; `highest` has for each the highest offset in the other log
    of any range that starts there or before.
    """

    ends: Sequence[int]
    lowest: Sequence[int]
    starts: Sequence[int]
    highest: Sequence[int]

    @classmethod
    def of(cls, ranges: Iterable[Tuple[int, int, int, int]]) -> _Steps:
        """From ranges as (start, end, start in the other log, end in the other log)."""
        by_end, by_start = sorted((end, to) for _, end, to, _ in ranges), sorted((at, to) for at, _, _, to in ranges)
        lowest = list(accumulate((to for _, to in reversed(by_end)), min))[::-1]
        highest = list(accumulate((to for _, to in by_start), max))
        return cls([end for end, _ in by_end], lowest, [at for at, _ in by_start], highest)

    def unread(self, offset: int) -> Optional[int]:
        """The offset in the other log from which on all records after `offset` are stored; `None` if there are none."""
        at = bisect_right(self.ends, offset)
        return self.lowest[at] if at < len(self.ends) else None

    def read(self, offset: int) -> Optional[int]:
        """The offset in the other log before which all records before `offset` are stored; `None` if there are none."""
        at = bisect_left(self.starts, offset)
        return self.highest[at - 1] if at else None


class PairRanges:
    """The ranges of one source and one remote partition, in any order: they may repeat or overlap. Grows by `add`."""

    def __init__(self) -> None:
        self._ranges: Set[Tuple[int, int, int, int]] = set()
        self._steps: Optional[Tuple[_Steps, _Steps]] = None

    def add(self, upstream: Span, downstream: Span) -> None:
        """Add a range. A range that is there already changes nothing."""
        self._ranges.add((*upstream, *downstream))
        self._steps = None

    def _both(self) -> Tuple[_Steps, _Steps]:
        if self._steps is None:
            self._steps = _Steps.of(self._ranges), _Steps.of([(*each[2:], *each[:2]) for each in self._ranges])
        return self._steps

    @property
    def to_downstream(self) -> _Steps:
        """Lookups by upstream offset."""
        return self._both()[0]

    @property
    def to_upstream(self) -> _Steps:
        """Lookups by downstream offset."""
        return self._both()[1]


class FlowRanges:
    """The range rows of a flow's ledger. Grows by `add`, in any order."""

    def __init__(self) -> None:
        self.pairs: Dict[Tuple[Identity, Identity], PairRanges] = {}
        self.sources: Dict[Identity, Span] = {}
        self.remotes: Dict[Identity, Span] = {}

    def add(self, row: LedgerRow) -> None:
        """Add a range row. A row that is there already changes nothing."""
        assert row.upstream_until is not None and row.downstream_until is not None and row.remote_partition is not None
        source = Identity(row.source_topic, row.source_topic_id, row.partition)
        remote = Identity(row.remote_topic, row.remote_topic_id, row.remote_partition)
        upstream = Span(row.upstream_offset, row.upstream_until)
        downstream = Span(row.downstream_offset, row.downstream_until)
        if source.partition != NO_PARTITION:
            self.sources[source] = self.sources.get(source, upstream).with_(*upstream)
        if remote.partition != NO_PARTITION:
            self.remotes[remote] = self.remotes.get(remote, downstream).with_(*downstream)
        if NO_PARTITION not in (source.partition, remote.partition):
            self.pairs.setdefault((source, remote), PairRanges()).add(upstream, downstream)


@dataclass(frozen=True)
class Feeds:
    """A flow's ranges, limited to the topics that both clusters have now.

    `sources` has the source partitions whose records may be in each remote partition; `ranges` are the ranges of those
    that are. `faults` have the reason why a remote partition has no history.
    """

    sources: Mapping[TopicPartition, Sequence[TopicPartition]] = field(default_factory=dict)
    ranges: Mapping[Tuple[TopicPartition, TopicPartition], PairRanges] = field(default_factory=dict)
    upstream: Mapping[TopicPartition, Span] = field(default_factory=dict)
    downstream: Mapping[TopicPartition, Span] = field(default_factory=dict)
    faults: Mapping[TopicPartition, str] = field(default_factory=dict)

    @cached_property
    def remotes(self) -> Mapping[TopicPartition, Sequence[TopicPartition]]:
        """`sources` by source partition."""
        found: Dict[TopicPartition, List[TopicPartition]] = {}
        for remote, sources in sorted(self.sources.items()):
            for at in sources:
                found.setdefault(at, []).append(remote)
        return found

    def steps_there(self, sources: Iterable[TopicPartition], remote: TopicPartition) -> Dict[TopicPartition, _Steps]:
        """Lookups from each of `sources` that has records in `remote`."""
        return {at: self.ranges[at, remote].to_downstream for at in sources if (at, remote) in self.ranges}

    def steps_back(self, remotes: Iterable[TopicPartition], source: TopicPartition) -> Dict[TopicPartition, _Steps]:
        """Lookups from each of `remotes` that has records of `source`."""
        return {at: self.ranges[source, at].to_upstream for at in remotes if (source, at) in self.ranges}

    def copied(self, source: TopicPartition) -> Span:
        """The copied offsets of a source partition; empty if the ledger has no rows of it."""
        return self.upstream.get(source, Span(0, 0))


def feeds_of(flow: ReplicationFlow, ranges: FlowRanges, source: Topics, target: Topics, names: Sequence[str]) -> Feeds:
    """The ranges of the source topics `names` and of their remote topics."""
    same_number = flow.change is not None and flow.change.keeps_partitions
    into: Dict[str, List[str]] = {}
    for name in names:
        for remote in remote_topics(flow, name):
            into.setdefault(remote, []).append(name)
    sources: Dict[TopicPartition, Sequence[TopicPartition]] = {}
    faults: Dict[TopicPartition, str] = {}
    for remote, number in sorted({each.place for each in ranges.remotes}):
        fed_by = [(name, n) for name in into.get(remote, []) for n in range(source[name].partitions)]
        own = [at for at in fed_by if not same_number or at[1] == number]
        if own:
            sources[remote, number] = own
        fault = _fault(ranges, source, target, remote, into.get(remote, []))
        if fault is not None:
            faults[remote, number] = fault
    here = {each: each.place for each in ranges.sources if _is_present(each, source)}
    there = {each: each.place for each in ranges.remotes if _is_present(each, target)}
    return Feeds(
        sources,
        {
            (here[one], there[other]): each
            for (one, other), each in ranges.pairs.items()
            if one in here and other in there
        },
        {place: ranges.sources[each] for each, place in here.items()},
        {place: ranges.remotes[each] for each, place in there.items()},
        faults,
    )


def _is_present(each: Identity, topics: Topics) -> bool:
    return each.topic in topics and topics[each.topic].topic_id == each.topic_id


def _fault(ranges: FlowRanges, source: Topics, target: Topics, remote: str, names: Sequence[str]) -> Optional[str]:
    if not any(each.topic == remote and _is_present(each, target) for each in ranges.remotes):
        return f"{remote} is not the topic that was copied into"
    for name in names:
        present = [_is_present(each, source) for each in ranges.sources if each.topic == name]
        if present and not any(present):
            return f"{name} was re-created and nothing of it is copied yet"
    return None


def decide_there(found: Survey, known: Known, feeds: Feeds, ahead: PositionsAhead) -> List[Decision]:
    """A decision for each group and remote partition that may hold records of a topic that the group reads."""
    decisions: List[Decision] = []
    for group, positions in sorted(found.positions.items()):
        own = {at: ahead.reached((group, *at), each, feeds.copied(at).end) for at, each in positions.items()}
        for remote, read in _read(own, feeds.sources):
            steps = feeds.steps_there(read, remote)
            place = place_there(remote, read, found.logs.get(remote), feeds)
            decisions.append(_decision(group, (_holds_back(read, steps), remote), own, place, found, known))
    return decisions


def place_there(
    remote: TopicPartition, read: Mapping[TopicPartition, int], log: Optional[OffsetRange], feeds: Feeds
) -> Union[Place, str]:
    """The first offset of the remote log after which all unread records are, or a phrase with the reason why there is
    none.

    `read` are the group's next offsets by source partition.
    """
    fault = feeds.faults.get(remote)
    if fault is not None:
        return fault
    without = [at for at in feeds.sources[remote] if at not in read and (at, remote) in feeds.ranges]
    if without:
        return f"there is no position on {_name(without[0])}, whose records lie there too"
    if log is None:
        return NO_LEADER
    span = feeds.downstream[remote]
    before = [at for at in sorted(read) if read[at] < feeds.copied(at).begin]
    if before and span.begin > log.log_start:
        # The records there may be copies of records that it has not read.
        return f"the group has not read all that lies before what this ledger knows of {_name(before[0])}"
    steps = feeds.steps_there(read, remote)
    stands = _lowest((each.unread(read[at]) for at, each in steps.items()), span.end)
    furthest = _highest((each.read(read[at]) for at, each in steps.items()), stands)
    beyond_by = max(max(0, offset - feeds.copied(at).end) for at, offset in read.items())
    return Place(BEYOND if beyond_by else BEFORE if before else GAP, stands, furthest, stands, beyond_by)


def decide_back(found: Survey, known: Known, feeds: Feeds) -> List[Decision]:
    """A decision for each group and each source partition whose records may be in the topics that the group reads."""
    decisions: List[Decision] = []
    for group, own in sorted(found.positions.items()):
        for source, read in _read(own, feeds.remotes):
            steps = feeds.steps_back(read, source)
            place = place_back(source, read, found.logs.get(source), feeds)
            decisions.append(_decision(group, (_holds_back(read, steps), source), own, place, found, known))
    return decisions


def _read(
    own: Positions, feeding: Mapping[TopicPartition, Iterable[TopicPartition]]
) -> Iterator[Tuple[TopicPartition, Dict[TopicPartition, int]]]:
    """Each partition with records of partitions that the group reads, and the group's next offsets there."""
    for partition in sorted(feeding):
        read = {at: own[at].offset for at in feeding[partition] if at in own}
        if read:
            yield partition, read


def place_back(
    source: TopicPartition, read: Mapping[TopicPartition, int], log: Optional[OffsetRange], feeds: Feeds
) -> Union[Place, str]:
    """The last offset of the source's log before which all records were read, or a phrase with the reason why there is
    none.

    `read` are the group's next offsets by remote partition. A record of a source partition may be in any partition of a
    remote topic, so the partition with the lowest position decides. Remote topics that the group does not read do not
    count: each remote topic has all records.
    """
    topics = {topic for topic, _ in read}
    remotes = [at for at in feeds.remotes[source] if at[0] in topics]
    faults = [feeds.faults[at] for at in remotes if at in feeds.faults]
    if faults:
        return faults[0]
    without = [at for at in remotes if at not in read and (source, at) in feeds.ranges]
    if without:
        return f"there is no position on {_name(without[0])}, where its records may lie too"
    before = [at for at in sorted(read) if read[at] < feeds.downstream[at].begin]
    if before:
        return f"{_name(before[0])} was not read up to where this ledger begins"
    if log is None:
        return NO_LEADER
    steps = feeds.steps_back(read, source)
    stands = _lowest((each.unread(read[at]) for at, each in steps.items()), feeds.copied(source).end)
    furthest = _highest((each.read(read[at]) for at, each in steps.items()), stands)
    if any(offset > feeds.downstream[at].end for at, offset in read.items()):
        # The records there are not in the ledger yet, and may be any that come next.
        furthest = max(furthest, log.end)
    return Place(GAP, stands, furthest, stands)


def _lowest(places: Iterable[Optional[int]], otherwise: int) -> int:
    return min((each for each in places if each is not None), default=otherwise)


def _highest(places: Iterable[Optional[int]], at_least: int) -> int:
    return max(each for each in (*places, at_least) if each is not None)


def _holds_back(read: Mapping[TopicPartition, int], steps: Mapping[TopicPartition, _Steps]) -> TopicPartition:
    """The partition with the lowest position. It represents the others in tables and in the audit rows."""

    def bound(at: TopicPartition) -> Tuple[bool, int]:
        found = steps[at].unread(read[at]) if at in steps else None
        return found is None, found or 0

    return min(sorted(read), key=bound)


def _decision(
    group: str,
    ends: Tuple[TopicPartition, TopicPartition],
    own: Positions,
    place: Union[Place, str],
    found: Survey,
    known: Known,
) -> Decision:
    """The decision on a group with the positions `own`: from the first of `ends` to `place` on the second, or a phrase
    with the reason why there is none."""
    here, there = ends
    # By ranges the earliest place is given, so a later one that is lower says nothing of a log that lost its tail.
    facts = replace(facts_of(group, own[here], "", there, found, known), only_ours=False)
    if not has_answer(group, found):
        place = NO_ANSWER
    made = Translation(untranslatable(place)) if isinstance(place, str) else translate_to(place, facts, known.rules)
    return Decision(group, here, there, own[here], facts.present, made)


def _name(at: TopicPartition) -> str:
    return f"{at[0]}-{at[1]}"


Pairs = Mapping[TopicPartition, Pair]


class RangeScan:
    """The ranges of one flow in one direction, kept while the driver runs.

    `refresh` reads the ledger if it was not read. `add` adds the rows that the ledger gained since. `forget` makes the
    next check read it again.
    """

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
        """Read the ledger if it was not read. Raises `StateError`."""
        if self._ranges is None:
            self._ranges = FlowRanges()
            for row in self._table.ranges(self._flow.name):
                self._ranges.add(row)
        return self._ranges

    def add(self, rows: Iterable[LedgerRow]) -> None:
        """Add range rows that the ledger gained. A ledger that was not read yet has them when it is read."""
        if self._ranges is not None:
            for row in rows:
                self._ranges.add(row)

    def forget(self) -> None:
        """Read the ledger again at the next check."""
        self._ranges = None

    def pairs(
        self, kept: Pairs, selected: Iterable[str], source: Topics, target: Topics, topic: Optional[str] = None
    ) -> Pairs:
        """The partitions whose positions are needed: of `kept` the existing ones, of `topic` if it is given, and all
        own partitions of the topics `selected`. Records of other topics may be in the same remote topics."""
        own = sorted(selected)
        self._topics = source, target, own
        read = [(each, n) for each in own for n in range(source[each].partitions)]
        if self._back:
            read = sorted(feeds_of(self._flow, self.refresh(), *self._topics).sources)
        self._own = {at: Pair(at, at, PartitionKey("", "", *at), "its records are repartitioned") for at in read}
        others = {at: pair for at, pair in kept.items() if pair.key.source_topic not in own}
        return {**of_topic(others, topic), **self._own}

    def owns(self, at: TopicPartition) -> bool:
        """Whether this object translates positions on this partition."""
        return at in self._own

    def leads(self, at: TopicPartition) -> bool:
        """Whether the translation of some partition depends on a position on this one."""
        return at in (self._feeds.sources if self._back else self._feeds.remotes)

    def with_logs(self, found: Survey, there: Cluster, topic: Optional[str]) -> Survey:
        """`found` with the logs of all partitions to which groups may move. With `topic`, only positions that concern
        it, on either side."""
        if self._back:
            # What a group has read of is in the ledger by now, mostly.
            self.forget()
        self._feeds = feeds_of(self._flow, self.refresh(), *self._topics)
        to = self._feeds.remotes if self._back else self._feeds.sources
        self._there = {at for at in to if topic in (None, at[0], *(name for name, _ in to[at]))}
        return replace(found, logs={**found.logs, **there.offsets(sorted(self._there), "read_uncommitted")})

    def decide(self, found: Survey, known: Known, ahead: PositionsAhead) -> List[Decision]:
        """A decision for each group and each partition to which it may move."""
        kept = replace(found, positions=_only(found.positions, lambda at: at not in self._own))
        own = replace(found, positions=_only(found.positions, lambda at: at in self._own))
        decisions = decide_back(own, known, self._feeds) if self._back else decide_there(own, known, self._feeds, ahead)
        return [*decide(kept, known, ahead), *(each for each in decisions if each.there in self._there)]


def _only(positions: Committed, chosen: Callable[[TopicPartition], bool]) -> Committed:
    found = {group: {at: each for at, each in own.items() if chosen(at)} for group, own in positions.items()}
    return {group: own for group, own in found.items() if own}
