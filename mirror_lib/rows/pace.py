"""Keeps micro-batches of rows to the flow's rates: how many offsets one may have, and how long to wait behind it.

Spark reads the rows of a micro-batch at full speed. So it is the micro-batch that is bounded: it has about five
seconds of the rates, and what it read is paid for before the next one. Keys, values, headers and what Kafka puts around
a record count, unpacked and before anything is left out: over the wire it is less where batches are compressed.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Collection, Dict, Optional

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.replication.copy_hours import Halt
from mirror_lib.replication.flow_rates import FlowRates
from mirror_lib.replication.messages import nothing_copied
from mirror_lib.replication.quotas import FLOW, Fetching, RateShare, TaskRates

BATCH_SECONDS = 5.0
# Where no rate bounds it. Some seconds' worth, where a micro-batch costs one besides its rows.
MOST_OFFSETS = 1_000_000
FEWEST_OFFSETS = 1_000
# Nobody knows how large records are before the first micro-batch: as large as brokers take them, by default. Later ones
# are at most so many times as large.
LARGEST_RECORD = 1024 * 1024
GROWTH = 20
# A query goes on with its bound unless it should be so many times smaller or larger.
RESIZE = 3
# So long at once, for a stop to be heard.
WAIT_SECONDS = 0.5
# Among the numbers of rates, the bytes of a micro-batch (`batch.max.bytes`).
BATCH = -2
# Lengths, deltas and attributes of a record (format v2), and its part of a batch's header.
AROUND = 12
# Spark compiles these; it runs a lambda row by row, so the bytes of headers are counted in one text.
_HEADERS = tuple(f"octet_length(array_join(cast(headers.{part} as array<string>), ''))" for part in ("key", "value"))
_CONTENT = " + ".join(f"coalesce({part}, 0)" for part in ("octet_length(key)", "octet_length(value)", *_HEADERS))
_BYTES = f"cast({AROUND} + {_CONTENT} as bigint)"


class RowPace:
    """One flow's in one driver's life. Not thread-safe. `rates` keeps the account."""

    def __init__(self, flow: ReplicationFlow, rates: FlowRates) -> None:
        self._seconds = flow.batch_max_seconds
        self._rates = rates
        self._standing: TaskRates = rates.standing(())
        self._observed: Optional[Observation] = None
        self._most = MOST_OFFSETS
        # Bytes by number of the rate for each offset of a micro-batch.
        self._nbytes: Dict[int, float] = {}
        self._last = 0
        self._waited: Dict[int, float] = {}

    def offsets(self, topics: Collection[str]) -> int:
        """How many offsets a micro-batch over these topics may have now."""
        self._standing = self._rates.standing(topics)
        found = [self._most]
        for number, nbytes in self._bounds().items():
            each = self._nbytes.get(number, LARGEST_RECORD)
            worth = nbytes / each if each else float(MOST_OFFSETS)
            found.append(int(min(worth, self._last * GROWTH) if self._last else worth))
        return max(1, min(found))

    def resize(self, present: int, topics: Collection[str]) -> bool:
        """Whether micro-batches of at most `present` offsets had better have another bound."""
        wanted = self.offsets(topics)
        return wanted * RESIZE <= present or (wanted >= present * RESIZE and self._last * 2 >= present)

    def counted(self, rows: DataFrame, topics: Collection[str]) -> DataFrame:
        """`rows` of Spark's Kafka source, of which the next action counts the bytes."""
        rates = self._standing = self._rates.standing(topics)
        self._observed = None
        if not self._bounds():
            return rows
        sums = [F.sum(F.expr(_BYTES)).alias(str(FLOW))]
        for number in rates.topics:
            own = F.col("topic").isin([topic for topic, each in rates.rate_of.items() if each == number])
            sums.append(F.sum(F.when(own, F.expr(_BYTES))).alias(str(number)))
        self._observed = Observation()
        return rows.observe(self._observed, *sums)

    def pay(self, offsets: int, seconds: float) -> None:
        """The action has ended well: take what it read from the account."""
        slow, quick = seconds > self._seconds * RESIZE, seconds * RESIZE < self._seconds
        if slow or (quick and offsets * 2 >= self._most):
            wanted = int(offsets / max(seconds, 0.1) * self._seconds)
            self._most = max(FEWEST_OFFSETS, min(wanted, MOST_OFFSETS))
        if self._observed is None:
            self._last = offsets
            return
        found = {int(number): int(count or 0) for number, count in self._observed.get.items()}
        self._rates.learn([replace(nothing_copied(0), fetching=Fetching(found))])
        if offsets > 0:
            self._last = offsets
            self._nbytes = {number: count / offsets for number, count in {**found, BATCH: found[FLOW]}.items()}

    def wait(self, stop: Halt) -> None:
        """Return when nothing is owed, or all is to end."""
        self._waited = {}
        while not stop.is_set():
            owed = self._owed()
            if not owed:
                return
            seconds = min([*owed.values(), WAIT_SECONDS])
            time.sleep(seconds)
            for number in owed:
                self._waited[number] = self._waited.get(number, 0.0) + seconds

    def word(self, seconds: float) -> Optional[str]:
        """What to say of a micro-batch of `seconds` behind the last wait; `None` where no rate held the flow back."""
        told = replace(nothing_copied(0), fetching=Fetching({}, self._waited))
        return self._rates.word([told], seconds + max(self._waited.values(), default=0.0))

    def _bounds(self) -> Dict[int, float]:
        rates = self._standing
        shares: Dict[int, Optional[RateShare]] = {FLOW: rates.flow, **rates.topics}
        found = {number: share.rate * BATCH_SECONDS for number, share in shares.items() if share is not None}
        return found if rates.pass_bytes is None else {**found, BATCH: float(rates.pass_bytes)}

    def _owed(self) -> Dict[int, float]:
        """For how many seconds the rates that are in debt admit nothing, by number."""
        rates = self._standing = self._rates.standing(self._standing.rate_of)
        shares: Dict[int, Optional[RateShare]] = {FLOW: rates.flow, **rates.topics}
        return {n: -each.balance / each.rate for n, each in shares.items() if each is not None and each.balance < 0}
