"""Verifies flows that repartition records, by origins.

Each remote partition must have exactly one copy of each record that the change assigns to it, with the right content.
The records of one source partition must be in order there. Both sides are joined on the origin: a record on one side
only is missing or a surplus copy.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import Collection, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from mirror_lib.facts import OffsetRange, TopicPartition
from mirror_lib.ledger.records import LogPosition, RangePositions
from mirror_lib.rows.origin import ID_LENGTH
from mirror_lib.spark.jobs import local_rows
from mirror_lib.topics.plan import CopiedTopic
from mirror_lib.verify.digests import FIELD_HASHES, OTHER, OWN, Feed, Slice
from mirror_lib.verify.verdicts import (
    CHANGED,
    DIFFERS,
    DOUBLED,
    EQUAL,
    EXPIRED,
    FOREIGN,
    LOST,
    NOT_COMPARED,
    SWAPPED,
    WRONG_PARTITION,
    Difference,
    PartitionVerdict,
    TopicVerdict,
    by_the_rule,
    remarks,
)

# The facts about records. GONE: it may have expired on the remote log. BEFORE, BEHIND: its source offset is before or
# after the compared ones. OF_ANOTHER: of a topic that the flow does not copy.
PAIR, MISSING, MOVED, TWICE, ELSEWHERE = "pair", "missing", "moved", "doubled", "elsewhere"
NOT_MADE, NOT_OURS, GONE, OUT_OF_ORDER, OTHER_CONTENT = "not made", "foreign", "gone", "swapped", "changed"
OF_ANOTHER, BEFORE, BEHIND = "other", "before", "behind"
# Those that are differences, the gravest first: the verdict's kind and its sentence.
_DIFFERENCES = {
    MISSING: (LOST, "{source} has the record, and {remote} does not hold it"),
    MOVED: (WRONG_PARTITION, "{source} has the record, and {remote} does not hold it, {other} does"),
    TWICE: (DOUBLED, "{remote} holds the record more often than once"),
    ELSEWHERE: (WRONG_PARTITION, "{remote} holds a record that belongs to {other}"),
    OUT_OF_ORDER: (SWAPPED, "{remote} holds the record of {source} ahead of one that comes before it there"),
    OTHER_CONTENT: (
        f"{CHANGED} {{fields}}",
        "the copy of the record of {source} is in its place, its content is not the same",
    ),
    NOT_MADE: (FOREIGN, "{remote} holds a record that the flow does not make"),
    NOT_OURS: (FOREIGN, "{remote} holds a record without an origin of this flow"),
}
# The facts about a remote partition. `expired`: the start of its log expired. `keeps_places`: each record must be in
# its computed partition. `unsure`: a record may be in another partition, and may have expired there.
SlotFacts = Tuple[int, bool, bool, bool]
_SLOTS = (("slot", "int"), ("expired", "boolean"), ("keeps_places", "boolean"), ("unsure", "boolean"))
_CHANGED = ", ".join(f"if(made_{name} <> found_{name}, '{name}', null)" for name in FIELD_HASHES)
_FACT = "named_struct('kind', '{}', 'slot', {}, 'upstream', upstream, 'downstream', {}, 'other', {})"


def _lacking(kind: str, other: str) -> str:
    return _FACT.format(kind, "made_slot", "cast(null as bigint)", other)


def _there(kind: str) -> str:
    return _FACT.format(kind, "found_slot", "downstream", "made_slot")


# The facts of a row of the join: a record in a wrong partition is missing in one and a surplus in the other.
_FACTS = f"""case
    when found_slot is null then array({_lacking(MISSING, "cast(null as int)")})
    when made_slot is null then array({_there(NOT_MADE)})
    when here and nth = 1 then array({_there(PAIR)})
    when here or not keeps_places then array({_there(TWICE)})
    when not any_here and nth_anywhere = 1 then array({_lacking(MOVED, "found_slot")}, {_there(ELSEWHERE)})
    else array({_there(ELSEWHERE)}) end"""
# The facts of a record in the end, with the records of the same source and remote partition.
_KINDS = f"""case
    when kind in ('{MISSING}', '{MOVED}') and (unsure or (expired and coalesce(upstream < first_paired, true)))
        then array('{GONE}')
    when kind = '{PAIR}' then filter(array(kind, if(next_lowest < upstream, '{OUT_OF_ORDER}', null),
        if(fields <> '', '{OTHER_CONTENT}', null)), each -> each is not null)
    else array(kind) end"""


class RecordAt(NamedTuple):
    """The first record of a kind. `origin` is the slot of its feed, `other` the slot that has the record instead, or to
    which it belongs, `fields` are the ones that differ."""

    downstream: Optional[int]
    origin: Optional[int]
    upstream: Optional[int]
    other: Optional[int] = None
    fields: str = ""


# Of one remote partition: how many records are of a kind, and the first of them.
OriginCounts = Mapping[str, Tuple[int, RecordAt]]


def compare_origins(made: DataFrame, found: DataFrame, slots: Sequence[SlotFacts]) -> Mapping[int, OriginCounts]:
    """The counts by slot. `made` and `found` are the results of `DigestReader.made_hashes` and `found_hashes`."""
    facts_of_slots = local_rows(made.sparkSession, _SLOTS, list(slots))
    judged = _judged(_facts(made, found, facts_of_slots).unionByName(_strangers(found)), facts_of_slots)
    first = F.min(F.struct(*RecordAt._fields)).alias("first")
    counts: Dict[int, Dict[str, Tuple[int, RecordAt]]] = defaultdict(dict)
    for row in judged.groupBy("slot", "kind").agg(F.count("*").alias("records"), first).collect():
        counts[row["slot"]][row["kind"]] = row["records"], RecordAt(*row["first"])
    return counts


_COMPARED = f"whose = '{OWN}' and upstream >= first and upstream < until"


def _facts(made: DataFrame, found: DataFrame, slots: DataFrame) -> DataFrame:
    """`kind, slot, origin, upstream, downstream, other, fields` of the flow's own records, and of missing ones."""
    key = ("origin", "upstream")
    own = found.where(_COMPARED)
    # Repartitioned by origin only, so that the join and all windows need no further shuffle.
    there = own.selectExpr(
        *key, "slot as found_slot", "downstream", *(f"{name}_hash as found_{name}" for name in FIELD_HASHES)
    ).repartition(*key)
    of_slot = Window.partitionBy(*key, "found_slot").orderBy("downstream")
    there = there.withColumn("nth", F.row_number().over(of_slot))
    wanted = made.selectExpr(
        *key, "slot as made_slot", *(f"{name}_hash as made_{name}" for name in FIELD_HASHES)
    ).repartition(*key)
    both = wanted.join(there, list(key), "full_outer")
    keeps = slots.selectExpr("slot as made_slot", "keeps_places")
    both = both.join(F.broadcast(keeps), "made_slot", "left")
    # If keys have moved, the first copy in any partition counts as the right one.
    anywhere = Window.partitionBy(*key)
    in_order = anywhere.orderBy("found_slot", "downstream")
    both = both.withColumn("nth_anywhere", F.row_number().over(in_order))
    here = "coalesce(if(keeps_places, found_slot = made_slot, nth_anywhere = 1), false)"
    both = both.withColumn("here", F.expr(here)).withColumn("any_here", F.max("here").over(anywhere))
    reported = both.withColumn("fields", F.expr(f"concat_ws(', ', {_CHANGED})")).withColumn(
        "fact", F.explode(F.expr(_FACTS))
    )
    names = ("kind", "slot", "upstream", "downstream", "other")
    return reported.selectExpr("origin", "fields", *(f"fact.{name} as {name}" for name in names))


