"""The passes of a flow that places records anew in, what they say of offsets on both sides out. Pure, but it grows.

The records of a pass lie on a remote log between where that log stood before the pass and where it stood after it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Dict, Optional, Sequence

from mirror_lib.facts import TopicPartition
from mirror_lib.state.row_passes import ELSEWHERE, REMOTE, SOURCE, PassRow, RowPass

if TYPE_CHECKING:
    Numbers = array[int]


@dataclass(frozen=True)
class ReadPasses:
    """How far somebody has read a partition, in passes: all of its records in passes before `whole`, and none of those
    from `none` on. `beyond_by`: offsets that were read and are not in any pass yet. `before`: the first pass that is
    known begins behind the place."""

    whole: int
    none: int
    beyond_by: int = 0
    before: bool = False


def _column() -> Numbers:
    return array("q")


@dataclass(frozen=True)
class _Ranges:
    """Of a source partition the passes that copy something of it."""

    numbers: Numbers = field(default_factory=_column)
    starts: Numbers = field(default_factory=_column)
    ends: Numbers = field(default_factory=_column)

    def cut(self, offset: int) -> None:
        """Forget what is said of offsets from `offset` on."""
        while self.starts and self.starts[-1] >= offset:
            for column in (self.numbers, self.starts, self.ends):
                column.pop()
        if self.ends and self.ends[-1] > offset:
            self.ends[-1] = offset


@dataclass(frozen=True)
class _Places:
    """Of a remote partition the passes before which it had moved, and where it stood then."""

    numbers: Numbers = field(default_factory=_column)
    offsets: Numbers = field(default_factory=_column)


class PassHistory:
    """Grows by `add`, a pass after the other. `last` is the number of the last one, -1 before the first."""

    def __init__(self) -> None:
        self.last = -1
        # The last pass that does not follow the one before it.
        self._known_from = -1
        self._numbers: Numbers = _column()
        self._sources: Dict[TopicPartition, _Ranges] = {}
        self._ends: Dict[TopicPartition, int] = {}
        self._remotes: Dict[TopicPartition, _Places] = {}
        self._ids: Dict[str, str] = {}
        self._last_empty = True

    def add(self, planned: RowPass) -> bool:
        """The next pass. One that is known changes nothing. False where it begins before the end of another: some of
        those that are known were never done so, or are one by now (`state.pass_thinning`)."""
        if planned.number <= self.last:
            return True
        self.last, self._last_empty = planned.number, planned.empty
        self._numbers.append(planned.number)
        for row in planned.of(REMOTE):
            self._ids[_remote(row.topic)] = row.topic_id
            self._moved(row.place, planned.number, row.from_offset)
        if planned.of(ELSEWHERE):
            self._known_from = planned.number
        return all([self._copies(row, planned.number) for row in planned.of(SOURCE)])

    def _copies(self, row: PassRow, number: int) -> bool:
        known = self._ends.get(row.place, row.from_offset)
        if known < row.from_offset:
            self._known_from = number
        self._ids[row.topic] = row.topic_id
        self._ends[row.place] = row.stands
        own = self._sources.get(row.place)
        if own is not None:
            own.cut(row.from_offset)
        if row.stands > row.from_offset:
            own = self._sources.setdefault(row.place, _Ranges())
            own.numbers.append(number)
            own.starts.append(row.from_offset)
            own.ends.append(row.stands)
        return known <= row.from_offset

    def _moved(self, remote: TopicPartition, number: int, offset: int) -> None:
        own = self._remotes.setdefault(remote, _Places())
        while own.offsets and own.offsets[-1] > offset:
            own.numbers.pop()
            own.offsets.pop()
        if not own.offsets or own.offsets[-1] != offset:
            own.numbers.append(number)
            own.offsets.append(offset)

    @property
    def complete(self) -> bool:
        """Whether no pass in between, or before, is in another process's ledger only."""
        return self._known_from < 0

    def knows(self, source: Optional[Sequence[str]] = None, remote: Optional[Sequence[str]] = None) -> bool:
        """Whether the passes are of the topic with this name and id; of a source topic, or they know none so called."""
        of_source = source is None or self._ids.get(source[0], source[1]) == source[1]
        return of_source and (remote is None or self._ids.get(_remote(remote[0])) == remote[1])

    def copies(self, name: str, topic_id: str) -> bool:
        """Whether the passes are of the source topic with this name and id."""
        return self._ids.get(name) == topic_id

    @property
    def remotes(self) -> Sequence[TopicPartition]:
        """Every remote partition, in order."""
        return sorted(self._remotes)

    def copied(self, source: TopicPartition) -> bool:
        """Whether any pass copies something of the partition, as far as can be told."""
        return source in self._sources or (not self.complete and self.end(source) > 0)

    def received(self, remote: TopicPartition) -> bool:
        """Whether any pass may have brought the remote partition something, as far as can be told."""
        return not (self.complete and self._last_empty and len(self._remotes[remote].offsets) == 1)

    def end(self, source: TopicPartition) -> int:
        """Up to where passes go."""
        return self._ends.get(source, 0)

    def read(self, source: TopicPartition, offset: int) -> ReadPasses:
        """What somebody has read whose next record of `source` is the one at `offset`."""
        end, own = self.end(source), self._sources.get(source, _Ranges())
        at = bisect_right(own.ends, offset)
        none = self._none_from(own, offset)
        if at == len(own.ends) and offset >= end:
            # Where the logs stand behind the last pass nobody knows.
            return ReadPasses(self.last, none, offset - end)
        known = at < len(own.ends)
        start = own.starts[at] if known else end
        if offset < start and (not at or own.ends[at - 1] < start):
            # Another process's passes, or none at all, lie before what is known next.
            behind = own.numbers[at] if known else self.last + 1
            return ReadPasses(own.numbers[at - 1] + 1 if at else 0, behind if at else 0, before=not at)
        return ReadPasses(own.numbers[at], none)

    def read_remote(self, remote: TopicPartition, offset: int) -> ReadPasses:
        """What somebody has read of the records on `remote` whose next one there is the one at `offset`."""
        own = self._remotes[remote]
        at = bisect_right(own.offsets, offset)
        if not at:
            return ReadPasses(0, 0, before=True)
        # Up to the pass that brought what lies behind the offset. What lies behind the last place is of the last pass,
        # or of nobody: passes are looked up after positions.
        whole = self.last if at == len(own.offsets) else self._numbers[bisect_left(self._numbers, own.numbers[at]) - 1]
        unread = bisect_left(own.offsets, offset)
        return ReadPasses(whole, own.numbers[unread] if unread < len(own.offsets) else self.last + 1)

    def begins(self, source: TopicPartition, number: int) -> int:
        """Where the first range of `source` begins that is known of pass `number` or a later one; the end of all where
        there is none."""
        own = self._sources.get(source, _Ranges())
        at = bisect_left(own.numbers, number)
        return own.starts[at] if at < len(own.starts) else self.end(source)

    def ended(self, source: TopicPartition, number: int) -> Optional[int]:
        """Up to where `source` is surely copied by passes before `number`; `None` where that is not known."""
        if number >= self._known_from:
            return self.begins(source, number)
        own = self._sources.get(source, _Ranges())
        at = bisect_left(own.numbers, number)
        return own.ends[at - 1] if at else None

    def _none_from(self, own: _Ranges, offset: int) -> int:
        """The next pass known behind the last one that has a record before the offset."""
        begun = bisect_left(own.starts, offset)
        none = self._behind(own.numbers[begun - 1]) if begun else 0
        # Where another process copied what lies before the offset, it did so before the last pass that tells of such.
        told = begun > 0 and own.ends[begun - 1] >= offset
        return none if told else max(none, self._known_from)

    def _behind(self, number: int) -> int:
        at = bisect_right(self._numbers, number)
        return self._numbers[at] if at < len(self._numbers) else self.last + 1

    def stood(self, remote: TopicPartition, number: int) -> Optional[int]:
        """Where the remote log stood before pass `number`; for passes before it was there its first known place, and
        `None` behind the last pass."""
        if number > self.last:
            return None
        own = self._remotes[remote]
        return own.offsets[max(0, bisect_right(own.numbers, number) - 1)]


def _remote(topic: str) -> str:
    # A topic may be called the same on both sides. No topic's name has a blank.
    return f"{topic} on the target"
