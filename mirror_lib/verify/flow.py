"""Verifies one flow against its ledger and both clusters and returns a `VerifyReport`. Changes nothing.

Spark's own Kafka source reads, as any consumer does, the records that batches cannot settle, and a few records of every
partition in any case. The report lists topics that were copied and are no longer in the plan.
"""

from __future__ import annotations

import logging
from array import array
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Collection, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Sized, Tuple

from pyspark.sql import SparkSession

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.config.record_change import RecordChange
from mirror_lib.errors import ClusterError, MirrorError, RefusedError, cause_of
from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.ledger.event_tables import EventTable
from mirror_lib.ledger.intervals import BEFORE, Numbers
from mirror_lib.ledger.offset_syncs import OffsetSyncTable
from mirror_lib.ledger.records import LeftOut, LogPosition, PartitionKey
from mirror_lib.rows.origin import DEFAULT_NAME, Provenance, origin_cluster
from mirror_lib.rows.transform import check_change, expected, names_of
from mirror_lib.spark.errors import memory_hint, spark_ended
from mirror_lib.topics.filters import why_skipped
from mirror_lib.topics.plan import CopiedTopic, TopicPlan
from mirror_lib.topics.policy import remote_topic
from mirror_lib.topics.remote_topics import compacted
from mirror_lib.verify.batches import Settled, settle
from mirror_lib.verify.comparison import compare, compare_tails, kinds, screen
from mirror_lib.verify.digests import DigestReader, Made
from mirror_lib.verify.origins import OriginCopy, OriginCounts, compare_origins, nothing_compared, origin_copy
from mirror_lib.verify.ranges import EVERYTHING, CopiedPartition, CopiedRange, Scope, a_few, copied_range, part_of
from mirror_lib.verify.verdicts import (
    DIFFERS,
    EQUAL,
    EXAMINED,
    NOT_COMPARED,
    Counts,
    Facing,
    Finding,
    PartitionVerdict,
    TopicVerdict,
    VerifyReport,
    lost_at_the_head,
    not_compared,
    with_none_compared,
    with_none_in_scope,
)

log = logging.getLogger(__name__)

Readers = Tuple[DigestReader, DigestReader]

_EXPIRED = "if records expired meanwhile, verify again; a timestamp beyond the year 294247 cannot be read by Spark"

NO_LOG = "one of the two logs does not exist yet or has no leader now: not compared"
ANOTHER_TOPIC = "the ledger speaks of another topic that had this name, on one of the two sides: not compared"
EXTRA = "the source has no such partition, and the remote one holds records: not compared"


def topic_verdicts(
    topics: Sequence[CopiedTopic],
    compared: Mapping[Tuple[str, str, int], PartitionVerdict],
    syncs: Mapping[PartitionKey, Sized],
    extra: Mapping[str, Sequence[int]] = {},
) -> Tuple[TopicVerdict, ...]:
    """`compared`: the verdicts by source topic, remote topic and partition. `syncs`: the whole ledger. `extra`: by
    remote topic, the partitions with records that the source does not have."""
    now = {(topic.source.topic_id, topic.remote_topic_id) for topic in topics}
    gone = [key for key in syncs if (key.source_topic_id, key.remote_topic_id) not in now]
    strays = {(key.source_topic, key.partition) for key in gone}
    # The remote log has the records of an earlier topic with the source's name.
    held = {(key.source_topic, key.partition, key.remote_topic_id) for key in gone}

    def of(topic: CopiedTopic, number: int, begun: bool) -> PartitionVerdict:
        was_copied = bool(syncs.get(key_of(topic, number)))
        stray = not begun and (topic.source.name, number) in strays
        verdict = compared.get((topic.source.name, topic.remote_topic, number))
        if verdict is None:
            unknown = was_copied or stray or number in topic.source.leaderless
            return PartitionVerdict(number, 0, NOT_COMPARED if unknown else EQUAL, None, (NO_LOG,))
        if verdict.verdict == DIFFERS:
            stray = not was_copied and (topic.source.name, number, topic.remote_topic_id) in held
        return not_compared(verdict, ANOTHER_TOPIC) if stray else verdict

    def whole(topic: CopiedTopic) -> TopicVerdict:
        numbers = range(topic.partitions)
        # If one partition of the re-created topic has rows, the others got no records since its re-creation.
        begun = any(syncs.get(key_of(topic, number)) for number in numbers)
        further = (PartitionVerdict(n, 0, NOT_COMPARED, None, (EXTRA,)) for n in extra.get(topic.remote_topic, ()))
        own = with_none_compared([of(topic, n, begun) for n in numbers])
        return TopicVerdict(topic.source.name, topic.remote_topic, (*own, *further))

    return tuple(whole(topic) for topic in topics)


