"""One partition's offset syncs in, a map between its two logs out: either log's offset to its place in the other. Pure.

A run is an offset sync with a count above 0, a position one with a count of 0 (`mirror_lib.state.records`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from operator import add, and_, eq, le
from typing import TYPE_CHECKING, Iterable, Iterator, Optional, Sequence, Tuple

from mirror_lib.errors import StateError

if TYPE_CHECKING:
    # `array` takes no parameter at run time before Python 3.9.
    Offsets = array[int]

# upstream_offset, downstream_offset, record_count
Triple = Tuple[int, int, int]

INSIDE = "inside"
GAP = "gap"
END = "end"
BEYOND = "beyond"
BEFORE = "before"


@dataclass(frozen=True)
class Place:
    """Where an offset of one log lies in the other.

    `kind` says where the offset asked for lies: `inside` a run, in a `gap` between two, at the `end` of what is mapped,
    `beyond` it (by `beyond_by` offsets), or `before` the first run. `offset` is its translation; for `beyond` that is
    the end of what is mapped, for `before` its start. Every offset from `earliest` to `latest` means the same position:
    no record that was copied lies between them.
    """

    kind: str
    offset: int
    earliest: int
    latest: int
    beyond_by: int = 0


@dataclass(frozen=True)
class PartitionMap:
    """Runs in offset order on both sides, as three columns; the first and the last entry may be positions.

    24 bytes a run. Nothing here changes after it was built. `older`: records that lie before the first run were copied
    too, by another tool, and where they lie is not known.
    """

    _upstream: Offsets = field(repr=False)
    _downstream: Offsets = field(repr=False)
    _counts: Offsets = field(repr=False)
    older: bool = False

    @classmethod
    def of(cls, triples: Iterable[Triple], where: str = "a partition") -> PartitionMap:
        """Build from `(upstream_offset, downstream_offset, record_count)`, in any order, repeated or overlapping.

        `where` (`orders-0`) is for the error: StateError where rows contradict each other (one record at two places,
        or records out of order), where a number is missing, negative or beyond 63 bits, and where there are no rows.
        """
        try:
            return cls.of_flat(array("q", chain.from_iterable(triples)), where)
        except (TypeError, OverflowError) as error:
            raise _damaged(where, f"a row is not three whole numbers of 63 bits: {error}") from error

    @classmethod
    def of_flat(cls, flat: Offsets, where: str = "a partition") -> PartitionMap:
        """The same from one column: upstream offset, downstream offset, count, and the next row's upstream offset."""
        if not len(flat) or len(flat) % 3:
            raise _damaged(where, "there are no rows" if not len(flat) else "a row is not three whole numbers")
        if min(flat) < 0:
            raise _damaged(where, f"a row has the number {min(flat)}")
        columns = flat[0::3], flat[1::3], flat[2::3]
        # The ledger hands rows over merged and in order, mostly: a million of them are not worth doing it again.
        return cls(*(columns if _is_merged(*columns) else _merged(sorted(zip(*columns)), where)))

    def extended(self, flat: Offsets, where: str = "a partition") -> PartitionMap:
        """This map with more rows, as `of_flat` takes them. Built anew is only what begins with the last run that lies
        before the first of them."""
        if not len(flat):
            return self
        own = self._upstream, self._downstream, self._counts
        # Runs before that one are in order and none of `flat` comes between them, so it alone can be touched.
        kept = max(0, bisect_left(own[0], min(flat[0::3])) - 1)
        tail = self.of_flat(_woven([column[kept:] for column in own]) + flat, where)
        # A position that others follow says nothing that they do not, but it was the first word of `tail` here.
        idle = kept > 0 and not tail._counts[0] and len(tail._counts) > 1
        tails = tail._upstream, tail._downstream, tail._counts
        grown = [column[:kept] + new[idle:] for column, new in zip(own, tails)]
        return PartitionMap(grown[0], grown[1], grown[2], self.older)

    @property
    def upstream_end(self) -> int:
        """The upstream offset that everything mapped lies before."""
        return self._upstream[-1] + self._counts[-1]

    @property
    def downstream_end(self) -> int:
        """The downstream offset that everything mapped lies before."""
        return self._downstream[-1] + self._counts[-1]

    @property
    def last_run(self) -> Optional[Triple]:
        """The run that ends last; `None` where there are positions only."""
        i = next((i for i in (len(self._counts) - 1, len(self._counts) - 2) if i >= 0 and self._counts[i]), None)
        return None if i is None else (self._upstream[i], self._downstream[i], self._counts[i])

    def to_downstream(self, upstream_offset: int) -> Place:
        """Where whoever reads `upstream_offset` next on the source goes on reading the remote topic.

        In a gap that is the end of the run before it. Only markers lie between there and the next run, so the same
        record is read next; and should a row be missing from the ledger, its records are read and not passed.
        """
        return _place(self._upstream, self._downstream, self._counts, upstream_offset)

    def to_upstream(self, downstream_offset: int) -> Place:
        """Where whoever reads `downstream_offset` next on the remote topic goes on reading the source.

        Always the earliest offset that means the same: records in an upstream gap may be ones that the mirror left out
        (`on.error: skip`), and nobody has read them on the remote topic.
        """
        place = _place(self._downstream, self._upstream, self._counts, downstream_offset)
        return replace(place, offset=place.earliest)

    def runs_from(self, upstream_offset: int) -> Iterator[Triple]:
        """Runs with a record at or after `upstream_offset`, whole and in order; positions are left out."""
        first = max(0, bisect_right(self._upstream, upstream_offset) - 1)
        for i in range(first, len(self._counts)):
            if self._counts[i] and self._upstream[i] + self._counts[i] > upstream_offset:
                yield self._upstream[i], self._downstream[i], self._counts[i]


