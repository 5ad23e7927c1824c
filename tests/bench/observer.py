"""The outside observer, the same for every engine: it polls the target's end offsets, looks into /proc, and makes
figures of both. Steady state is from 20 % to 80 % of the records, so it knows no start-up and no end.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, List, NamedTuple, Sequence

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from numpy import interp

from tests.lab.brokers import KafkaBroker
from tests.lab.checkout import LabError
from tests.lab.processes import SessionMeter, cpu_of

PATIENCE_SECONDS = 120.0
OFFSETS_EVERY = 0.025
# A look at a thousand partitions is work for the broker too.
MANY, OFFSETS_OF_MANY_EVERY = 100, 0.2
PROCESSES_EVERY = 0.2
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
        return self.records / self.last_seconds


def records_read(samples: Sequence[Seen], copied: int, times: int) -> List[Seen]:
    """End offsets as counts of records read, where one in `times` is copied: what a log has above `copied` in the end
    are markers, which came first."""
    markers = samples[-1].records - copied
    return [Seen(sample.at, max(0.0, sample.records - markers) * times) for sample in samples]


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
    before, after = interp([start, end], [each.at for each in used], [getattr(each, column) for each in used])
    return float(after - before)


@dataclass
class RemoteTopic:
    """End offsets of a topic that may not be there yet."""

    broker: KafkaBroker
    name: str
    partitions: int
    _admin: AdminClient = field(init=False)

    def __post_init__(self) -> None:
        self._admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 0})
        self._there = False

    def end(self) -> int:
        """All partitions' end offsets added up: records and markers that are readable."""
        if not self._exists():
            return 0
        latest: Any = OffsetSpec.latest  # it has no types
        asked = {TopicPartition(self.name, number): latest() for number in range(self.partitions)}
        try:
            return sum(future.result().offset for future in self._admin.list_offsets(asked).values())
        except KafkaException:
            return 0  # it has no leader yet

    def _exists(self) -> bool:
        if not self._there:
            found = self._admin.list_topics(timeout=10).topics.get(self.name)
            self._there = found is not None and len(found.partitions) == self.partitions
        return self._there


@dataclass
class Watch:
    """One copy under way: `process` leads the session of what copies, `brokers` are the brokers' process ids."""

    remote: RemoteTopic
    process: Any
    brokers: Sequence[int]
    seen: List[Seen] = field(default_factory=list)
    used: List[Used] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._meter = SessionMeter(self.process.pid)
        self._patient_until = time.monotonic() + PATIENCE_SECONDS
        self._pause = OFFSETS_OF_MANY_EVERY if self.remote.partitions > MANY else OFFSETS_EVERY

    def until_copied(self, records: int, ends: bool) -> None:
        """Look until so many records are there, markers included, and a process that `ends` has ended. Raises
        `LabError` where the copy stands still or fails."""
        end, code = 0, None
        while end < records or (ends and code is None):
            code, end = self.process.poll(), self._look()
            found = f"{self.remote.name}: {end} of {records} records"
            if code or (code == 0 and end < records):
                raise LabError(f"{found}, and the copying process ended with exit code {code}")
            if time.monotonic() > self._patient_until:
                raise LabError(f"{found}, and no more are coming, or the copying process does not end")
            time.sleep(self._pause)

    def _look(self) -> int:
        end = self.remote.end()
        now = time.monotonic()
        if not self.seen or end > self.seen[-1].records:
            self._patient_until = now + PATIENCE_SECONDS
        self.seen.append(Seen(now, end))
        if not self.used or now - self.used[-1].at >= PROCESSES_EVERY:
            usage = self._meter.look()
            self.used.append(Used(usage.at, usage.cpu_seconds, cpu_of(self.brokers), usage.resident_bytes))
        return end


def settle(brokers: Sequence[int], seconds: float = 15.0) -> None:
    """Wait until the brokers have nothing left to do of what was before, a while at most."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        before = cpu_of(brokers)
        time.sleep(0.4)
        if cpu_of(brokers) - before < 0.04:
            return
