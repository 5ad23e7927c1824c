"""`make bench-groups`: how long it takes to translate 10,000 positions over a ledger of a million rows, and how stale
groups of the target are in continuous mode. Figures are of one machine in one run.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, Sequence

from confluent_kafka import Producer

from mirror_lib.config.model import ClusterConfig
from mirror_lib.facts import CommittedOffset
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.ledger.offset_syncs import OffsetSyncTable
from mirror_lib.ledger.records import LedgerRow
from mirror_lib.ledger.tables import OFFSET_SYNCS
from mirror_lib.text import aligned, grouped
from tests.lab.brokers import KafkaBroker, clusters
from tests.lab.checkout import CACHE, LabError
from tests.lab.demo import started
from tests.lab.spark_session import build_session

TOPICS, PARTITIONS, GROUPS = 10, 100, 10
# Each run has two records and is followed by a marker upstream, so no two of them can be merged.
RUNS = 1000
ROUNDS = 30

CONFIG = """\
clusters:
  primary: {{bootstrap.servers: "{source}"}}
  backup: {{bootstrap.servers: "{target}"}}
flows:
  primary->backup:
    topics: ["load.*"]
    sync.group.offsets.enabled: true
    sync.group.offsets.interval.seconds: 1
    emit.checkpoints.interval.seconds: 1
    checkpoints.topic.replication.factor: 1
state: {state}
trigger: {trigger}
"""


def run() -> int:
    """Fill, translate once, then continue and measure how late the target's groups are; print one table."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=CACHE) as folder, clusters(
        ["primary", "backup"], Path(folder), java_options=[]
    ) as brokers:
        fill(brokers, Path(folder))
        rows = [("WHAT", "FIGURE"), *one_cycle(brokers, Path(folder)), *staleness(brokers, Path(folder))]
    print(f"\n{os.cpu_count()} cores; load average {os.getloadavg()[0]:.1f}\n")
    print("\n".join(aligned(rows)))
    return 0


def topics() -> List[str]:
    return [f"load.{number}" for number in range(TOPICS)]


def fill(brokers: Sequence[KafkaBroker], folder: Path) -> None:
    """Logs of both clusters, the ledger that would have copied the one into the other, and the groups."""
    for broker, prefix, length in ((brokers[0], "", 3 * RUNS), (brokers[1], "primary.", 2 * RUNS)):
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 50, "batch.size": 131_072})
        for topic in topics():
            broker.create_topic(prefix + topic, PARTITIONS)
            for number in range(length * PARTITIONS):
                while True:
                    try:
                        producer.produce(prefix + topic, b"x", partition=number % PARTITIONS)
                        break
                    except BufferError:
                        producer.poll(0.1)
        producer.flush()
    with KafkaCluster(cluster("primary", brokers[0])) as source, KafkaCluster(cluster("backup", brokers[1])) as target:
        write_ledger(folder, source, target)
        for number in range(GROUPS):
            commit(source, f"group-{number}", 17 + number)
    print(f"{grouped(TOPICS * PARTITIONS * RUNS)} runs, {grouped(TOPICS * PARTITIONS * GROUPS)} positions", flush=True)


def cluster(alias: str, broker: KafkaBroker) -> ClusterConfig:
    return ClusterConfig(alias, {"bootstrap.servers": broker.bootstrap})


def commit(source: KafkaCluster, group: str, run: int) -> None:
    """Put `group` at the second record of a run, in every partition."""
    offsets = {(topic, number): CommittedOffset(3 * run + 1) for topic in topics() for number in range(PARTITIONS)}
    refused = [reason for reason in source.commit_offsets(group, offsets).values() if reason is not None]
    if refused:
        raise LabError(f"{group} could not be placed: {refused[0]}")


def write_ledger(folder: Path, source: KafkaCluster, target: KafkaCluster) -> None:
    """One real append makes the table; the other rows are made inside Spark, in the table's own columns."""
    spark = build_session(folder)
    ours, theirs = source.topics(), target.topics()
    rows = [
        LedgerRow(topic, f"primary.{topic}", number, ours[topic].topic_id, theirs[f"primary.{topic}"].topic_id, 0, 0, 2)
        for topic in topics()
        for number in range(PARTITIONS)
    ]
    table = OffsetSyncTable(spark, str(folder / "state"))
    table.append("primary->backup", rows, run_id="bench", append_number=0, query_id="", batch_id=-1)
    first = spark.read.format("delta").load(table.path)
    moved = {"upstream_offset": "3 * n", "downstream_offset": "2 * n"}
    columns = [f"{moved.get(column.name, column.name)} as {column.name}" for column in OFFSET_SYNCS.columns]
    more = first.crossJoin(spark.range(1, RUNS).withColumnRenamed("id", "n")).selectExpr(*columns)
    more.write.format("delta").mode("append").save(table.path)
    spark.stop()


