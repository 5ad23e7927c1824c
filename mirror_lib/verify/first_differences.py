"""A closer look at where partitions first differ. In: one pair of offsets for each. Out: the kind of each difference.

Reads the records at these offsets field by field, and counts them over their whole topic.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from pyspark.sql import functions as F

from mirror_lib.verify.digests import FIELDS, DigestReader, Slice
from mirror_lib.verify.ranges import Bounds, CopiedRange
from mirror_lib.verify.verdicts import Places, SeenRecord, classify


@dataclass(frozen=True)
class Facing:
    """The offsets that face each other where a partition first differs; `None` where a side has nothing there."""

    upstream: Optional[int]
    downstream: Optional[int]


def kinds(
    source: DigestReader, remote: DigestReader, ranges: Sequence[CopiedRange], firsts: Mapping[int, Facing]
) -> Mapping[int, Tuple[str, str]]:
    """Kind and detail of each difference, keyed like `firsts` by the range's index."""
    if not firsts:
        return {}
    upstream = _seen(
        source, [_one(n, ranges[n].topic, ranges[n], ranges[n].source, first.upstream) for n, first in firsts.items()]
    )
    downstream = _seen(
        remote,
        [_one(n, ranges[n].remote_topic, ranges[n], ranges[n].remote, first.downstream) for n, first in firsts.items()],
    )
    topics = {ranges[n].topic for n in firsts}
    digests = {record.digest for records in (upstream, downstream) for record in records.values()}
    places = _places(source, remote, [r for r in ranges if r.topic in topics], digests)
    return {
        n: classify(ranges[n].partition, upstream.get(n), downstream.get(n), places[ranges[n].topic]) for n in firsts
    }


def _one(slot: int, topic: str, copied: CopiedRange, log: Bounds, offset: Optional[int]) -> Slice:
    """The one record at `offset`; nothing where it is beyond the log, for which Spark would wait in vain."""
    first = log.log_end if offset is None else offset
    return Slice(slot, topic, copied.partition, first, min(first + 1, log.log_end))


def _seen(reader: DigestReader, slices: Sequence[Slice]) -> Mapping[int, SeenRecord]:
    rows = reader.fields(slices).collect()
    return {
        row["slot"]: SeenRecord(
            row["offset"], bytes(row["digest"]), {name: bytes(row[f"{name}_digest"]) for name in FIELDS}
        )
        for row in rows
    }


def _places(
    source: DigestReader, remote: DigestReader, ranges: Sequence[CopiedRange], digests: set[bytes]
) -> Mapping[str, Mapping[bytes, Places]]:
    upstream = _counts(source, [_source_slice(n, r) for n, r in enumerate(ranges)], ranges, digests)
    downstream = _counts(
        remote,
        [Slice(n, r.remote_topic, r.partition, r.remote.read_from, r.remote.read_until) for n, r in enumerate(ranges)],
        ranges,
        digests,
    )
    topics = {copied.topic for copied in ranges}
    return {
        topic: {digest: Places(upstream[topic, digest], downstream[topic, digest]) for digest in digests}
        for topic in topics
    }


def _source_slice(slot: int, copied: CopiedRange) -> Slice:
    # Behind the ledger's end only where the remote log, too, goes on there.
    goes_on = copied.remote.log_end > copied.remote.end
    until = copied.source.log_end if goes_on else copied.source.read_until
    return Slice(slot, copied.topic, copied.partition, copied.source.read_from, until)


def _counts(
    reader: DigestReader, slices: List[Slice], ranges: Sequence[CopiedRange], digests: set[bytes]
) -> Dict[Tuple[str, bytes], Dict[int, int]]:
    wanted = reader.digests(slices).where(F.col("digest").isin([F.lit(digest) for digest in sorted(digests)]))
    counts: Dict[Tuple[str, bytes], Dict[int, int]] = defaultdict(dict)
    for row in wanted.groupBy("slot", "digest").count().collect():
        copied = ranges[row["slot"]]
        counts[copied.topic, bytes(row["digest"])][copied.partition] = row["count"]
    return counts