def key_of(topic: CopiedTopic, partition: int) -> PartitionKey:
    return PartitionKey(topic.source.topic_id, topic.remote_topic_id, topic.source.name, partition)


def extra_partitions(
    source: KafkaCluster, target: KafkaCluster, copied: Sequence[CopiedTopic]
) -> Mapping[str, Sequence[int]]:
    """By remote topic, the non-empty partitions without a source partition of that number.

    Only for topics whose records keep their partition's number. Raises `ClusterError`.
    """
    # The target is read first: a running flow creates remote partitions for new partitions of the source.
    there = target.topics()
    here = {name: each.partitions for name, each in source.topics().items()}
    further = [
        (topic.remote_topic, number)
        for topic in copied
        if topic.remote_topic in there
        for number in range(max(topic.partitions, here.get(topic.source.name, 0)), there[topic.remote_topic].partitions)
    ]
    logs = target.offsets(further, "read_uncommitted") if further else {}
    found: Dict[str, List[int]] = {}
    for (name, number), log in sorted(logs.items()):
        if log.end > log.log_start:
            found.setdefault(name, []).append(number)
    return found


@contextmanager
def read_to_the_end(flow: str, spark: SparkSession) -> Iterator[None]:
    """Turn errors of Spark into a ClusterError of `flow`, or into a SparkEndedError."""
    try:
        yield
    except MirrorError:
        raise
    except Exception as error:
        said = cause_of(error)
        hint = memory_hint(said, "then verify again") or _EXPIRED
        unread = ClusterError(f"{flow}: Spark could not read both logs to the end: {said}", hint, code="MIR-503")
        raise spark_ended(flow, spark) or unread from error


def verify_planned(
    spark: SparkSession,
    config: MirrorConfig,
    flow: ReplicationFlow,
    plan: TopicPlan,
    source: KafkaCluster,
    target: KafkaCluster,
    scope: Scope,
) -> VerifyReport:
    """The comparison of the topics of `plan` that exist on the target, with the tables of `config`. A topic that does
    not count is compared as well, and is in the report only if it is not equal."""
    copied = [topic for topic in plan.copied if topic.create is None]
    incomplete = EventTable(spark, config.state).incomplete(flow.name)
    ledger = OffsetSyncTable(spark, config.state)
    compared = FlowComparison(spark, flow, ledger, copied, source, target, incomplete, config.name, scope)
    report = compared.report()
    shown = [each for each in report.topics if each.topic not in plan.uncounted or not each.fine]
    return replace(report, topics=tuple(shown))


