"""Verifies flows by origins if they repartition records, or if their change is not repeatable.

Each remote partition must have exactly one copy of each record that the change assigns to it, with the right content.
The records of one source partition must be in order there. Both sides are joined on the origin: a record on one side
only is missing or a surplus copy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Collection, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from pyspark.sql import Column, DataFrame, Row, Window
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
)

PAIR, MISSING, TWICE, ELSEWHERE, NOT_MADE, NOT_OURS = "pair", "missing", "doubled", "elsewhere", "not made", "foreign"
_OTHER, _BEFORE, _BEHIND = "other", "before", "behind"
_REPORTED = (MISSING, TWICE, ELSEWHERE, NOT_MADE, NOT_OURS)
_SLOTS = (("slot", "int"), ("expired", "boolean"), ("keeps_places", "boolean"), ("unsure", "boolean"))
_CHANGED = ", ".join(f"if(made_{name} <> found_{name}, '{name}', null)" for name in FIELD_HASHES)
_FACT = "named_struct('kind', {}, 'slot', {}, 'upstream', upstream, 'downstream', downstream, 'other', {})"
_NONE = "cast(null as int)"
_EXTRA = _FACT.format("{}", "found_slot", "made_slot")
# The facts of a row of the join: a record in a wrong partition is missing in one and a surplus in the other.
_FACTS = f"""case
    when found_slot is null then array({_FACT.format(f"'{MISSING}'", "made_slot", _NONE)})
    when made_slot is null then array({_EXTRA.format(f"'{NOT_MADE}'")})
    when here and nth = 1 then array({_EXTRA.format(f"'{PAIR}'")})
    when here then array({_EXTRA.format(f"'{TWICE}'")})
    when not keeps_places then array({_EXTRA.format(f"'{TWICE}'")})
    when not any_here and nth_anywhere = 1 then array(
        {_FACT.format(f"'{MISSING}'", "made_slot", "found_slot")}, {_EXTRA.format(f"'{ELSEWHERE}'")})
    else array({_EXTRA.format(f"'{ELSEWHERE}'")}) end"""


class SlotFacts(NamedTuple):
    """The facts about a remote partition. `expired`: the start of its log expired. `keeps_places`: each record must be
    in its computed partition. `unsure`: a record may be in another partition, and may have expired there."""

    slot: int
    expired: bool
    keeps_places: bool
    unsure: bool


class RecordAt(NamedTuple):
    """The first record of a kind. `other` is the slot that has the record instead, or to which it belongs."""

    downstream: Optional[int]
    origin: Optional[int]
    upstream: Optional[int]
    other: Optional[int] = None


class ChangedRecord(NamedTuple):
    """The first record whose content differs from the flow's result, and the differing `fields`."""

    downstream: int
    origin: int
    upstream: int
    fields: str


@dataclass(frozen=True)
class OriginCounts:
    """The counts of one remote partition.

    `gone` records may have expired on the remote log. `before` and `behind` count records of source offsets before and
    after the compared ones, `other` the ones of topics that the flow does not copy."""

    records: int = 0
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
    first_missing: Optional[RecordAt] = None
    first_doubled: Optional[RecordAt] = None
    first_elsewhere: Optional[RecordAt] = None
    first_not_made: Optional[RecordAt] = None
    first_foreign: Optional[RecordAt] = None
    first_swapped: Optional[RecordAt] = None
    first_changed: Optional[ChangedRecord] = None


NOTHING = OriginCounts()


def compare_origins(made: DataFrame, found: DataFrame, slots: Sequence[SlotFacts]) -> Mapping[int, OriginCounts]:
    """The counts by slot. `made` and `found` are the results of `DigestReader.made_hashes` and `found_hashes`."""
    facts_of_slots = local_rows(made.sparkSession, _SLOTS, list(slots))
    judged = _judged(_facts(made, found, facts_of_slots).unionByName(_strangers(found)), facts_of_slots)
    rows = judged.groupBy("slot").agg(*_aggregates()).collect()
    return {row["slot"]: _counts(row) for row in rows}


