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
from itertools import chain
from typing import Dict, Iterator, List, Mapping, Sequence, Set, Tuple

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from mirror_lib.ledger.run_rows import packed, run_rows
from mirror_lib.spark.jobs import local_rows, shipped
from mirror_lib.verify.digests import FIELD_HASHES, DigestReader, Slice
from mirror_lib.verify.ranges import CopiedPartition, CopiedRange
from mirror_lib.verify.verdicts import Counts, Facing, SeenRecord, classify


def kinds(
    source: DigestReader, remote: DigestReader, ranges: Sequence[CopiedRange], firsts: Mapping[int, Facing]
) -> Mapping[int, Tuple[str, str]]:
    """Kind and detail of each difference, by the range's index."""
    if not firsts:
        return {}
    places = [(n, ranges[n].known, each.upstream, each.downstream) for n, each in firsts.items()]
    # Spark would wait for records after the end of a log.
    ours = [at_source(n, known, at, min(at + 1, known.source.end)) for n, known, at, _ in places if at is not None]
    theirs = [at_remote(n, known, at, min(at + 1, known.remote.end)) for n, known, _, at in places if at is not None]
    upstream, downstream = _seen(source, ours), _seen(remote, theirs)
    topics = {known.topic for _, known, _, _ in places}
    within = {n: each for n, each in enumerate(ranges) if each.known.topic in topics}
    digests = sorted({record.digest for records in (upstream, downstream) for record in records.values()})
    sources = _counted(source, [_as_far_as_the_copy(n, each) for n, each in within.items()], ranges, digests)
    remotes = _counted(remote, remote_slices(within), ranges, digests)
    return {
        n: classify(
            *(known.partition, upstream.get(n), downstream.get(n), sources[known.topic], remotes[known.topic]),
            after_the_copy=(at or 0) >= ranges[n].remote.end > 0,
        )
        for n, known, _, at in places
    }


def at_source(slot: int, known: CopiedPartition, first: int, until: int) -> Slice:
    return Slice(slot, known.topic, known.partition, first, until)


def at_remote(slot: int, known: CopiedPartition, first: int, until: int) -> Slice:
    return Slice(slot, known.remote_topic, known.partition, first, until)


def source_slices(ranges: Mapping[int, CopiedRange]) -> List[Slice]:
    return [at_source(n, each.known, each.source.read_from, each.source.read_until) for n, each in ranges.items()]


def remote_slices(ranges: Mapping[int, CopiedRange]) -> List[Slice]:
    return [at_remote(n, each.known, each.remote.read_from, each.remote.read_until) for n, each in ranges.items()]


def _as_far_as_the_copy(slot: int, copied: CopiedRange) -> Slice:
    # Reads after the ledger's end only if the remote log has more records too.
    continues = copied.known.remote.end > copied.remote.end
    until = copied.known.source.end if continues else copied.source.read_until
    return at_source(slot, copied.known, copied.source.read_from, until)


def _seen(reader: DigestReader, slices: Sequence[Slice]) -> Mapping[int, SeenRecord]:
    return {
        row["slot"]: SeenRecord(row["digest"], {name: row[f"{name}_hash"] for name in FIELD_HASHES})
        for row in reader.digests(slices).collect()
    }


def _counted(
    reader: DigestReader, slices: Sequence[Slice], ranges: Sequence[CopiedRange], digests: Sequence[str]
) -> Mapping[str, Dict[Tuple[str, int], int]]:
    """By source topic, how often each partition has each of `digests`."""
    counts: Dict[str, Dict[Tuple[str, int], int]] = defaultdict(lambda: defaultdict(int))
    wanted = reader.digests(slices).where(F.col("digest").isin(list(digests)))
    for row in wanted.groupBy("slot", "digest").count().collect():
        known = ranges[row["slot"]].known
        counts[known.topic][row["digest"], known.partition] += row["count"]
    return counts


_RUN_COLUMNS = (("slot", "int"), ("upstream", "bigint"), ("downstream", "bigint"), ("count", "bigint"))
_NUMBERS = ("upstream", "downstream", "count")


@contextmanager
def run_frame(spark: SparkSession, ranges: Mapping[int, CopiedRange]) -> Iterator[DataFrame]:
    """The runs of `ranges` with records: `slot, upstream, downstream, count`. Use the result only inside the context;
    no file remains."""
    given = [
        ({"slot": slot}, array("q", chain.from_iterable(run for run in copied.runs if run.record_count)).tobytes())
        for slot, copied in ranges.items()
    ]
    with shipped(spark, packed(_RUN_COLUMNS, _NUMBERS, given)) as held:
        yield run_rows(spark, _RUN_COLUMNS, held)


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
# The columns of each side of a pair.
_SIDE = ("digest", "key_digest", "tombstone")
_BOUNDS = (("slot", "int"), *((name, "bigint") for name in _OFFSETS), *((name, "boolean") for name in _FLAGS))


