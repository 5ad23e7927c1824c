"""What tests of take-overs share: a flow over named topics, a client that writes to them, and a look at the rest."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import ContextManager, Dict, List, Mapping, Sequence

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from mirror_lib.config.loader import load
from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.takeover.flow import FlowTakeover
from mirror_lib.takeover.origin import parse_origin
from mirror_lib.takeover.verdicts import PartitionTakeover
from tests.lab.brokers import KafkaBroker
from tests.lab.flow_lab import NOON
from tests.lab.group_lab import GroupLab
from tests.lab.meanwhile import meanwhile
from tests.lab.readers import LogRecord

ALL = 1_000_000
NAME = "taken"
PRODUCERS: Dict[str, Producer] = {}


def made(pair: Sequence[KafkaBroker], spark: SparkSession, directory: Path, *stems: str) -> GroupLab:
    """A flow over `stems` with a state folder of its own."""
    directory.mkdir(exist_ok=True)
    lab = GroupLab(pair[0], pair[1], spark, directory, NAME)
    lab.settings["topics"] = [f"{NAME}.{stem}" for stem in stems]
    lab.settings["consumer.isolation.level"] = "read_uncommitted"  # as MirrorMaker reads by default
    lab.settings["groups"] = f'["{NAME}.*"]'
    return lab


def busy(broker: KafkaBroker, topics: Sequence[str]) -> ContextManager[List[None]]:
    """A client writes to two partitions of each topic all the time, about a thousand records a second."""

    def write(stop: threading.Event) -> List[None]:
        producer = broker.producer(linger_ms=5)
        number = 0
        while not stop.wait(0.02):
            for topic in topics:
                for _ in range(10):
                    number += 1
                    key, value = b"key %d" % (number % 7), b"value %d" % number
                    producer.produce(topic, value, key, number % 2, timestamp=NOON + number, headers=[("n", key)])
            producer.poll(0)
        producer.flush(30)
        return []

    return meanwhile(write)


class Takeover:
    """One look at a flow's take-over, and what was decided by topic (without the lab's name) and partition."""

    def __init__(
        self, lab: GroupLab, compare: int = ALL, origin: str = "mm2", execute: bool = False, **named: str
    ) -> None:
        config = load(str(lab.config))
        flow = config.flows[0]
        with KafkaCluster(flow.source) as source, KafkaCluster(flow.target) as target:
            takeover = FlowTakeover(config, flow, lab.spark, source, target, parse_origin(origin, **named), compare)
            self.decided = takeover.examine()
            self.written = takeover.execute(self.decided) if execute else 0
        self.by_partition: Dict[TopicPartition, PartitionTakeover] = {
            (each.key.source_topic.replace(f"{NAME}.", ""), each.key.partition): each for each in self.decided
        }

    def actions(self) -> Dict[str, str]:
        return {f"{stem}-{number}": each.verdict.action for (stem, number), each in self.by_partition.items()}


def records(log: Mapping[int, LogRecord]) -> List[LogRecord]:
    return list(log.values())


def write_one(broker: KafkaBroker, topic: str, number: int, value: bytes, partition: int) -> None:
    producer = PRODUCERS.setdefault(broker.bootstrap, broker.producer())
    producer.produce(topic, value, b"key %d" % number, partition, timestamp=NOON + number)
    producer.flush(30)
