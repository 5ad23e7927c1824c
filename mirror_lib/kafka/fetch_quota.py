"""Limits what a task fetches to its share of the flow's rate, with a token bucket. The caller gives the clock."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Callable, Optional

# Only one request to a broker is in flight, so its response must be worth a long round trip.
FETCH_BYTES = 16 * 1024 * 1024
# With less than this, waiting is better, however low the rate: a response may end in a partial batch, which is fetched
# again.
WORTH_ASKING_BYTES = 1024 * 1024


@dataclass(frozen=True)
class RateQuota:
    """A rate in bytes a second, and the bytes that may be fetched at once. A negative balance is paid back first."""

    rate: float
    balance: float = 0.0


class TokenBucket:
    """Fills with `rate` bytes a second from `now` on, and holds at most one second of the rate.

    Bytes are spent after they were received, since only the broker knows how large a batch is. So the balance may be
    negative.
    """

    def __init__(self, rate: float, balance: float, now: float) -> None:
        self.rate = rate
        self._balance = balance
        self._at = now

    def balance(self, now: float) -> float:
        self.spend(0, now)
        return self._balance

    def spend(self, nbytes: float, now: float) -> None:
        """Deduct bytes that were spent since the last call. The bucket overflows only after that: otherwise bytes that
        were read for ten seconds would be set against one second of the rate."""
        self._balance = min(self.rate, self._balance + self.rate * max(0.0, now - self._at) - nbytes)
        self._at = max(self._at, now)


class FetchQuota:
    """The fetch quota of one attempt at a task; without a `share` it limits nothing. A `retried` attempt starts without
    savings: the earlier one may have spent them."""

    def __init__(
        self, share: Optional[RateQuota], retried: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._bucket: Optional[TokenBucket] = None
        if share is not None:
            balance = min(share.balance, 0.0) if retried else share.balance
            self._bucket = TokenBucket(share.rate, balance, clock())
        # Requested bytes that may still arrive.
        self._reserved = 0
        self._held_seconds = 0.0
        self._held_from: Optional[float] = None

    def grant(self, brokers: int) -> int:
        """The bytes to request now from one of `brokers` brokers; 0 while the rate delays the task. A broker sends at
        least one whole batch, also if the batch is larger."""
        if self._bucket is None:
            return FETCH_BYTES
        now = self._clock()
        most = self._bucket.rate / brokers
        free = min(self._bucket.balance(now) - self._reserved, most)
        if free < min(WORTH_ASKING_BYTES, most / 2):
            self._held_from = now if self._held_from is None else self._held_from
            return 0
        self._count_held(now)
        granted = max(1, min(FETCH_BYTES, int(free)))
        self._reserved += granted
        return granted

    def settle(self, granted: int, brought: int) -> None:
        """Replace the reservation of a granted request by the bytes that its response brought."""
        if self._bucket is not None:
            self._reserved -= granted
            self._bucket.spend(brought, self._clock())

    def forget_asked(self) -> None:
        """Cancel reservations: no response will come to the requests."""
        self._reserved = 0

    def held_seconds(self) -> float:
        if self._held_from is not None:
            self._count_held(self._clock())
        return self._held_seconds

    def balance(self) -> float:
        """What the task may still fetch now, and owes if it is negative."""
        return 0.0 if self._bucket is None else self._bucket.balance(self._clock()) - self._reserved

    def _count_held(self, now: float) -> None:
        if self._held_from is not None:
            self._held_seconds += now - self._held_from
        self._held_from = None
