"""What a flow that changes records makes, against what its remote logs hold, on Spark. Rows of both in, counts out.

Each record that the flow wrote says in its origin which record of the source it is of. So both sides are joined on
that: what is left over on a side is missing or too much, and records of one source partition must lie in its order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from mirror_lib.spark.local_rows import local_rows
from mirror_lib.verify.digests import FIELD_HASHES, OTHER, OWN

PAIR, MISSING, DOUBLED, ELSEWHERE, NOT_MADE, FOREIGN = "pair", "missing", "doubled", "elsewhere", "not made", "foreign"
_OTHER, _BEFORE, _BEHIND = "other", "before", "behind"
_TOLD = (MISSING, DOUBLED, ELSEWHERE, NOT_MADE, FOREIGN)
_SLOTS = (("slot", "int"), ("expired", "boolean"), ("keeps_places", "boolean"), ("unsure", "boolean"))
_CHANGED = ", ".join(f"if(made_{name} <> found_{name}, '{name}', null)" for name in FIELD_HASHES)
_FACT = "named_struct('kind', {}, 'slot', {}, 'upstream', upstream, 'downstream', downstream, 'other', {})"
_NONE = "cast(null as int)"
_EXTRA = _FACT.format("{}", "found_slot", "made_slot")
# What a row of the join says: a record that lies elsewhere is missing in one place and too much in another.
_FACTS = f"""case
    when found_slot is null then array({_FACT.format(f"'{MISSING}'", "made_slot", _NONE)})
    when made_slot is null then array({_EXTRA.format(f"'{NOT_MADE}'")})
    when here and nth = 1 then array({_EXTRA.format(f"'{PAIR}'")})
    when here then array({_EXTRA.format(f"'{DOUBLED}'")})
    when not keeps_places then array({_EXTRA.format(f"'{DOUBLED}'")})
    when not any_here and nth_anywhere = 1 then array(
        {_FACT.format(f"'{MISSING}'", "made_slot", "found_slot")}, {_EXTRA.format(f"'{ELSEWHERE}'")})
    else array({_EXTRA.format(f"'{ELSEWHERE}'")}) end"""


class SlotFacts(NamedTuple):
    """What is known of a remote partition. `expired`: its log has lost its beginning. `keeps_places`: each record must
    lie in the partition that it is made for. `unsure`: it may lie in another one, and have expired there."""

    slot: int
    expired: bool
    keeps_places: bool
    unsure: bool


class Told(NamedTuple):
    """The first record of a kind. `other` is the slot that holds it instead, or that it is made for."""

    downstream: Optional[int]
    origin: Optional[int]
    upstream: Optional[int]
    other: Optional[int] = None


class ChangedRecord(NamedTuple):
    """The first record whose content is not what the flow makes, and the `fields` in which."""

    downstream: int
    origin: int
    upstream: int
    fields: str


@dataclass(frozen=True)
class OriginCounts:
    """What was found in one remote partition. `gone` records may have expired on the remote log; `before` and `behind`
    are of source offsets before and behind what is compared, `other` ones of topics that the flow does not copy."""

    records: int = 0
    bytes: int = 0
    missing: int = 0
    doubled: int = 0
    elsewhere: int = 0
    not_made: int = 0
    foreign: int = 0
    changed: int = 0
    swapped: int = 0
    gone: int = 0
    other: int = 0
    before: int = 0
    behind: int = 0
    first_missing: Optional[Told] = None
    first_doubled: Optional[Told] = None
    first_elsewhere: Optional[Told] = None
    first_not_made: Optional[Told] = None
    first_foreign: Optional[Told] = None
    first_swapped: Optional[Told] = None
    first_changed: Optional[ChangedRecord] = None


NOTHING = OriginCounts()


def compare_origins(made: DataFrame, found: DataFrame, slots: Sequence[SlotFacts]) -> Mapping[int, OriginCounts]:
    """By slot. `made` and `found` as `DigestReader.made_hashes` and `found_hashes` give them."""
    facts_of_slots = local_rows(made.sparkSession, _SLOTS, list(slots))
    judged = _judged(_facts(made, found, facts_of_slots).unionByName(_strangers(found)), facts_of_slots)
    rows = judged.groupBy("slot").agg(*_aggregates()).collect()
    return {row["slot"]: _counts(row) for row in rows}


def _facts(made: DataFrame, found: DataFrame, slots: DataFrame) -> DataFrame:
    """`kind, slot, origin, upstream, downstream, other, bytes, fields` of what is the flow's, or should be."""
    key = ("origin", "upstream")
    own = found.where(f"whose = '{OWN}' and upstream >= first and upstream < until")
    # By origin alone, so that all that is asked here is answered without moving a record again.
    there = own.selectExpr(
        *key, "slot as found_slot", "downstream", *(f"{name}_hash as found_{name}" for name in FIELD_HASHES)
    ).repartition(*key)
    of_slot = Window.partitionBy(*key, "found_slot").orderBy("downstream")
    there = there.withColumn("nth", F.row_number().over(of_slot))
    wanted = made.selectExpr(
        *key, "slot as made_slot", "bytes", *(f"{name}_hash as made_{name}" for name in FIELD_HASHES)
    ).repartition(*key)
    both = wanted.join(there, list(key), "full_outer")
    keeps = slots.selectExpr("slot as made_slot", "keeps_places")
    both = both.join(F.broadcast(keeps), "made_slot", "left")
    # Where keys have moved, the first place is as good as the right one.
    anywhere = Window.partitionBy(*key)
    in_order = anywhere.orderBy("found_slot", "downstream")
    both = both.withColumn("nth_anywhere", F.row_number().over(in_order))
    here = "coalesce(if(keeps_places, found_slot = made_slot, nth_anywhere = 1), false)"
    both = both.withColumn("here", F.expr(here)).withColumn("any_here", F.max("here").over(anywhere))
    told = both.withColumn("fields", F.expr(f"concat_ws(', ', {_CHANGED})")).withColumn(
        "fact", F.explode(F.expr(_FACTS))
    )
    names = ("kind", "slot", "upstream", "downstream", "other")
    return told.selectExpr("origin", "bytes", "fields", *(f"fact.{name} as {name}" for name in names))