def configured(brokers: Sequence[KafkaBroker], folder: Path, trigger: str) -> str:
    config = folder / "mirror.yaml"
    addresses = {"source": brokers[0].bootstrap, "target": brokers[1].bootstrap}
    config.write_text(CONFIG.format(**addresses, state=folder / "state", trigger=trigger))
    return str(config)


def one_cycle(brokers: Sequence[KafkaBroker], folder: Path) -> List[Sequence[str]]:
    """`availableNow`: everything is translated, committed and reported once."""
    command = ["./spark-submit.sh", "jobs/translate_offsets.py", configured(brokers, folder, "availableNow"), "--json"]
    began = time.monotonic()
    with (folder / "once.log").open("w") as errors, started(command, errors) as job:
        assert job.stdout is not None
        documents = [json.loads(line) for line in job.stdout if line.startswith("{")]
    whole = time.monotonic() - began
    if job.returncode or not documents:
        raise LabError(f"the job ended with exit code {job.returncode}: {(folder / 'once.log').read_text()[-500:]}")
    found: Dict[str, Any] = documents[-1]
    if found["verdicts"] != {"exact": TOPICS * PARTITIONS * GROUPS} or found["committed"] != found["positions"]:
        raise LabError(f"not every position was moved: {found}")
    return [
        ("positions translated, committed, reported in a pass", grouped(found["positions"])),
        ("the pass", f"{found['seconds']:.1f} s"),
        ("whole job, from the command", f"{whole:.1f} s"),
    ]


def staleness(brokers: Sequence[KafkaBroker], folder: Path) -> List[Sequence[str]]:
    """Continuous, intervals of 1 s: from a commit on the source to the target's."""
    command = ["./spark-submit.sh", "jobs/translate_offsets.py", configured(brokers, folder, '"1 seconds"'), "--json"]
    late: List[float] = []
    with (folder / "on.log").open("w") as errors, started(command, errors) as job:
        source, target = (KafkaCluster(cluster(*each)) for each in zip(("primary", "backup"), brokers))
        with source, target:
            for number in range(ROUNDS + 2):
                at = CommittedOffset(3 * (100 + number) + 1)
                source.commit_offsets("group-0", {("load.0", 0): at})
                began = time.monotonic()
                while _offset(target) != 2 * (100 + number) + 1:
                    if time.monotonic() - began > 120 or job.poll() is not None:
                        raise LabError(f"the group does not follow: {(folder / 'on.log').read_text()[-500:]}")
                    time.sleep(0.02)
                late.append(time.monotonic() - began)
                time.sleep(0.3 + 0.13 * (number % 7))
            memory = peak_megabytes(job)
        job.send_signal(signal.SIGTERM)
    late = sorted(late[2:])  # the job starts, and everything is new
    p50, p99 = statistics.median(late), late[-1]
    return [
        (f"a commit on the source is on the target after, p50 of {len(late)}", f"{p50:.2f} s"),
        ("the slowest of them", f"{p99:.2f} s"),
        ("peak memory of the Python driver", f"{memory} MB"),
    ]


def _offset(target: KafkaCluster) -> int:
    return target.committed_offsets(["group-0"])["group-0"].get(("primary.load.0", 0), CommittedOffset(-1)).offset


def peak_megabytes(job: subprocess.Popen[str]) -> int:
    """The most that a Python process below `job` has had in memory."""
    table = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,comm="], capture_output=True, text=True, check=True).stdout
    lines = (line.split(None, 2) for line in table.splitlines())
    parents = {int(pid): (int(parent), name) for pid, parent, name in lines}
    peaks = [0]
    for pid, (_, name) in parents.items():
        above = pid
        while above in parents and above != job.pid:
            above = parents[above][0]
        status = Path(f"/proc/{pid}/status")
        if above == job.pid and "python" in name and status.exists():
            peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
            peaks.append(int(peak.split()[1]) // 1024)
    return max(peaks)


if __name__ == "__main__":
    try:
        sys.exit(run())
    except LabError as error:
        print(f"bench-groups: {error}", file=sys.stderr)
        sys.exit(1)
