"""Decides for one partition where this product resumes and why, or why not, and formats the decisions.

Pure but for the logs, which `PartitionLogs` reads as they are asked for.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Callable, ClassVar, Dict, List, Optional, Sequence, Set, Tuple

from mirror_lib.errors import RefusedError
from mirror_lib.facts import OffsetRange
from mirror_lib.ledger.intervals import Run
from mirror_lib.ledger.records import PartitionKey, Position
from mirror_lib.takeover.walk import MOST_ALIKE, Ambiguous, PartitionLogs, Proven, Reported, Unproven
from mirror_lib.text import NUMBER, UNPRINTED, Column, counted, table_lines

TAKE_OVER, NOTHING, KNOWN, REFUSED = "take over", "nothing to take over", "already in the ledger", "refused"
# How much farther back each search for a place to begin looks than the one before.
_FARTHER = 8


class CopiedBefore(RefusedError):
    """An earlier process of the other tool copied farther than the one that was compared."""

    code = "MIR-342"


@dataclass(frozen=True)
class Known:
    """What MirrorMaker stored of a partition. `source` and `remote` are the ranges of both logs as a `read_uncommitted`
    reader sees them. `stable_end` is the remote log's end without open transactions. `compare` records before the
    position, the next upstream offset, are compared too."""

    position: Optional[int]
    syncs: Sequence[Position]
    source: OffsetRange
    remote: OffsetRange
    stable_end: int
    compare: int

    @property
    def kept(self) -> int:
        assert self.position is not None
        return self.position

    @cached_property
    def held_syncs(self) -> List[Position]:
        """The offset syncs whose records both logs still have."""
        source, remote = self.source, self.remote
        return [
            sync
            for sync in self.syncs
            if source.log_start <= sync.upstream_offset < source.end
            and remote.log_start <= sync.downstream_offset < remote.end
        ]

    @cached_property
    def reported(self) -> Reported:
        found: Dict[int, Set[int]] = {}
        for sync in self.held_syncs:
            found.setdefault(sync.downstream_offset, set()).add(sync.upstream_offset)
        return found


@dataclass(frozen=True)
class Verdict:
    """`action` is `take over`, `nothing to take over`, `already in the ledger` or `refused`. Other fields but `reason`
    are for `take over`.

    `resumes_at`: the next upstream offset and the end of the remote log. `tail` counts records after the stored
    position, `doubled` those that are on the remote log twice. `older`: the remote log has earlier records, which were
    not compared.
    """

    DERIVED: ClassVar[Sequence[str]] = ("compared",)

    action: str
    reason: str = ""
    resumes_at: Optional[Position] = None
    # They map the offsets before `resumes_at`.
    runs: Tuple[Run, ...] = field(default=(), metadata=UNPRINTED)
    tail: int = 0
    doubled: int = 0
    older: bool = False

    @property
    def compared(self) -> int:
        """How many records of the remote log were compared with their source records and are in the ledger's map."""
        return sum(run.record_count for run in self.runs)


def decide(known: Known, logs: PartitionLogs) -> Verdict:
    """Decide where to resume, if both logs prove it. Without proof the partition is refused with a reason."""
    try:
        return _without_reading(known) or _proven(known, logs)
    except RefusedError as error:
        return Verdict(REFUSED, error.message)


def decide_known(position: Position, logs: PartitionLogs) -> Verdict:
    """Decide for a partition with rows in the ledger, which resumes at `position`. It is refused if another tool wrote
    after it: then its run is refused as well, with MIR-313."""
    try:
        if logs.remote_record(position.downstream_offset) is not None:
            logs.walk(position, {}, False)
    except RefusedError as error:
        at = f"the ledger resumes at offset {position.downstream_offset} of the remote log"
        return Verdict(REFUSED, f"{at}, but {error.message}: another tool wrote there; use an empty remote topic")
    return Verdict(KNOWN)


def _without_reading(known: Known) -> Optional[Verdict]:
    position, source, remote = known.position, known.source, known.remote
    if known.stable_end < remote.end:
        return Verdict(REFUSED, f"a transaction is open on the remote log from offset {known.stable_end} on; try later")
    if position is not None and position > source.end:
        return Verdict(REFUSED, f"the source's log ends at {source.end}, before the kept position {position}")
    if position is None:
        unkept = "no position is kept; a run compares the whole remote log with the source, unless others share it"
        return Verdict(REFUSED, unkept) if remote.end else Verdict(NOTHING, "never copied")
    return _of_empty_remote(position, known) if remote.log_start == remote.end else None