def compare(
    spark: SparkSession, source: DigestReader, remote: DigestReader, ranges: Mapping[int, CopiedRange]
) -> Mapping[int, Counts]:
    """Compare every range, by slot. A slot without any record is missing."""
    upstream, downstream = source.digests(source_slices(ranges)), remote.digests(remote_slices(ranges))
    with run_frame(spark, ranges) as runs:
        joined = _joined(upstream, downstream, _pairs(runs)).join(F.broadcast(_bounds(spark, ranges)), "slot")
        if any(copied.known.compacted for copied in ranges.values()):
            joined = _with_last_of_key(joined).withColumn("excused", F.expr(_EXCUSED))
        else:
            joined = joined.withColumn("excused", F.lit(False))
        judged = joined.withColumn("differs", F.expr(_DIFFERS))
        return {row["slot"]: _counts(row) for row in judged.groupBy("slot").agg(*_aggregates()).collect()}


def _joined(upstream: DataFrame, downstream: DataFrame, pairs: DataFrame) -> DataFrame:
    sides = [
        side.selectExpr("slot", f"offset as {stream}", *(f"{name} as {of}_{name}" for name in _SIDE))
        for side, stream, of in ((upstream, "upstream", "source"), (downstream, "downstream", "remote"))
    ]
    mapped = sides[1].join(pairs, ["slot", "downstream"], "full_outer")
    return mapped.join(sides[0], ["slot", "upstream"], "full_outer")


def _pairs(runs: DataFrame) -> DataFrame:
    """The ledger's map record for record: `slot, upstream, downstream`."""
    pieces = runs.withColumn("piece", F.explode(F.expr(f"sequence(0L, count - 1, {PIECE}L)")))
    # Repartitioned before the expansion: a partition copied in order is a single run.
    spread = pieces.repartition("slot", "upstream", "piece")
    nth = F.explode(F.expr(f"sequence(piece, least(piece + {PIECE}L, count) - 1)"))
    offsets = ("upstream + nth as upstream", "downstream + nth as downstream")
    return spread.withColumn("nth", nth).selectExpr("slot", *offsets)


def _bounds(spark: SparkSession, ranges: Mapping[int, CopiedRange]) -> DataFrame:
    rows = [
        (
            *(slot, each.source.first, each.source.end, each.remote.first, each.remote.end),
            *(getattr(each.known, flag) for flag in _FLAGS),
        )
        for slot, each in ranges.items()
    ]
    return local_rows(spark, _BOUNDS, rows)


def _with_last_of_key(joined: DataFrame) -> DataFrame:
    """Add `key_digest`, the last record of that key on each side, and the last copied one of the source.

    The source is also read after the copied part, whose records are not in the remote log yet."""
    own = Window.partitionBy("slot", "key_digest")
    upstream = "if(source_digest is null, null, struct(upstream as offset, source_tombstone as tombstone))"
    downstream = "if(remote_digest is null, null, struct(downstream as offset, remote_tombstone as tombstone))"
    last = {
        "last_upstream": upstream,
        "last_copied": f"if(upstream < upstream_end, {upstream}, null)",
        "last_downstream": downstream,
    }
    keyed = joined.withColumn("key_digest", F.coalesce("source_key_digest", "remote_key_digest"))
    return keyed.select("*", *(F.max(F.expr(each)).over(own).alias(name) for name, each in last.items()))


def _aggregates() -> List[Column]:
    paired = "source_digest is not null and remote_digest is not null and upstream is not null"
    head_up = "downstream is null and upstream < upstream_first"
    head_down = "upstream is null and downstream < downstream_first"
    tail = "upstream is null and downstream >= downstream_end"
    return [
        F.expr(f"count_if({paired})").alias("records"),
        F.expr("count_if(excused)").alias("compacted"),
        F.expr("count_if(differs)").alias("differing"),
        F.expr("min(struct(downstream, upstream)) filter (where differs and downstream is not null)").alias("first"),
        F.expr("min(upstream) filter (where differs and downstream is null)").alias("first_unplaced"),
        F.expr(f"count_if({head_up})").alias("head_upstream"),
        F.expr(f"min(upstream) filter (where {head_up})").alias("head_upstream_first"),
        F.expr(f"count_if({head_down})").alias("head_downstream"),
        F.expr(f"count_if({tail})").alias("tail"),
    ]


