"""Limits what a task fetches to its share of the flow's rates, with token buckets whose clock the caller gives. Pure.

The shares of a stage's tasks add up to the flow's rate, so it holds however many of them run at the same time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.fetcher import FETCH_BYTES, PARTITION_FETCH_BYTES, Grant

# A task with almost nothing to do still gets this fraction of an equal share: records may come.
LEAST_SHARE = 0.05

# The flow's own rate, among the numbers of topic rates.
FLOW = -1

# Bytes to copy, by topic rate; `None` is for topics without one.
Load = Mapping[Optional[int], float]


@dataclass(frozen=True)
class RateQuota:
    """A rate in bytes a second, and the bytes that may be fetched at once. A negative balance is paid back first."""

    rate: float
    balance: float = 0.0


@dataclass(frozen=True)
class TaskRates:
    """A task's shares: of the flow's rate, of each topic rate, and of a cycle's byte limit.

    `rate_of` is the number of the topic rate for each source topic that has one.
    """

    flow: Optional[RateQuota] = None
    topics: Mapping[int, RateQuota] = field(default_factory=dict)
    rate_of: Mapping[str, int] = field(default_factory=dict)
    cycle_bytes: Optional[int] = None


NO_RATES = TaskRates()


@dataclass(frozen=True)
class Fetching:
    """The bytes fetched since the last report, by topic rate and in total (`FLOW`), and for how long a rate delayed the
    task.

    A batch is counted as received, including a partial one that is fetched again. `left` is the balance of the task's
    buckets at the time of the report, by rate, less requested bytes that may still arrive.
    """

    nbytes: Mapping[int, int] = field(default_factory=dict)
    held_seconds: Mapping[int, float] = field(default_factory=dict)
    left: Mapping[int, float] = field(default_factory=dict)


def weights(loads: Sequence[Load], rates: Sequence[float], seconds: float) -> List[float]:
    """The fraction of the flow's rate for each task; they add up to 1.

    Of topics with a rate, only the bytes that the rate admits in `seconds` count, not their whole backlog.
    """
    passing: Dict[Optional[int], float] = {None: 1.0}
    for number, rate in enumerate(rates):
        waiting = sum(load.get(number, 0.0) for load in loads)
        passing[number] = min(1.0, rate * seconds / waiting) if waiting else 1.0
    return _parts([sum(nbytes * passing[number] for number, nbytes in load.items()) for load in loads])


def parts_of_rate(loads: Sequence[Load], number: int) -> List[float]:
    """The fraction of a topic rate for each task: 0 for tasks without such topics; the others add up to 1."""
    having = [load[number] for load in loads if number in load]
    parts = iter(_parts(having))
    return [next(parts) if number in load else 0.0 for load in loads]


def _parts(amounts: Sequence[float]) -> List[float]:
    if not amounts:
        return []
    mean = sum(amounts) / len(amounts)
    raised = [amount + LEAST_SHARE * mean for amount in amounts] if mean else [1.0] * len(amounts)
    return [amount / sum(raised) for amount in raised]

NOTHING_FETCHED = Fetching()


def fetching_from(fields: Mapping[str, Mapping[str, float]]) -> Fetching:
    """Restore a `Fetching` from JSON, which cannot have numbers as keys."""
    nbytes, held, left = fields["nbytes"], fields["held_seconds"], fields["left"]
    return Fetching(
        {int(number): int(count) for number, count in nbytes.items()},
        {int(number): float(seconds) for number, seconds in held.items()},
        {int(number): float(balance) for number, balance in left.items()},
    )


def joined(parts: Sequence[Tuple[int, Fetching]]) -> Tuple[Dict[int, int], Dict[int, float]]:
    """The bytes by rate over all reports of tasks, each with its number, and the delay of the task that was delayed
    longest."""
    nbytes: Dict[int, int] = {}
    by_task: Dict[Tuple[int, int], float] = {}
    for task, part in parts:
        for number, count in part.nbytes.items():
            nbytes[number] = nbytes.get(number, 0) + count
        for number, seconds in part.held_seconds.items():
            by_task[(task, number)] = by_task.get((task, number), 0.0) + seconds
    held: Dict[int, float] = {}
    for (_, number), seconds in by_task.items():
        held[number] = max(held.get(number, 0.0), seconds)
    return nbytes, held


class TokenBucket:
    """Fills with `rate` bytes a second, up to `burst_seconds` of them. `balance` is its content at `now`.

    Received bytes are deducted afterwards, since only the broker knows how large a batch is. The balance may then be
    negative, and no bytes are granted until it is paid back.
    """

    def __init__(self, rate: float, balance: float, now: float, burst_seconds: float = 1.0) -> None:
        self.rate = rate
        self.size = rate * burst_seconds
        self._balance = min(balance, self.size)
        self._at = now
        self._reserved = 0.0

    def balance(self, now: float) -> float:
        """Its content, without deducting reservations."""
        self._balance = min(self.size, self._balance + self.rate * max(0.0, now - self._at))
        self._at = max(self._at, now)
        return self._balance

    def free(self, now: float) -> float:
        """How many bytes may be requested now; negative after more was received than the bucket had."""
        return self.balance(now) - self._reserved

    def reserve(self, nbytes: float) -> None:
        """Reserve the bytes of a request."""
        self._reserved += nbytes

    def settle(self, reserved: float, brought: float, now: float) -> None:
        """Replace a reservation of `reserved` bytes by the bytes that the answer brought."""
        self._reserved -= reserved
        self.spend(brought, now)

    def spend(self, nbytes: float, now: float) -> None:
        """Deduct bytes that were spent now."""
        self._balance = self.balance(now) - nbytes

    def spend_over_time(self, nbytes: float, now: float) -> None:
        """Deduct bytes that were spent since the balance was last read. The bucket overflows only after that: otherwise
        a payment after ten seconds would be set against one second of the rate."""
        self._balance = min(self.size, self._balance + self.rate * max(0.0, now - self._at) - nbytes)
        self._at = max(self._at, now)

    def forget_reserved(self) -> None:
        """Cancel reservations: no answer will come to the request."""
        self._reserved = 0.0


# The minimum request, however low the rate: each answer may end in a partial batch, which is fetched in vain.
WORTH_ASKING_BYTES = 1024 * 1024
NOTHING = Grant(0, {})

class FetchQuota:
    """The fetch quota of one attempt. A `retried` one starts without burst: the earlier attempt may have used it."""

    def __init__(self, rates: TaskRates, retried: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._rates = rates
        self._clock = clock
        now = clock()

        def bucket(share: RateQuota) -> TokenBucket:
            return TokenBucket(share.rate, min(share.balance, 0.0) if retried else share.balance, now)

        self._buckets: Dict[int, TokenBucket] = {number: bucket(share) for number, share in rates.topics.items()}
        if rates.flow is not None:
            self._buckets[FLOW] = bucket(rates.flow)
        self._cycle_left = rates.cycle_bytes
        # Partitions whose last answer was empty are expected to bring little.
        self._busy: Set[TopicPartition] = set()
        self._nbytes: Dict[int, int] = {}
        self._held: Dict[int, float] = {}
        self._held_from: Dict[int, float] = {}

    def begin_cycle(self) -> None:
        """Count the bytes of a cycle from 0 again."""
        self._cycle_left = self._rates.cycle_bytes

    def cycle_is_full(self) -> bool:
        """Whether the cycle has fetched as many bytes as it may."""
        return self._cycle_left is not None and self._cycle_left <= 0

    def forget_asked(self) -> None:
        """Cancel requests to which no answer will come."""
        for bucket in self._buckets.values():
            bucket.forget_reserved()

    def grant(self, wanted: Sequence[TopicPartition], brokers: int) -> Grant:
        """The bytes to request now from one of `brokers` brokers; none while a rate delays the task."""
        if not self._buckets and self._cycle_left is None:
            return Grant(FETCH_BYTES, dict.fromkeys(wanted, PARTITION_FETCH_BYTES))
        now = self._clock()
        total = self._remaining(FLOW, FETCH_BYTES, brokers, now)
        if self._cycle_left is not None:
            total = min(total, max(0, self._cycle_left))
        each = self._each(wanted, total, brokers, now) if total else {}
        if not each:
            return NOTHING
        granted = Grant(total, each)
        for number, nbytes in self._reserved(granted).items():
            self._buckets[number].reserve(nbytes)
        return granted

    def settle(self, granted: Grant, brought: Mapping[TopicPartition, int]) -> None:
        """Account for the answer to a granted request, by partition."""
        counted = self._counted(brought)
        for number, nbytes in counted.items():
            self._nbytes[number] = self._nbytes.get(number, 0) + nbytes
        if self._cycle_left is not None:
            self._cycle_left -= counted[FLOW]
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
        """Whether a rate delays the task."""
        return bool(self._held_from)

    def taken(self) -> Fetching:
        """The bytes fetched since the last call, how long rates delayed the task, and the remaining balance of its
        shares."""
        now = self._clock()
        for number in list(self._held_from):
            self._held[number] = self._held.get(number, 0.0) + now - self._held_from[number]
            self._held_from[number] = now
        left = {number: bucket.free(now) for number, bucket in self._buckets.items()}
        found = Fetching(dict(self._nbytes), dict(self._held), left)
        self._nbytes, self._held = {}, {}
        return found

    def _each(
        self, wanted: Sequence[TopicPartition], total: int, brokers: int, now: float
    ) -> Dict[TopicPartition, int]:
        by_limit: Dict[Optional[int], List[TopicPartition]] = {}
        for partition in wanted:
            by_limit.setdefault(self._rates.rate_of.get(partition[0]), []).append(partition)
        most = {each: min(PARTITION_FETCH_BYTES, total) for each in by_limit.pop(None, ())}
        for number, partitions in by_limit.items():
            if number is not None:
                remaining = self._remaining(number, total, brokers, now)
                most.update(self._shared_out(partitions, remaining) if remaining else {})
        return {each: most[each] for each in wanted if each in most}

    def _shared_out(self, partitions: Sequence[TopicPartition], remaining: int) -> Dict[TopicPartition, int]:
        """At most `remaining` bytes for all `partitions`, half of them for partitions that had data lately."""
        busy = [each for each in partitions if each in self._busy]
        idle = len(partitions) - len(busy)
        for_busy = remaining // 2 if idle else remaining
        most = {each: _rounded(for_busy / len(busy)) for each in busy}
        of_idle = _rounded((remaining - for_busy * bool(busy)) / idle) if idle else 0
        return {each: min(PARTITION_FETCH_BYTES, most.get(each, of_idle)) for each in partitions}

    def _remaining(self, number: int, most: int, brokers: int, now: float) -> int:
        """How many bytes a rate admits at once; 0 while waiting is better."""
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
    """Round down to a power of two: in a fetch session each changed size must be sent."""
    whole = max(1, int(nbytes))
    return 1 << (whole.bit_length() - 1)