def _of_empty_remote(next_offset: int, known: Known) -> Verdict:
    """The decision if every record of the remote log has expired, so that no content can be compared."""
    remote, last = known.remote, known.syncs[-1] if known.syncs else None
    if remote.end == 0 and next_offset > 0:
        return Verdict(REFUSED, f"the remote log is empty, yet offsets before {next_offset} are said to be copied")
    if next_offset == known.source.end:
        # Nothing lies behind the position that could have been written after it was kept.
        return Verdict(TAKE_OVER, "", Position(next_offset, remote.end), older=True)
    if last is not None and last.downstream_offset == remote.end - 1 and last.upstream_offset + 1 >= next_offset:
        # The writer itself said which record it wrote last.
        tail = last.upstream_offset + 1 - next_offset
        return Verdict(TAKE_OVER, "", Position(last.upstream_offset + 1, remote.end), tail=tail, older=True)
    return Verdict(REFUSED, f"the remote log's records have expired, and offsets from {next_offset} on may be in it")


def _proven(known: Known, logs: PartitionLogs) -> Verdict:
    found, kept = _walked(known, logs), known.kept
    if kept > found.upstream_end:
        uncopied = logs.source_record(found.upstream_end)
        if uncopied is not None and uncopied.offset < kept:
            raise RefusedError(
                f"the kept position is {kept}, but the remote log ends with the source's offset "
                f"{found.upstream_end - 1}, and offset {uncopied.offset} is not in it",
                code="MIR-342",
            )
    return Verdict(
        TAKE_OVER,
        "",
        Position(max(found.upstream_end, kept), known.remote.end),
        found.runs,
        tail=_behind(found.runs, kept),
        doubled=found.doubled,
        older=found.runs[0].downstream_offset > known.remote.log_start,
    )


def _walked(known: Known, logs: PartitionLogs) -> Proven:
    """The first walk that reaches the end of the remote log, or the last walk's failure if none does."""
    anchors, failure = anchors_of_syncs(known), None  # type: Tuple[Sequence[Position], Optional[Unproven]]
    while anchors:
        try:
            return _farthest(known, logs, logs.walk(anchors[0], known.reported))
        except CopiedBefore:
            return _searched(known, logs)
        except Unproven as error:
            failure = error
            at = max(error.downstream_offset, anchors[0].downstream_offset)
            anchors = [each for each in anchors if each.downstream_offset > at]
    if failure is not None:
        raise failure
    return _searched(known, logs)


def anchors_of_syncs(known: Known) -> List[Position]:
    """Offset syncs at which a comparison can start, the one that covers most records first.

    None after the stored position: records before a walk count as copied because the position says so. If none is as
    near as `compare` asks for, the nearest one before it; none if that is far away. MirrorMaker up to 3.4.0 wrote an
    offset sync only when the distance of both logs changed.
    """
    kept = known.kept
    usable = [sync for sync in known.held_syncs if sync.upstream_offset <= kept]
    near = [sync for sync in usable if sync.upstream_offset >= kept - known.compare]
    far = kept - _FARTHER * known.compare
    return near or [sync for sync in usable[-1:] if sync.upstream_offset >= far]


def _searched(known: Known, logs: PartitionLogs) -> Proven:
    """Without syncs: find the source record of an older remote record, and compare from there on."""
    failure: Optional[Unproven] = None
    earlier: Optional[CopiedBefore] = None
    for back in _distances(known):
        if failure is not None and back > known.compare:
            break  # what lies farther back would meet the same failure again
        guesses = _guesses(known, logs, back)
        try:
            if guesses:
                return _farthest(known, logs, _one_of(guesses, known, logs))
        except CopiedBefore as error:
            earlier = error  # farther back that process shows too
        except Unproven as error:
            failure = error
    not_found = (
        "no record of the remote log was found in the source before the kept position; with a larger --compare the "
        "search begins farther back"
    )
    raise failure or earlier or RefusedError(not_found, code="MIR-342")


def _farthest(known: Known, logs: PartitionLogs, found: Proven) -> Proven:
    """`found`, unless the source's next record is on the remote log before it: that record would be copied twice."""
    begin = found.runs[0].downstream_offset
    earlier = logs.earlier_copy(found.upstream_end, begin) if begin > known.remote.log_start else None
    if earlier is not None:
        raise CopiedBefore(
            f"the remote log ends with the source's offset {found.upstream_end - 1}, but its offset {earlier} holds a "
            "later one: an earlier run of the other tool came farther, and what it copied is unknown"
        )
    return found


