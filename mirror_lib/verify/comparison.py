"""Compares both logs with the ledger's map, on Spark: counts, first differences and their kinds.

This proves equality. The map is one to one and in order (`PartitionMap`). Every record of the source's range and of the
remote range must be in it, and both records of every pair must be the same. So no record is lost, doubled, added,
changed or out of order. The ledger is not trusted: a wrong row shows as a difference. `screen` first finds equal
partitions by counts and sums (exclusive or) of hashes, with one row from each partition and task.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from mirror_lib.ledger.intervals import RUN_BYTES
from mirror_lib.ledger.run_rows import RunRows, run_rows
from mirror_lib.spark.jobs import local_rows, shipped
from mirror_lib.verify.digests import FIELDS, DigestReader, Slice
from mirror_lib.verify.ranges import Bounds, CopiedRange
from mirror_lib.verify.verdicts import Counts, Facing, Places, SeenRecord, TailCounts, classify


def kinds(
    source: DigestReader, remote: DigestReader, ranges: Sequence[CopiedRange], firsts: Mapping[int, Facing]
) -> Mapping[int, Tuple[str, str]]:
    """Kind and detail of each difference, by the range's index."""
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
        n: classify(
            *(ranges[n].partition, upstream.get(n), downstream.get(n), places[ranges[n].topic]),
            after_the_copy=(first.downstream or 0) >= ranges[n].remote.end > 0,
        )
        for n, first in firsts.items()
    }


