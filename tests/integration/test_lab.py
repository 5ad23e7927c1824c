"""The lab itself: brokers come back after kill -9 with their data, and clusters to try things on are filled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.lab.brokers import KafkaBroker, clusters
from tests.lab.checkout import CACHE, ROOT
from tests.lab.ports import free_ports


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
