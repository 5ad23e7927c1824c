"""What a task may fetch now: its share of the flow's rates and the partitions that want data in; how many bytes each
may bring out. Its clock is the caller's. Pure.
"""

from __future__ import annotations

import time
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Set

from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.fetcher import FETCH_BYTES, PARTITION_FETCH_BYTES, Grant
from mirror_lib.replication.quotas import FLOW, Fetching, RateShare, TaskRates
from mirror_lib.replication.token_bucket import TokenBucket

# Nobody asks for less where the rate allows more: each answer may end in a part of a batch, which is fetched in vain.
WORTH_ASKING_BYTES = 1024 * 1024
NOTHING = Grant(0, {})

class Gate:
    """One attempt's. A `retried` one begins without what had been saved up: the attempt before may have used it."""

    def __init__(self, rates: TaskRates, retried: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._rates = rates
        self._clock = clock
        now = clock()

        def bucket(share: RateShare) -> TokenBucket:
            return TokenBucket(share.rate, min(share.balance, 0.0) if retried else share.balance, now)

        self._buckets: Dict[int, TokenBucket] = {number: bucket(share) for number, share in rates.topics.items()}
        if rates.flow is not None:
            self._buckets[FLOW] = bucket(rates.flow)
        self._pass_left = rates.pass_bytes
        # Of partitions that brought nothing the last time little is expected.
        self._busy: Set[TopicPartition] = set()
        self._nbytes: Dict[int, int] = {}
        self._held: Dict[int, float] = {}
        self._held_from: Dict[int, float] = {}

    def begin_pass(self) -> None:
        """From here on the bytes of a pass are counted anew."""
        self._pass_left = self._rates.pass_bytes

    def pass_is_full(self) -> bool:
        """Whether the pass has fetched all that it may."""
        return self._pass_left is not None and self._pass_left <= 0

    def forget_asked(self) -> None:
        """No answer will come to what was asked."""
        for bucket in self._buckets.values():
            bucket.forget_reserved()

    def grant(self, wanted: Sequence[TopicPartition], brokers: int) -> Grant:
        """What one of `brokers` brokers may be asked for now; nothing where a bound holds the task back."""
        if not self._buckets and self._pass_left is None:
            return Grant(FETCH_BYTES, dict.fromkeys(wanted, PARTITION_FETCH_BYTES))
        now = self._clock()
        total = self._room(FLOW, FETCH_BYTES, brokers, now)
        if self._pass_left is not None:
            total = min(total, max(0, self._pass_left))
        each = self._each(wanted, total, brokers, now) if total else {}
        if not each:
            return NOTHING
        granted = Grant(total, each)
        for number, nbytes in self._reserved(granted).items():
            self._buckets[number].reserve(nbytes)
        return granted

    def settle(self, granted: Grant, brought: Mapping[TopicPartition, int]) -> None:
        """The answer to what was granted brought so many bytes."""
        counted = self._counted(brought)
        for number, nbytes in counted.items():
            self._nbytes[number] = self._nbytes.get(number, 0) + nbytes
        if self._pass_left is not None:
            self._pass_left -= counted[FLOW]
        if self._buckets:
            now = self._clock()
            self._busy = (self._busy - set(granted.each)) | {each for each, nbytes in brought.items() if nbytes}
            for number, reserved in self._reserved(granted).items():
                self._buckets[number].settle(reserved, counted.get(number, 0), now)

    def _counted(self, brought: Mapping[TopicPartition, int]) -> Dict[int, int]:
        counted: Dict[int, int] = {FLOW: sum(brought.values())}
        for (topic, _), nbytes in brought.items():
            number = self._rates.rate_of.get(topic)
            if number is not None:
                counted[number] = counted.get(number, 0) + nbytes
        return counted

    def holds(self) -> bool:
        """Whether a rate keeps the task waiting."""
        return bool(self._held_from)

    def taken(self) -> Fetching:
        """What was fetched since the last time that this was asked, and how long rates held the task back."""
        now = self._clock()
        for number in list(self._held_from):
            self._held[number] = self._held.get(number, 0.0) + now - self._held_from[number]
            self._held_from[number] = now
        found = Fetching(dict(self._nbytes), dict(self._held))
        self._nbytes, self._held = {}, {}
        return found

    def _each(
        self, wanted: Sequence[TopicPartition], total: int, brokers: int, now: float
    ) -> Dict[TopicPartition, int]:
        by_bound: Dict[Optional[int], List[TopicPartition]] = {}
        for partition in wanted:
            by_bound.setdefault(self._rates.rate_of.get(partition[0]), []).append(partition)
        most = {each: min(PARTITION_FETCH_BYTES, total) for each in by_bound.pop(None, ())}
        for number, partitions in by_bound.items():
            if number is not None:
                room = self._room(number, total, brokers, now)
                most.update(self._shared_out(partitions, room) if room else {})
        return {each: most[each] for each in wanted if each in most}

    def _shared_out(self, partitions: Sequence[TopicPartition], room: int) -> Dict[TopicPartition, int]:
        """No more than `room` together, whoever has something: half of it for those that brought something lately."""
        busy = [each for each in partitions if each in self._busy]
        idle = len(partitions) - len(busy)
        for_busy = room // 2 if idle else room
        most = {each: _rounded(for_busy / len(busy)) for each in busy}
        of_idle = _rounded((room - for_busy * bool(busy)) / idle) if idle else 0
        return {each: min(PARTITION_FETCH_BYTES, most.get(each, of_idle)) for each in partitions}

    def _room(self, number: int, most: int, brokers: int, now: float) -> int:
        """How many bytes a bound lets through at once, 0 while it is better to wait."""
        bucket = self._buckets.get(number)
        if bucket is None:
            return most
        each = bucket.size / brokers
        free = min(bucket.free(now), each)
        if free < min(WORTH_ASKING_BYTES, each / 2):
            self._held_from.setdefault(number, now)
            return 0
        held_from = self._held_from.pop(number, now)
        self._held[number] = self._held.get(number, 0.0) + now - held_from
        return max(1, min(most, int(free)))

    def _reserved(self, granted: Grant) -> Dict[int, int]:
        found = {FLOW: granted.total} if FLOW in self._buckets else {}
        for (topic, _), nbytes in granted.each.items():
            number = self._rates.rate_of.get(topic)
            if number is not None:
                found[number] = found.get(number, 0) + nbytes
        return found


def _rounded(nbytes: float) -> int:
    """Down to a power of two: within a fetch session each change has to be said."""
    whole = max(1, int(nbytes))
    return 1 << (whole.bit_length() - 1)
