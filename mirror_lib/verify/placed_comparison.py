"""What flows that place records anew make, against what their remote logs hold, on Spark. Rows of both in, counts out.

The n-th record of one content that the flow makes for a remote partition is the n-th one there. So what is left over on
a side is missing or too much; and of the pairs, those of one source partition must lie in its order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Mapping, NamedTuple, Optional

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from mirror_lib.local_rows import local_rows
from mirror_lib.verify.verdicts import DOUBLED, FOREIGN, WRONG_PARTITION

_MADE = "slot, origin, offset as upstream, cast(null as bigint) as downstream, hash_1, hash_2, bytes"
_NO_SOURCE = "cast(null as int) as origin, cast(null as bigint) as upstream"
_FOUND = f"slot, {_NO_SOURCE}, offset as downstream, hash_1, hash_2, bytes"
_TOPIC = (("slot", "int"), ("remote_topic", "int"))
_PAIR = "upstream is not null and downstream is not null"
# The first records of a log may be gone while their pairs are there: those before the first one that has a pair.
_GONE = "downstream is null and coalesce(upstream < first_paired, true) and array_contains(expired_slots, slot)"
_MISSING = f"downstream is null and not ({_GONE})"
_EXTRA = "upstream is null"
# Within an expression: what a record too many is.
_KIND = f"case when made_here then '{DOUBLED}' when made_at is not null then '{WRONG_PARTITION}' else '{FOREIGN}' end"


class MissingRecord(NamedTuple):
    """A record that is not in its remote partition; the slot of one of the topic that holds it instead, if there is."""

    origin: int
    upstream: int
    elsewhere: Optional[int]


class ExtraRecord(NamedTuple):
    """A record that a remote partition holds beyond what the flow makes: `made_at` is a slot that it is made for."""

    downstream: int
    kind: str
    made_at: Optional[int]


class SwappedRecord(NamedTuple):
    """The first record of a remote partition that lies before one that its source partition has before it."""

    downstream: int
    origin: int
    upstream: int


@dataclass(frozen=True)
class PlacedCounts:
    """What was found in one remote partition. `unknown` records are not made by the flow for any partition of the
    topic; `gone` ones may have expired on the remote log; of `alike` ones, which several source partitions have, nobody
    can say whether they are in order."""

    records: int = 0
    bytes: int = 0
    missing: int = 0
    doubled: int = 0
    elsewhere: int = 0
    unknown: int = 0
    swapped: int = 0
    gone: int = 0
    alike: int = 0
    first_missing: Optional[MissingRecord] = None
    first_doubled: Optional[ExtraRecord] = None
    first_elsewhere: Optional[ExtraRecord] = None
    first_unknown: Optional[ExtraRecord] = None
    first_swapped: Optional[SwappedRecord] = None


NOTHING = PlacedCounts()


def compare_placed(
    made: DataFrame, found: DataFrame, topics: Mapping[int, int], expired_slots: List[int]
) -> Mapping[int, PlacedCounts]:
    """By slot. `made` has `slot, origin, offset, hash_1, hash_2, bytes`, the offset the source's; `found` the same
    without `origin`. `topics` numbers the topic of each slot. `expired_slots` are those whose remote logs have lost
    their beginning."""
    numbers = local_rows(made.sparkSession, _TOPIC, list(topics.items()))
    pairs = _judged(_paired(made, found, bool(expired_slots)).join(F.broadcast(numbers), "slot"))
    slots = F.array(*map(F.lit, expired_slots)).cast("array<int>")
    rows = pairs.withColumn("expired_slots", slots).groupBy("slot").agg(*_aggregates()).collect()
    return {row["slot"]: _counts(row) for row in rows}


def _paired(made: DataFrame, found: DataFrame, from_the_end: bool) -> DataFrame:
    """`slot, hash_1, hash_2, origin, upstream, downstream, bytes`: a row for each pair and each record without one."""
    both = made.selectExpr(*_MADE.split(", ")).unionByName(found.selectExpr(*_FOUND.split(", ")))
    # By content alone, so that all that is asked below is answered without moving a record again.
    spread = both.repartition("hash_1", "hash_2").withColumn("is_made", F.expr("upstream is not null"))
    offset = F.coalesce("upstream", "downstream")
    # Where the first ones may be gone, it is the last ones that face each other.
    order = offset.desc() if from_the_end else offset.asc()
    nth = F.row_number().over(Window.partitionBy("hash_1", "hash_2", "slot", "is_made").orderBy(order))
    columns = ("origin", "upstream", "downstream", "bytes")
    grouped = spread.withColumn("nth", nth).groupBy("hash_1", "hash_2", "slot", "nth")
    return grouped.agg(*(F.max(name).alias(name) for name in columns))


def _judged(pairs: DataFrame) -> DataFrame:
    """Add what the other rows of its content, and of its source partition, say of each row."""
    here = Window.partitionBy("hash_1", "hash_2", "slot")
    everywhere = Window.partitionBy("hash_1", "hash_2", "remote_topic")
    known = pairs.withColumn("made_here", F.max("upstream").over(here).isNotNull())
    known = known.withColumn("alike", F.min("origin").over(here) != F.max("origin").over(here))
    missing_at = F.min(F.expr("case when downstream is null then slot end")).over(everywhere)
    made_at = F.min(F.expr("case when upstream is not null then slot end")).over(everywhere)
    extra_at = F.min(F.expr("case when upstream is null then slot end")).over(everywhere)
    known = known.withColumn("made_at", F.coalesce(missing_at, made_at)).withColumn("extra_at", extra_at)
    own = Window.partitionBy("slot", "origin")
    in_order = F.expr(f"case when {_PAIR} and not coalesce(alike, false) then downstream end")
    before = own.orderBy("upstream").rowsBetween(Window.unboundedPreceding, -1)
    known = known.withColumn("placed", in_order)
    known = known.withColumn("previous", F.last("placed", ignorenulls=True).over(before))
    return known.withColumn("first_paired", F.min(F.expr(f"case when {_PAIR} then upstream end")).over(own))


def _aggregates() -> List[Column]:
    swapped = f"{_PAIR} and previous > placed"
    kinds = {"doubled": DOUBLED, "elsewhere": WRONG_PARTITION, "unknown": FOREIGN}
    return [
        F.expr(f"count_if({_PAIR})").alias("records"),
        F.expr(f"coalesce(sum(bytes) filter (where {_PAIR}), 0)").alias("bytes"),
        F.expr(f"count_if({_MISSING})").alias("missing"),
        *(F.expr(f"count_if({_EXTRA} and {_KIND} = '{kind}')").alias(name) for name, kind in kinds.items()),
        F.expr(f"count_if({swapped})").alias("swapped"),
        F.expr(f"count_if({_GONE})").alias("gone"),
        F.expr(f"count_if({_PAIR} and alike)").alias("alike"),
        F.expr(f"min(struct(origin, upstream, extra_at)) filter (where {_MISSING})").alias("first_missing"),
        *(_first_extra(kind).alias(f"first_{name}") for name, kind in kinds.items()),
        F.expr(f"min(struct(downstream, origin, upstream)) filter (where {swapped})").alias("first_swapped"),
    ]


def _first_extra(kind: str) -> Column:
    return F.expr(f"min(struct(downstream, {_KIND} as kind, made_at)) filter (where {_EXTRA} and {_KIND} = '{kind}')")


_FIRSTS = {
    "first_missing": MissingRecord,
    "first_doubled": ExtraRecord,
    "first_elsewhere": ExtraRecord,
    "first_unknown": ExtraRecord,
    "first_swapped": SwappedRecord,
}


def _counts(row: Row) -> PlacedCounts:
    values = {name: value for name, value in row.asDict().items() if name != "slot" and name not in _FIRSTS}
    firsts = {name: kind(*row[name]) for name, kind in _FIRSTS.items() if row[name] is not None}
    return PlacedCounts(**values, **firsts)
