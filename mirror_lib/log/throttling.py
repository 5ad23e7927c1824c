"""Brokers' quotas (KIP-13, KIP-219): answers that say how long to be silent in; requests that wait until then out.

The library fails a request to a broker that throttles the client. A lane would take that for a broken connection, fence
and begin anew, with each throttled answer.
"""

from __future__ import annotations

import time
from typing import Any, Deque, Optional

from kafka.future import Future
from kafka.net.connection import KafkaConnection


class Throttle:
    """How long the brokers of one cluster have kept a client waiting. What overlaps is counted once."""

    def __init__(self) -> None:
        self._seconds = self._until = self._taken = 0.0

    def told(self, now: float, seconds: float) -> None:
        """A broker asked at `now` (`time.monotonic()`) for silence of so many seconds."""
        until = max(self._until, now + seconds)
        self._seconds += until - max(now, self._until)
        self._until = until

    def asked_for(self) -> float:
        """Seconds of silence that brokers have asked for so far."""
        return self._seconds

    def taken(self, now: float) -> float:
        """Seconds of silence up to `now`, from when this was asked the last time on."""
        before, self._taken = self._taken, self._seconds - self.left(now)
        return self._taken - before

    def left(self, now: float) -> float:
        """Seconds until every broker may be spoken to."""
        return max(0.0, self._until - now)


class PatientConnection(KafkaConnection):  # type: ignore[misc]  # kafka-python has no types
    """A connection that keeps requests, in order, while its broker throttles this client.

    What is in flight then gets as much more time: the broker reads nothing from the connection meanwhile.
    """

    throttle: Throttle
    _silent_until = 0.0

    @property
    def _silent(self) -> bool:
        return self._silent_until > 0.0

    def send_request(self, request: Any, request_timeout_ms: Optional[float] = None) -> Any:
        """As the library's."""
        if not self._silent or self.closed:
            return super().send_request(request, request_timeout_ms)
        future = Future()
        self._request_buffer.append((request, future, self._timeout_at(self._silent_until, request_timeout_ms)))
        return future

    def send_buffered(self) -> None:
        """As the library's, but not before the broker listens again."""
        if not self._silent:
            super().send_buffered()

    def _maybe_throttle(self, response: Any) -> None:
        seconds = (getattr(response, "throttle_time_ms", 0) or 0) / 1000
        if seconds <= 0:
            return
        now = time.monotonic()
        self.throttle.told(now, seconds)
        self._give_time(seconds)
        if now + seconds > self._silent_until:
            self._silent_until = now + seconds
            self.net.call_at(self._silent_until, self._listens_again)

    def _give_time(self, seconds: float) -> None:
        waiting: Deque[Any] = self.in_flight_requests
        for _ in range(len(waiting)):
            number, future, sent, until, timer = waiting.popleft()
            timer = self.net.reschedule(until + seconds, timer)
            waiting.append((number, future, sent, until + seconds, timer))

    def _listens_again(self) -> None:
        if time.monotonic() < self._silent_until:
            return  # it asked for more meanwhile, which has a call of its own
        self._silent_until = 0.0
        if not (self.initializing or self._reauth.is_reauthenticating):
            self.send_buffered()
