"""Brokers that name readers another replica than the leader to read from (KIP-392): they give no records then."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from mirror_lib.kafka.connection import LogClient, Network
from mirror_lib.kafka.fetcher import READ_UNCOMMITTED, fetch_request, redirects
from mirror_lib.replication.copier import copy_lanes
from tests.lab.brokers import KafkaBroker
from tests.lab.java_class import compiled
from tests.lab.one_flow import OneFlow, until
from tests.lab.one_lane import task_plans
from tests.lab.ports import free_ports
from tests.lab.second_broker import second_broker

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """Two brokers that name each other; source and target."""
    folder = tmp_path_factory.mktemp("nearer")
    classes, properties = compiled("OtherReplica", folder / "classes"), {"replica.selector.class": "OtherReplica"}
    port, controller = free_ports(2)
    first = KafkaBroker("first", folder / "first", port, controller, properties, classes=classes)
    try:
        with second_broker(first.start(), folder / "second"):
            yield first
    finally:
        first.kill()


@dataclass
class ReplicatedFlow(OneFlow):
    """A flow of two partitions, each with a replica on either broker."""

    def __post_init__(self) -> None:
        self.partitions = 2
        self.replicated(self.topic)

    def replicated(self, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.source.bootstrap})
        reassigned = NewTopic(topic, 2, replica_assignment=[[1, 2], [2, 1]], config={"retention.ms": "-1"})
        admin.create_topics([reassigned])[topic].result(30)

        def ready() -> bool:
            found = admin.list_topics(topic, timeout=10).topics[topic].partitions.values()
            return [len(each.isrs) for each in found] == [2, 2]

        until(ready)

    def create_remote_topic(self) -> None:
        self.replicated(self.remote_topic)


def is_sent_away(broker: KafkaBroker, topic: str) -> bool:
    """Whether those who ask the leaders by the topic's id get another broker's name, of both partitions."""
    client, deadline = LogClient(Network(), "source", {"bootstrap_servers": broker.bootstrap}), time.monotonic() + 30
    try:
        client.connect(deadline)
        partitions = [(topic, 0), (topic, 1)]
        client.refresh_leaders(partitions, deadline)
        requests = {
            each: fetch_request({each: 0}, READ_UNCOMMITTED, 1_000_000, 1_000_000, ids=client.topic_ids([topic]))
            for each in partitions
        }
        return all(redirects(client.call(client.leader(each), request)) for each, request in requests.items())
    finally:
        client.close()
        client.network.close()


def test_all_records_are_copied_from_the_leaders_and_what_a_killed_task_wrote_is_found(
    cluster: KafkaBroker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    flow = ReplicatedFlow(cluster, cluster, topic_name("source"), tmp_path)
    flow.fill(500)
    flow.create_remote_topic()
    until(lambda: is_sent_away(cluster, flow.topic))
    (plan,) = task_plans(flow)
    report = copy_lanes(plan, 0)
    assert [(part.position, part.stopped) for part in report.partitions] == [(flow.written, None)] * 2
    assert flow.differences() == []
    before = flow.written
    flow.fill(5)
    until(lambda: is_sent_away(cluster, flow.remote_topic))
    (plan,) = task_plans(flow)
    report = copy_lanes(plan, 0)
    assert (report.recovered, report.records) == (2 * before, 2 * 5)
    assert flow.differences() == []
