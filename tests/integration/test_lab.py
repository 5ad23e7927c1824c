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
from tests.lab.ports import free_ports, is_listening

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


OF_A_WORKER = """
import os, signal
from pathlib import Path

def test_notes_the_clusters(both_clusters):
    with Path("noted").open("a") as out:
        print(*(broker.port for broker in both_clusters), all(broker.answers() for broker in both_clusters), file=out)

def test_ends_its_worker():
    # The worker in its place runs this again.
    ended = Path("ended-" + Path(__file__).name)
    if not ended.exists():
        ended.touch()
        os.kill(os.getpid(), signal.SIGKILL)

def test_notes_them_again(both_clusters):
    test_notes_the_clusters(both_clusters)
"""


@pytest.mark.long
def test_workers_share_a_pair_that_outlives_them_and_ends_with_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "tests" / "integration"
    folder.mkdir(parents=True)
    lab = 'pytest_plugins = ["tests.lab.shared_clusters"]\nimport pytest\n@pytest.fixture(scope="session")\n'
    (tmp_path / "conftest.py").write_text(f"{lab}def lab_directory(tmp_path_factory):\n    return tmp_path_factory\n")
    for name in ("one", "other"):
        (folder / f"test_{name}.py").write_text(OF_A_WORKER)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "tests/integration"]
    ended = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE)
    assert b"2 failed, 6 passed" in ended.stdout, ended.stdout.decode()
    noted = (tmp_path / "noted").read_text().splitlines()
    assert len(noted) == 4 and len(set(noted)) == 1 and noted[0].endswith(" True")
    assert not any(is_listening(int(port)) for port in noted[0].split()[:2])


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