def _strangers(found: DataFrame) -> DataFrame:
    """The same for all other records on the remote logs."""
    kind = (
        f"case when whose = '{OTHER}' then '{OF_ANOTHER}' when whose <> '{OWN}' then '{NOT_OURS}' "
        f"when upstream < first then '{BEFORE}' else '{BEHIND}' end as kind"
    )
    # These records have no order to check, so they need no origin.
    return found.where(f"not ({_COMPARED})").selectExpr(
        *("cast(null as int) as origin", "'' as fields", kind, "slot", "upstream", "downstream"),
        "cast(null as int) as other",
    )


def _judged(facts: DataFrame, slots: DataFrame) -> DataFrame:
    """The facts with their final `kind`, one row for each."""
    own = Window.partitionBy("slot", "origin")
    paired = F.min(F.expr(f"if(kind = '{PAIR}', upstream, null)"))
    # Ordered from the end, because a frame of following rows is slow in Spark.
    following = own.orderBy(F.desc("downstream")).rowsBetween(Window.unboundedPreceding, -1)
    known = facts.join(F.broadcast(slots.select("slot", "expired", "unsure")), "slot")
    known = known.withColumn("next_lowest", paired.over(following)).withColumn("first_paired", paired.over(own))
    return known.withColumn("kind", F.explode(F.expr(_KINDS)))


