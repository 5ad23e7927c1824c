"""When a broker is asked again: what its last answer brought in, how long the next question waits out.

Records that trickle in are fetched a few at a time: a request for each would cost both clusters and the task more than
the records do.
"""

from __future__ import annotations

from typing import Dict

# Behind an answer that brought less, questions begin no sooner than so long after each other.
SMALL_BYTES = 64 * 1024
PAUSE_SECONDS = 0.005


class FetchPace:
    """One task's, by node id. Times are seconds of one clock."""

    def __init__(self) -> None:
        self._asked: Dict[int, float] = {}
        self._due: Dict[int, float] = {}

    def asked(self, node: int, now: float) -> None:
        """A question goes to the broker."""
        self._asked[node] = now

    def answered(self, node: int, brought: int) -> None:
        """Its answer is there, with so many bytes of records."""
        self._due[node] = self._asked[node] + (PAUSE_SECONDS if brought < SMALL_BYTES else 0.0)

    def wait(self, node: int, now: float) -> float:
        """Seconds until the broker may be asked; 0 where it may be now."""
        return max(0.0, self._due.get(node, now) - now)