def _one(slot: int, topic: str, copied: CopiedRange, log: Bounds, offset: Optional[int]) -> Slice:
    """The single record at `offset`; an empty slice if it is after the log's end, for which Spark would wait."""
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
    upstream = _digest_counts(source, [_source_slice(n, r) for n, r in enumerate(ranges)], ranges, digests)
    downstream = _digest_counts(
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
    # Reads after the ledger's end only if the remote log has more records too.
    continues = copied.remote.log_end > copied.remote.end
    until = copied.source.log_end if continues else copied.source.read_until
    return Slice(slot, copied.topic, copied.partition, copied.source.read_from, until)


def _digest_counts(
    reader: DigestReader, slices: List[Slice], ranges: Sequence[CopiedRange], digests: set[bytes]
) -> Dict[Tuple[str, bytes], Dict[int, int]]:
    wanted = reader.digests(slices).where(F.col("digest").isin([F.lit(digest) for digest in sorted(digests)]))
    counts: Dict[Tuple[str, bytes], Dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for row in wanted.groupBy("slot", "digest").count().collect():
        copied = ranges[row["slot"]]
        counts[copied.topic, bytes(row["digest"])][copied.partition] += row["count"]
    return counts


_RUN_COLUMNS = (("slot", "int"), ("upstream", "bigint"), ("downstream", "bigint"), ("count", "bigint"))
_NUMBERS = ("upstream", "downstream", "count")
# More runs use a Python worker, which takes a tenth of a second to start.
RUNS_IN_A_PLAN = 5_000


@dataclass(frozen=True)
class RunFrame:
    """`rows` (`slot, upstream, downstream, count`): their number (`runs`), and the sum of their counts (`records`)."""

    rows: DataFrame
    runs: int
    records: int


@contextmanager
def run_frame(spark: SparkSession, ranges: Sequence[CopiedRange]) -> Iterator[RunFrame]:
    """The runs of `ranges`; a range's index is its slot. Use the result only inside the context; no file remains."""
    given = [RunRows({"slot": slot}, _flat(copied)) for slot, copied in enumerate(ranges)]
    runs = sum(len(each.flat) for each in given) // RUN_BYTES
    records = sum(copied.runs.records for copied in ranges)
    if runs <= RUNS_IN_A_PLAN:
        rows = [(n, *run) for n, copied in enumerate(ranges) for run in copied.runs.complete_runs()]
        yield RunFrame(local_rows(spark, _RUN_COLUMNS, rows), runs, records)
        return
    with shipped(spark, given) as held:
        yield RunFrame(run_rows(spark, _RUN_COLUMNS, _NUMBERS, held), runs, records)


def _flat(copied: CopiedRange) -> bytes:
    return array("q", chain.from_iterable(copied.runs.complete_runs())).tobytes()


# Runs are expanded to records in pieces of this size, which fit in memory and which several tasks can share.
PIECE = 65_536

# A record may be missing from a compacted log only if a later record of its key exists, or if the key's last record was
# a tombstone, which compaction removes too; compaction removes records without a key at once. If the flow changes
# records, it may have dropped the later record or changed its key: the reason for a missing source record is then
# unknown.
_SOURCE_EXCUSED = """source_compacted and case when remote_digest is null then remote_compacted when changed then true
    else key_digest is null or last_upstream.offset > upstream or coalesce(last_downstream.tombstone, false) end"""
_REMOTE_EXCUSED = """remote_compacted and case when source_digest is null then source_compacted
    else key_digest is null or last_downstream.offset > downstream
         or coalesce(last_copied.tombstone, false) end"""
_EXCUSED = f"""case when upstream is null or downstream is null then false
    else (source_digest is null or remote_digest is null)
         and (source_digest is not null or coalesce({_SOURCE_EXCUSED}, false))
         and (remote_digest is not null or coalesce({_REMOTE_EXCUSED}, false)) end"""
_DIFFERS = """case
    when downstream is null then upstream >= upstream_first and upstream < upstream_end
    when upstream is null then downstream >= downstream_first and downstream < downstream_end and not shared
    else not excused and not coalesce(source_digest = remote_digest, false) end"""
_OFFSETS = ("upstream_first", "upstream_end", "downstream_first", "downstream_end")
_FLAGS = ("source_compacted", "remote_compacted", "shared", "changed")
_BOUNDS = (("slot", "int"), *((name, "bigint") for name in _OFFSETS), *((name, "boolean") for name in _FLAGS))


def compare(
    spark: SparkSession, source: DigestReader, remote: DigestReader, ranges: Sequence[CopiedRange]
) -> Mapping[int, Counts]:
    """Compare every range, keyed by its index (its slot). A slot without any record is missing."""
    slots = dict(enumerate(ranges))
    upstream, downstream = source.digests(source_slices(slots)), remote.digests(remote_slices(slots))
    bounds = _bounds(spark, ranges)
    with run_frame(spark, ranges) as runs:
        both = _joined(upstream, downstream, _pairs(runs.rows)).join(F.broadcast(bounds), "slot")
        joined = _last_of_key(both, source, remote, slots, bounds)
        judged = joined.withColumn("excused", F.expr(_EXCUSED)).withColumn("differs", F.expr(_DIFFERS))
        return {row["slot"]: _counts(row.asDict()) for row in judged.groupBy("slot").agg(*_aggregates()).collect()}


def source_slices(ranges: Mapping[int, CopiedRange]) -> List[Slice]:
    return [Slice(n, r.topic, r.partition, r.source.read_from, r.source.read_until) for n, r in ranges.items()]


def remote_slices(ranges: Mapping[int, CopiedRange]) -> List[Slice]:
    return [Slice(n, r.remote_topic, r.partition, r.remote.read_from, r.remote.read_until) for n, r in ranges.items()]


def _joined(upstream: DataFrame, downstream: DataFrame, pairs: DataFrame) -> DataFrame:
    source = upstream.selectExpr("slot", "offset as upstream", "digest as source_digest", "key_digest as source_key")
    remote = downstream.selectExpr(
        "slot", "offset as downstream", "digest as remote_digest", "key_digest as remote_key"
    )
    mapped = remote.join(pairs, ["slot", "downstream"], "full_outer")
    return mapped.join(source, ["slot", "upstream"], "full_outer")


def _pairs(runs: DataFrame) -> DataFrame:
    """The ledger's map record for record: `slot, upstream, downstream`."""
    pieces = runs.withColumn("piece", F.explode(F.expr(f"sequence(0L, count - 1, {PIECE}L)")))
    # Repartitioned before the expansion: a partition copied in order is a single run.
    spread = pieces.repartition("slot", "upstream", "piece")
    nth = F.explode(F.expr(f"sequence(piece, least(piece + {PIECE}L, count) - 1)"))
    offsets = ("upstream + nth as upstream", "downstream + nth as downstream")
    return spread.withColumn("nth", nth).selectExpr("slot", *offsets)


def _bounds(spark: SparkSession, ranges: Sequence[CopiedRange]) -> DataFrame:
    rows = [
        (slot, *(one.source.first, one.source.end), *(one.remote.first, one.remote.end), *_flags(one))
        for slot, one in enumerate(ranges)
    ]
    return local_rows(spark, _BOUNDS, rows)


def _flags(copied: CopiedRange) -> Tuple[bool, bool, bool, bool]:
    return copied.source_compacted, copied.remote_compacted, copied.shared, copied.changed


def _last_of_key(
    joined: DataFrame, source: DigestReader, remote: DigestReader, ranges: Mapping[int, CopiedRange], bounds: DataFrame
) -> DataFrame:
    """Add `key_digest` and, for compacted partitions, the last record of that key on each side, and the last copied one
    of the source."""
    compacted = {n: copied for n, copied in ranges.items() if copied.compacted}
    keyed = joined.withColumn("key_digest", F.coalesce("source_key", "remote_key"))
    if not compacted:
        nothing = F.expr("cast(null as struct<offset: bigint, tombstone: boolean>)")
        return keyed.select("*", *(nothing.alias(name) for name in ("last_upstream", "last_copied", "last_downstream")))
    # Only the compacted partitions are read again: reading all of them twice would double the work.
    upstream, downstream = source.digests(source_slices(compacted)), remote.digests(remote_slices(compacted))
    upstream = upstream.join(F.broadcast(bounds.select("slot", "upstream_end")), "slot")
    place = F.struct("offset", "tombstone")
    # The source is also read after the copied part, whose records are not in the remote log yet.
    of_source = {"last_upstream": place, "last_copied": F.when(F.expr("offset < upstream_end"), place)}
    for side, wanted in ((upstream, of_source), (downstream, {"last_downstream": place})):
        known = side.where(F.col("key_digest").isNotNull())
        last = known.groupBy("slot", "key_digest").agg(*(F.max(each).alias(name) for name, each in wanted.items()))
        keyed = keyed.join(last, ["slot", "key_digest"], "left")
    return keyed


def _aggregates() -> List[Column]:
    paired = "source_digest is not null and remote_digest is not null and upstream is not null"
    head_up = "downstream is null and upstream < upstream_first"
    head_down = "upstream is null and downstream < downstream_first"
    tail = "upstream is null and downstream >= downstream_end"
    return [
        F.expr(f"count_if({paired})").alias("records"),
        F.expr("count_if(excused)").alias("compacted"),
        F.expr("count_if(differs)").alias("differing"),
        F.expr("min(upstream) filter (where differs)").alias("first_upstream"),
        F.expr("min(downstream) filter (where differs and upstream is null)").alias("first_downstream"),
        F.expr(f"count_if({head_up})").alias("head_upstream"),
        F.expr(f"min(upstream) filter (where {head_up})").alias("head_upstream_first"),
        F.expr(f"count_if({head_down})").alias("head_downstream"),
        F.expr(f"count_if({tail})").alias("tail"),
    ]


def _counts(row: Dict[str, Optional[int]]) -> Counts:
    return Counts(**{name: value for name, value in row.items() if name != "slot" and value is not None})


def compare_tails(
    source: DigestReader, remote: DigestReader, ranges: Mapping[int, CopiedRange]
) -> Mapping[int, TailCounts]:
    """Compare, by rank, the records after the ledger's end in the remote logs and in the sources.

    A copier has written these and not yet committed them to the ledger: they must be the source's next records, in
    order.
    """
    upstream = source.digests(
        [Slice(n, r.topic, r.partition, r.source.end, r.source.log_end) for n, r in ranges.items()]
    )
    downstream = remote.digests(
        [Slice(n, r.remote_topic, r.partition, r.remote.end, r.remote.log_end) for n, r in ranges.items()]
    )
    rank = F.row_number().over(Window.partitionBy("slot").orderBy("offset"))
    ranked = downstream.selectExpr("slot", "offset", "digest as remote_digest").withColumn("rank", rank)
    expected = upstream.selectExpr("slot", "offset", "digest").withColumn("rank", rank)
    expected = expected.withColumnRenamed("offset", "upstream")
    joined = ranked.join(expected, ["slot", "rank"], "left")
    equal = joined.withColumn("equal", F.coalesce(F.col("digest") == F.col("remote_digest"), F.lit(False)))
    found = equal.groupBy("slot").agg(
        F.expr("count_if(equal)").alias("records"),
        F.expr("count_if(not equal)").alias("differing"),
        F.expr("min(struct(offset, upstream)) filter (where not equal)").alias("first"),
    )
    return {row["slot"]: _tail_counts(row) for row in found.collect()}


def _tail_counts(row: Row) -> TailCounts:
    offset, upstream = row["first"] or (None, None)
    return TailCounts(row["records"], row["differing"], offset, upstream)


# A record is joined only to the runs that overlap its stretch of this many offsets.
STRETCH = 4096
# Up to this number of runs are broadcast, which takes memory on every executor and on the driver.
MOST_EVERYWHERE = 100_000
_RUN_TERMS = ("slot as of_slot", "upstream as first", "upstream + count as end", "downstream - upstream as shift")


@dataclass(frozen=True)
class Sum:
    """One side of a partition; the ledger has no place in the remote log for its `stray` records."""

    records: int
    stray: int
    hashes: Tuple[int, int]


NOTHING = Sum(0, 0, (0, 0))


def screen(spark: SparkSession, source: DigestReader, remote: DigestReader, ranges: Sequence[CopiedRange]) -> Set[int]:
    """The indices of the ranges in which every record of both logs is in the map and equals its pair.

    Other ranges may also be equal (compacted logs, a longer remote log): they need `compare`. Records are compared by
    128 bits of differently seeded hashes, so different logs pass with a probability of 1 in 10^38.
    """
    slots = dict(enumerate(ranges))
    with run_frame(spark, ranges) as runs:
        upstream = _sums(_with_places(source.hashes(source_slices(slots)), runs))
    downstream = _sums(remote.hashes(remote_slices(slots)).withColumn("place", F.col("offset")))
    return {
        slot for slot, one in slots.items() if _equal(one, upstream.get(slot, NOTHING), downstream.get(slot, NOTHING))
    }


def _equal(copied: CopiedRange, upstream: Sum, downstream: Sum) -> bool:
    counted = copied.runs.records == upstream.records == downstream.records and not upstream.stray
    return counted and upstream.hashes == downstream.hashes and copied.contradiction is None


def _with_places(records: DataFrame, runs: RunFrame) -> DataFrame:
    """Add `place`: the record's offset in the remote log by the ledger, or null."""
    everywhere = runs.runs <= MOST_EVERYWHERE
    # With short runs in long stretches, each record would be compared with hundreds of runs.
    stretch = STRETCH if everywhere else min(STRETCH, -(-runs.records // runs.runs))
    stretches = F.explode(F.expr(f"sequence(first div {stretch}L, (end - 1) div {stretch}L)"))
    touched = runs.rows.selectExpr(*_RUN_TERMS).withColumn("stretch", stretches)
    in_run = F.expr(f"slot = of_slot and offset div {stretch}L = stretch and offset >= first and offset < end")
    # Spark estimates that a worker makes few rows, regardless of their number, and would broadcast them by default.
    found = records.join(F.broadcast(touched) if everywhere else touched.hint("merge"), in_run, "left")
    return found.withColumn("place", F.expr("offset + shift"))


def _sums(records: DataFrame) -> Mapping[int, Sum]:
    by_slot = records.groupBy("slot").agg(
        F.expr("count(place)").alias("records"),
        F.expr("count_if(place is null)").alias("stray"),
        F.expr("coalesce(bit_xor(xxhash64(place, hash_1)), 0)").alias("sum_1"),
        F.expr("coalesce(bit_xor(xxhash64(place, hash_2)), 0)").alias("sum_2"),
    )
    rows = by_slot.collect()
    return {r["slot"]: Sum(r["records"], r["stray"], (r["sum_1"], r["sum_2"])) for r in rows}