@dataclass(frozen=True)
class FlowComparison:
    """Compares the copied part of every topic of `copied` (see `verify.comparison` for the proof).

    `incomplete`: partitions that another tool copied before the ledger's first row; that part is not compared. `mirror`
    is the name in the configuration file. Records out of `scope` are not read. May run alongside the flow.
    """

    spark: SparkSession
    flow: ReplicationFlow
    ledger: OffsetSyncTable
    copied: Sequence[CopiedTopic]
    source: KafkaCluster
    target: KafkaCluster
    incomplete: Collection[PartitionKey] = frozenset()
    mirror: str = DEFAULT_NAME
    scope: Scope = EVERYTHING

    def report(self) -> VerifyReport:
        """Raises StateError if the ledger, ClusterError if a cluster cannot be read to the end. Raises RefusedError if
        the flow's change is not repeatable, or if the scope has a time for a comparison by origins."""
        flow, change = self.flow, self.flow.change
        reason = check_change(self.spark, flow)
        if reason is not None:
            what = f"{flow.name}: its changed records cannot be computed again for the comparison: {reason}"
            raise RefusedError(what, "use expressions that give the same result each time", code="MIR-350")
        if flow.repartitions:
            if self.scope.since is not None:
                why = "--since goes by places in the remote log, which this flow's records have not got"
                raise RefusedError(f"{flow.name}: {why}", "verify it without --since", code="MIR-350")
            return VerifyReport(flow.name, self._by_origin())
        return VerifyReport(flow.name, self._by_map(self._source(None if change is None else self._made(change))))

    def _source(self, made: Optional[Made]) -> DigestReader:
        return DigestReader(self.spark, self.flow.source, self.flow.isolation_level, made)

    def _remote(self) -> DigestReader:
        return DigestReader(self.spark, self.flow.target, "read_uncommitted")

    def _made(self, change: RecordChange, copy: Optional[OriginCopy] = None) -> Made:
        """`change` as a function of rows: with `copy` the records get their remote places, else their source ones."""
        now = names_of(self.flow, self.copied)
        names = replace(now, partitions={**now.partitions, **(copy.counts() if copy is not None else {})})
        ids = {topic.source.name: topic.source.topic_id for topic in self.copied}
        provenance = Provenance(origin_cluster(self.mirror, self.flow.source.alias), ids)
        return lambda rows: expected(rows, change, names, provenance, copy is not None)

    def _may_lose_sight(self) -> bool:
        """Whether the flow may drop records or change their keys."""
        change = self.flow.change
        return change is not None and any((change.where, change.select, change.transform))

    def _by_origin(self) -> Tuple[TopicVerdict, ...]:
        flow, change = self.flow, self.flow.change
        if change is None or not change.provenance:
            return tuple(map(nothing_compared, self.copied))
        copy = self._origin_copy()
        # The origin identifies a copy's source record, so the origin header itself is not compared.
        source = self._source(self._made(replace(change, provenance=False), copy))
        log.info("%s: comparing %d partitions", flow.name, len(copy.remotes))
        counts: Mapping[int, OriginCounts] = {}
        with read_to_the_end(flow.name, self.spark):
            if copy.remotes:
                cluster = origin_cluster(self.mirror, flow.source.alias)
                found = self._remote().found_hashes(copy.remotes, copy.sources, cluster)
                counts = compare_origins(source.made_hashes(copy.remotes, copy.sources), found, copy.slot_facts())
        return tuple(copy.verdict(each, counts) for each in self.copied)

    def _origin_copy(self) -> OriginCopy:
        """The partitions to compare, by the ledger. Raises `ClusterError`."""
        flow, copied = self.flow, self.copied
        known = self.ledger.range_positions(flow.name)
        sources = _present(known.sources, {(each.source.name, each.source.topic_id) for each in copied})
        remotes = _present(known.remotes, {(each.remote_topic, each.remote_topic_id) for each in copied})
        every = {(each.source.name, number) for each in copied for number in range(each.partitions)}
        here = self.source.offsets(sorted(every.union(sources)), flow.isolation_level)
        there = self.target.offsets(remotes, "read_uncommitted")
        # All partitions are needed: records of the others may have come from the missing one, or been copied to it.
        for alias, places, logs in ((flow.source.alias, sources, here), (flow.target.alias, remotes, there)):
            for topic, number in (place for place in places if place not in logs):
                where = f"{flow.name}: {alias}: {topic}-{number}"
                raise ClusterError(f"{where} has no leader", "verify again when it has one")
        cleaned = compacted(self.source, [each.source.name for each in copied])
        found = origin_copy(copied, known, here, there)
        waiting = [each for each in copied if each.remote_topic not in found.counts()]
        return replace(
            found,
            unknown={each.remote_topic for each in waiting if found.not_copied[each.source.name] != 0},
            compacted=compacted(self.target, [each.remote_topic for each in copied]),
            thinned={each.remote_topic for each in copied if each.source.name in cleaned},
            shared=flow.shared_remote_topics,
            changed=self._may_lose_sight(),
        )

    def _by_map(self, source: DigestReader) -> Tuple[TopicVerdict, ...]:
        # The order matters, because the flow may run meanwhile: the ledger's ranges must end before the remote logs'
        # ends, and the remote logs' records must be before the ends of the sources.
        syncs = self.ledger.triples(self.flow.name)
        ranges = self._ranges(syncs)
        log.info("%s: comparing %d partitions", self.flow.name, len(ranges))
        readers = source, self._remote()
        with read_to_the_end(self.flow.name, self.spark):
            findings = _findings(readers, ranges, self._counts(readers, ranges))
        compared = {
            (known.topic, known.remote_topic, known.partition): finding.verdict()
            for known, finding in ((each.copied.known, each) for each in findings)
        }
        shared = self.flow.shared_remote_topics
        extra = {} if shared else extra_partitions(self.source, self.target, self.copied)
        topics = topic_verdicts(self.copied, compared, syncs, extra)
        return topics if self.scope.since is None else with_none_in_scope(topics)

    def _ranges(self, syncs: Mapping[PartitionKey, Numbers]) -> List[CopiedRange]:
        flow, copied, since = self.flow, self.copied, self.scope.since
        pairs = [
            ((each.source.name, number), (each.remote_topic, number), key_of(each, number))
            for each in copied
            for number in range(each.partitions)
        ]
        remote_logs = self.target.offsets([remote for _, remote, _ in pairs], "read_uncommitted")
        at_source = [source for source, _, _ in pairs]
        source_logs = self.source.offsets(at_source, flow.isolation_level)
        later = {} if since is None else self.source.offsets_at(at_source, since, flow.isolation_level)
        begin = {each: source_logs[each].end if at < 0 else at for each, at in later.items() if each in source_logs}
        source_compacted = compacted(self.source, [each.source.name for each in copied])
        remote_compacted = compacted(self.target, [each.remote_topic for each in copied])
        return [
            copied_range(
                CopiedPartition(
                    *(source[0], remote[0], source[1], syncs.get(key, array("q"))),
                    *(source_logs[source], remote_logs[remote]),
                    source_compacted=source[0] in source_compacted,
                    remote_compacted=remote[0] in remote_compacted,
                    from_the_start=flow.starts_at_earliest and key not in self.incomplete,
                    shared=flow.shared_remote_topics,
                    changed=self._may_lose_sight(),
                    older=key in self.incomplete,
                    since=begin.get(source, 0),
                )
            )
            for source, remote, key in pairs
            if source in source_logs and remote in remote_logs
        ]

    def _counts(self, readers: Readers, ranges: Sequence[CopiedRange]) -> Mapping[int, Counts]:
        """Find equal parts by whole batches if possible, else by sums of hashes, and compare the rest by record."""
        slots, flow = dict(enumerate(ranges)), self.flow
        by_batch: Mapping[int, Settled] = {}
        if not self.scope.by_record and flow.change is None:
            ordered = {n: each for n, each in slots.items() if each.in_order and each.runs.records}
            by_batch = settle(self.spark, (flow.source, flow.target), flow.isolation_level, ordered)
        parts = {slot: _parts(copied, by_batch.get(slot), self.scope.seed) for slot, copied in slots.items()}
        if by_batch:
            left = sum(part.runs.records for slot in by_batch for part in parts[slot])
            records = sum(slots[slot].runs.records for slot in by_batch)
            log.info("%s: of %d records %d are compared one by one, the others by batches", flow.name, records, left)
        unequal = _unequal(self.spark, readers, parts)
        tails = {slot: each.tail for slot, each in by_batch.items()}
        found = {slot: Counts(copied.runs.records, tail=tails.get(slot, 0)) for slot, copied in slots.items()}
        # Only compaction needs the last record of each key.
        for keyed in (False, True):
            group = {slot: slots[slot] for slot in unequal if slots[slot].known.compacted is keyed}
            compared = compare(self.spark, *readers, group) if group else {}
            found.update({slot: compared.get(slot, Counts()) for slot in group})
        return found


