"""A first look that settles the partitions that are equal. In: ranges. Out: the counts of those that surely are.

Each record becomes a hash of its place in the remote log and its content; each side of a partition becomes the number
of its records and the sum (exclusive or) of their hashes. Nothing is shuffled but one row for each partition and task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Sequence, Tuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mirror_lib.verify.comparison import Counts, remote_slices, source_slices
from mirror_lib.verify.digests import DigestReader
from mirror_lib.verify.ranges import CopiedRange
from mirror_lib.verify.run_frame import RunFrame, run_frame

# A record finds its run among those that touch the same stretch of so many offsets.
STRETCH = 4096
# More runs than that are not held in memory by every executor, and by the driver on their way there.
MOST_EVERYWHERE = 100_000
_RUN = ("slot as of_slot", "upstream as first", "upstream + count as end", "downstream - upstream as shift")


@dataclass(frozen=True)
class Sum:
    """One side of a partition: `stray` records have no place in the remote log by the ledger."""

    records: int
    bytes: int
    stray: int
    hashes: Tuple[int, int]


NOTHING = Sum(0, 0, 0, (0, 0))


def screen(
    spark: SparkSession, source: DigestReader, remote: DigestReader, ranges: Sequence[CopiedRange]
) -> Mapping[int, Counts]:
    """Counts by index of the ranges in which every record of both logs is in the map and equals its pair.

    The others may be equal too (compacted logs, a remote log that goes on) or not: they need `compare`. 128 bits of
    differently seeded hashes stand for the records, so that two logs that differ pass with a chance of one in 10^38.
    """
    slots = dict(enumerate(ranges))
    with run_frame(spark, ranges) as runs:
        upstream = _sums(_placed(source.hashes(source_slices(slots)), runs))
    downstream = _sums(remote.hashes(remote_slices(slots)).withColumn("place", F.col("offset")))
    return {
        slot: Counts(records=copied_sum.records, bytes=copied_sum.bytes)
        for slot, one in slots.items()
        for copied_sum in [upstream.get(slot, NOTHING)]
        if _equal(one, copied_sum, downstream.get(slot, NOTHING))
    }


def _equal(copied: CopiedRange, upstream: Sum, downstream: Sum) -> bool:
    counted = copied.runs.records == upstream.records == downstream.records and not upstream.stray
    return counted and upstream.hashes == downstream.hashes and copied.contradiction is None


def _placed(records: DataFrame, runs: RunFrame) -> DataFrame:
    """Add `place`: where the ledger says that the record lies in the remote log, or null."""
    everywhere = runs.runs <= MOST_EVERYWHERE
    # Short runs in long stretches: each record would be held against hundreds of them.
    stretch = STRETCH if everywhere else min(STRETCH, -(-runs.records // runs.runs))
    stretches = F.explode(F.expr(f"sequence(first div {stretch}L, (end - 1) div {stretch}L)"))
    touched = runs.rows.selectExpr(*_RUN).withColumn("stretch", stretches)
    in_run = F.expr(f"slot = of_slot and offset div {stretch}L = stretch and offset >= first and offset < end")
    # Spark takes rows that a worker makes for few, whatever their number, and would broadcast them by itself.
    found = records.join(F.broadcast(touched) if everywhere else touched.hint("merge"), in_run, "left")
    return found.withColumn("place", F.expr("offset + shift"))


def _sums(records: DataFrame) -> Mapping[int, Sum]:
    placed = records.groupBy("slot").agg(
        F.expr("count(place)").alias("records"),
        F.expr("coalesce(sum(bytes), 0)").alias("bytes"),
        F.expr("count_if(place is null)").alias("stray"),
        F.expr("coalesce(bit_xor(xxhash64(place, hash_1)), 0)").alias("sum_1"),
        F.expr("coalesce(bit_xor(xxhash64(place, hash_2)), 0)").alias("sum_2"),
    )
    rows = placed.collect()
    return {r["slot"]: Sum(r["records"], r["bytes"], r["stray"], (r["sum_1"], r["sum_2"])) for r in rows}
