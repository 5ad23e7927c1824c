"""A rate in, how many bytes may be fetched now out: a token bucket whose clock is the caller's. Pure."""

from __future__ import annotations


class TokenBucket:
    """Fills with `rate` bytes a second, up to `burst_seconds` of them. `balance` is what is in it at `now`.

    What was brought is taken out afterwards, since only the broker knows how large a batch is: the balance may then be
    negative, and nothing more is given until that is paid.
    """

    def __init__(self, rate: float, balance: float, now: float, burst_seconds: float = 1.0) -> None:
        self.rate = rate
        self.size = rate * burst_seconds
        self._balance = min(balance, self.size)
        self._at = now
        self._reserved = 0.0

    def balance(self, now: float) -> float:
        """What is in it, without regard to what is reserved."""
        self._balance = min(self.size, self._balance + self.rate * max(0.0, now - self._at))
        self._at = max(self._at, now)
        return self._balance

    def free(self, now: float) -> float:
        """How many bytes may be asked for now; negative where more was brought than there was."""
        return self.balance(now) - self._reserved

    def reserve(self, nbytes: float) -> None:
        """So many are asked for."""
        self._reserved += nbytes

    def settle(self, reserved: float, brought: float, now: float) -> None:
        """An answer to a question for `reserved` bytes brought so many."""
        self._reserved -= reserved
        self.spend(brought, now)

    def spend(self, nbytes: float, now: float) -> None:
        """Take bytes out that are gone."""
        self._balance = self.balance(now) - nbytes

    def forget_reserved(self) -> None:
        """No answer will come to what was asked."""
        self._reserved = 0.0
