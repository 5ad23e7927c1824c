"""Kafka's own Java producer: keys in, records where its partitioner puts them out."""

from __future__ import annotations

import subprocess
from typing import Sequence

from tests.lab.brokers import JARS, KafkaBroker, java_command
from tests.lab.jvm import kafka_archive, quick_options


def produce_by_java(broker: KafkaBroker, topic: str, keys: Sequence[str]) -> None:
    """One record for each key, by Kafka's console producer, which leaves the partition to the producer."""
    tool = [java_command(), *quick_options(kafka_archive(JARS)), "-cp", f"{JARS}/*"]
    options = ["--bootstrap-server", broker.bootstrap, "--topic", topic, "--reader-property", "parse.key=true"]
    text = "".join(f"{key}\tvalue\n" for key in keys)
    command = [*tool, "org.apache.kafka.tools.ConsoleProducer", *options]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