NOT_BEGUN = "the ledger knows of no record in it: not compared"
ANOTHER_TOPIC = "the records were copied to another topic that had this name: not compared"
NO_ORIGINS = "provenance is off, so nothing says which record of the source a copy is of: not compared"


@dataclass(frozen=True)
class OriginCopy:
    """The remote partitions, each at the index of its slot, and the source partitions likewise. `remotes` have the
    readable part of the flow's offsets.

    `not_copied`: by source topic, the offsets after those that the ledger has; `None` if unknown. Sets of remote
    topics: `grown`: keys have moved. `compacted`: the remote topic is compacted. `thinned`: a source topic is
    compacted. `others`: the ledger has rows of another topic with that name. `unknown`: the ledger has no rows, but a
    source topic has records. `shared`: remote topics have other writers too. `changed`: the flow may drop records or
    change their keys."""

    remotes: Tuple[Slice, ...] = ()
    sources: Tuple[Feed, ...] = ()
    not_copied: Mapping[str, Optional[int]] = field(default_factory=dict)
    grown: Collection[str] = ()
    compacted: Collection[str] = ()
    thinned: Collection[str] = ()
    others: Collection[str] = ()
    unknown: Collection[str] = ()
    shared: bool = False
    changed: bool = False

    def counts(self) -> Mapping[str, int]:
        """By remote topic, the number of partitions over which the flow spreads records."""
        return Counter(each.topic for each in self.remotes)

    def slot_facts(self) -> List[SlotFacts]:
        unsure = {each.topic for each in self.remotes if each.expired and each.topic in self.grown}
        return [
            (each.slot, each.expired > 0, each.topic not in self.grown, each.topic in unsure) for each in self.remotes
        ]

    def verdict(self, topic: CopiedTopic, counts: Mapping[int, OriginCounts]) -> TopicVerdict:
        name = topic.remote_topic
        own = [each for each in self.remotes if each.topic == name]
        if own:
            gone = sum(each.expired for each in self.sources if each.remote_topic == name)
            found = [self._partition(each, counts.get(each.slot, {}), gone) for each in own]
        else:
            verdict = NOT_COMPARED if name in self.others or name in self.unknown else EQUAL
            why = ANOTHER_TOPIC if name in self.others else NOT_BEGUN
            found = [PartitionVerdict(n, 0, verdict, None, (why,)) for n in range(topic.remote_partitions)]
        # The remote partitions of these records are unknown, so they count at the first one.
        left: List[Optional[int]] = [self.not_copied.get(topic.source.name, 0), *(0 for _ in found[1:])]
        partitions = (replace(each, not_copied=number) for each, number in zip(found, left))
        return TopicVerdict(topic.source.name, name, tuple(partitions))

    def _partition(self, remote: Slice, found: OriginCounts, gone: int) -> PartitionVerdict:
        difference = self._difference(remote, found)
        records = _number(found, PAIR)
        nothing_left = (gone or remote.expired) and not records
        # Compaction may have removed all records, but nothing proves it.
        unseen = NOT_COMPARED if (MISSING in found or MOVED in found) and not records else EQUAL
        verdict = DIFFERS if difference else EXPIRED if nothing_left else unseen
        reported = self._unknown(remote, found, gone)
        return PartitionVerdict(remote.partition, records, verdict, difference, reported)

    def _difference(self, remote: Slice, found: OriginCounts) -> Optional[Difference]:
        # The kinds of differences that an exact copy may have too.
        missing = remote.topic in self.compacted
        excused = {MISSING: missing, MOVED: missing, NOT_MADE: remote.topic in self.thinned, NOT_OURS: self.shared}
        kinds = [kind for kind in _DIFFERENCES if kind in found and not excused.get(kind)]
        if not kinds:
            return None
        first = found[kinds[0]][1]
        names = {
            "remote": _name(remote),
            "source": "the source" if first.origin is None else _name(self.sources[first.origin]),
            "other": "" if first.other is None else _name(self.remotes[first.other]),
            "fields": first.fields,
        }
        kind, detail = (text.format(**names) for text in _DIFFERENCES[kinds[0]])
        if self.changed and kinds[0] != NOT_OURS:
            kind, detail = by_the_rule(kind, detail)
        places = sum(found[kind][0] for kind in kinds)
        return Difference(remote.partition, kind, first.upstream, first.downstream, places, detail)

    def _unknown(self, remote: Slice, found: OriginCounts, gone: int) -> Tuple[str, ...]:
        compacted = _number(found, MISSING, MOVED) if remote.topic in self.compacted else 0
        beyond = _number(found, NOT_MADE) if remote.topic in self.thinned else 0
        reported = remarks(
            (gone, "offset", "of its sources expired and cannot be compared"),
            (remote.expired, "offset", "of the remote log expired and cannot be compared"),
            (_number(found, GONE), "record", "of the source may have expired on the remote log: not compared"),
            (_number(found, BEFORE), "record", "of source offsets before those that can be compared"),
            (_number(found, BEHIND), "record", "of later source offsets than the ledger has: not compared"),
            (_number(found, NOT_OURS) if self.shared else 0, "record", "of other writers in between: not compared"),
            (_number(found, OF_ANOTHER), "record", "of topics that the flow does not copy now: not compared"),
            (compacted, "record", "missing, perhaps by compaction of the remote log: not compared"),
            (beyond, "record", "beyond what a compacted source still has: not compared"),
        )
        grew = "the remote topic grew, so keys moved: records are looked for in all of its partitions"
        return (*reported, *([grew] if remote.topic in self.grown else []))