def _distances(known: Known) -> List[int]:
    """The distances from the end of the remote log at which to start, in the order to try: as asked for; then nearer,
    since compaction or retention may have taken from one log what is before that; then farther, for a long tail."""
    near, back = [], known.compare
    while back:
        near.append(back)
        back //= _FARTHER
    length = known.remote.end - known.remote.log_start
    far = [known.compare * by for by in (_FARTHER, _FARTHER**2) if known.compare * by < length * _FARTHER]
    return [*near, *far]


def _one_of(guesses: Sequence[Position], known: Known, logs: PartitionLogs) -> Proven:
    """The walk that reaches the end. The failure if none does, or if two reach it differently."""
    found: List[Proven] = []
    failures: List[Unproven] = []
    for anchor in guesses:
        try:
            found.append(logs.walk(anchor, known.reported))
        except Ambiguous:
            raise  # the others' ends would prove nothing: this one may be the true one
        except Unproven as error:
            failures.append(error)
    if len({each.upstream_end for each in found}) > 1:
        raise RefusedError(
            "the end of the remote log could have been made from more than one place of the source",
            code="MIR-342",
        )
    if not found:
        raise failures[-1]
    return found[0]


def _guesses(known: Known, logs: PartitionLogs, back: int) -> List[Position]:
    """Source offsets that may have the record `back` offsets before the end of the remote log."""
    copy = logs.remote_record(max(known.remote.log_start, known.remote.end - back))
    if copy is None:
        return []
    # Markers and gaps make the same records spread over more offsets on the source.
    found = logs.originals(copy, max(known.source.log_start, known.kept - _FARTHER * back), known.kept + 1)
    if len(found) > MOST_ALIKE:
        places = f"could have been made from more than {MOST_ALIKE} places of the source"
        raise RefusedError(f"the record at offset {copy.offset} of the remote log {places}", code="MIR-342")
    return [Position(offset, copy.offset) for offset in found]


def _behind(runs: Sequence[Run], upstream_offset: int) -> int:
    return sum(max(0, run.upstream_end - max(run.upstream_offset, upstream_offset)) for run in runs)


def moved(verdict: Verdict, before: int, after: int) -> Verdict:
    """The verdict if the remote log's end moved from `before` to `after` meanwhile: another tool still writes to it."""
    if before == after:
        return verdict
    return replace(
        verdict,
        action=REFUSED,
        reason=f"the remote log grew from {before} to {after} while it was compared: stop the other writer first",
    )


@dataclass(frozen=True)
class PartitionTakeover:
    """A partition, its stored position (`kept_offset`, the next upstream offset, `None` if there is none) and the
    `verdict`."""

    key: PartitionKey
    remote_topic: str
    taken_from: str
    kept_offset: Optional[int]
    verdict: Verdict

    @property
    def resumes_at(self) -> Position:
        """Only of a partition to take over."""
        assert self.verdict.resumes_at is not None
        return self.verdict.resumes_at


def takeover_lines(decided: Sequence[PartitionTakeover], columns: Optional[int] = None) -> List[str]:
    if not decided:
        return ["the flow copies no topic that is on the target"]
    counts = Counter(each.verdict.action for each in decided)
    listed = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
    table = table_lines(PARTITIONS, decided, columns)
    return [*table, f"{counted(len(decided), 'partition')}: {listed}"]


def _taken(number: Callable[[Verdict], Optional[int]]) -> Callable[[PartitionTakeover], Optional[int]]:
    """Only of a partition to take over."""
    return lambda each: number(each.verdict) if each.verdict.action == TAKE_OVER else None


def _resumes(name: str) -> Callable[[PartitionTakeover], Optional[int]]:
    return lambda each: getattr(each.verdict.resumes_at, name, None)


def _words(each: PartitionTakeover) -> str:
    verdict = each.verdict
    words = f"{verdict.action}: {verdict.reason}" if verdict.reason else verdict.action
    return words + ("; earlier records of the remote log are not compared" if verdict.older else "")


PARTITIONS = (
    Column("Topic", lambda each: each.key.source_topic),
    Column("Partition", lambda each: each.key.partition, NUMBER),
    Column("Kept", lambda each: each.kept_offset, NUMBER),
    Column("Uncommitted", _taken(lambda verdict: verdict.tail), NUMBER),
    Column("Doubled", _taken(lambda verdict: verdict.doubled), NUMBER),
    Column("Resumes at", _resumes("upstream_offset"), NUMBER),
    Column("Remote topic", lambda each: each.remote_topic),
    Column("Offset", _resumes("downstream_offset"), NUMBER),
    Column("Compared", _taken(lambda verdict: verdict.compared), NUMBER),
    Column("Verdict", _words),
)
