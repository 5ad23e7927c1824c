"""Turns the result of a flow's comparison into verdicts, lines and JSON. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, List, Mapping, Optional, Sequence, Tuple

from mirror_lib.ledger.records import LeftOut, Verification
from mirror_lib.text import Column, counted, grouped, table_lines
from mirror_lib.verify.ranges import CopiedRange, Scope

EQUAL = "equal"
DIFFERS = "differs"
EXPIRED = "expired"
NOT_COMPARED = "not compared"

LOST = "lost"
DOUBLED = "doubled"
SWAPPED = "swapped"
CHANGED = "changed"
WRONG_PARTITION = "wrong partition"
FOREIGN = "not on the source"
NOT_MADE = "not made by the flow"
LEDGER = "ledger is wrong"


@dataclass(frozen=True)
class Difference:
    """The first difference of a partition. `records` counts the places that differ.

    An offset is `None` if neither log nor ledger has one for that side. `kind` includes changed fields: `changed key,
    value`.
    """

    partition: int
    kind: str
    upstream_offset: Optional[int]
    downstream_offset: Optional[int]
    records: int
    detail: str


@dataclass(frozen=True)
class PartitionVerdict:
    """The `verdict` on one partition. `records` counts compared pairs, `unknown` is about uncompared parts, `left_out`
    has the skipped offsets.

    `waiting`: the source has records after the ledger's end; `not_copied` counts their offsets that are not in the
    remote log, `None` if unknown. Those of a topic that is repartitioned count at its first partition. `uncompared`:
    remote records within the scope that were not compared; `None` if unknown. `before_start`: source offsets before the
    configured start of the copy.
    """

    partition: int
    records: int
    verdict: str
    difference: Optional[Difference] = None
    unknown: Tuple[str, ...] = ()
    left_out: Optional[LeftOut] = None
    waiting: bool = False
    not_copied: Optional[int] = None
    uncompared: Optional[int] = 0
    before_start: int = 0

    @property
    def fine(self) -> bool:
        """Whether nothing differs, and everything that the file and the scope ask for was compared."""
        nothing_asked = self.before_start > 0 and not (self.waiting or self.records)
        return self.verdict not in (DIFFERS, NOT_COMPARED) or (self.verdict == NOT_COMPARED and nothing_asked)


@dataclass(frozen=True)
class TopicVerdict:
    """The verdict on one topic and its remote topic."""

    DERIVED: ClassVar[Sequence[str]] = ("records", "not_copied", "verdict")

    topic: str
    remote_topic: str
    partitions: Tuple[PartitionVerdict, ...]

    @property
    def records(self) -> int:
        return sum(partition.records for partition in self.partitions)

    @property
    def not_copied(self) -> Optional[int]:
        """Source offsets that are not copied yet; `None` if that is unknown for all partitions."""
        known = [partition.not_copied for partition in self.partitions if partition.not_copied is not None]
        return sum(known) if known else None

    @property
    def verdict(self) -> str:
        """`differs` if one partition differs, else `not compared` if one was not compared; `expired` if records expired
        and none was compared; else `equal`."""
        verdicts = {partition.verdict for partition in self.partitions}
        for worst in (DIFFERS, NOT_COMPARED):
            if worst in verdicts:
                return worst
        return EXPIRED if EXPIRED in verdicts and not self.records else EQUAL

    @property
    def fine(self) -> bool:
        return all(partition.fine for partition in self.partitions)

    @property
    def differences(self) -> Tuple[Difference, ...]:
        return tuple(partition.difference for partition in self.partitions if partition.difference)


@dataclass(frozen=True)
class VerifyReport:
    """The verdicts on the copied `topics` of a flow. `equal`: nothing differs, and everything that the file and the
    scope ask for was compared. `waiting` is about offsets that wait for open transactions."""

    DERIVED: ClassVar[Sequence[str]] = ("equal",)

    flow: str
    topics: Tuple[TopicVerdict, ...]
    waiting: Tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every partition is known to have no offsets that are not copied yet, or wait for an open
        transaction."""
        return not self.waiting and all(each.not_copied == 0 for topic in self.topics for each in topic.partitions)

    @property
    def equal(self) -> bool:
        return all(topic.fine for topic in self.topics)


@dataclass(frozen=True)
class SeenRecord:
    """A record as digests: of the whole record (`digest`) and of each field by name."""

    digest: str
    fields: Mapping[str, int]


