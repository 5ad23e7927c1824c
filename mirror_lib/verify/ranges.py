"""Decides what of a partition was copied and can be compared, from the ledger and both logs' ends. Pure."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import List, Optional, Tuple

from mirror_lib.errors import StateError
from mirror_lib.facts import OffsetRange
from mirror_lib.ledger.intervals import NO_RUNS, Numbers, PartitionMap, Run

# A sample is taken in stretches of so many records, since a log is read in order.
STRETCH = 50_000


@dataclass(frozen=True)
class Scope:
    """How much of a copy is compared: records from the first one of the time `since` on (ms since 1970), and of those a
    `share`, drawn by `seed`."""

    since: Optional[int] = None
    share: float = 1.0
    seed: int = 0


EVERYTHING = Scope()


@dataclass(frozen=True)
class Bounds:
    """One log: read from `read_from` until `read_until`; `first` until `end` is what the ledger speaks of.

    Offsets, ends exclusive; `log_end` is the end of the log itself.
    """

    read_from: int
    first: int
    end: int
    read_until: int
    log_end: int


@dataclass(frozen=True)
class CopiedRange:
    """One partition: `runs` map its source to its remote log, both still held. Expired: records no longer comparable.

    `contradiction` says in a sentence why the ledger's rows are no map at all; then there are no runs. `changed`,
    `older`: as in `CopiedPartition`. `cut_behind`: a log begins behind what the ledger speaks of. `not_asked`: copied
    records that are out of scope.
    """

    topic: str
    remote_topic: str
    partition: int
    runs: PartitionMap
    source: Bounds
    remote: Bounds
    expired_upstream: int = 0
    expired_downstream: int = 0
    source_compacted: bool = False
    remote_compacted: bool = False
    shared: bool = False
    contradiction: Optional[str] = None
    changed: bool = False
    older: bool = False
    cut_behind: bool = False
    not_asked: int = 0

    @property
    def compacted(self) -> bool:
        """Whether records may be missing on either side because a later one of the same key is there."""
        return self.source_compacted or self.remote_compacted


@dataclass(frozen=True)
class CopiedPartition:
    """What is known of a partition before the comparison. `syncs` are the ledger's rows, flat as in
    `mirror_lib.ledger.intervals`. `from_the_start`: the flow copies from the log's start. `changed`: it makes other
    records of the source's; `older`: the remote log has some that were not compared when it was taken over.
    `since`: the source offset to begin at."""

    topic: str
    remote_topic: str
    partition: int
    syncs: Numbers
    source: OffsetRange
    remote: OffsetRange
    source_compacted: bool
    remote_compacted: bool
    from_the_start: bool
    shared: bool
    changed: bool = False
    older: bool = False
    since: int = 0


def copied_range(known: CopiedPartition) -> CopiedRange:
    """Find the range to compare.

    It starts at the first pair of the ledger that both logs still hold, and ends at the ledger's end. Both logs are
    also read before that (`read_from`) where the remote log is whole and the flow copies from the start: a record
    there that was never copied is then seen. Behind runs that expired whole it starts where these ended.
    """
    merged, contradiction = NO_RUNS, None
    try:
        if known.syncs:
            merged = PartitionMap.of_flat(known.syncs, f"{known.topic}-{known.partition}")
    except StateError as error:
        contradiction = error.message
    runs, expired_upstream, expired_downstream = merged.cut(known.source.log_start, known.remote.log_start)
    not_asked = 0
    if known.since > known.source.log_start:
        known = replace(known, source=replace(known.source, log_start=known.since))
        before = runs.records
        runs, _, _ = merged.cut(known.source.log_start, known.remote.log_start)
        not_asked = before - runs.records
    upstream, downstream = _ends(merged, known)
    first = runs[0] if runs else Run(upstream, downstream, 0)
    source_first, remote_first = _firsts(merged, runs, first, known)
    expired = expired_upstream + expired_downstream
    whole = not expired and not not_asked and known.remote.log_start == 0
    heads = bool(merged) and known.from_the_start and whole and not known.shared
    # Compaction may have taken a copied record for the sake of a later one that is not copied yet.
    source_until = known.source.end if known.source_compacted else upstream
    return CopiedRange(
        known.topic,
        known.remote_topic,
        known.partition,
        runs,
        _bounds(known.source, source_first, upstream, source_until, heads),
        _bounds(known.remote, remote_first, downstream, known.remote.end, heads),
        expired_upstream,
        expired_downstream,
        known.source_compacted,
        known.remote_compacted,
        known.shared,
        contradiction,
        known.changed,
        known.older,
        bool(merged) and (merged.upstream_end, merged.downstream_end) != (upstream, downstream),
        not_asked,
    )


def sample(copied: CopiedRange, share: float, draw: random.Random) -> List[CopiedRange]:
    """Stretches of the copied records that are about `share` of them, at least one. The range itself where it is small,
    or compacted, since then the records that come later must be read too."""
    pieces = math.ceil(copied.runs.records / STRETCH)
    if pieces < 2 or copied.compacted or copied.contradiction:
        return [copied]
    return [_piece(copied, each) for each in sorted(draw.sample(range(pieces), max(1, round(pieces * share))))]


def _piece(copied: CopiedRange, number: int) -> CopiedRange:
    """The stretch of that number, from behind the record before it to its last one: nothing is looked for beyond."""
    left, end, passed = number * STRETCH, (number + 1) * STRETCH, 0
    source_first, remote_first = copied.source.first, copied.remote.first
    runs: List[Tuple[int, int, int]] = []
    for upstream, downstream, count in copied.runs:
        if passed < left <= passed + count:
            source_first, remote_first = upstream + left - passed, downstream + left - passed
        first, last = max(left - passed, 0), min(end - passed, count)
        if first < last:
            runs.append((upstream + first, downstream + first, last - first))
        passed += count
    of_piece = PartitionMap.of(runs, f"{copied.topic}-{copied.partition}")
    source_end, remote_end = of_piece.upstream_end, of_piece.downstream_end
    return replace(
        copied,
        runs=of_piece,
        source=Bounds(source_first, source_first, source_end, source_end, source_end),
        remote=Bounds(remote_first, remote_first, remote_end, remote_end, remote_end),
        not_asked=0,
    )


def _firsts(merged: PartitionMap, kept: PartitionMap, first: Run, known: CopiedPartition) -> Tuple[int, int]:
    """From where on the logs must hold what the ledger says, and nothing else. Between the last run that expired whole
    and the first one that is whole, no record was copied; before a run that lost its front, it may have been."""
    gone = len(merged) - len(kept)
    if not kept or not gone or merged[gone] != first or not merged[gone - 1].record_count:
        return first.upstream_offset, first.downstream_offset
    last = merged[gone - 1]
    return max(last.upstream_end, known.source.log_start), max(last.downstream_end, known.remote.log_start)


def _ends(merged: PartitionMap, known: CopiedPartition) -> Tuple[int, int]:
    if not merged:
        return known.source.log_start, known.remote.log_start
    return max(merged.upstream_end, known.source.log_start), max(merged.downstream_end, known.remote.log_start)


def _bounds(log: OffsetRange, first: int, end: int, until: int, heads: bool) -> Bounds:
    read_from = log.log_start if heads else first
    return Bounds(read_from, first, end, max(read_from, min(until, log.end)), log.end)
