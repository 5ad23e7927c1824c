"""The outside observer, the same for every engine: it polls the target's end offsets and looks into /proc.

A running process in, samples out; `figures` makes sense of them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, List, Sequence

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.bench.figures import Seen, Used
from tests.bench.processes import SessionMeter, cpu_of
from tests.lab.brokers import KafkaBroker
from tests.lab.checkout import LabError

PATIENCE_SECONDS = 120.0
END_SECONDS = 60.0
OFFSETS_EVERY = 0.025
# A look at a thousand partitions is work for the broker too.
MANY, OFFSETS_OF_MANY_EVERY = 100, 0.2
PROCESSES_EVERY = 0.2


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

    def delete(self) -> None:
        self._admin.delete_topics([self.name])[self.name].result(30)


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

    def until_copied(self, records: int) -> None:
        """Look until so many records are there, markers included. Raises `LabError` where the copy stands still."""
        while self._look() < records:
            code = self.process.poll()
            if code:
                raise LabError(f"{self.remote.name}: the copying process ended with exit code {code}")
            if code == 0 and self._look() < records:
                raise LabError(f"{self.remote.name}: the copying process is done with {self._look()} of {records}")
            if time.monotonic() > self._patient_until:
                raise LabError(f"{self.remote.name}: {self._look()} of {records} records, and no more are coming")
            time.sleep(self._pause)

    def until_ended(self) -> None:
        """Look until the process has ended; it must end well."""
        deadline = time.monotonic() + END_SECONDS
        while self.process.poll() is None:
            if time.monotonic() > deadline:
                raise LabError(f"{self.remote.name}: the copying process does not end")
            self._look()
            time.sleep(self._pause)
        if self.process.returncode:
            raise LabError(f"{self.remote.name}: the copying process ended with {self.process.returncode}")
        self._look()

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
