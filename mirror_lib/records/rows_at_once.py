"""What passes wrote in, how many rows go to Python at once in the next one out. Pure.

Spark puts rows together by their number, and since 4.0 it also minds their bytes. Where it does not, rows that are too
large for their number are marked, a pass ends at one, and behind it a few rows go at once.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

# So much is to go at once, by the size of what was written lately; and at most so much, whatever the sizes are.
WANTED_BYTES, MOST_BYTES = 4 * 1024 * 1024, 32 * 1024 * 1024
FEWEST_ROWS, MOST_ROWS, ROWS_AT_FIRST = 32, 10_000, 500
# For so many passes behind a large row so few rows go at once; then a pass that ends early may be afforded.
FEW_ROWS, CAREFUL_PASSES = 8, 20


class AtOnce(NamedTuple):
    """At most `rows` rows. A row of more than `largest` bytes ends its task's pass; with None no row does."""

    rows: int = MOST_ROWS
    largest: Optional[int] = None


COUNTED = AtOnce()


class RowsAtOnce:
    """One flow's. `counts`: Spark minds bytes."""

    def __init__(self, counts: bool) -> None:
        self._counts = counts
        self._rows = ROWS_AT_FIRST
        self._careful = 0

    def next(self) -> AtOnce:
        """For the next pass."""
        if self._counts:
            return AtOnce(self._rows)
        return AtOnce(FEW_ROWS) if self._careful else AtOnce(self._rows, MOST_BYTES // self._rows)

    def learn(self, records: int, nbytes: int, large: bool) -> None:
        """What a pass wrote, and whether a `large` row ended it."""
        self._careful = CAREFUL_PASSES if large else max(0, self._careful - 1)
        if records:
            self._rows = int(min(MOST_ROWS, max(FEWEST_ROWS, WANTED_BYTES * records / max(1, nbytes))))
