"""The passes of a flow that places records anew in, what they say of offsets on both sides out. Pure, but it grows.

The records of a pass lie on a remote log between where that log stood before the pass and where it stood after it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Dict, Optional, Sequence, Tuple

from mirror_lib.facts import TopicPartition
from mirror_lib.state.row_passes import RowPass

if TYPE_CHECKING:
    Numbers = array[int]


@dataclass(frozen=True)
class ReadPasses:
    """How far somebody has read a source partition, in passes: all of its records in passes before `whole`, and none of
    those from `none` on. `beyond_by`: offsets that were read and are not in any pass yet."""

    whole: int
    none: int
    beyond_by: int = 0


class PassHistory:
    """Grows by `add`, a pass after the other. `last` is the number of the last one, -1 before the first."""

    def __init__(self) -> None:
        self.last = -1
        # Of a source partition the passes that copy something of it: number, end of the range. Of a remote one the
        # passes before which it had moved: number, offset.
        self._sources: Dict[TopicPartition, Tuple[Numbers, Numbers, Numbers]] = {}
        self._ends: Dict[TopicPartition, int] = {}
        self._remotes: Dict[TopicPartition, Tuple[Numbers, Numbers]] = {}
        self._ids: Dict[str, str] = {}
        self._last_empty = True

    def add(self, planned: RowPass) -> None:
        """The next pass. One that is known changes nothing."""
        if planned.number <= self.last:
            return
        self.last, self._last_empty = planned.number, planned.empty
        for row in planned.rows:
            self._ids[row.topic if row.until_offset is not None else _remote(row.topic)] = row.topic_id
            if row.until_offset is None:
                self._moved(row.place, planned.number, row.from_offset)
                continue
            self._ends[row.place] = row.until_offset
            if row.until_offset > row.from_offset:
                numbers, starts, ends = self._sources.setdefault(row.place, (array("q"), array("q"), array("q")))
                numbers.append(planned.number)
                starts.append(row.from_offset)
                ends.append(row.until_offset)

    def _moved(self, remote: TopicPartition, number: int, offset: int) -> None:
        numbers, offsets = self._remotes.setdefault(remote, (array("q"), array("q")))
        if not offsets or offsets[-1] != offset:
            numbers.append(number)
            offsets.append(offset)

    def knows(self, source: Optional[Tuple[str, str]] = None, remote: Optional[Tuple[str, str]] = None) -> bool:
        """Whether the passes are of the topic with this name and id."""
        of_source = source is None or self._ids.get(source[0], source[1]) == source[1]
        return of_source and (remote is None or self._ids.get(_remote(remote[0])) == remote[1])

    @property
    def remotes(self) -> Sequence[TopicPartition]:
        """Every remote partition, in order."""
        return sorted(self._remotes)

    def copied(self, source: TopicPartition) -> bool:
        """Whether any pass copies something of the partition."""
        return source in self._sources

    def end(self, source: TopicPartition) -> int:
        """Up to where passes go."""
        return self._ends.get(source, 0)

    def read(self, source: TopicPartition, offset: int) -> ReadPasses:
        """What somebody has read whose next record of `source` is the one at `offset`."""
        beyond_by = max(0, offset - self.end(source))
        numbers, starts, ends = self._sources.get(source, (array("q"), array("q"), array("q")))
        at = bisect_right(ends, offset)
        none = numbers[at - 1] + 1 if at else 0
        if at == len(ends):
            # The last pass may not be written whole, unless it is empty.
            return ReadPasses(self.last if self._last_empty else self.last + 1, none, beyond_by)
        return ReadPasses(numbers[at], numbers[at] + 1 if offset > starts[at] else none)

    def stood(self, remote: TopicPartition, number: int) -> Optional[int]:
        """Where the remote log stood before pass `number`; for passes before it was there its first known place, and
        `None` behind the last pass."""
        if number > self.last:
            return None
        numbers, offsets = self._remotes[remote]
        return offsets[max(0, bisect_right(numbers, number) - 1)]


def _remote(topic: str) -> str:
    # A topic may be called the same on both sides. No topic's name has a blank.
    return f"{topic} on the target"