def _present(stands: Mapping[TopicPartition, LogPosition], topics: Collection[Tuple[str, str]]) -> List[TopicPartition]:
    return sorted(place for place, stand in stands.items() if (place[0], stand.topic_id) in topics)


# Up to so many open stretches of a partition are screened one by one; more are joined to one stretch.
STRETCHES = 2


def _parts(copied: CopiedRange, settled: Optional[Settled], seed: int) -> List[CopiedRange]:
    """The parts to compare by record."""
    if settled is None:
        return [copied]
    left = settled.open if len(settled.open) <= STRETCHES else ((settled.open[0][0], settled.open[-1][1]),)
    parts = [part_of(copied, *each) for each in left]
    return parts if settled.open == ((0, copied.runs.records),) else [*parts, a_few(copied, seed)]


def _unequal(spark: SparkSession, readers: Readers, parts: Mapping[int, Sequence[CopiedRange]]) -> Set[int]:
    """The slots with a part that is not equal. A read has one part of each partition, so the largest number of parts of
    a partition is the number of reads."""
    found: Set[int] = set()
    for n in range(max(map(len, parts.values()), default=0)):
        nth = {slot: own[n] for slot, own in parts.items() if n < len(own) and slot not in found}
        found |= nth.keys() - screen(spark, *readers, nth)
    return found


