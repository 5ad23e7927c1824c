"""Proof that remote logs equal their sources. In: a flow, its ledger, its copied topics. Out: a VerifyReport.

Changes nothing. Reads both clusters as any consumer does, through Spark's own Kafka source.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Collection, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from pyspark.sql import SparkSession

from mirror_lib.changes.check import check_change
from mirror_lib.changes.expected import expected
from mirror_lib.changes.remote_names import names_of
from mirror_lib.config.model import ReplicationFlow
from mirror_lib.errors import ClusterError, MirrorError, RefusedError, cause_of
from mirror_lib.facts import Cluster
from mirror_lib.state.offset_map import downstream_end, downstream_of, upstream_end
from mirror_lib.state.offset_syncs import OffsetSyncTable
from mirror_lib.state.records import OffsetSync, PartitionKey
from mirror_lib.topics.plan import CopiedTopic
from mirror_lib.verify.compacted import compacted
from mirror_lib.verify.comparison import Counts, TailCounts, compare, compare_tails
from mirror_lib.verify.copied_range import CopiedPartition, CopiedRange, copied_range
from mirror_lib.verify.digests import DigestReader, Made
from mirror_lib.verify.first_differences import Facing, kinds
from mirror_lib.verify.placed import verify_placed
from mirror_lib.verify.placed_range import Passes
from mirror_lib.verify.screen import screen
from mirror_lib.verify.topic_verdicts import key_of, syncs_of, topic_verdicts
from mirror_lib.verify.verdicts import (
    DIFFERS,
    EQUAL,
    EXPIRED,
    LEDGER,
    Difference,
    PartitionVerdict,
    VerifyReport,
)
from mirror_lib.verify.what_was_placed import what_was_placed

log = logging.getLogger(__name__)

# So many first differences are looked at closely; further partitions are reported without a kind.
EXAMINED = 100


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
        with _explained(flow):
            verdicts = verify_placed(made, remote, copied, placed, flow.shared_remote_topics)
        return VerifyReport(flow.name, verdicts)
    readers = (DigestReader(spark, flow.source, flow.isolation_level, _made(spark, flow, copied)), remote)
    # In this order, because the flow may go on meanwhile: what the ledger names must lie below the remote ends, and
    # what the remote logs hold below the ends of the sources.
    syncs = ledger.syncs(flow.name)
    ranges = _ranges(flow, syncs, copied, source, target, incomplete)
    log.info("%s: comparing %d partitions", flow.name, len(ranges))
    with _explained(flow):
        findings = _findings(spark, readers, ranges)
    partitions = [_partition_verdict(one, finding) for one, finding in zip(ranges, findings)]
    return VerifyReport(flow.name, topic_verdicts(copied, ranges, partitions, syncs))


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


@contextmanager
def _explained(flow: ReplicationFlow) -> Iterator[None]:
    try:
        yield
    except MirrorError:
        raise
    except Exception as error:
        raise ClusterError(
            f"{flow.name}: Spark could not read both logs to the end: {cause_of(error)}",
            "if records expired meanwhile, verify again; a timestamp beyond the year 294247 cannot be read by Spark",
        ) from error


def _ranges(
    flow: ReplicationFlow,
    syncs: Mapping[PartitionKey, Tuple[OffsetSync, ...]],
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
                syncs_of(syncs, topic, partition),
                source_offsets[topic.source.name, partition],
                remote_offsets[topic.remote_topic, partition],
                topic.source.name in source_compacted,
                topic.remote_topic in remote_compacted,
                flow.starts_at_earliest and key_of(topic, partition) not in incomplete,
                flow.shared_remote_topics,
            )
        )
        for topic in copied
        for partition in range(topic.partitions)
        if (topic.source.name, partition) in source_offsets and (topic.remote_topic, partition) in remote_offsets
    ]


@dataclass(frozen=True)
class _Finding:
    counts: Counts
    tail: Optional[TailCounts] = None
    first: Optional[Facing] = None
    kind: Optional[Tuple[str, str]] = None


def _findings(
    spark: SparkSession, readers: Tuple[DigestReader, DigestReader], ranges: Sequence[CopiedRange]
) -> List[_Finding]:
    """Settle what is equal, compare the rest, then look closer where something differs; in the order of `ranges`."""
    counts = _counts(spark, readers, ranges)
    open_ended = {n: r for n, r in enumerate(ranges) if counts[n].tail and _tail_is_comparable(r)}
    tails = compare_tails(*readers, open_ended) if open_ended else {}
    firsts = [_first(r, counts[n], tails.get(n)) for n, r in enumerate(ranges)]
    differing = {n: first for n, first in enumerate(firsts) if first is not None}
    examined = kinds(*readers, ranges, dict(list(differing.items())[:EXAMINED]))
    return [_Finding(counts[n], tails.get(n), firsts[n], examined.get(n)) for n in range(len(ranges))]


def _counts(
    spark: SparkSession, readers: Tuple[DigestReader, DigestReader], ranges: Sequence[CopiedRange]
) -> List[Counts]:
    equal = screen(spark, *readers, ranges)
    rest = [slot for slot in range(len(ranges)) if slot not in equal]
    compared = compare(spark, *readers, [ranges[slot] for slot in rest]) if rest else {}
    found = {**equal, **{rest[n]: counts for n, counts in compared.items()}}
    return [found.get(slot, Counts()) for slot in range(len(ranges))]


def _tail_is_comparable(copied: CopiedRange) -> bool:
    """By rank only what has no holes, and no other writers."""
    return not (copied.compacted or copied.shared or copied.contradiction)


def _first(copied: CopiedRange, counts: Counts, tail: Optional[TailCounts]) -> Optional[Facing]:
    """Where the partition first differs, by the place in the remote log."""
    if _lost_at_the_head(counts):
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


def _is_mapped(runs: Sequence[OffsetSync], upstream: int) -> bool:
    return any(run.upstream_offset <= upstream < upstream_end(run) for run in runs)


def _places(copied: CopiedRange, upstream: int) -> Tuple[int, int]:
    """The first and last downstream offset at which the record of an upstream offset may lie, by the ledger."""
    latest = downstream_of(copied.runs, upstream)
    before = [run for run in copied.runs if run.upstream_offset <= upstream]
    if latest is None or not before:
        return copied.remote.first, copied.remote.end
    if upstream < upstream_end(before[-1]):
        return latest, latest
    return downstream_end(before[-1]), latest


def _lost_at_the_head(counts: Counts) -> bool:
    """A remote log with records before the ledger's first run was begun by someone else: nothing is known then."""
    return counts.head_upstream > 0 and counts.head_downstream == 0


