"""Counts the bytes that a pass of rows reads of the source, within Spark. Rows in, the same rows out, a count beside.

They are counted before anything is left out of them. Keys, values, headers and what Kafka puts around a record count,
unpacked: what came over the wire is not known, and is less where batches are compressed.
"""

from __future__ import annotations

from typing import Dict, Optional

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from mirror_lib.records.pass_room import PASS
from mirror_lib.replicate.rates import FLOW, TaskRates

# Lengths, deltas and attributes of a record (format v2), and its part of a batch's header.
AROUND = 12
# Spark compiles these; it runs a lambda row by row, so the bytes of headers are counted in one text.
_HEADERS = tuple(f"octet_length(array_join(cast(headers.{part} as array<string>), ''))" for part in ("key", "value"))
_PARTS = ("octet_length(key)", "octet_length(value)", *_HEADERS)
# What a row holds: key, value and headers.
CONTENT_BYTES = " + ".join(f"coalesce({part}, 0)" for part in _PARTS)
_BYTES = f"cast({AROUND} + {CONTENT_BYTES} as bigint)"


class ReadBytes:
    """Of one pass. Without rates nothing is counted."""

    def __init__(self, rates: TaskRates) -> None:
        self._rates = rates
        self._observed: Optional[Observation] = None
        self._done = False

    def of(self, rows: DataFrame) -> DataFrame:
        """`rows` (KAFKA_ROWS_DDL), which the one action of the pass reads."""
        rates = self._rates
        if rates.flow is None and not rates.topics and rates.pass_bytes is None:
            return rows
        sums = [F.sum(F.expr(_BYTES)).alias(str(FLOW))]
        for number in rates.topics:
            own = F.col("topic").isin([topic for topic, each in rates.rate_of.items() if each == number])
            sums.append(F.sum(F.when(own, F.expr(_BYTES))).alias(str(number)))
        self._observed = Observation()
        return rows.observe(self._observed, *sums)

    def done(self) -> None:
        """The action has ended well; only then there is a count."""
        self._done = True

    def nbytes(self) -> Dict[int, int]:
        """By the number of the rate; nothing where the action failed."""
        if self._observed is None or not self._done:
            return {}
        found = {int(number): int(count or 0) for number, count in self._observed.get.items()}
        return {**found, PASS: found[FLOW]}
