"""Decides which part of a partition was copied and can be compared, from the ledger and both logs' ends. Pure."""

from __future__ import annotations

import math
import random
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from itertools import accumulate
from typing import List, Optional, Tuple

from mirror_lib.errors import StateError
from mirror_lib.facts import OffsetRange
from mirror_lib.ledger.intervals import NO_RUNS, Numbers, PartitionMap, Run

# So many records of each partition are compared one by one, even if all batches are equal.
FEW = 100


@dataclass(frozen=True)
class Scope:
    """The part of a copy to compare: records from the time `since` on (ms since 1970).

    `by_record`: compare all records through Spark's consumer, none by batches. `seed`: of the random choice of records
    that its consumer reads where batches are equal."""

    since: Optional[int] = None
    by_record: bool = False
    seed: int = 0

    @property
    def words(self) -> str:
        if self.since is None:
            return "whole"
        return f"since {datetime.fromtimestamp(self.since / 1000, timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


EVERYTHING = Scope()


@dataclass(frozen=True)
class Bounds:
    """Offsets of one log, ends exclusive: the comparison reads `[read_from, read_until)`; the ledger covers
    `[first, end)`."""

    read_from: int
    first: int
    end: int
    read_until: int


@dataclass(frozen=True)
class CopiedPartition:
    """The facts about a partition before the comparison.

    `syncs` are the ledger's rows, flat as in `mirror_lib.ledger.intervals`. `from_the_start`: the flow copies from the
    log's start. `changed`: the flow drops records or changes their keys. `older`: the remote log has records that the
    take-over did not compare. `since`: the first source offset to compare."""

    topic: str
    remote_topic: str
    partition: int
    syncs: Numbers
    source: OffsetRange
    remote: OffsetRange
    source_compacted: bool = False
    remote_compacted: bool = False
    from_the_start: bool = True
    shared: bool = False
    changed: bool = False
    older: bool = False
    since: int = 0

    @property
    def compacted(self) -> bool:
        """Whether compaction may have removed records on either side."""
        return self.source_compacted or self.remote_compacted


@dataclass(frozen=True)
class CopiedRange:
    """The comparable part of a partition: `runs` map its source to its remote log, as far as both logs have them.

    `expired_*`: copied records that no longer can be compared. `contradiction` is a sentence if the ledger's rows
    contradict each other; then there are no runs. `cut_behind`: a log starts after the ledger's end. `not_asked`:
    copied records that are out of scope. `before_start`: where the flow does not copy from the log's start, the
    source's offsets before the ledger's first row.
    """

    known: CopiedPartition
    runs: PartitionMap
    source: Bounds
    remote: Bounds
    expired_upstream: int = 0
    expired_downstream: int = 0
    contradiction: Optional[str] = None
    cut_behind: bool = False
    not_asked: int = 0
    before_start: Tuple[int, int] = (0, 0)

    @property
    def in_order(self) -> bool:
        """Whether both logs hold the same records in the same order and no others, if the copy is right."""
        return not (self.known.compacted or self.known.shared or self.contradiction)


def copied_range(known: CopiedPartition) -> CopiedRange:
    """Find the range to compare.

    The range starts at the first pair of the ledger that both logs still have, and ends at the ledger's end. After
    completely expired runs it starts at their end. The remote log is also read before the range (`read_from`), which
    finds records that the ledger does not know. If that log is complete and the flow copies from the start, the source
    is read there too, which finds records that were never copied.
    """
    merged, contradiction = NO_RUNS, None
    try:
        if known.syncs:
            merged = PartitionMap.of_flat(known.syncs, f"{known.topic}-{known.partition}")
    except StateError as error:
        contradiction = error.message
    runs, expired_upstream, expired_downstream = merged.cut(known.source.log_start, known.remote.log_start)
    not_asked, begun = 0, known.source.log_start
    if known.since > begun:
        known = replace(known, source=replace(known.source, log_start=known.since))
        before = runs.records
        runs, _, _ = merged.cut(known.source.log_start, known.remote.log_start)
        not_asked = before - runs.records
    ends = (merged.upstream_end, merged.downstream_end) if merged else (0, 0)
    upstream, downstream = max(ends[0], known.source.log_start), max(ends[1], known.remote.log_start)
    first = runs[0] if runs else Run(upstream, downstream, 0)
    source_first, remote_first = _firsts(merged, runs, first, known)
    expired = expired_upstream + expired_downstream
    remote_head = bool(merged) and not (expired or not_asked or known.shared or known.older)
    source_head = remote_head and known.from_the_start and known.remote.log_start == 0
    chosen = bool(merged) and not (known.from_the_start or known.older)
    # Compaction may have removed a copied record because of a later one that is not copied yet.
    source_until = known.source.end if known.source_compacted else upstream
    return CopiedRange(
        known,
        runs,
        _bounds(known.source, source_first, upstream, source_until, source_head),
        _bounds(known.remote, remote_first, downstream, known.remote.end, remote_head),
        expired_upstream,
        expired_downstream,
        contradiction,
        known.since > begun if not merged else ends != (upstream, downstream),
        not_asked,
        (begun, max(begun, merged[0].upstream_offset)) if chosen else (0, 0),
    )