def origin_copy(
    copied: Sequence[CopiedTopic],
    known: RangePositions,
    source: Mapping[TopicPartition, OffsetRange],
    remote: Mapping[TopicPartition, OffsetRange],
) -> OriginCopy:
    """The partitions to compare of the topics `copied`, with their current ids. `source` and `remote` are the current
    logs; of the source also those of partitions without rows in the ledger."""
    remotes: List[Slice] = []
    sources: List[Feed] = []
    not_copied: Dict[str, Optional[int]] = {}
    for each in copied:
        name = each.remote_topic
        for (_, number), stand in _own(known.remotes, name, each.remote_topic_id):
            log = remote.get((name, number))
            # Read to its current end: records after the ledger's end belong to later source records, or are surplus.
            until = stand.offset if log is None else max(stand.offset, log.end)
            remotes.append(Slice(len(remotes), name, number, *_readable(stand.begin, until, log)))
        name = each.source.name
        logs = {number: log for (topic, number), log in source.items() if topic == name}
        left = {number: log.end - log.log_start for number, log in logs.items()}
        for (_, number), stand in _own(known.sources, name, each.source.topic_id):
            log = logs.get(number)
            if log is not None:
                left[number] = max(0, log.end - max(stand.offset, log.log_start))
            part = _readable(stand.begin, stand.offset, log)
            topic_id = each.source.topic_id[:ID_LENGTH]
            sources.append(Feed(len(sources), name, number, *part, each.remote_topic, topic_id))
        not_copied[name] = sum(left.values()) if left.keys() >= set(range(each.source.partitions)) else None
    others = {topic for topic, _ in known.remotes} - {each.topic for each in remotes}
    return OriginCopy(tuple(remotes), tuple(sources), not_copied, known.grown, others=others)


def _own(
    positions: Mapping[TopicPartition, LogPosition], topic: str, topic_id: str
) -> List[Tuple[TopicPartition, LogPosition]]:
    own = (topic, topic_id)
    return [(place, each) for place, each in sorted(positions.items()) if (place[0], each.topic_id) == own]


def _readable(begin: int, end: int, log: Optional[OffsetRange]) -> Tuple[int, int, int]:
    """The part of `[begin, end)` that a log has, and how many of these offsets are gone; all if there is no log."""
    first = end if log is None else min(end, max(begin, log.log_start))
    until = end if log is None else max(first, min(end, log.end))
    return first, until, first - begin


def nothing_compared(topic: CopiedTopic) -> TopicVerdict:
    numbers = range(topic.remote_partitions)
    nothing = (PartitionVerdict(n, 0, NOT_COMPARED, None, () if n else (NO_ORIGINS,)) for n in numbers)
    return TopicVerdict(topic.source.name, topic.remote_topic, tuple(nothing))


def _number(found: OriginCounts, *kinds: str) -> int:
    return sum(found[kind][0] for kind in kinds if kind in found)


def _name(each: Slice) -> str:
    return f"{each.topic}-{each.partition}"
