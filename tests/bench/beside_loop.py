"""`make bench`: what the main job copies a second on this machine, beside Kafka's own Java clients on the same brokers.

Figures are of one machine in one run: read the ratios. Both brokers, the job and everything else share its cores.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence

from confluent_kafka import Producer

from mirror_lib.columns import aligned
from mirror_lib.progress import grouped, size
from tests.lab.brokers import JARS, KafkaBroker, clusters, java_command
from tests.lab.checkout import CACHE, ROOT, LabError
from tests.lab.demo import started

PARTITIONS = 4
LANES = 2
# Large batches, as a busy topic has them; a fetch holds many.
PRODUCER = {"linger.ms": 50, "batch.size": 131_072, "queue.buffering.max.messages": 1_000_000}

CONFIG = """\
clusters:
  primary: {{bootstrap.servers: "{source}"}}
  backup: {{bootstrap.servers: "{target}"}}
flows:
  primary->backup:
    topics: [{topic}]
    tasks.max: {lanes}
    replication.factor: 1
state: {state}
trigger: availableNow
"""


@dataclass(frozen=True)
class Case:
    """A topic to fill: `records` of about `record_bytes` each."""

    topic: str
    what: str
    records: int
    record_bytes: int
    codec: str


CASES = (
    Case("bytes100", "100 B", 6_000_000, 100, "none"),
    Case("bytes1000", "1 KB", 1_000_000, 1000, "none"),
    Case("json", "1 KB JSON, zstd", 1_000_000, 1000, "zstd"),
)


@dataclass(frozen=True)
class Measured:
    """Of one case: records a second, and the bytes of record batches a second where they are known."""

    stage: str
    records: int
    seconds: float
    bytes: int = 0

    @property
    def rate(self) -> float:
        """Records a second."""
        return self.records / self.seconds


def run() -> int:
    """Fill, copy, measure each case; print one table."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=CACHE) as folder, clusters(
        ["primary", "backup"], Path(folder), java_options=[]
    ) as brokers:
        rows: List[Sequence[str]] = [
            ("DATA", "STAGE", "RECORDS", "SECONDS", "RECORDS/S", "BATCH BYTES/S", "BESIDE THE LOOP")
        ]
        for case in CASES:
            fill(brokers[0], case)
            print(f"filled {case.topic}: {grouped(case.records)} records", flush=True)
            results = measure(brokers[0], brokers[1], case, Path(folder))
            rows += [row(case, result, results[0].rate) for result in results]
    print(f"\n{os.cpu_count()} cores, {LANES} lanes, {PARTITIONS} partitions; load average {os.getloadavg()[0]:.1f}\n")
    print("\n".join(aligned(rows, right=range(2, 7))))
    return 0


def fill(broker: KafkaBroker, case: Case) -> None:
    broker.create_topic(case.topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": case.codec, **PRODUCER})
    failed: List[str] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(str(error))

    noise = os.urandom(case.record_bytes * 64)
    for number in range(case.records):
        value = _value(case, number, noise)
        while True:
            try:
                producer.produce(case.topic, value, partition=number % PARTITIONS, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        if not number % 1000:
            producer.poll(0)
    producer.flush()
    if failed:
        raise LabError(f"{len(failed)} records were not delivered: {failed[0]}")


def _value(case: Case, number: int, noise: bytes) -> bytes:
    if case.codec == "none":
        start = number % 64
        return noise[start : start + case.record_bytes]
    # Half of it repeats from record to record and half does not, as in events with names and ids.
    start = (number * 37) % (len(noise) - 200)
    varied = noise[start : start + 200].hex()
    return json.dumps({"id": number, "kind": "order placed", "customer": varied, "note": "n" * 480}).encode()


def measure(source: KafkaBroker, target: KafkaBroker, case: Case, folder: Path) -> List[Measured]:
    """The Java loop first, as the scale; then the job."""
    return [java_loop(source, target, case, folder), *mirror(source, target, case, folder)]


def java_loop(source: KafkaBroker, target: KafkaBroker, case: Case, folder: Path) -> Measured:
    """One plain KafkaConsumer that hands each record to one KafkaProducer."""
    target.create_topic(f"loop.{case.topic}", PARTITIONS)
    program = str(ROOT / "tests" / "bench" / "CopyLoop.java")
    arguments = [source.bootstrap, target.bootstrap, case.topic, f"loop.{case.topic}", str(case.records), case.codec]
    done = subprocess.run(
        [java_command(), "-cp", str(JARS / "*"), program, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise LabError(f"the Java loop failed: {done.stderr.strip().splitlines()[-1:]}")
    return Measured("Java consumer to producer", case.records, float(done.stdout.split()[-1]))


def mirror(source: KafkaBroker, target: KafkaBroker, case: Case, folder: Path) -> Iterator[Measured]:
    """The whole job as a user starts it; the copy stage is what its status lines say."""
    config = folder / f"{case.topic}.yaml"
    config.write_text(
        CONFIG.format(
            source=source.bootstrap, target=target.bootstrap, topic=case.topic, lanes=LANES, state=folder / case.topic
        )
    )
    began = time.monotonic()
    documents = list(_documents(config, folder / "mirror.log"))
    whole = time.monotonic() - began
    passes = [each for each in documents if "batch_id" in each and each["records"]]
    records = sum(each["records"] for each in passes)
    if records != case.records:
        raise LabError(f"the job copied {records} records of {case.records} (log: {folder / 'mirror.log'})")
    nbytes = sum(each["bytes"] for each in passes)
    yield Measured("copy stage", records, sum(each["copy_seconds"] for each in passes), nbytes)
    yield Measured("passes, with ledger", records, sum(each["seconds"] for each in passes), nbytes)
    yield Measured("whole run", records, whole, nbytes)


def _documents(config: Path, log: Path) -> Iterator[Dict[str, Any]]:
    with log.open("w") as errors, started(
        ["./spark-submit.sh", "jobs/mirror.py", str(config), "--json"], errors
    ) as job:
        assert job.stdout is not None
        for line in job.stdout:
            if line.startswith("{"):
                yield json.loads(line)


def row(case: Case, result: Measured, scale: float) -> Sequence[str]:
    return (
        case.what,
        result.stage,
        grouped(result.records),
        f"{result.seconds:.2f}",
        grouped(round(result.rate)),
        size(result.bytes / result.seconds) if result.bytes else "",
        f"{result.rate / scale:.1f}x",
    )


if __name__ == "__main__":
    try:
        sys.exit(run())
    except LabError as error:
        print(f"bench: {error}", file=sys.stderr)
        sys.exit(1)
