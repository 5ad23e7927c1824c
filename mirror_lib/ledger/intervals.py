"""Maps the upstream offsets of one partition to downstream offsets and back: appends, merges and cuts runs. Pure.

A `Run` with a count of 0 is a position: all copies of records before its upstream offset are before its downstream
offset. Many runs are stored flat, as three integers of 64 bits each: upstream offset, downstream offset, record count.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace
from itertools import chain, compress, islice
from operator import add, or_, sub
from typing import TYPE_CHECKING, Iterable, Iterator, NamedTuple, Sequence, Tuple

from mirror_lib.errors import StateError

if TYPE_CHECKING:
    Numbers = array[int]
else:
    # `array` takes no parameter at run time before Python 3.9.
    Numbers = array

RUN_BYTES = 24

INSIDE = "inside"
GAP = "gap"
END = "end"
BEYOND = "beyond"
BEFORE = "before"


class Run(NamedTuple):
    """`record_count` records from `upstream_offset` on are stored from `downstream_offset` on, without gaps on either
    side."""

    upstream_offset: int
    downstream_offset: int
    record_count: int

    @property
    def upstream_end(self) -> int:
        return self.upstream_offset + self.record_count

    @property
    def downstream_end(self) -> int:
        return self.downstream_offset + self.record_count


class Runs:
    """Runs in the order of their appends. A run that continues the last one on both sides is joined to it.

    Nothing is checked: the caller must append correct runs. `PartitionMap` checks its runs.
    """

    __slots__ = ("_flat",)

    def __init__(self, flat: bytes = b"") -> None:
        self._flat: Numbers = array("q", flat)

    def append(self, upstream_offset: int, downstream_offset: int, count: int) -> None:
        flat = self._flat
        if flat and flat[-3] + flat[-1] == upstream_offset and flat[-2] + flat[-1] == downstream_offset:
            flat[-1] += count
        else:
            flat.extend((upstream_offset, downstream_offset, count))

    @property
    def upstream_end(self) -> int:
        return self._flat[-3] + self._flat[-1]

    def tobytes(self) -> bytes:
        """The runs so far, flat, in this machine's byte order; the constructor reads them."""
        return self._flat.tobytes()

    def __len__(self) -> int:
        return len(self._flat) // 3

    def __iter__(self) -> Iterator[Run]:
        return map(Run, *(self._flat[i::3] for i in range(3)))


@dataclass(frozen=True)
class Place:
    """The translation of an offset of one log to the other log.

    `kind` is where the given offset is: `inside` a run, in a `gap` between two, at the `end` of the map, `beyond` it
    (by `beyond_by` offsets), or `before` the first run. `offset` is the translation; for `beyond` the end of the map,
    for `before` its start. All offsets from `earliest` to `latest` are equivalent: no copied record is stored between
    them.
    """

    kind: str
    offset: int
    earliest: int
    latest: int
    beyond_by: int = 0


