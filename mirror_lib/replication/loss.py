"""Where the source's log starts behind the ledger's position: how much of what left it was copied. Pure.

In: the source's first records, and what lies on the remote log behind the position. Out: where the two meet, what was
lost, and the matches that can be proven; refused where the truth cannot be known.
"""

from __future__ import annotations

from typing import Iterator, NamedTuple, Optional, Sequence, Tuple

from mirror_lib.errors import RefusedError
from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.record_batch import Record
from mirror_lib.ledger.intervals import Run, Runs
from mirror_lib.ledger.records import Position
from mirror_lib.replication.log_records import Records, equal

# How many of the source's first records must lie on the remote log in a row, as far as that goes.
WINDOW = 1000
CONTINUE_HINT = "set on.data.loss: continue to go on from there"


def left_the_log(source: TopicPartition, first: int, log_start: int) -> str:
    """What is said of the upstream offsets from `first` to `log_start`."""
    return f"{source[0]}-{source[1]}: offsets {first} to {log_start - 1} left the source's log before they were copied"


class Settled(NamedTuple):
    """`downstream_offset` is where the copy of the source's first record lies, `None` where it was not copied.

    `matches` pair what was copied of the offsets that are gone, where every one of them was. `lost_from` is the first
    offset that was not copied; `None` if all were. Where the log had gaps, some from there on may have been copied.
    """

    downstream_offset: Optional[int]
    matches: Tuple[Run, ...]
    lost_from: Optional[int]


def settle(source: Records, remote: Records, start: Position, log_start: int, name: str) -> Settled:
    """Find what was copied of the upstream offsets from `start` to `log_start`, which have left the source's log.

    `source` reads from `log_start`, `remote` from the start's downstream offset, behind which are only copies of what
    follows the start upstream. N records stand for N upstream offsets or more, as a log may have gaps. So if N reach
    beyond `log_start`, the last of them must be the source's first ones, at one place. If N do not, that none of them
    is like the source's first one must show that there were no such gaps. Raises `RefusedError` naming `name` where
    things are otherwise.
    """
    tail = _Tail(source, remote, log_start - start.upstream_offset, start.downstream_offset)
    tail.read(name)
    reach = start.upstream_offset + tail.count
    if reach <= log_start and not tail.candidates:
        lost_from = None if reach == log_start else reach
        return Settled(None, tuple(tail.matches(start.upstream_offset, tail.count)), lost_from)
    if reach > log_start and len(tail.candidates) == 1:
        index, offset = tail.candidates[0]
        return Settled(offset, tuple(tail.matches(start.upstream_offset, index)), None)
    raise RefusedError(
        f"{name}: the source's log starts at {log_start} by now, and of the {tail.count} records that an interrupted "
        f"attempt wrote from offset {start.downstream_offset} on it cannot be told which were copied from before that",
        "give the flow an empty remote topic",
    )


class _Tail:
    """The records behind the position: `count` of them. `candidates` are the places, index and downstream offset, from
    which on they equal the source's first records. `gone` is how many upstream offsets lie before those."""

    def __init__(self, source: Records, remote: Records, gone: int, first_downstream: int) -> None:
        self._first = list(_taken(source, WINDOW))
        self._remote = remote
        self._gone = gone
        self._next = first_downstream
        # By index and downstream offset.
        self._pieces = Runs()
        self.count = 0
        self.candidates: Sequence[Tuple[int, int]] = ()

    def read(self, name: str) -> None:
        """Read all of it. Raises `RefusedError` where records are missing in between."""
        while True:
            copy = self._remote.record()
            if copy is None:
                return
            if copy.offset != self._next + self._remote.not_data:
                raise RefusedError(
                    f"{name}: records before offset {copy.offset} of the remote log are gone, which an interrupted "
                    "attempt wrote and the source has lost too",
                    "give the flow an empty remote topic",
                )
            self._remote.not_data = 0
            self._take(copy)

    def _take(self, copy: Record) -> None:
        going = [each for each in self.candidates if self._agrees(self.count - each[0], copy)]
        if self.count <= self._gone and self._first and self._agrees(0, copy):
            going.append((self.count, copy.offset))
        self.candidates = going
        self._pieces.append(self.count, copy.offset, 1)
        self.count += 1
        self._next = copy.offset + 1

    def _agrees(self, index: int, copy: Record) -> bool:
        return index >= len(self._first) or equal(self._first[index], copy, self._remote.log_append_time)

    def matches(self, upstream_offset: int, count: int) -> Iterator[Run]:
        """The first `count` records as copies of what lay from `upstream_offset` on; none if there were gaps."""
        if count != self._gone:
            return
        for index, offset, length in self._pieces:
            if index < count:
                yield Run(upstream_offset + index, offset, min(length, count - index))


def _taken(records: Records, count: int) -> Iterator[Record]:
    for _ in range(count):
        record = records.record()
        if record is None:
            return
        yield record