def _facts(made: DataFrame, found: DataFrame, slots: DataFrame) -> DataFrame:
    """`kind, slot, origin, upstream, downstream, other, fields` of the flow's own records, and of missing ones."""
    key = ("origin", "upstream")
    own = found.where(f"whose = '{OWN}' and upstream >= first and upstream < until")
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
    inside = f"whose = '{OWN}' and upstream >= first and upstream < until"
    before, behind = f"whose = '{OWN}' and upstream < first", f"whose = '{OWN}'"
    kind = (
        f"case when whose = '{OTHER}' then '{_OTHER}' when {before} then '{_BEFORE}' "
        f"when {behind} then '{_BEHIND}' else '{NOT_OURS}' end as kind"
    )
    # These records have no order to check, so they need no origin.
    return found.where(f"not ({inside})").selectExpr(
        *("cast(null as int) as origin", "'' as fields", kind, "slot", "upstream", "downstream"),
        "cast(null as int) as other",
    )


def _judged(facts: DataFrame, slots: DataFrame) -> DataFrame:
    """Add `next_lowest` and `first_paired`, from the records of the same source and remote partition."""
    own = Window.partitionBy("slot", "origin")
    pair = f"if(kind = '{PAIR}', upstream, null)"
    # Ordered from the end, because a frame of following rows is slow in Spark.
    following = own.orderBy(F.desc("downstream")).rowsBetween(Window.unboundedPreceding, -1)
    known = facts.join(F.broadcast(slots.select("slot", "expired", "unsure")), "slot")
    known = known.withColumn("next_lowest", F.min(F.expr(pair)).over(following))
    return known.withColumn("first_paired", F.min(F.expr(pair)).over(own))


def _aggregates() -> List[Column]:
    gone = f"kind = '{MISSING}' and (unsure or (expired and coalesce(upstream < first_paired, true)))"
    swapped = f"kind = '{PAIR}' and next_lowest < upstream"
    changed = f"kind = '{PAIR}' and fields <> ''"
    where_reported = {kind: f"kind = '{kind}'" for kind in _REPORTED}
    where_reported[MISSING] = f"kind = '{MISSING}' and not ({gone})"
    place = "downstream, origin, upstream, other"
    reported = [(kind.replace(" ", "_"), where, place) for kind, where in where_reported.items()]
    reported[0] = (*reported[0][:2], "cast(null as bigint) as downstream, origin, upstream, other")
    reported.append(("swapped", swapped, place))
    reported.append(("changed", changed, "downstream, origin, upstream, fields"))
    counted = [(name, f"kind = '{name}'") for name in (_OTHER, _BEFORE, _BEHIND)]
    return [
        F.expr(f"count_if(kind = '{PAIR}')").alias("records"),
        F.expr(f"count_if({gone})").alias("gone"),
        *(F.expr(f"count_if({where})").alias(name) for name, where in counted),
        *(F.expr(f"count_if({where})").alias(name) for name, where, _ in reported),
        *(F.expr(f"min(struct({of})) filter (where {where})").alias(f"first_{name}") for name, where, of in reported),
    ]


def _counts(row: Row) -> OriginCounts:
    values = {name: value for name, value in row.asDict().items() if name != "slot" and not name.startswith("first_")}
    firsts: Dict[str, Any] = {
        name: (ChangedRecord if name == "first_changed" else RecordAt)(*value)
        for name, value in row.asDict().items()
        if name.startswith("first_") and value is not None
    }
    return OriginCounts(**values, **firsts)


NOT_BEGUN = "the ledger knows of no record in it: not compared"
ANOTHER_TOPIC = "the records were copied to another topic that had this name: not compared"
NO_ORIGINS = "provenance is off, so nothing says which record of the source a copy is of: not compared"


@dataclass(frozen=True)
class Remote:
    """A remote partition: `log` is the readable part of the flow's offsets; `expired` of them are gone."""

    slot: int
    topic: str
    partition: int
    log: OffsetRange
    expired: int


