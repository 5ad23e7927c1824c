"""`make bench-latency`: how long after its acknowledgement on the source a record is read on the target, by outside
clients, for this mirror in continuous mode and a tuned MirrorMaker 2, in turn.

RATES="1000 10000", SECONDS=600, ENGINES="mirror tuned". IDLE="0 10000": as many partitions of the flow stay without a
record. What was not copied exactly once ends the benchmark.

The two clients are processes of their own: one writes, one reads. Record *n* carries its number. Each leaves one 64-bit
time in ns for each number, or 0, in a file: the writer when the source acknowledged the record, the reader when it had
the copy. The reader also counts records it had twice.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from array import array
from functools import partial
from pathlib import Path
from typing import Any, Callable, ContextManager, Dict, List, Mapping, Sequence

from confluent_kafka import Consumer, Producer, TopicPartition

from mirror_lib.text import aligned, grouped
from tests.bench.engines import BROKER_JVM, config_of, job, mirrormaker, tuned_properties
from tests.bench.scale import BROKERS, PARTITIONS_OF_A_TOPIC, create
from tests.lab.brokers import KafkaBroker, child, clusters
from tests.lab.checkout import CACHE, LabError, ended
from tests.lab.processes import SessionMeter
from tests.lab.readers import consumer_of

PARTITIONS = 4
RECORD_BYTES = 200
# Before anything is counted, so that Java has compiled what it will.
WARM_UP_SECONDS = 15
PATIENCE_SECONDS = 120.0
STEADY_SECONDS = 1.0
NUMBER_BYTES = 8
SILENCE_SECONDS = 60.0
QUANTILES = ((0.5, "P50"), (0.9, "P90"), (0.99, "P99"), (0.999, "P99.9"), (1.0, "MAX"))


def run() -> int:
    """Every rate with every engine, beside each number of idle partitions; prints one table."""
    rates = [int(rate) for rate in os.environ.get("RATES", "1000 10000").split()]
    seconds = int(os.environ.get("SECONDS", "600"))
    engines = os.environ.get("ENGINES", "mirror tuned").split()
    head = ("RECORDS/S", "IDLE PARTITIONS", "", *(name for _, name in QUANTILES), "CPU SECONDS/MINUTE")
    rows: List[Sequence[str]] = [head]
    for idle in map(int, os.environ.get("IDLE", "0").split()):
        with tempfile.TemporaryDirectory(prefix="bench-", dir=CACHE) as folder, clusters(
            ["source", "target"], Path(folder), BROKERS if idle else {}, java_options=BROKER_JVM
        ) as (source, target):
            create(source, idle // PARTITIONS_OF_A_TOPIC)
            for rate in rates:
                for engine in engines:
                    own = Path(folder) / f"{engine}-{rate}"
                    own.mkdir()
                    figures = measured(source, target, own, engine, rate, seconds)
                    rows.append((grouped(rate), grouped(idle), engine, *figures))
                    print("  ".join(rows[-1]), flush=True)
    print(f"\nms, over {seconds} s; {os.cpu_count()} cores; load average {os.getloadavg()[0]:.1f}\n")
    print("\n".join(aligned(rows, right=[0, 1, *range(3, 9)])))
    return 0


def measured(
    source: KafkaBroker, target: KafkaBroker, folder: Path, engine: str, rate: int, seconds: int
) -> Sequence[str]:
    """The quantiles of one engine at one rate, in ms, and what its processes used."""
    topic = f"events.{engine}.{rate}"
    source.create_topic(topic, PARTITIONS)
    warm_up = rate * WARM_UP_SECONDS
    records = warm_up + rate * seconds
    with ENGINES[engine](source, target, folder, topic) as process:
        sent = steady(source, target, topic, process, folder)
        reader = client(["read", target.bootstrap, f"source.{topic}", PARTITIONS, records, folder / "read"])
        assert reader.stdout is not None and reader.stdout.readline() == "ready\n"
        meter = SessionMeter(process.pid)
        before = meter.look()
        arguments = [source.bootstrap, topic, PARTITIONS, rate, records, RECORD_BYTES]
        writer = client(["write", *arguments, folder / "written"])
        if writer.wait():
            raise LabError(f"the producer at {rate} records/s failed")
        after = meter.look()
        used = (after.cpu_seconds - before.cpu_seconds) / (after.at - before.at) * 60
        doubled, _ = reader.communicate()
    latencies = judged(folder, records, int(doubled or -1) - sent)[warm_up:]
    latencies.sort()
    found = [latencies[min(len(latencies) - 1, int(share * len(latencies)))] for share, _ in QUANTILES]
    return [*(f"{each / 1e6:.1f}" for each in found), f"{used:.1f}"]


def judged(folder: Path, records: int, doubled: int) -> List[int]:
    """Latency by record in ns; `LabError` unless each came exactly once; `doubled` counts those that came again."""
    written, seen = array("q", (folder / "written").read_bytes()), array("q", (folder / "read").read_bytes())
    lost = sum(1 for each in seen if not each)
    if lost or doubled:
        raise LabError(f"of {records} records {lost} did not come and {doubled} came twice ({folder})")
    return [there - here for here, there in zip(written, seen)]


def steady(source: KafkaBroker, target: KafkaBroker, topic: str, process: Any, folder: Path) -> int:
    """Write single records, each with the number 0, until one is copied within a second: what a start takes is over.

    How many were written.
    """
    producer = Producer({"bootstrap.servers": source.bootstrap})
    consumer = consumer_of(target, "latency", enable_partition_eof=False)
    consumer.subscribe([f"source.{topic}"])
    deadline, sent, seconds = time.monotonic() + PATIENCE_SECONDS, 0, PATIENCE_SECONDS
    while seconds > STEADY_SECONDS:
        sent += 1
        producer.produce(topic, bytes(8), partition=0)
        producer.flush(30)
        acknowledged = time.monotonic()
        while (message := consumer.poll(1.0)) is None or message.error():
            if process.poll() is not None or time.monotonic() > deadline:
                raise LabError(f"{topic} is not copied, or not soon (logs: {folder})")
        seconds = time.monotonic() - acknowledged
    consumer.close()
    return sent


def client(arguments: Sequence[object]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.bench.latency", *map(str, arguments)]
    return child(command, stdout=subprocess.PIPE, text=True)


def mirror(source: KafkaBroker, target: KafkaBroker, folder: Path, topic: str) -> ContextManager[Any]:
    """The main job in continuous mode."""
    servers = {"source": source.bootstrap, "target": target.bootstrap}
    topics, quiet = [topic.replace(".", "[.]"), "load[.].*"], {"emit.heartbeats.enabled": "false"}
    return job(folder, config_of(folder, servers, topics, "1 second", **quiet), "--json")


def tuned(source: KafkaBroker, target: KafkaBroker, folder: Path, topic: str) -> ContextManager[Any]:
    """MirrorMaker 2 with more tasks, no linger and larger fetches."""
    quick = {"emit.heartbeats.enabled": "false", "target.producer.linger.ms": "0"}
    topics = topic.replace(".", "\\.") + ",load\\..*"
    return mirrormaker(folder, {"source": source, "target": target}, topics, {**tuned_properties("source"), **quick})


Engine = Callable[[KafkaBroker, KafkaBroker, Path, str], ContextManager[Any]]
ENGINES: Mapping[str, Engine] = {"mirror": mirror, "tuned": tuned}


def acknowledgements(producer: Producer) -> None:
    """Call what waits for them, for ever."""
    while True:
        producer.poll(1.0)


def write(bootstrap: str, topic: str, partitions: int, rate: int, records: int, record_bytes: int, file: str) -> None:
    """`records` records at `rate` a second, in turn to all partitions."""
    acknowledged = array("q", bytes(8 * records))
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 1, "log_level": 0})
    failed: List[str] = []
    filling = b"x" * (record_bytes - NUMBER_BYTES)
    # In a thread of its own it takes each acknowledgement when it arrives, without a core for the waiting.
    threading.Thread(target=partial(acknowledgements, producer), daemon=True).start()
    began = time.monotonic()
    for number in range(records):

        def delivered(error: Any, _: Any, number: int = number) -> None:
            acknowledged[number] = time.time_ns()
            if error is not None:
                failed.append(str(error))

        time.sleep(max(0.0, began + number / rate - time.monotonic()))
        value = number.to_bytes(8, "big") + filling
        producer.produce(topic, value, partition=number % partitions, on_delivery=delivered)
    producer.flush(60)
    if failed:
        sys.exit(f"{len(failed)} records were not written: {failed[0]}")
    Path(file).write_bytes(acknowledged.tobytes())


def read(bootstrap: str, topic: str, partitions: int, records: int, file: str) -> None:
    """Until all are there, or nothing came for a while. Says `ready` when it reads."""
    seen, doubled = array("q", bytes(8 * records)), 0
    settings = {"group.id": "latency", "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": bootstrap, "fetch.wait.max.ms": 500, **settings})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    print("ready", flush=True)
    left, last = records, time.monotonic()
    while left and time.monotonic() - last < SILENCE_SECONDS:
        message = consumer.poll(1.0)
        if message is None or message.error() is not None:
            continue
        last, number = time.monotonic(), int.from_bytes((message.value() or b"")[:NUMBER_BYTES], "big")
        if seen[number]:
            doubled += 1
        else:
            seen[number] = time.time_ns()
            left -= 1
    # What is doubled may come a little later.
    for message in iter(partial(consumer.poll, 1.0), None):
        doubled += message.error() is None
    consumer.close()
    Path(file).write_bytes(seen.tobytes())
    print(doubled, flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 1:
        ended("bench-latency", run)
    what, where, name, *numbers, out = sys.argv[1:]
    calls: Dict[str, Callable[..., None]] = {"write": write, "read": read}
    calls[what](where, name, *map(int, numbers), out)