def _partition_verdict(copied: CopiedRange, finding: _Finding) -> PartitionVerdict:
    counts, tail = finding.counts, finding.tail
    records = counts.records + (tail.records if tail else 0)
    size = counts.bytes + (tail.bytes if tail else 0)
    difference = _difference(copied, finding)
    expired = copied.expired_upstream + copied.expired_downstream
    verdict = DIFFERS if difference else EXPIRED if expired and not records else EQUAL
    return PartitionVerdict(copied.partition, records, size, verdict, difference, _unknown(copied, counts, tail))


def _difference(copied: CopiedRange, finding: _Finding) -> Optional[Difference]:
    if copied.contradiction:
        return Difference(copied.partition, LEDGER, None, None, 0, copied.contradiction)
    if finding.first is None:
        return None
    counts, tail = finding.counts, finding.tail
    head = counts.head_upstream if _lost_at_the_head(counts) else 0
    places = counts.differing + head + (tail.differing if tail else 0)
    kind, detail = finding.kind or (DIFFERS, f"not looked at closely: more than {EXAMINED} partitions differ")
    return Difference(copied.partition, kind, finding.first.upstream, finding.first.downstream, places, detail)


def _unknown(copied: CopiedRange, counts: Counts, tail: Optional[TailCounts]) -> Tuple[str, ...]:
    behind = "compared by rank" if tail else "not compared"
    said: Dict[str, int] = {
        "{} copied records expired on the source and cannot be compared": copied.expired_upstream,
        "{} copied records expired on the remote log and cannot be compared": copied.expired_downstream,
        "{} copied records were compacted away on a side and cannot be compared": counts.compacted,
        "{} records lie in the remote log before the ledger's first row: not compared": counts.head_downstream,
        f"{{}} records lie in the remote log behind the ledger's last row: {behind}": counts.tail,
    }
    return tuple(sentence.format(count) for sentence, count in said.items() if count)