@dataclass(frozen=True)
class Source:
    """A source partition that is copied to `remote_topic`."""

    number: int
    remote_topic: str
    topic: str
    topic_id: str
    partition: int
    log: OffsetRange
    expired: int


@dataclass(frozen=True)
class OriginCopy:
    """The remote partitions by slot, and the source partitions by number.

    Sets of remote topics: `grown`: keys have moved. `compacted`: the remote topic is compacted. `thinned`: a source
    topic is compacted. `others`: the ledger has rows of another topic with that name. `unknown`: the ledger has no
    rows, but a source topic has records."""

    remotes: Tuple[Remote, ...] = ()
    sources: Tuple[Source, ...] = ()
    grown: Collection[str] = ()
    compacted: Collection[str] = ()
    thinned: Collection[str] = ()
    others: Collection[str] = ()
    unknown: Collection[str] = ()

    def counts(self) -> Mapping[str, int]:
        """By remote topic, the number of partitions over which the flow spreads records."""
        found: Dict[str, int] = {}
        for each in self.remotes:
            found[each.topic] = found.get(each.topic, 0) + 1
        return found

    def slots(self) -> List[Slice]:
        return [Slice(each.slot, each.topic, each.partition, each.log.log_start, each.log.end) for each in self.remotes]

    def source_slices(self) -> List[Slice]:
        return [
            Slice(each.number, each.topic, each.partition, each.log.log_start, each.log.end) for each in self.sources
        ]

    def feeds(self) -> List[Feed]:
        return [
            Feed(
                each.number,
                *(each.remote_topic, each.topic, each.partition),
                *(each.log.log_start, each.log.end, each.topic_id[:ID_LENGTH]),
            )
            for each in self.sources
        ]

    def slot_facts(self) -> List[SlotFacts]:
        expired = {each.topic for each in self.remotes if each.expired}
        return [
            SlotFacts(
                each.slot,
                each.expired > 0,
                each.topic not in self.grown,
                each.topic in self.grown and each.topic in expired,
            )
            for each in self.remotes
        ]


def origin_copy(
    copied: Sequence[CopiedTopic],
    known: RangePositions,
    source: Mapping[TopicPartition, OffsetRange],
    remote: Mapping[TopicPartition, OffsetRange],
) -> OriginCopy:
    """The partitions to compare of the topics `copied`, with their current ids. `source` and `remote` are the current
    logs."""
    remotes: List[Remote] = []
    for each in copied:
        name = each.remote_topic
        for (_, number), stand in _own(known.remotes, name, each.remote_topic_id):
            log = remote.get((name, number))
            # Read to its current end: records after the ledger's end belong to later source records, or are surplus.
            until = stand.offset if log is None else max(stand.offset, log.end)
            remotes.append(Remote(len(remotes), name, number, *_readable(stand.begin, until, log)))
    sources: List[Source] = []
    for each in copied:
        name = each.source.name
        for (_, number), stand in _own(known.sources, name, each.source.topic_id):
            log, expired = _readable(stand.begin, stand.offset, source.get((name, number)))
            at = (len(sources), each.remote_topic, name, each.source.topic_id, number)
            sources.append(Source(*at, log, expired))
    others = {topic for topic, _ in known.remotes} - {each.topic for each in remotes}
    return OriginCopy(tuple(remotes), tuple(sources), known.grown, others=others)


def _own(
    positions: Mapping[TopicPartition, LogPosition], topic: str, topic_id: str
) -> List[Tuple[TopicPartition, LogPosition]]:
    own = (topic, topic_id)
    return [(place, each) for place, each in sorted(positions.items()) if (place[0], each.topic_id) == own]


def _readable(begin: int, end: int, log: Optional[OffsetRange]) -> Tuple[OffsetRange, int]:
    """The part of `[begin, end)` that a log has, and how many of these offsets are gone; all if there is no log."""
    first = end if log is None else min(end, max(begin, log.log_start))
    until = end if log is None else max(first, min(end, log.end))
    return OffsetRange(first, until), first - begin


