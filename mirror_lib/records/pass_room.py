"""How far a pass of rows may go. In: the flow's rates, what passes read before. Out: offsets for each partition. Pure.

Spark reads the rows of a pass at full speed, and nobody can hold it back in between. So it is the pass that is bounded:
it begins when nothing is owed, has about `PASS_SECONDS` of the rate, and what it read is paid for before the next one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Mapping, Optional, Sequence, Tuple, TypeVar

from mirror_lib.replicate.rates import FLOW, RateShare, TaskRates

PASS_SECONDS = 5.0
# Nobody knows how large records are before the first pass: as large as brokers take them, by default.
LARGEST_RECORD = 1024 * 1024
# Later passes have at most so many times the offsets of the one before, whatever its few records say.
GROWTH = 4
# Among the numbers of rates, the bytes of a pass (`batch.max.bytes`).
PASS = -2

# A partition by any names of it, of which the first is the topic of the source.
Named = TypeVar("Named", bound=Tuple[object, ...])


@dataclass(frozen=True)
class Room:
    """Offsets that a pass may have in all; and those of topics with a rate of their own, by its number."""

    offsets: int
    of_topics: Mapping[int, int] = field(default_factory=dict)
    rate_of: Mapping[str, int] = field(default_factory=dict)

    def shares(self, wanted: Mapping[Named, int]) -> Dict[Named, int]:
        """How many of the offsets that each partition has left it gets; each gets one, if there is room at all."""
        found = dict(wanted)
        for number, room in self.of_topics.items():
            own = {each: count for each, count in wanted.items() if self.rate_of.get(str(each[0])) == number}
            found.update(_spread(own, room))
        return _spread(found, self.offsets)


def _spread(wanted: Mapping[Named, int], room: int) -> Dict[Named, int]:
    if room < 1:
        return dict.fromkeys(wanted, 0)
    found: Dict[Named, int] = {}
    left = len(wanted)
    for each, count in sorted(wanted.items(), key=lambda item: item[1]):
        found[each] = min(count, max(1, room // left))
        room, left = max(0, room - found[each]), left - 1
    return found


class RoomToRead:
    """What one flow's passes may read by its rates; it learns how large records are."""

    def __init__(self) -> None:
        self._nbytes: Dict[int, float] = {}
        self._last: Dict[int, int] = {}

    def room(self, rates: TaskRates, offsets: int) -> Room:
        """For the next pass, which is to have at most `offsets`; none for what is owed."""
        of_topics = {number: self._offsets(number, share) for number, share in rates.topics.items()}
        most = [offsets] if rates.flow is None else [offsets, self._offsets(FLOW, rates.flow)]
        if rates.pass_bytes is not None:
            most.append(self._worth(PASS, rates.pass_bytes))
        return Room(min(most), of_topics, rates.rate_of)

    def learn(self, nbytes: Mapping[int, int], offsets: Mapping[int, int]) -> None:
        """What was read by a pass, and from how many offsets, by the number of the rate."""
        for number, count in offsets.items():
            if count > 0:
                self._last[number] = count
                self._nbytes[number] = nbytes.get(number, 0) / count

    def _offsets(self, number: int, share: RateShare) -> int:
        return 0 if share.balance < 0 else self._worth(number, share.rate * PASS_SECONDS)

    def _worth(self, number: int, nbytes: float) -> int:
        each, last = self._nbytes.get(number, LARGEST_RECORD), self._last.get(number)
        found = int(nbytes / each) if each else None
        grown = None if last is None else last * GROWTH
        return max(1, min(value for value in (found, grown) if value is not None))


def owed(rates: TaskRates) -> Dict[int, float]:
    """For how many seconds the rates that are in debt admit nothing, by number."""
    shares: Dict[int, Optional[RateShare]] = {FLOW: rates.flow, **rates.topics}
    return {n: -each.balance / each.rate for n, each in shares.items() if each is not None and each.balance < 0}


def offsets_by_rate(ranges: Sequence[Tuple[str, int]], rates: TaskRates) -> Dict[int, int]:
    """How many offsets of a pass each rate counts: `ranges` are topics of the source with so many offsets each."""
    found = {FLOW: 0, PASS: 0}
    for topic, count in ranges:
        numbers = [FLOW, PASS] + ([rates.rate_of[topic]] if topic in rates.rate_of else [])
        for number in numbers:
            found[number] = found.get(number, 0) + count
    return found


def together(parts: Sequence[TaskRates]) -> TaskRates:
    """The shares of all tasks together; what a pass may write is shared out among those of this stage as before."""
    most = [part.pass_bytes for part in parts if part.pass_bytes is not None]
    numbers = {number for part in parts for number in part.topics}
    return TaskRates(
        flow=_sum([part.flow for part in parts]),
        topics={n: _sum([part.topics.get(n) for part in parts]) or RateShare(0.0) for n in numbers},
        rate_of={topic: number for part in parts for topic, number in part.rate_of.items()},
        pass_bytes=sum(most) // len(most) if most else None,
    )


def _sum(shares: Sequence[Optional[RateShare]]) -> Optional[RateShare]:
    given = [share for share in shares if share is not None]
    return RateShare(sum(each.rate for each in given), sum(each.balance for each in given)) if given else None