# How often each digest occurs in each partition of a topic.
Occurrences = Mapping[Tuple[str, int], int]
_MEANWHILE = "was `where`, `select` or `transform` changed meanwhile"


def classify(
    partition: int,
    upstream: Optional[SeenRecord],
    downstream: Optional[SeenRecord],
    sources: Occurrences,
    remotes: Occurrences,
    after_the_copy: bool = False,
) -> Tuple[str, str]:
    """Classify the difference between a source record and the remote record in its place, as (kind, one sentence).

    Counts decide: whether the source's record is missing in the remote partition, and whether the remote record is a
    surplus copy. If neither, both records exist and only their order is wrong. `after_the_copy`: the place is after the
    ledger's end, so the source's record may not be copied yet.
    """

    def surplus(digest: str, number: int = partition) -> int:
        return remotes.get((digest, number), 0) - sources.get((digest, number), 0)

    missing = upstream is not None and surplus(upstream.digest) < 0
    extra = downstream is not None and surplus(downstream.digest) > 0
    others = [n for digest, n in sorted(remotes) if upstream and digest == upstream.digest and surplus(digest, n) > 0]
    origins = [n for digest, n in sorted(sources) if downstream and digest == downstream.digest]
    if missing and others:
        return WRONG_PARTITION, f"the record is in partition {others[0]} of the remote topic"
    if extra and partition in origins:
        return DOUBLED, "the remote log holds the record more often than the source"
    if extra and origins:
        return WRONG_PARTITION, f"the record belongs to partition {origins[0]}"
    if missing and extra and upstream and downstream and not after_the_copy:
        fields = [name for name, digest in upstream.fields.items() if downstream.fields.get(name) != digest]
        return f"{CHANGED} {', '.join(fields)}", "the record's place is right, its content is not"
    if extra:
        return FOREIGN, "the source holds no such record"
    if missing:
        return LOST, "the remote log does not hold the record"
    if upstream and downstream and upstream.digest != downstream.digest:
        return SWAPPED, "both logs hold the record, in another order"
    if upstream or downstream:
        return LEDGER, "the record is there, but the ledger does not place it"
    return LEDGER, "the ledger names a record that neither log holds"


def by_the_rule(kind: str, detail: str) -> Tuple[str, str]:
    """The same for a flow with `where`, `select` or `transform`: the ledger does not record the expression under which
    a record was copied. So a record that the flow does not make now may still be its own."""
    if kind == FOREIGN:
        return NOT_MADE, f"{detail}; {_MEANWHILE}, or did another producer write it?"
    if kind == LOST or kind.startswith(CHANGED):
        return kind, f"{detail}; {_MEANWHILE}?"
    return kind, detail


def _verdict_shown(topic: TopicVerdict) -> str:
    older = topic.verdict == EQUAL and any(each.uncompared is None for each in topic.partitions)
    return f"{EQUAL}, not all compared" if older else topic.verdict


TOPICS = (
    Column("Topic", lambda each: each.topic),
    Column("Remote topic", lambda each: each.remote_topic),
    Column("Partitions", lambda each: len(each.partitions), grouped),
    Column("Records", lambda each: each.records, grouped),
    Column("Not copied", lambda each: each.not_copied, grouped),
    Column("Verdict", _verdict_shown),
)


def report_lines(report: VerifyReport, columns: Optional[int] = None) -> List[str]:
    """`columns`: the width of the terminal."""
    lines = table_lines(TOPICS, report.topics, columns)
    for topic in report.topics:
        lines += [f"{topic.topic}-{d.partition}: {_sentence(d)}" for d in topic.differences]
    for topic in report.topics:
        lines += [f"{topic.topic}-{p.partition}: {unknown}" for p in topic.partitions for unknown in p.unknown]
        reported = ((p.partition, p.left_out) for p in topic.partitions)
        lines += [f"{topic.topic}-{number}: {_skipped(each)}" for number, each in reported if each is not None]
    return [*lines, *report.waiting]


def _sentence(difference: Difference) -> str:
    sides = (("upstream", difference.upstream_offset), ("downstream", difference.downstream_offset))
    places = " and ".join(f"{side} offset {offset}" for side, offset in sides if offset is not None)
    count = f"{difference.records} places differ" if difference.records > 1 else "nothing else differs"
    return f"{difference.kind} at {places or 'no offset'}: {difference.detail} ({count})"


