"""A partition of the target whose only broker is away: the flow says which one, and goes on when it is back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.lab.brokers import KafkaBroker, clusters
from tests.lab.one_flow import OneFlow, until
from tests.lab.ports import free_ports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def target(tmp_path: Path) -> Iterator[KafkaBroker]:
    with clusters(["two-brokers"], tmp_path / "first") as (first,):
        yield first


@pytest.fixture
def second(target: KafkaBroker, tmp_path: Path) -> Iterator[KafkaBroker]:
    """Another broker of the target's cluster."""
    port, unused = free_ports(2)
    properties = {
        "process.roles": "broker",
        "node.id": "2",
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.quorum.voters": f"1@127.0.0.1:{target.controller_port}",
    }
    data = tmp_path / "second" / "data"
    data.mkdir(parents=True)
    ids = f"version=1\nnode.id=2\ncluster.id={target.cluster_id}\ndirectory.id=c2Vjb25kLWJyb2tlci1pZA\n"
    (data / "meta.properties").write_text(ids)
    broker = KafkaBroker("second", data.parent, port, unused, properties, cluster_id=target.cluster_id)
    yield broker.start()
    broker.kill()


def test_remote_partition_without_a_leader_is_named(
    source_cluster: KafkaBroker,
    target: KafkaBroker,
    second: KafkaBroker,
    spark: SparkSession,
    topic_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    flow = OneFlow(source_cluster, target, topic_name("led"), tmp_path, settings={"partitioner": "key"})
    flow.fill(20)
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    placed = [NewTopic(flow.remote_topic, 3, replica_assignment=[[1], [1], [2]])]
    admin.create_topics(placed)[flow.remote_topic].result(30)
    second.kill()

    def leaders() -> object:
        found = admin.list_topics(flow.remote_topic, timeout=10).topics[flow.remote_topic].partitions
        return [found[number].leader for number in sorted(found)]

    until(lambda: leaders() == [1, 1, -1])
    told = f"source->target: target tells no end of {flow.remote_topic}-2 (has it lost its leader?)"
    assert str(flow.run(spark).error) == told
    second.restart()
    until(lambda: leaders() == [1, 1, 2])
    assert flow.run(spark).error is None
    assert flow.copies() == flow.written * flow.partitions