@dataclass(frozen=True)
class Judging:
    """The facts about the flow for the verdicts.

    `shared`: remote topics have other writers too. `changed`: the flow may drop records or change their keys.
    `content_unsure`: a phrase, the reason why the content is not repeatable. `choice_unsure`: the same for the choice
    of records."""

    shared: bool = False
    changed: bool = False
    content_unsure: Optional[str] = None
    choice_unsure: Optional[str] = None


def verdicts(
    copied: Sequence[CopiedTopic], copy: OriginCopy, counts: Mapping[int, OriginCounts], by: Judging = Judging()
) -> Tuple[TopicVerdict, ...]:
    judge = _Judge(copy, by)
    return tuple(TopicVerdict(each.source.name, each.remote_topic, judge.partitions(each, counts)) for each in copied)


def nothing_compared(copied: Sequence[CopiedTopic]) -> Tuple[TopicVerdict, ...]:
    def of(topic: CopiedTopic) -> Tuple[PartitionVerdict, ...]:
        numbers = range(topic.remote_partitions)
        return tuple(PartitionVerdict(n, 0, NOT_COMPARED, None, () if n else (NO_ORIGINS,)) for n in numbers)

    return tuple(TopicVerdict(each.source.name, each.remote_topic, of(each)) for each in copied)


class _First(NamedTuple):
    """The reported difference of a partition: the first one of the worst kind."""

    kind: str
    upstream: Optional[int]
    downstream: Optional[int]
    detail: str