def _findings(readers: Readers, ranges: Sequence[CopiedRange], counts: Mapping[int, Counts]) -> List[Finding]:
    """Compare the records after the ledger's end, then classify first differences; in the order of `ranges`."""
    # Ranks are comparable without gaps and other writers, and if both sides start at the same record.
    open_ended = {n: r for n, r in enumerate(ranges) if counts[n].tail and r.in_order and not r.cut_behind}
    tails = compare_tails(*readers, open_ended) if open_ended else {}
    firsts = [_first(r, counts[n], tails.get(n)) for n, r in enumerate(ranges)]
    differing = [(n, first) for n, first in enumerate(firsts) if first is not None]
    examined = kinds(*readers, ranges, dict(differing[:EXAMINED]))
    return [Finding(r, counts[n], tails.get(n), firsts[n], examined.get(n)) for n, r in enumerate(ranges)]


def _first(copied: CopiedRange, counts: Counts, tail: Optional[Counts]) -> Optional[Facing]:
    """By the place in the remote log."""
    if lost_at_the_head(counts):
        return Facing(counts.head_upstream_first, None)
    first, unplaced = counts.first, counts.first_unplaced
    if unplaced is None:
        return first or (tail.first if tail else None)
    # A source record that is not in the ledger belongs between two places of the remote log.
    place = copied.runs.to_downstream(unplaced) if copied.runs else None
    between = copied.remote.first, copied.remote.end
    if place is not None and place.kind != BEFORE:
        between = place.offset, place.latest
    if first is None or first.downstream is None or first.downstream > between[1]:
        return Facing(unplaced, None)
    stray_there = first.upstream is None and first.downstream >= between[0]
    return Facing(unplaced, first.downstream) if stray_there else first


GONE = "the topic was copied and is not seen on the source any more; if that is meant, leave it out by topics.exclude"
FILTERED = "the topic was copied, and the flow leaves it out now: not compared"
DELETED = "the topic was copied, and is on neither cluster any more: not compared"


def with_left_out(report: VerifyReport, left_out: Mapping[TopicPartition, LeftOut]) -> VerifyReport:
    """`report` with the offsets that `on.error: skip` skipped in each source partition.

    Verdicts do not change: a record that the target refused is missing there, and a record on which an expression
    failed was not requested."""

    def reported(topic: TopicVerdict) -> TopicVerdict:
        own = (replace(each, left_out=left_out.get((topic.topic, each.partition))) for each in topic.partitions)
        return replace(topic, partitions=tuple(own))

    return replace(report, topics=tuple(map(reported, report.topics)))


def unlisted(
    flow: ReplicationFlow,
    plan: TopicPlan,
    copied: Iterable[TopicPartition],
    present: Collection[str],
    remote: Collection[str],
) -> Mapping[str, Tuple[str, List[int]]]:
    """The copied topics that are not in `plan`: why (`GONE`, `FILTERED` or `DELETED`), and their copied partitions.

    `copied` are the source partitions with ledger rows. `present` are the source's topics; read them after plan and
    ledger, so that a new topic does not count as gone. `remote` are the target's topics."""
    listed = {each.source.name for each in plan.copied} | {each.name for each in plan.blocked}
    skipped = {each.name for each in plan.skipped}
    found: Dict[str, Tuple[str, List[int]]] = {}
    for name, number in sorted(set(copied)):
        if name in listed:
            continue
        if name in skipped or why_skipped(name, flow) is not None:
            found.setdefault(name, (FILTERED, []))[1].append(number)
        elif name not in present:
            why = GONE if remote_topic(flow, name) in remote else DELETED
            found.setdefault(name, (why, []))[1].append(number)
    return found


def with_unlisted(
    flow: ReplicationFlow, report: VerifyReport, found: Mapping[str, Tuple[str, Sequence[int]]]
) -> VerifyReport:
    """`report` with a verdict for each topic that is gone; if nothing was compared, for all of `found`."""

    def of(why: str, numbers: Sequence[int]) -> Tuple[PartitionVerdict, ...]:
        # The sentence concerns the topic, so it is printed for one partition only.
        return tuple(PartitionVerdict(n, 0, NOT_COMPARED, None, (why,) if n == numbers[0] else ()) for n in numbers)

    missed = (
        TopicVerdict(name, remote_topic(flow, name), of(why, numbers))
        for name, (why, numbers) in found.items()
        if why == GONE or not report.topics
    )
    return replace(report, topics=(*report.topics, *missed))