class Ranks:
    """The copied records of a range, counted from 0."""

    def __init__(self, runs: PartitionMap) -> None:
        self._runs = runs
        self._ends = array("q", accumulate(run.record_count for run in runs))

    def after(self, count: int) -> Tuple[int, int]:
        """The offsets right after the first `count` records; at least one."""
        at = bisect_left(self._ends, count)
        up, down, length = self._runs[at]
        into = count - (self._ends[at] - length)
        return up + into, down + into

    def whole_runs(self, first: int, until: int) -> Tuple[int, List[Run]]:
        """The runs of the records `[first, until)`, also where they hold others, and the records before these runs."""
        begin, last = bisect_right(self._ends, first), bisect_left(self._ends, until)
        runs = [self._runs[at] for at in range(begin, last + 1)]
        return self._ends[begin] - runs[0].record_count, runs


def part_of(copied: CopiedRange, first: int, until: int, edges: bool = True) -> CopiedRange:
    """The copied records `[first, until)`, counted from 0, and the offsets between them and the record before.

    With `edges`, the logs are also read before the first record of the range and after its last one, as for the range
    itself."""
    ranks = Ranks(copied.runs)
    before, runs = ranks.whole_runs(first, until)
    surplus = before + sum(run.record_count for run in runs) - until
    runs[-1] = runs[-1]._replace(record_count=runs[-1].record_count - surplus)
    up, down, count = runs[0]
    runs[0] = Run(up + first - before, down + first - before, count - (first - before))
    begins = ranks.after(first) if first else (copied.source.first, copied.remote.first)
    source, remote = (Bounds(begin, begin, end, end) for begin, end in zip(begins, ranks.after(until)))
    if edges and not first:
        source = replace(source, read_from=copied.source.read_from)
        remote = replace(remote, read_from=copied.remote.read_from)
    if edges and until == copied.runs.records:
        source = replace(source, read_until=copied.source.read_until, end=copied.source.end)
        remote = replace(remote, read_until=copied.remote.read_until, end=copied.remote.end)
    return replace(copied, runs=PartitionMap.of(runs), source=source, remote=remote)


def a_few(copied: CopiedRange, seed: int) -> CopiedRange:
    """A random stretch of a hundredth of the copied records, and of at least `FEW` if there are so many. It depends on
    `seed` and the partition alone, as long as the same records are copied."""
    records = copied.runs.records
    count = min(max(math.ceil(records / 100), FEW), records)
    where = f"{seed}/{copied.known.remote_topic}/{copied.known.partition}"
    first = random.Random(where).randrange(records - count + 1)
    return part_of(copied, first, first + count, edges=False)


def _firsts(merged: PartitionMap, kept: PartitionMap, first: Run, known: CopiedPartition) -> Tuple[int, int]:
    """The offsets from which on the logs must have exactly the ledger's records.

    Between the last completely expired run and the first complete one, no record was copied. Before a run whose start
    expired, records may have been copied."""
    gone = len(merged) - len(kept)
    if not kept or not gone or merged[gone] != first or not merged[gone - 1].record_count:
        return first.upstream_offset, first.downstream_offset
    last = merged[gone - 1]
    return max(last.upstream_end, known.source.log_start), max(last.downstream_end, known.remote.log_start)


def _bounds(log: OffsetRange, first: int, end: int, until: int, head: bool) -> Bounds:
    read_from = log.log_start if head else first
    return Bounds(read_from, first, end, max(read_from, min(until, log.end)))
