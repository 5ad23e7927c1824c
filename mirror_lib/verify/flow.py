"""Proof that remote logs equal their sources. In: a flow, its ledger, its copied topics. Out: a VerifyReport.

Changes nothing. Reads both clusters as any consumer does, through Spark's own Kafka source.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Collection, List, Mapping, Optional, Sequence, Tuple

from pyspark.sql import SparkSession

from mirror_lib.changes.check import check_change
from mirror_lib.changes.expected import expected
from mirror_lib.changes.remote_names import names_of
from mirror_lib.config.model import ReplicationFlow
from mirror_lib.errors import RefusedError
from mirror_lib.facts import Cluster
from mirror_lib.state.offset_map import downstream_end, downstream_of, last_begun, upstream_end
from mirror_lib.state.offset_syncs import OffsetSyncTable
from mirror_lib.state.records import OffsetSyncs, PartitionKey
from mirror_lib.topics.plan import CopiedTopic
from mirror_lib.verify.compacted import compacted
from mirror_lib.verify.comparison import Counts, TailCounts, compare, compare_tails
from mirror_lib.verify.copied_range import CopiedPartition, CopiedRange, copied_range
from mirror_lib.verify.digests import DigestReader, Made
from mirror_lib.verify.extra_partitions import extra_partitions
from mirror_lib.verify.first_differences import Facing, kinds
from mirror_lib.verify.partition_verdict import EXAMINED, Finding, lost_at_the_head, partition_verdict
from mirror_lib.verify.placed import verify_placed
from mirror_lib.verify.placed_range import Passes
from mirror_lib.verify.screen import screen
from mirror_lib.verify.topic_verdicts import key_of, topic_verdicts
from mirror_lib.verify.unread import read_to_the_end
from mirror_lib.verify.verdicts import VerifyReport
from mirror_lib.verify.what_was_placed import what_was_placed

log = logging.getLogger(__name__)


def verify(
    spark: SparkSession,
    flow: ReplicationFlow,
    ledger: OffsetSyncTable,
    copied: Sequence[CopiedTopic],
    source: Cluster,
    target: Cluster,
    incomplete: Collection[PartitionKey] = frozenset(),
    passes: Optional[Passes] = None,
) -> VerifyReport:
    """Compare every copied topic record for record over what was copied (`verify.comparison` says why that proves).

    `incomplete`: partitions whose logs another tool copied before the ledger's first row, which is not looked at.
    `passes`: of a flow that places records anew, if it had any. May run beside the flow. StateError if the ledger,
    ClusterError if a cluster cannot be read to the end, RefusedError where the flow would make other records the next
    time.
    """
    remote = DigestReader(spark, flow.target, "read_uncommitted")
    if flow.places_anew:
        placed = what_was_placed(flow, copied, source, target, passes)
        made = DigestReader(spark, flow.source, flow.isolation_level, _made(spark, flow, copied, placed.counts()))
        with read_to_the_end(flow.name, spark):
            verdicts = verify_placed(made, remote, copied, placed, flow.shared_remote_topics, _may_lose_sight(flow))
        return VerifyReport(flow.name, verdicts)
    readers = (DigestReader(spark, flow.source, flow.isolation_level, _made(spark, flow, copied)), remote)
    # In this order, because the flow may go on meanwhile: what the ledger names must lie below the remote ends, and
    # what the remote logs hold below the ends of the sources.
    syncs = ledger.syncs(flow.name)
    ranges = _ranges(flow, syncs, copied, source, target, incomplete)
    log.info("%s: comparing %d partitions", flow.name, len(ranges))
    with read_to_the_end(flow.name, spark):
        findings = _findings(spark, readers, ranges)
    partitions = [partition_verdict(one, finding) for one, finding in zip(ranges, findings)]
    extra = {} if flow.shared_remote_topics else extra_partitions(source, target, copied)
    return VerifyReport(flow.name, topic_verdicts(copied, ranges, partitions, syncs, extra))


def _made(
    spark: SparkSession,
    flow: ReplicationFlow,
    copied: Sequence[CopiedTopic],
    counts: Optional[Mapping[str, int]] = None,
) -> Optional[Made]:
    """What the flow makes of its source's records, where remote topics had `counts` of partitions, or have them now.
    RefusedError where it would make others of them the next time."""
    change = flow.change
    if change is None:
        return None
    repeatable, reason = check_change(spark, flow)
    if not repeatable:
        raise RefusedError(f"{flow.name}: what it made of records cannot be made again to compare it: {reason}")
    now = names_of(flow, copied)
    names = replace(now, partitions={**now.partitions, **(counts or {})})
    return lambda rows: expected(rows, change, names)


def _ranges(
    flow: ReplicationFlow,
    syncs: Mapping[PartitionKey, OffsetSyncs],
    copied: Sequence[CopiedTopic],
    source: Cluster,
    target: Cluster,
    incomplete: Collection[PartitionKey],
) -> List[CopiedRange]:
    """One range for each partition that both clusters have."""
    at_target = [(topic.remote_topic, partition) for topic in copied for partition in range(topic.partitions)]
    remote_offsets = target.offsets(at_target, "read_uncommitted")
    at_source = [(topic.source.name, partition) for topic in copied for partition in range(topic.partitions)]
    source_offsets = source.offsets(at_source, flow.isolation_level)
    source_compacted = compacted(source, [topic.source.name for topic in copied])
    remote_compacted = compacted(target, [topic.remote_topic for topic in copied])
    return [
        copied_range(
            CopiedPartition(
                topic.source.name,
                topic.remote_topic,
                partition,
                syncs.get(key_of(topic, partition)) or OffsetSyncs(topic.source.name, partition, b""),
                source_offsets[topic.source.name, partition],
                remote_offsets[topic.remote_topic, partition],
                topic.source.name in source_compacted,
                topic.remote_topic in remote_compacted,
                flow.starts_at_earliest and key_of(topic, partition) not in incomplete,
                flow.shared_remote_topics,
                _may_lose_sight(flow),
                key_of(topic, partition) in incomplete,
            )
        )
        for topic in copied
        for partition in range(topic.partitions)
        if (topic.source.name, partition) in source_offsets and (topic.remote_topic, partition) in remote_offsets
    ]


def _may_lose_sight(flow: ReplicationFlow) -> bool:
    """Whether the flow drops records or gives them other keys, for all that is known."""
    change = flow.change
    return change is not None and any((change.where, change.select, change.transform))


def _findings(
    spark: SparkSession, readers: Tuple[DigestReader, DigestReader], ranges: Sequence[CopiedRange]
) -> List[Finding]:
    """Settle what is equal, compare the rest, then look closer where something differs; in the order of `ranges`."""
    counts = _counts(spark, readers, ranges)
    open_ended = {n: r for n, r in enumerate(ranges) if counts[n].tail and _tail_is_comparable(r)}
    tails = compare_tails(*readers, open_ended) if open_ended else {}
    firsts = [_first(r, counts[n], tails.get(n)) for n, r in enumerate(ranges)]
    differing = {n: first for n, first in enumerate(firsts) if first is not None}
    examined = kinds(*readers, ranges, dict(list(differing.items())[:EXAMINED]))
    return [Finding(counts[n], tails.get(n), firsts[n], examined.get(n)) for n in range(len(ranges))]


def _counts(
    spark: SparkSession, readers: Tuple[DigestReader, DigestReader], ranges: Sequence[CopiedRange]
) -> List[Counts]:
    equal = screen(spark, *readers, ranges)
    rest = [slot for slot in range(len(ranges)) if slot not in equal]
    compared = compare(spark, *readers, [ranges[slot] for slot in rest]) if rest else {}
    found = {**equal, **{rest[n]: counts for n, counts in compared.items()}}
    return [found.get(slot, Counts()) for slot in range(len(ranges))]


def _tail_is_comparable(copied: CopiedRange) -> bool:
    """By rank only what has no holes, and no other writers, and what begins with the same record on both sides."""
    return not (copied.compacted or copied.shared or copied.contradiction or copied.cut_behind)


def _first(copied: CopiedRange, counts: Counts, tail: Optional[TailCounts]) -> Optional[Facing]:
    """Where the partition first differs, by the place in the remote log."""
    if lost_at_the_head(counts):
        return Facing(counts.head_upstream_first, None)
    upstream, stray = counts.first_upstream, counts.first_downstream
    if upstream is None and stray is None:
        return Facing(tail.first_upstream, tail.first_downstream) if tail and tail.differing else None
    if upstream is None:
        return Facing(None, stray)
    # A source record that the ledger leaves out belongs between two places; one that it names has but one.
    earliest, latest = _places(copied, upstream)
    if stray is not None and stray <= latest:
        return Facing(upstream if stray >= earliest else None, stray)
    return Facing(upstream, latest if _is_mapped(copied.runs, upstream) else None)


def _is_mapped(runs: OffsetSyncs, upstream: int) -> bool:
    begun = last_begun(runs, upstream)
    return begun >= 0 and upstream < upstream_end(runs[begun])


def _places(copied: CopiedRange, upstream: int) -> Tuple[int, int]:
    """The first and last downstream offset at which the record of an upstream offset may lie, by the ledger."""
    latest, begun = downstream_of(copied.runs, upstream), last_begun(copied.runs, upstream)
    if latest is None or begun < 0:
        return copied.remote.first, copied.remote.end
    if _is_mapped(copied.runs, upstream):
        return latest, latest
    return downstream_end(copied.runs[begun]), latest
