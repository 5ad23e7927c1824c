"""Proof for flows that place records anew. In: what was copied by passes, both clusters. Out: verdicts of topics.

Each remote partition must hold what the change is made to place there, each record once, and those of one source
partition in its order; so those of one key, too, which are in one source partition.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from mirror_lib.topics.plan import CopiedTopic
from mirror_lib.verify.digests import DigestReader, Feed, Slice
from mirror_lib.verify.placed_comparison import (
    NOTHING,
    ExtraRecord,
    MissingRecord,
    PlacedCounts,
    SwappedRecord,
    compare_placed,
)
from mirror_lib.verify.placed_range import Origin, PlacedCopy, Remote
from mirror_lib.verify.verdicts import (
    DIFFERS,
    DOUBLED,
    EQUAL,
    EXPIRED,
    LOST,
    NOT_COMPARED,
    SWAPPED,
    WRONG_PARTITION,
    Difference,
    PartitionVerdict,
    TopicVerdict,
    by_the_rule,
)

NOT_BEGUN = "nothing of it was copied yet: not compared"
ANOTHER_TOPIC = "what was copied went to another topic that had this name: not compared"
UNKNOWN = "the tables know of no pass into it, and it holds records: not compared"


def verify_placed(
    source: DigestReader,
    remote: DigestReader,
    copied: Sequence[CopiedTopic],
    copy: PlacedCopy,
    shared: bool,
    changed: bool,
) -> Tuple[TopicVerdict, ...]:
    """One verdict for each remote topic, with the names of all topics that are copied into it. `source` makes the
    flow's records, each under its remote place. `shared`: remote topics have other writers, too; `changed`: the flow
    drops records or makes others of them."""
    slots = [Slice(each.slot, each.topic, each.partition, each.log.log_start, each.log.end) for each in copy.remotes]
    made = source.placed_hashes(_source_slices(copy.origins), slots, _feeds(copy.origins))
    expired = [each.slot for each in copy.remotes if each.expired]
    numbers = {name: number for number, name in enumerate(copy.counts())}
    topics = {each.slot: numbers[each.topic] for each in copy.remotes}
    counts = compare_placed(made, remote.hashes(slots), topics, expired) if slots else {}
    judge = _Judge(copy, shared, changed)
    by_remote: Dict[str, List[CopiedTopic]] = {}
    for topic in copied:
        by_remote.setdefault(topic.remote_topic, []).append(topic)
    return tuple(
        TopicVerdict(", ".join(each.source.name for each in topics), name, judge.partitions(topics[0], counts))
        for name, topics in by_remote.items()
    )


def _source_slices(origins: Sequence[Origin]) -> List[Slice]:
    """Each source partition once, from where the first of its remote topics needs it."""
    found: Dict[Tuple[str, int], Slice] = {}
    for each in origins:
        place = (each.topic, each.partition)
        first = min(each.log.log_start, found[place].from_offset if place in found else each.log.log_start)
        found[place] = Slice(each.number, *place, first, each.log.end)
    return list(found.values())


def _feeds(origins: Sequence[Origin]) -> List[Feed]:
    return [Feed(each.number, each.remote_topic, each.topic, each.partition, each.log.log_start) for each in origins]


class _First(NamedTuple):
    """What is told of a partition that differs: the first of the worst."""

    kind: str
    upstream: Optional[int]
    downstream: Optional[int]
    detail: str


class _Judge:
    """Names what was found, with the places that slots and origins stand for."""

    def __init__(self, copy: PlacedCopy, shared: bool, changed: bool) -> None:
        self._copy = copy
        self._shared = shared
        self._changed = changed

    def partitions(self, topic: CopiedTopic, counts: Mapping[int, PlacedCounts]) -> Tuple[PartitionVerdict, ...]:
        """The verdicts on the partitions of the remote topic of `topic`."""
        name = topic.remote_topic
        gone = sum(each.expired for each in self._copy.origins if each.remote_topic == name)
        own = [each for each in self._copy.remotes if each.topic == name]
        if not own:
            verdict, why = self._of_none(name)
            return tuple(PartitionVerdict(n, 0, 0, verdict, None, (why,)) for n in range(topic.remote_partitions))
        return tuple(self._verdict(each, counts.get(each.slot, NOTHING), gone) for each in own)

    def _of_none(self, name: str) -> Tuple[str, str]:
        if name in self._copy.others:
            return NOT_COMPARED, ANOTHER_TOPIC
        # In a shared topic they may be another writer's.
        return (NOT_COMPARED, UNKNOWN) if name in self._copy.unknown and not self._shared else (EQUAL, NOT_BEGUN)

    def _verdict(self, remote: Remote, found: PlacedCounts, gone: int) -> PartitionVerdict:
        # Nobody knows what those are made of that the source does not hold any more.
        strangers = found.unknown if self._shared or gone else 0
        difference = self._difference(remote, self._judged(remote, found), bool(strangers))
        nothing_left = (gone or remote.expired) and not found.records
        # A compacted log may lack them all, and nothing says that it may.
        unseen = NOT_COMPARED if found.missing and not found.records else EQUAL
        verdict = DIFFERS if difference else EXPIRED if nothing_left else unseen
        told = self._unknown(remote, found, gone)
        return PartitionVerdict(remote.partition, found.records, found.bytes, verdict, difference, told)

    def _judged(self, remote: Remote, found: PlacedCounts) -> PlacedCounts:
        """`found` without what compaction may have made of an exact copy."""
        if remote.topic in self._copy.compacted:
            found = replace(found, missing=0, first_missing=None)
        if remote.topic not in self._copy.thinned:
            return found
        return replace(found, doubled=0, unknown=0, first_doubled=None, first_unknown=None)

    def _difference(self, remote: Remote, found: PlacedCounts, strangers: bool) -> Optional[Difference]:
        unknown = None if strangers else found.first_unknown
        first = (
            self._missing(remote, found.first_missing)
            or self._too_much(remote, found.first_doubled)
            or self._too_much(remote, found.first_elsewhere)
            or self._swapped(remote, found.first_swapped)
            or self._too_much(remote, unknown)
        )
        if first is None:
            return None
        places = found.missing + found.doubled + found.elsewhere + found.swapped + (0 if strangers else found.unknown)
        told = (first.kind, first.detail)
        kind, detail = by_the_rule(*told) if self._changed else told
        return Difference(remote.partition, kind, first.upstream, first.downstream, places, detail)

    def _missing(self, remote: Remote, record: Optional[MissingRecord]) -> Optional[_First]:
        if record is None:
            return None
        has = f"{self._origin(record.origin)} has the record, and {self._slot(remote.slot)} does not hold it"
        if record.elsewhere is None:
            return _First(LOST, record.upstream, None, has)
        return _First(WRONG_PARTITION, record.upstream, None, f"{has}, {self._slot(record.elsewhere)} does")

    def _swapped(self, remote: Remote, record: Optional[SwappedRecord]) -> Optional[_First]:
        if record is None:
            return None
        origin = self._origin(record.origin)
        detail = f"{self._slot(remote.slot)} holds the record of {origin} ahead of one that comes before it there"
        return _First(SWAPPED, record.upstream, record.downstream, detail)

    def _too_much(self, remote: Remote, record: Optional[ExtraRecord]) -> Optional[_First]:
        if record is None:
            return None
        if record.kind == DOUBLED:
            equal = ", or another writer wrote an equal one" if self._shared else ""
            detail = f"{self._slot(remote.slot)} holds the record more often than the flow makes it{equal}"
        elif record.made_at is not None:
            detail = f"{self._slot(remote.slot)} holds a record that belongs to {self._slot(record.made_at)}"
        else:
            detail = f"{self._slot(remote.slot)} holds a record that the flow does not make"
        return _First(record.kind, None, record.downstream, detail)

    def _slot(self, slot: int) -> str:
        return f"{self._copy.remotes[slot].topic}-{self._copy.remotes[slot].partition}"

    def _origin(self, number: int) -> str:
        return f"{self._copy.origins[number].topic}-{self._copy.origins[number].partition}"

    def _unknown(self, remote: Remote, found: PlacedCounts, gone: int) -> Tuple[str, ...]:
        strangers = found.unknown if self._shared and not gone else 0
        taken = found.missing if remote.topic in self._copy.compacted else 0
        left = found.doubled + found.unknown if remote.topic in self._copy.thinned else 0
        lost_origin = found.unknown if gone else 0
        said: Dict[str, int] = {
            "{} offsets of its sources expired and cannot be compared": gone,
            "{} offsets of the remote log expired and cannot be compared": remote.expired,
            "{} records of the source may have expired on the remote log: not compared": found.gone,
            "{} records are on the remote log alone; their sources, or another writer, may have had them": lost_origin,
            "{} records of other writers lie in between: not compared": strangers,
            "{} records are alike in several source partitions: their order was not compared": found.alike,
            "{} records are missing; compaction of the remote log may have taken them: not compared": taken,
            "{} records are there beyond what a compacted source still has: not compared": left,
            "the remote topic grew, and only what was copied since is compared": remote.topic in self._copy.grown,
            "a pass is under way or was interrupted: what it copies is not compared": self._copy.under_way,
        }
        return tuple(sentence.format(count) for sentence, count in said.items() if count)

