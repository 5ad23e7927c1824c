"""The lab itself: brokers come back after kill -9 with their data, taken ports are refused, the session works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.lab.brokers import KafkaBroker, clusters
from tests.lab.checkout import CACHE, ROOT, LabError
from tests.lab.ports import free_ports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STARTER = """
import sys, time
from pathlib import Path
from tests.lab.brokers import start_cluster
print(start_cluster("orphan", Path(sys.argv[1])).pid, flush=True)
time.sleep(600)
"""


def write(broker: KafkaBroker, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, value)
    assert producer.flush(30) == 0


def read(broker: KafkaBroker, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "lab", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = consumer.consume(count, timeout=30)
    consumer.close()
    return [message.value() for message in messages]


def ends(pid: int) -> bool:
    """Whether the process is gone, or dead and not yet collected, within ten seconds."""
    for _ in range(100):
        stat = Path(f"/proc/{pid}/stat")
        if not stat.exists() or stat.read_text().rpartition(") ")[2].startswith("Z"):
            return True
        time.sleep(0.1)
    return False


def test_broker_killed_and_restarted_keeps_its_address_and_records(tmp_path: Path) -> None:
    with clusters(["lonely"], tmp_path) as (broker,):
        broker.create_topic("kept")
        write(broker, "kept", b"one")
        address = broker.bootstrap
        broker.kill()
        assert not broker.answers()
        broker.restart()
        write(broker, "kept", b"two")
        assert broker.bootstrap == address
        assert read(broker, "kept", 2) == [b"one", b"two"]


def test_taken_port_is_refused_in_one_sentence(source_cluster: KafkaBroker, tmp_path: Path) -> None:
    (other,) = free_ports(1)
    with pytest.raises(LabError, match=f"needs port {source_cluster.port} on 127.0.0.1, but another process has it"):
        KafkaBroker("late", tmp_path, source_cluster.port, other).start()


def test_broker_dies_with_a_starter_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTER, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        broker_pid = int(starter.stdout.readline())
        starter.kill()
    assert ends(broker_pid)


def test_clusters_to_try_things_on_are_filled_and_end_with_ctrl_c() -> None:
    ports, kept = free_ports(2), set(CACHE.glob("clusters-*"))
    environ = {**os.environ, "PORTS": f"{ports[0]} {ports[1]}"}
    command = [sys.executable, "-m", "tests.lab.two_clusters"]
    with subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True) as lab:
        assert lab.stdout is not None
        assert lab.stdout.readline().startswith(f"localhost:{ports[0]}: primary, with orders")
        topics = AdminClient({"bootstrap.servers": f"localhost:{ports[0]}"}).list_topics(timeout=30).topics
        assert {"orders", "payments.card"} <= set(topics)
        lab.send_signal(signal.SIGINT)
    assert lab.returncode == 0
    assert set(CACHE.glob("clusters-*")) == kept


def test_spark_reads_a_topic_and_writes_a_delta_table(
    spark: SparkSession, source_cluster: KafkaBroker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = source_cluster.create_topic(topic_name("spark"))
    write(source_cluster, topic, b"hello")
    options = {"kafka.bootstrap.servers": source_cluster.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    rows = spark.read.format("kafka").options(**options).load().select("value")
    rows.write.format("delta").save(str(tmp_path / "table"))
    assert [bytes(row.value) for row in spark.read.format("delta").load(str(tmp_path / "table")).collect()] == [
        b"hello"
    ]