@dataclass(frozen=True)
class PartitionMap:
    """The fewest runs with the facts of a partition's ledger rows, in offset order on both sides. Immutable.

    The first and the last entry may be positions. A run takes 24 bytes. `older`: another tool copied records before the
    first run, to unknown offsets. `NO_RUNS` supports `len`, iteration and `cut`, but no look-up.
    """

    _upstream: Numbers = field(repr=False)
    _downstream: Numbers = field(repr=False)
    _counts: Numbers = field(repr=False)
    older: bool = False

    @classmethod
    def of(cls, runs: Iterable[Tuple[int, int, int]], where: str = "a partition") -> PartitionMap:
        """Build from `(upstream_offset, downstream_offset, record_count)`, in any order, repeated or overlapping.

        Raises StateError if rows contradict each other (one record at two places, or records out of order), if a number
        is missing, negative or beyond 63 bits, and without rows. The error names `where` (`orders-0`).
        """
        try:
            return cls.of_flat(array("q", chain.from_iterable(runs)), where)
        except (TypeError, OverflowError) as error:
            raise _damaged(where, f"a row is not three whole numbers of 63 bits: {error}") from error

    @classmethod
    def of_flat(cls, flat: Numbers, where: str = "a partition") -> PartitionMap:
        if not len(flat) or len(flat) % 3:
            raise _damaged(where, "there are no rows" if not len(flat) else "a row is not three whole numbers")
        upstream, downstream, counts = columns = flat[0::3], flat[1::3], flat[2::3]
        apart = _are_apart(*columns)
        # In ordered rows the first offsets are the lowest, if no count is negative.
        lowest = min(upstream[0], downstream[0], min(counts)) if apart else min(flat)
        if lowest < 0:
            raise _damaged(where, f"a row has the number {lowest}")
        # The ledger's rows are mostly merged already. Merging a million of them again takes seconds.
        return cls(*(_without_idle(*columns) if apart else _merged(sorted(zip(*columns)), where)))

    def extended(self, flat: Numbers, where: str = "a partition") -> PartitionMap:
        """This map with more rows, flat. Raises what `of` raises.

        Only the part from the last run before the added rows on is rebuilt."""
        if not len(flat):
            return self
        own = self._columns()
        # No added row comes before the last run that starts before them, so earlier runs stay as they are.
        kept = max(0, bisect_left(own[0], min(flat[0::3])) - 1)
        tail = self.of_flat(woven([column[kept:] for column in own]) + flat, where)
        # A position before other runs is redundant. `of_flat` keeps it only because it is the first entry of `tail`.
        idle = kept > 0 and not tail._counts[0] and len(tail) > 1
        grown = [column[:kept] + new[idle:] for column, new in zip(own, tail._columns())]
        return PartitionMap(grown[0], grown[1], grown[2], self.older)

    def cut(self, upstream_start: int, downstream_start: int) -> Tuple[PartitionMap, int, int]:
        """Cut the map to the records that both logs still have, given their log starts.

        Returns the rest of the map, the number of records that expired on the source, and the number that expired only
        on the remote log."""
        expired_upstream = expired_downstream = 0
        for i, (up, down, count) in enumerate(self):
            gone_upstream = min(max(upstream_start - up, 0), count)
            gone = max(gone_upstream, min(max(downstream_start - down, 0), count))
            expired_upstream += gone_upstream
            expired_downstream += gone - gone_upstream
            if gone < count or (not count and up >= upstream_start and down >= downstream_start):
                # The runs after it begin past both starts.
                up_left, down_left, counts_left = (column[i:] for column in self._columns())
                up_left[0], down_left[0], counts_left[0] = up + gone, down + gone, count - gone
                return PartitionMap(up_left, down_left, counts_left, self.older), expired_upstream, expired_downstream
        return NO_RUNS, expired_upstream, expired_downstream

    def _columns(self) -> Tuple[Numbers, Numbers, Numbers]:
        return self._upstream, self._downstream, self._counts

    def __len__(self) -> int:
        return len(self._counts)

    def __iter__(self) -> Iterator[Run]:
        return map(Run, *self._columns())

    def __getitem__(self, at: int) -> Run:
        return Run(self._upstream[at], self._downstream[at], self._counts[at])

    @property
    def records(self) -> int:
        return sum(self._counts)

    @property
    def upstream_start(self) -> int:
        return self._upstream[0]

    @property
    def downstream_start(self) -> int:
        return self._downstream[0]

    @property
    def upstream_end(self) -> int:
        return self._upstream[-1] + self._counts[-1]

    @property
    def downstream_end(self) -> int:
        return self._downstream[-1] + self._counts[-1]

    def to_downstream(self, upstream_offset: int) -> Place:
        """The place on the remote topic for a group that reads `upstream_offset` next on the source.

        In a gap this is the end of the previous run. Only markers are stored between that end and the next run, so the
        group reads the same record next. If the ledger lacks a row, the group reads its records instead of skipping
        them.
        """
        return _place(self._upstream, self._downstream, self._counts, upstream_offset)

    def to_upstream(self, downstream_offset: int) -> Place:
        """The place on the source for a group that reads `downstream_offset` next on the remote topic.

        This is the earliest equivalent offset: the mirror may have skipped records in an upstream gap
        (`on.error: skip`), and no group has read them on the remote topic.
        """
        place = _place(self._downstream, self._upstream, self._counts, downstream_offset)
        return replace(place, offset=place.earliest)

    def has_run(self, upstream_offset: int, downstream_offset: int, count: int) -> bool:
        at = bisect_right(self._upstream, upstream_offset) - 1
        if count <= 0 or at < 0:
            return count <= 0
        run = self[at]
        same_shift = downstream_offset - upstream_offset == run.downstream_offset - run.upstream_offset
        return same_shift and upstream_offset + count <= run.upstream_end