def _skipped(left_out: LeftOut) -> str:
    ranges = [str(first) if end == first + 1 else f"{first} to {end - 1}" for first, end in left_out.ranges]
    more = ", and more" if sum(end - first for first, end in left_out.ranges) < left_out.offsets else ""
    return f"on.error: skip left out {left_out.offsets} offsets, they are not on the target: {', '.join(ranges)}{more}"


def summary(report: VerifyReport, scope: Scope) -> Verification:
    """The worst verdict of the topics, in one row."""
    verdicts = [topic.verdict for topic in report.topics]
    bad = [topic.verdict for topic in report.topics if not topic.fine]
    worst = next((each for each in (DIFFERS, NOT_COMPARED) if each in bad), EQUAL)
    first = next(((topic, each) for topic in report.topics for each in topic.differences), None)
    reported = "" if first is None else f"{first[0].topic}-{first[1].partition}: {_sentence(first[1])}"
    return Verification(
        *(report.flow, worst, len(verdicts), sum(topic.records for topic in report.topics), verdicts.count(DIFFERS)),
        *(reported, compared_words(report, scope)),
    )


def compared_words(report: VerifyReport, scope: Scope) -> str:
    """Which part of the remote topics was compared: `whole` only if each was, from its log's start to its end."""
    left = [partition.uncompared for topic in report.topics for partition in topic.partitions]
    number = sum(filter(None, left))
    words = [f"{grouped(number)} records not compared"] if number else []
    words += ["records from before a take-over not compared"] if None in left else []
    before = sum(partition.before_start for topic in report.topics for partition in topic.partitions)
    words += [f"{counted(before, 'source offset')} before the start not copied"] if before else []
    return ", ".join([scope.words, *words] if scope.since is not None or not words else words)


@dataclass(frozen=True)
class Facing:
    """The offsets of both sides at a partition's first difference; `None` if a side has no record there."""

    upstream: Optional[int]
    downstream: Optional[int]


@dataclass(frozen=True)
class Counts:
    """The counts of one partition's comparison. An offset is `None` if there is no such record.

    `first`: the first record that differs and has a place in the remote log. `first_unplaced`: the first source record
    that the map lacks. Heads and tail are before and after the offsets that the ledger covers.
    """

    records: int = 0
    compacted: int = 0
    differing: int = 0
    first: Optional[Facing] = None
    first_unplaced: Optional[int] = None
    head_upstream: int = 0
    head_upstream_first: Optional[int] = None
    head_downstream: int = 0
    tail: int = 0


# So many first differences are classified; further partitions are reported without a kind.
EXAMINED = 100
# The ledger shows the offset at which the flow started, but not the reason.
OR_BEGUN_LATER = "it was lost, or the copy began after it, by a start.position that is no longer in the file"
# The source may have the record from which the remote one was made.
NO_SUCH_RECORD = "the flow makes no such record of the source's"


