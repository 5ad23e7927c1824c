"""What is asked about many partitions at once is what asking about each alone would have told."""

from __future__ import annotations

import time
from typing import Callable, Dict, Iterator, List, Tuple

import pytest
from confluent_kafka import Producer

from mirror_lib.log.connection import LogClient, Network, Partition
from mirror_lib.log.fetch import READ_UNCOMMITTED
from mirror_lib.log.tail import GLANCE_BYTES, LogEntries, glances, log_entries
from tests.lab.brokers import KafkaBroker

EMPTY, SMALL, LARGE, ALL_READ, LOST, LONG = range(6)


@pytest.fixture
def client(source_cluster: KafkaBroker) -> Iterator[LogClient]:
    network = Network()
    client = LogClient(network, "source", {"bootstrap_servers": source_cluster.bootstrap})
    client.connect(time.monotonic() + 30)
    yield client
    client.close()
    network.close()


def batches(entries: LogEntries) -> Tuple[List[bytes], int]:
    """All that the log holds, and where it ends."""
    return [bytes(raw) for raw, _, _ in entries], entries.end


def test_a_glance_at_many_logs_hides_nothing(
    source_cluster: KafkaBroker, topic_name: Callable[[str], str], client: LogClient
) -> None:
    topic = source_cluster.create_topic(topic_name("glance"), 6)
    producer = Producer({"bootstrap.servers": source_cluster.bootstrap, "linger.ms": 0})
    sizes: Dict[int, List[int]] = {SMALL: [100], LARGE: [2 * GLANCE_BYTES], ALL_READ: [100], LOST: [100]}
    sizes[LONG] = [GLANCE_BYTES // 3] * 20
    for number, values in sizes.items():
        for size in values:
            producer.produce(topic, b"v" * size, partition=number)
            assert producer.flush(30) == 0  # a record batch for each record
    client.refresh_leaders([topic], time.monotonic() + 30)
    positions: Dict[Partition, int] = {(topic, number): 0 for number in range(6)}
    positions.update({(topic, ALL_READ): 1, (topic, LOST): 5})

    seen = glances(client, positions, READ_UNCOMMITTED)

    # The others are asked alone: for one there was no room, and one has no such offset.
    assert set(seen) == set(positions) - {(topic, LARGE), (topic, LOST)}
    found = {}
    for partition in seen:
        start = positions[partition]
        alone = batches(log_entries(client, partition, start, READ_UNCOMMITTED))
        assert batches(log_entries(client, partition, start, READ_UNCOMMITTED, seen[partition])) == alone
        found[partition[1]] = len(alone[0])
    assert found == {EMPTY: 0, SMALL: 1, ALL_READ: 0, LONG: 20}