class _Judge:
    """Turns counts into verdicts, with topic and partition names for slots and numbers."""

    def __init__(self, copy: OriginCopy, by: Judging) -> None:
        self._copy = copy
        self._by = by

    def partitions(self, topic: CopiedTopic, counts: Mapping[int, OriginCounts]) -> Tuple[PartitionVerdict, ...]:
        name = topic.remote_topic
        gone = sum(each.expired for each in self._copy.sources if each.remote_topic == name)
        own = [each for each in self._copy.remotes if each.topic == name]
        if not own:
            verdict, why = self._of_none(name)
            return tuple(PartitionVerdict(n, 0, verdict, None, (why,)) for n in range(topic.remote_partitions))
        return tuple(self._verdict(each, counts.get(each.slot, NOTHING), gone) for each in own)

    def _of_none(self, name: str) -> Tuple[str, str]:
        if name in self._copy.others:
            return NOT_COMPARED, ANOTHER_TOPIC
        return NOT_COMPARED if name in self._copy.unknown else EQUAL, NOT_BEGUN

    def _verdict(self, remote: Remote, found: OriginCounts, gone: int) -> PartitionVerdict:
        difference = self._difference(remote, self._judged(remote, found))
        nothing_left = (gone or remote.expired) and not found.records
        # Compaction may have removed all records, but nothing proves it.
        unseen = NOT_COMPARED if found.missing and not found.records else EQUAL
        verdict = DIFFERS if difference else EXPIRED if nothing_left else unseen
        reported = self._unknown(remote, found, gone)
        return PartitionVerdict(remote.partition, found.records, verdict, difference, reported)

    def _judged(self, remote: Remote, found: OriginCounts) -> OriginCounts:
        """`found` without differences that an exact copy may have too."""
        unsure = self._by.choice_unsure is not None
        if unsure or remote.topic in self._copy.compacted:
            found = replace(found, missing=0, first_missing=None)
        if unsure or remote.topic in self._copy.thinned:
            found = replace(found, not_made=0, first_not_made=None)
        if self._by.shared:
            found = replace(found, foreign=0, first_foreign=None)
        if self._by.content_unsure is not None:
            found = replace(found, changed=0, first_changed=None)
        return found

    def _difference(self, remote: Remote, found: OriginCounts) -> Optional[Difference]:
        first = (
            self._missing(remote, found.first_missing)
            or self._too_much(DOUBLED, f"{_name(remote)} holds the record more often than once", found.first_doubled)
            or self._elsewhere(remote, found.first_elsewhere)
            or self._swapped(remote, found.first_swapped)
            or self._changed(found.first_changed)
            or self._too_much(
                FOREIGN, f"{_name(remote)} holds a record that the flow does not make", found.first_not_made
            )
        )
        if first is not None and self._by.changed:
            kind, detail = by_the_rule(first.kind, first.detail)
            first = first._replace(kind=kind, detail=detail)
        why = f"{_name(remote)} holds a record without an origin of this flow"
        first = first or self._too_much(FOREIGN, why, found.first_foreign)
        if first is None:
            return None
        places = found.missing + found.doubled + found.elsewhere + found.swapped + found.changed
        places += found.not_made + found.foreign
        return Difference(remote.partition, first.kind, first.upstream, first.downstream, places, first.detail)

    def _missing(self, remote: Remote, record: Optional[RecordAt]) -> Optional[_First]:
        if record is None:
            return None
        has = f"{self._source(record.origin)} has the record, and {_name(remote)} does not hold it"
        if record.other is None:
            return _First(LOST, record.upstream, None, has)
        return _First(WRONG_PARTITION, record.upstream, None, f"{has}, {self._slot(record.other)} does")

    def _too_much(self, kind: str, detail: str, record: Optional[RecordAt]) -> Optional[_First]:
        return None if record is None else _First(kind, record.upstream, record.downstream, detail)

    def _elsewhere(self, remote: Remote, record: Optional[RecordAt]) -> Optional[_First]:
        if record is None or record.other is None:
            return None
        detail = f"{_name(remote)} holds a record that belongs to {self._slot(record.other)}"
        return _First(WRONG_PARTITION, record.upstream, record.downstream, detail)

    def _swapped(self, remote: Remote, record: Optional[RecordAt]) -> Optional[_First]:
        if record is None:
            return None
        holds = f"{_name(remote)} holds the record of {self._source(record.origin)}"
        return _First(SWAPPED, record.upstream, record.downstream, f"{holds} ahead of one that comes before it there")

    def _changed(self, record: Optional[ChangedRecord]) -> Optional[_First]:
        if record is None:
            return None
        detail = f"the copy of the record of {self._source(record.origin)} is in its place, its content is not the same"
        return _First(f"{CHANGED} {record.fields}", record.upstream, record.downstream, detail)

    def _slot(self, slot: int) -> str:
        return _name(self._copy.remotes[slot])

    def _source(self, number: Optional[int]) -> str:
        return "the source" if number is None else _name(self._copy.sources[number])

    def _unknown(self, remote: Remote, found: OriginCounts, gone: int) -> Tuple[str, ...]:
        by, copy = self._by, self._copy
        said: Dict[str, int] = {
            "{} offsets of its sources expired and cannot be compared": gone,
            "{} offsets of the remote log expired and cannot be compared": remote.expired,
            "{} records of the source may have expired on the remote log: not compared": found.gone,
            "{} records are of source offsets before those that can be compared": found.before,
            "{} records are of later source offsets than the ledger has: not compared": found.behind,
            "{} records of other writers are in between: not compared": found.foreign if by.shared else 0,
            "{} records are of topics that the flow does not copy now: not compared": found.other,
            "{} records are missing; compaction of the remote log may have taken them: not compared": (
                found.missing if remote.topic in copy.compacted else 0
            ),
            "{} records are there beyond what a compacted source still has: not compared": (
                found.not_made if remote.topic in copy.thinned else 0
            ),
            "the remote topic grew, so that keys moved: records are looked for in all of its partitions": (
                remote.topic in copy.grown
            ),
        }
        reported = [sentence.format(count) for sentence, count in said.items() if count]
        if by.content_unsure is not None:
            reported.append(f"the flow may change a record differently each time: not compared: {by.content_unsure}")
        if by.choice_unsure is not None:
            reported.append(f"the flow may choose other records each time: not compared: {by.choice_unsure}")
        return tuple(reported)


def _name(each: Union[Remote, Source]) -> str:
    return f"{each.topic}-{each.partition}"