def _place(own: Offsets, other: Offsets, counts: Offsets, offset: int) -> Place:
    """The place of `offset`, an offset of the log whose starts are `own`, in the log whose starts are `other`."""
    i = bisect_right(own, offset) - 1
    if i < 0:
        return Place(BEFORE, other[0], other[0], other[1] if not counts[0] and len(other) > 1 else other[0])
    into, start = offset - own[i], other[i]
    end = start + counts[i]
    # Between the run before and this one's start nothing lies that was copied.
    earliest_start = other[i - 1] + counts[i - 1] if i else start
    if into < counts[i]:
        return Place(INSIDE, start + into, start + into if into else earliest_start, start + into)
    if i + 1 < len(own):
        return Place(GAP, end, end, other[i + 1])
    beyond_by = into - counts[i]
    return Place(BEYOND if beyond_by else END, end, end if counts[i] else earliest_start, end, beyond_by)


def _is_merged(upstream: Offsets, downstream: Offsets, counts: Offsets) -> bool:
    """Whether the rows are runs in order that neither touch nor overlap; positions only the first and the last."""
    ends, ends_downstream = list(map(add, upstream, counts)), list(map(add, downstream, counts))
    pairs = (ends, upstream[1:]), (ends_downstream, downstream[1:])
    in_order = all(all(map(le, own_ends, next_starts)) for own_ends, next_starts in pairs)
    touching = any(map(and_, *(map(eq, own_ends, next_starts) for own_ends, next_starts in pairs)))
    return in_order and not touching and all(islice(counts, 1, max(len(counts) - 1, 1)))


def _woven(columns: Sequence[Offsets]) -> Offsets:
    flat = array("q", bytes(8 * sum(map(len, columns))))
    for i, column in enumerate(columns):
        flat[i::3] = column
    return flat


def _merged(rows: Iterable[Triple], where: str) -> Tuple[Offsets, Offsets, Offsets]:
    """The fewest runs that say what the sorted `rows` say; positions are kept only as the first and the last word."""
    upstream, downstream, counts = array("q"), array("q"), array("q")
    up = end = down = -1
    for next_up, next_down, count in rows:
        if next_up <= end and next_down - next_up == down - up:
            end = max(end, next_up + count)
            continue
        if next_up < end or next_down < down + end - up:
            raise _contradiction(where, (up, down, end - up), (next_up, next_down, count))
        if end > up or (up >= 0 and not upstream):
            upstream.append(up)
            downstream.append(down)
            counts.append(end - up)
        up, down, end = next_up, next_down, next_up + count
    upstream.append(up)
    downstream.append(down)
    counts.append(end - up)
    return upstream, downstream, counts


def _contradiction(where: str, first: Triple, second: Triple) -> StateError:
    return StateError(
        f"the ledger contradicts itself on {where}: {_words(first)}, yet {_words(second)}",
        "if two drivers ran at once under an earlier release, `mirror repair` shows and removes such positions; the"
        " source lost its log's tail, the table was changed by hand, or two mirrors of different names wrote to one"
        " remote topic: `mirror verify` shows whether the remote log is right",
    )


def _words(row: Triple) -> str:
    return f"{row[2]} records from upstream offset {row[0]} lie at downstream offset {row[1]}"


def _damaged(where: str, what: str) -> StateError:
    return StateError(f"the ledger cannot be read for {where}: {what}", "the table was changed by hand")
