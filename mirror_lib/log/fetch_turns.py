"""Whom a broker is asked about next: partitions that want data in, those of the next question to it out.

Whoever got something is asked for last the next time. One that got nothing below its end, though there was room in the
answer, is asked for alone. Where tiered storage keeps one waiting, every other question is about the rest.
"""

from __future__ import annotations

from typing import Callable, Collection, Dict, Iterable, List, NamedTuple, Set

from mirror_lib.log.connection import Partition

MAX_WAIT_MS = 500
# A broker answers one request of a connection at a time: who may want more soon must not wait for a long one.
BRIEF_WAIT_MS = 10


class Turn(NamedTuple):
    """The partitions of a question, first those that should get something, and how long the broker may wait."""

    partitions: List[Partition]
    max_wait_ms: int


class FetchTurns:
    """One task's. `stored` tells whether a partition's data is waited for from tiered storage."""

    def __init__(self, stored: Callable[[Partition], bool]) -> None:
        self._stored = stored
        self._served: Set[Partition] = set()
        self._alone: Set[Partition] = set()
        # Nodes whose last question was about a stored partition, and when each of these had its turn.
        self._owe_the_rest: Set[int] = set()
        self._turns: Dict[Partition, int] = {}

    def next(self, node: int, wanted: Collection[Partition], brief: bool) -> Turn:
        """The question to `node`, of which `wanted` want data. `brief`: others of it may want some in a moment."""
        lonely = self._alone.intersection(wanted)
        stored = {each for each in lonely if self._stored(each)}
        if stored and (len(stored) == len(wanted) or node not in self._owe_the_rest):
            return self._of_stored(node, stored)
        self._owe_the_rest.discard(node)
        if lonely - stored:
            return Turn([min(lonely - stored)], 0)
        rest = sorted((each for each in wanted if each not in stored), key=self._served.__contains__)
        return Turn(rest, BRIEF_WAIT_MS if brief else MAX_WAIT_MS)

    def _of_stored(self, node: int, stored: Iterable[Partition]) -> Turn:
        """One alone: brokers read in tiered storage as long as the request may wait."""
        first = min(stored, key=lambda each: (self._turns.get(each, 0), each))
        self._turns[first] = max(self._turns.values(), default=0) + 1
        self._owe_the_rest.add(node)
        return Turn([first], MAX_WAIT_MS)

    def answered(self, asked: Collection[Partition], served: Collection[Partition], alone: Set[Partition]) -> None:
        """Of those that were `asked` about some were `served`, others are to be asked for `alone`."""
        self._alone = (self._alone - set(asked)) | alone
        self._served = (self._served - set(asked)) | set(served)
