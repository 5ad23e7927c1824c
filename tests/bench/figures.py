"""What one copy did, from what an outside observer saw of it: samples in, figures out. Pure.

Steady state is from 20 % to 80 % of the records for every engine, so it knows no start-up and no end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, NamedTuple, Sequence, Tuple

FROM, UNTIL = 0.2, 0.8


class Seen(NamedTuple):
    """At `at`: the records that are readable on the target. Times are seconds on one clock."""

    at: float
    records: float


class Used(NamedTuple):
    """At `at`: CPU seconds so far of the copying processes and of the brokers, memory of the former right now."""

    at: float
    cpu: float
    broker_cpu: float
    resident_bytes: int


@dataclass(frozen=True)
class Observed:
    """One copy of `records` records. Seconds count from the command; `CPU` is seconds per million records.

    `steady_` is between 20 % and 80 % of the records, `whole_` from the command until the last one is readable.
    """

    records: int
    last_seconds: float
    steady_rate: float
    steady_cpu: float
    steady_broker_cpu: float
    whole_cpu: float
    peak_bytes: int

    @property
    def whole_rate(self) -> float:
        """Records a second from the command to the last record readable."""
        return self.records / self.last_seconds


def without_markers(samples: Sequence[Seen], records: int) -> List[Seen]:
    """End offsets as counts of records: what a log has above `records` in the end are markers, which came first."""
    markers = samples[-1].records - records
    return [Seen(sample.at, max(0.0, sample.records - markers)) for sample in samples]


def scaled(samples: Sequence[Seen], times: int) -> List[Seen]:
    """Counts of records that were read, where one in `times` is copied."""
    return [Seen(sample.at, sample.records * times) for sample in samples]


def observed(began: float, records: int, samples: Sequence[Seen], used: Sequence[Used]) -> Observed:
    """The figures of one copy that began at `began`, whose last sample holds all `records`."""
    at_last = next(sample for sample in samples if sample.records >= records).at
    start = next(sample for sample in samples if sample.records >= FROM * records)
    end = next(sample for sample in samples if sample.records >= UNTIL * records)
    millions = (end.records - start.records) / 1e6
    cpu, broker_cpu = (_between(used, column, start.at, end.at) for column in ("cpu", "broker_cpu"))
    return Observed(
        records=records,
        last_seconds=at_last - began,
        steady_rate=(end.records - start.records) / (end.at - start.at) if end.at > start.at else 0.0,
        steady_cpu=cpu / millions if millions else 0.0,
        steady_broker_cpu=broker_cpu / millions if millions else 0.0,
        whole_cpu=_between(used, "cpu", began, at_last) / records * 1e6,
        peak_bytes=max((each.resident_bytes for each in used), default=0),
    )


def _between(used: Sequence[Used], column: str, start: float, end: float) -> float:
    points = [(each.at, getattr(each, column)) for each in used]
    return interpolated(points, end) - interpolated(points, start)


def interpolated(points: Sequence[Tuple[float, float]], at: float) -> float:
    """The value at `at` on the line through `points`, which are sorted; beyond them the nearest one's."""
    if at <= points[0][0]:
        return points[0][1]
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        if at <= x1:
            return y0 + (y1 - y0) * (at - x0) / (x1 - x0)
    return points[-1][1]