def _counts(row: Row) -> Counts:
    found = {name: value for name, value in row.asDict().items() if name != "slot" and value is not None}
    if "first" in found:
        found["first"] = Facing(found["first"]["upstream"], found["first"]["downstream"])
    return Counts(**found)


def compare_tails(
    source: DigestReader, remote: DigestReader, ranges: Mapping[int, CopiedRange]
) -> Mapping[int, Counts]:
    """Compare, by rank, the records after the ledger's end in the remote logs and in the sources.

    A copier has written these and not yet committed them to the ledger: they must be the source's next records, in
    order.
    """
    upstream = source.digests([at_source(n, r.known, r.source.end, r.known.source.end) for n, r in ranges.items()])
    downstream = remote.digests([at_remote(n, r.known, r.remote.end, r.known.remote.end) for n, r in ranges.items()])
    rank = F.row_number().over(Window.partitionBy("slot").orderBy("offset")).alias("rank")
    expected = upstream.select("slot", F.col("offset").alias("upstream"), F.col("digest").alias("expected"), rank)
    joined = downstream.select("slot", "offset", "digest", rank).join(expected, ["slot", "rank"], "left")
    found = joined.withColumn("equal", F.expr("coalesce(digest = expected, false)")).groupBy("slot").agg(
        F.expr("count_if(equal)").alias("records"),
        F.expr("count_if(not equal)").alias("differing"),
        F.expr("min(struct(offset as downstream, upstream)) filter (where not equal)").alias("first"),
    )
    return {row["slot"]: _counts(row) for row in found.collect()}


# A record is joined only to the runs that overlap its stretch of this many offsets.
STRETCH = 4096
# Up to this number of runs are broadcast, which takes memory on every executor and on the driver.
MOST_EVERYWHERE = 100_000
_RUN_TERMS = ("slot as of_slot", "upstream as first", "upstream + count as end", "downstream - upstream as shift")


def screen(
    spark: SparkSession, source: DigestReader, remote: DigestReader, ranges: Mapping[int, CopiedRange]
) -> Set[int]:
    """The slots of the ranges in which every record of both logs is in the map and equals its pair.

    Other ranges may also be equal (compacted logs, a longer remote log): they need `compare`. Records are compared by
    128 bits of differently seeded hashes, so different logs pass with a probability of 1 in 10^38.
    """
    with run_frame(spark, ranges) as runs:
        upstream = _sums(_with_places(source.digests(source_slices(ranges)), runs, ranges))
    downstream = _sums(remote.digests(remote_slices(ranges)).withColumn("place", F.col("offset")))
    nothing = (0, 0, 0, 0)

    def equal(slot: int, copied: CopiedRange) -> bool:
        found = upstream.get(slot, nothing)
        counted = found[:2] == (copied.runs.records, 0) and copied.contradiction is None
        return counted and found == downstream.get(slot, nothing)

    return {slot for slot, copied in ranges.items() if equal(slot, copied)}


def _with_places(records: DataFrame, runs: DataFrame, ranges: Mapping[int, CopiedRange]) -> DataFrame:
    """Add `place`: the record's offset in the remote log by the ledger, or null."""
    number = sum(len(each.runs) for each in ranges.values())
    everywhere = number <= MOST_EVERYWHERE
    # With short runs in long stretches, each record would be compared with hundreds of runs.
    copied = sum(each.runs.records for each in ranges.values())
    stretch = STRETCH if everywhere else max(1, min(STRETCH, -(-copied // number)))
    stretches = F.explode(F.expr(f"sequence(first div {stretch}L, (end - 1) div {stretch}L)"))
    touched = runs.selectExpr(*_RUN_TERMS).withColumn("stretch", stretches)
    in_run = F.expr(f"slot = of_slot and offset div {stretch}L = stretch and offset >= first and offset < end")
    # Spark estimates that a worker makes few rows, regardless of their number, and would broadcast them by default.
    found = records.join(F.broadcast(touched) if everywhere else touched.hint("merge"), in_run, "left")
    return found.withColumn("place", F.expr("offset + shift"))


def _sums(records: DataFrame) -> Mapping[int, Tuple[int, ...]]:
    """By slot: the records with a place in the remote log by the ledger, those without, and two sums of hashes."""
    by_slot = records.groupBy("slot").agg(
        F.expr("count(place)"),
        F.expr("count_if(place is null)"),
        *(F.expr(f"coalesce(bit_xor(xxhash64(place, hash_{number})), 0)") for number in (1, 2)),
    )
    return {slot: tuple(found) for slot, *found in by_slot.collect()}