@dataclass(frozen=True)
class Finding:
    """The result for a partition. `tail`: the counts after the ledger's end. `first` is the first difference, `kind`
    the difference's kind and a sentence."""

    copied: CopiedRange
    counts: Counts
    tail: Optional[Counts] = None
    first: Optional[Facing] = None
    kind: Optional[Tuple[str, str]] = None

    def verdict(self) -> PartitionVerdict:
        copied, known, counts = self.copied, self.copied.known, self.counts
        in_tail = self.tail.records if self.tail else 0
        records = counts.records + in_tail
        behind = max(0, known.source.end - copied.source.end)
        # Another writer or a repeated attempt wrote after the source's end.
        surplus = counts.tail and not (behind or self.tail or known.shared or copied.cut_behind)
        difference = self._difference()
        equal = NOT_COMPARED if surplus else EQUAL
        # In a shared topic the records after the ledger's end may be of another writer.
        after = 0 if self.tail or known.shared else counts.tail
        return PartitionVerdict(
            *(known.partition, records, DIFFERS if difference else equal if records else self._of_no_pair(behind)),
            difference=difference,
            unknown=self._left_uncompared(),
            waiting=behind > 0,
            # Records that the copier wrote but did not commit to the ledger yet count as copied.
            not_copied=max(0, behind - in_tail),
            uncompared=None if known.older else copied.expired_upstream + counts.head_downstream + after,
            before_start=self._skipped_by_start(),
        )

    def _skipped_by_start(self) -> int:
        """The source's offsets before the copy's start; 0 if the remote log has records from before the ledger."""
        first, end = self.copied.before_start
        return 0 if self.counts.head_downstream else end - first

    def _of_no_pair(self, behind: int) -> str:
        """The verdict on a partition without compared pairs: `expired` if copied records expired, `not compared` if
        both logs have records outside the ledger, else `equal`.

        Records of other writers in a shared topic, and those from before a take-over, do not count."""
        copied, counts = self.copied, self.counts
        if copied.not_asked:
            return EQUAL
        if copied.expired_upstream or copied.expired_downstream:
            return EXPIRED
        outside = (counts.head_upstream and counts.head_downstream) or (counts.tail and behind)
        return NOT_COMPARED if outside and not copied.known.shared else EQUAL

    def _difference(self) -> Optional[Difference]:
        copied, known, counts = self.copied, self.copied.known, self.counts
        if copied.contradiction:
            return Difference(known.partition, LEDGER, None, None, 0, copied.contradiction)
        if self.first is None:
            return None
        head = counts.head_upstream if lost_at_the_head(counts) else 0
        places = counts.differing + head + (self.tail.differing if self.tail else 0)
        kind, detail = self.kind or (DIFFERS, f"not looked at closely: more than {EXAMINED} partitions differ")
        detail = f"{detail}; {OR_BEGUN_LATER}" if head and kind == LOST else detail
        if known.changed:
            kind, detail = by_the_rule(kind, NO_SUCH_RECORD if kind == FOREIGN else detail)
        return Difference(known.partition, kind, self.first.upstream, self.first.downstream, places, detail)

    def _left_uncompared(self) -> Tuple[str, ...]:
        copied, counts = self.copied, self.counts
        after = "compared with the next records of the source" if self.tail else "not compared"
        head = 0 if lost_at_the_head(counts) else counts.head_upstream
        start = f"before the copy's start at {copied.before_start[1]}, by start.position or consumer.auto.offset.reset"
        said = remarks(
            (copied.expired_upstream, "copied record", "expired on the source and cannot be compared"),
            (copied.expired_downstream, "copied record", "expired on the remote log and cannot be compared"),
            (counts.compacted, "copied record", "compacted away on a side: not compared"),
            (head, "record", "on the source before the ledger's first row: not compared"),
            (counts.head_downstream, "record", "in the remote log before the ledger's first row: not compared"),
            (copied.not_asked, "copied record", "out of scope (--since): not compared"),
            (self._skipped_by_start(), "source offset", f"{start}: not copied"),
            (counts.tail, "record", f"in the remote log after the ledger's last row: {after}"),
        )
        older = "the records of the remote log before the take-over were not all compared, and are not now"
        return (*said, *([older] if copied.known.older else []))


def remarks(*counts: Tuple[int, str, str]) -> Tuple[str, ...]:
    """A phrase for each number that is not 0, with its noun; it has no verb whose form depends on the number."""
    return tuple(f"{counted(number, noun)} {rest}" for number, noun, rest in counts if number)


def lost_at_the_head(counts: Counts) -> bool:
    """Whether the source starts with records that were never copied. False if the remote log also has records before
    the ledger's first run: another tool started the copy, so nothing is known about them."""
    return counts.head_upstream > 0 and counts.head_downstream == 0


NONE_IN_SCOPE = "no copied record of the flow is in scope (--since): nothing was compared"


def not_compared(partition: PartitionVerdict, *why: str) -> PartitionVerdict:
    return replace(partition, verdict=NOT_COMPARED, difference=None, unknown=(*partition.unknown, *why))


def with_none_in_scope(topics: Sequence[TopicVerdict]) -> Tuple[TopicVerdict, ...]:
    """The verdicts of a scope with a time: if no record was in scope, `not compared` replaces `equal`."""
    if any(topic.records for topic in topics):
        return tuple(topics)

    def of(each: PartitionVerdict) -> PartitionVerdict:
        return not_compared(each, NONE_IN_SCOPE) if each.verdict == EQUAL else each

    return tuple(replace(topic, partitions=tuple(map(of, topic.partitions))) for topic in topics)


NONE_COMPARED = "no record of the topic was compared, and the source holds some"


def with_none_compared(partitions: Sequence[PartitionVerdict]) -> Tuple[PartitionVerdict, ...]:
    """The verdicts of a topic's partitions: if no record was compared although the source has some, `not compared`
    replaces `equal` for the partitions with records."""
    found = list(partitions)
    held = [n for n, each in enumerate(found) if (each.waiting or each.before_start) and each.verdict == EQUAL]
    if not any(each.records for each in found):
        for n in held:
            found[n] = not_compared(found[n], *(NONE_COMPARED,) * (n == held[0]))
    return tuple(found)