def _strangers(found: DataFrame) -> DataFrame:
    """The same of the others."""
    inside = f"whose = '{OWN}' and upstream >= first and upstream < until"
    before, behind = f"whose = '{OWN}' and upstream < first", f"whose = '{OWN}'"
    kind = (
        f"case when whose = '{OTHER}' then '{_OTHER}' when {before} then '{_BEFORE}' "
        f"when {behind} then '{_BEHIND}' else '{FOREIGN}' end as kind"
    )
    # None of them has an order to keep.
    return found.where(f"not ({inside})").selectExpr(
        *("cast(null as int) as origin", "bytes", "'' as fields", kind, "slot", "upstream", "downstream"),
        "cast(null as int) as other",
    )


def _judged(facts: DataFrame, slots: DataFrame) -> DataFrame:
    """Add what the other records of its source partition in its remote partition say of each."""
    own = Window.partitionBy("slot", "origin")
    pair = f"if(kind = '{PAIR}', upstream, null)"
    # From the end, as Spark takes time for what follows a row.
    following = own.orderBy(F.desc("downstream")).rowsBetween(Window.unboundedPreceding, -1)
    known = facts.join(F.broadcast(slots.select("slot", "expired", "unsure")), "slot")
    known = known.withColumn("next_lowest", F.min(F.expr(pair)).over(following))
    return known.withColumn("first_paired", F.min(F.expr(pair)).over(own))


def _aggregates() -> List[Column]:
    gone = f"kind = '{MISSING}' and (unsure or (expired and coalesce(upstream < first_paired, true)))"
    swapped = f"kind = '{PAIR}' and next_lowest < upstream"
    changed = f"kind = '{PAIR}' and fields <> ''"
    is_told = {kind: f"kind = '{kind}'" for kind in _TOLD}
    is_told[MISSING] = f"kind = '{MISSING}' and not ({gone})"
    told = [(_column(kind), where, "downstream, origin, upstream, other") for kind, where in is_told.items()]
    told[0] = (*told[0][:2], "cast(null as bigint) as downstream, origin, upstream, other")
    told.append(("swapped", swapped, "downstream, origin, upstream, other"))
    told.append(("changed", changed, "downstream, origin, upstream, fields"))
    counted = [(name, f"kind = '{name}'") for name in (_OTHER, _BEFORE, _BEHIND)]
    return [
        F.expr(f"count_if(kind = '{PAIR}')").alias("records"),
        F.expr(f"coalesce(sum(bytes) filter (where kind = '{PAIR}'), 0)").alias("bytes"),
        F.expr(f"count_if({gone})").alias("gone"),
        *(F.expr(f"count_if({where})").alias(name) for name, where in counted),
        *(F.expr(f"count_if({where})").alias(name) for name, where, _ in told),
        *(F.expr(f"min(struct({of})) filter (where {where})").alias(f"first_{name}") for name, where, of in told),
    ]


def _column(kind: str) -> str:
    return kind.replace(" ", "_")


def _counts(row: Row) -> OriginCounts:
    values = {name: value for name, value in row.asDict().items() if name != "slot" and not name.startswith("first_")}
    firsts: Dict[str, Any] = {
        name: (ChangedRecord if name == "first_changed" else Told)(*value)
        for name, value in row.asDict().items()
        if name.startswith("first_") and value is not None
    }
    return OriginCounts(**values, **firsts)