NO_RUNS = PartitionMap(array("q"), array("q"), array("q"))


def woven(columns: Sequence[Numbers]) -> Numbers:
    """Interleave columns of the same length into flat numbers."""
    flat = array("q", bytes(8 * sum(map(len, columns))))
    for i, column in enumerate(columns):
        flat[i :: len(columns)] = column
    return flat


def _place(own: Numbers, other: Numbers, counts: Numbers, offset: int) -> Place:
    """Translate `offset` from the log with the run starts `own` to the log with the run starts `other`."""
    i = bisect_right(own, offset) - 1
    if i < 0:
        return Place(BEFORE, other[0], other[0], other[1] if not counts[0] and len(other) > 1 else other[0])
    into, start = offset - own[i], other[i]
    end = start + counts[i]
    # No copied record is stored between the previous run's end and this run's start.
    earliest_start = other[i - 1] + counts[i - 1] if i else start
    if into < counts[i]:
        return Place(INSIDE, start + into, start + into if into else earliest_start, start + into)
    if i + 1 < len(own):
        return Place(GAP, end, end, other[i + 1])
    beyond_by = into - counts[i]
    return Place(BEYOND if beyond_by else END, end, end if counts[i] else earliest_start, end, beyond_by)


def _are_apart(upstream: Numbers, downstream: Numbers, counts: Numbers) -> bool:
    """Whether the rows are in order and neither touch nor overlap."""
    # The gaps between consecutive rows on both sides.
    gaps = [list(map(sub, islice(starts, 1, None), map(add, starts, counts))) for starts in (upstream, downstream)]
    return all(min(own, default=0) >= 0 for own in gaps) and all(map(or_, *gaps))


def _without_idle(upstream: Numbers, downstream: Numbers, counts: Numbers) -> Tuple[Numbers, Numbers, Numbers]:
    """Rows that are apart, without the redundant positions between two other rows."""
    if all(islice(counts, 1, max(len(counts) - 1, 1))):
        return upstream, downstream, counts
    kept = array("q", counts)
    kept[0] = kept[-1] = 1
    left = [array("q", compress(column, kept)) for column in (upstream, downstream, counts)]
    return left[0], left[1], left[2]


def _merged(rows: Iterable[Tuple[int, ...]], where: str) -> Tuple[Numbers, Numbers, Numbers]:
    """The fewest runs with the facts of the sorted `rows`. A position is kept only as the first or the last entry."""
    upstream, downstream, counts = array("q"), array("q"), array("q")
    up = end = down = -1
    for next_up, next_down, count in rows:
        if next_up <= end and next_down - next_up == down - up:
            end = max(end, next_up + count)
            continue
        if next_up < end or next_down < down + end - up:
            raise _contradiction(where, Run(up, down, end - up), Run(next_up, next_down, count))
        if end > up or (up >= 0 and not upstream):
            upstream.append(up)
            downstream.append(down)
            counts.append(end - up)
        up, down, end = next_up, next_down, next_up + count
    upstream.append(up)
    downstream.append(down)
    counts.append(end - up)
    return upstream, downstream, counts


def _contradiction(where: str, first: Run, second: Run) -> StateError:
    copied_again = second.downstream_offset >= first.downstream_end
    truncated = "; the source was truncated there if the table events has a row `data lost`" if copied_again else ""
    return StateError(
        f"the ledger contradicts itself on {where}: {_words(first)}, yet {_words(second)}{truncated}",
        "the table was changed by hand, or two mirrors of different names wrote to one remote topic: `mirror verify`"
        " shows whether the remote log is right; if it is, follow the steps of docs/fix/state.md for offset_syncs",
    )


def _words(run: Run) -> str:
    return (
        f"{run.record_count} records from upstream offset {run.upstream_offset} are stored at downstream offset"
        f" {run.downstream_offset}"
    )


def _damaged(where: str, what: str) -> StateError:
    return StateError(f"the ledger cannot be read for {where}: {what}", "the table was changed by hand")
