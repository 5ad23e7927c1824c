"""`make bench-scale`: what a driver costs as partitions grow, and a run as its backlog grows. Every copy is counted.

Figures are seconds.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import Dict, List, Mapping, Sequence, Tuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from mirror_lib.config.loader import load
from mirror_lib.kafka.admin import KafkaCluster, clusters_of
from mirror_lib.metrics import FlowMetrics
from mirror_lib.replication.flow import FlowContext, FlowMirror
from mirror_lib.replication.journal import BatchRef, Journal
from mirror_lib.replication.totals import Totals
from mirror_lib.spark.java import JARS_DIR
from mirror_lib.spark.session import open_session
from mirror_lib.text import aligned, grouped
from tests.bench.engines import config_of
from tests.lab.brokers import KafkaBroker, clusters
from tests.lab.checkout import CACHE, ROOT, LabError, ended, jars_folder
from tests.lab.dataset import flushed, produce
from tests.lab.meanwhile import meanwhile

PARTITIONS_OF_A_TOPIC = 5
SIZES = (5, 100, 1000, 10_000)
BACKLOGS = (10_000, 100_000, 1_000_000, 5_000_000)
BACKLOG_PARTITIONS, RECORD = 20, b"r" * 100
ROUNDS = 5
# Thousands of partitions have small index files here, or the brokers' folders grow by gigabytes.
BROKERS = {"log.index.size.max.bytes": "65536"}


def run() -> int:
    os.environ.setdefault(JARS_DIR, str(jars_folder()))
    for what, sizes in (("partitions", SIZES), ("backlog", BACKLOGS)):
        rows = [on_new_brokers(what, size) for size in sizes]
        print("\n" + "\n".join(aligned([tuple(rows[0]), *(tuple(map(_cell, row.values())) for row in rows)])))
    print(f"\n{os.cpu_count()} cores; load average {os.getloadavg()[0]:.1f}")
    return 0


def _cell(value: float) -> str:
    return grouped(value) if isinstance(value, int) else f"{value:.3f}"


def on_new_brokers(what: str, size: int) -> Mapping[str, float]:
    """One row, by a driver in a process of its own, which has the memory to itself."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=CACHE) as folder, clusters(
        ["primary", "backup"], Path(folder), BROKERS, java_options=[]
    ) as (source, target):
        partitions = size if what == "partitions" else BACKLOG_PARTITIONS
        create(source, partitions // PARTITIONS_OF_A_TOPIC)
        servers = {"primary": source.bootstrap, "backup": target.bootstrap}
        config = config_of(Path(folder), servers, ["load.*"], **{"emit.heartbeats.enabled": "false"})
        row: Dict[str, float] = {what: size}
        if what == "partitions":  # the whole command, with all topics to create
            began = time.monotonic()
            in_a_process("mirror_lib.cli", "plan", str(config))
            row["plan"] = time.monotonic() - began
        return {**row, **json.loads(in_a_process("tests.bench.scale", what, str(config), str(size)))}


def in_a_process(module: str, *arguments: str) -> str:
    """The last line that it prints."""
    done = subprocess.run([sys.executable, "-m", module, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise LabError(f"{module} {arguments[0]} ended with exit code {done.returncode}")
    return done.stdout.splitlines()[-1]


def create(broker: KafkaBroker, topics: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    names = [topic(number) for number in range(topics)]
    for start in range(0, topics, 500):
        new = [NewTopic(name, PARTITIONS_OF_A_TOPIC, 1) for name in names[start : start + 500]]
        for future in admin.create_topics(new, operation_timeout=60, request_timeout=90).values():
            future.result(90)
    while True:
        found = [each for name, each in admin.list_topics(timeout=30).topics.items() if name.startswith("load.")]
        if len(found) == topics and all(part.leader >= 0 for each in found for part in each.partitions.values()):
            return
        time.sleep(0.5)


def topic(number: int) -> str:
    return f"load.{number}"


class Driver:
    """One flow's driver in this process, and what it does timed."""

    def __init__(self, spark: SparkSession, config: Path, source: KafkaCluster, target: KafkaCluster) -> None:
        self.spark, self.source, self.target = spark, source, target
        whole = load(str(config))
        self.totals = Totals()
        self.copy_seconds = 0.0
        began = time.monotonic()
        ends = (self._passed, threading.Event(), self.totals)
        flow = whole.flows[0]
        journal = Journal(spark, whole.state, flow.name, uuid.uuid4().hex, 30)
        self.mirror = FlowMirror(FlowContext(whole, flow, spark, journal, source, target, *ends))
        self.start_seconds = time.monotonic() - began

    def _passed(self, snapshot: FlowMetrics) -> None:
        self.copy_seconds += snapshot.copy_seconds

    def batch(self) -> float:
        """Seconds of one batch, as Spark would call for it."""
        began = time.monotonic()
        self.mirror.copy_batch(BatchRef("", -1))
        return time.monotonic() - began

    def check(self, records: int) -> None:
        """Raises where not exactly `records` were copied, or a partition cannot continue."""
        if self.totals.records != records or self.mirror.stopped() or self.mirror.blocked():
            raise LabError(f"{self.totals.records} records of {records} were copied; {self.mirror.stopped()[:1]}")


def partitions(driver: Driver, size: int) -> Mapping[str, float]:
    """What a batch costs with nothing to do, with a record in each partition, and with a record in one."""
    producer = Producer({"bootstrap.servers": driver.mirror.flow.source.bootstrap_servers, "linger.ms": 50})
    everywhere = [(topic(number // PARTITIONS_OF_A_TOPIC), number % PARTITIONS_OF_A_TOPIC) for number in range(size)]

    def write(places: Sequence[Tuple[str, int]]) -> None:
        for name, number in places:
            produce(producer, name, RECORD, partition=number)
        flushed(producer)

    first_batch = driver.batch()
    write(everywhere)
    driver.batch()
    idle = [driver.batch() for _ in range(ROUNDS)]
    full: List[float] = []
    for _ in range(ROUNDS):
        write(everywhere)
        full.append(driver.batch())
    seen: List[float] = []
    for _ in range(ROUNDS):
        write(everywhere[:1])
        seen.append(until_readable(driver))
    driver.check(size * (ROUNDS + 1) + ROUNDS)
    return {
        "start": driver.start_seconds,
        "first batch": first_batch,
        "idle batch": statistics.median(idle),
        "a record each": statistics.median(full),
        "to a record readable": statistics.median(seen),
    }


def until_readable(driver: Driver) -> float:
    """Seconds from the beginning of a batch until an outside client can read its one record."""
    consumer = Consumer({"bootstrap.servers": driver.mirror.flow.target.bootstrap_servers, "group.id": "bench"})
    place = TopicPartition(f"primary.{topic(0)}", 0)
    before = consumer.get_watermark_offsets(place, timeout=30)[1]

    def look(_: threading.Event) -> List[float]:
        while consumer.get_watermark_offsets(place, timeout=30)[1] == before:
            time.sleep(0.002)
        return [time.monotonic()]

    began = time.monotonic()
    with meanwhile(look) as seen:
        driver.batch()
    consumer.close()
    return seen[0] - began


def backlog(driver: Driver, size: int) -> Mapping[str, float]:
    """One batch that finds `size` records."""
    options = {"linger.ms": 50, "batch.size": 131_072, "queue.buffering.max.messages": 1_000_000}
    producer = Producer({"bootstrap.servers": driver.mirror.flow.source.bootstrap_servers, **options})
    driver.batch()
    for number in range(size):
        name = topic(number % BACKLOG_PARTITIONS // PARTITIONS_OF_A_TOPIC)
        produce(producer, name, RECORD, partition=number % PARTITIONS_OF_A_TOPIC)
    flushed(producer)
    seconds = driver.batch()
    driver.check(size)
    return {"batch": seconds, "copying": driver.copy_seconds, "alongside it": seconds - driver.copy_seconds}


if __name__ == "__main__":
    if len(sys.argv) == 4:
        _, what, file, size = sys.argv
        measured = {"partitions": partitions, "backlog": backlog}[what]
        with clusters_of(load(file).flows[0]) as both:
            print(json.dumps(measured(Driver(open_session("bench-scale"), Path(file), *both), int(size))))
    else:
        ended("bench-scale", run)
