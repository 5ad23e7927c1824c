"""A broker of two that is away: the flow names the partition that it alone has."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Sequence, Tuple

import pytest
from confluent_kafka.cimpl import NewTopic

from mirror_lib.config.model import ClusterConfig
from mirror_lib.kafka.admin import KafkaCluster
from tests.integration.conftest import Command
from tests.lab.brokers import KafkaBroker, clusters, second_broker
from tests.lab.group_lab import commit
from tests.lab.one_flow import NewFlow, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long


@pytest.fixture
def target(tmp_path: Path) -> Iterator[KafkaBroker]:
    with clusters(["two-brokers"], tmp_path / "first") as (first,):
        yield first


@pytest.fixture
def second(target: KafkaBroker, tmp_path: Path) -> Iterator[KafkaBroker]:
    with second_broker(target, tmp_path / "second") as broker:
        yield broker


def leaders_of(broker: KafkaBroker, topic: str, replicas: Sequence[List[int]] = ()) -> Callable[[], List[int]]:
    """What reads the leaders of the topic's partitions, -1 for none. With `replicas` the topic is created on them."""
    admin = broker.admin()
    if replicas:
        new = NewTopic(topic, len(replicas), replica_assignment=list(replicas))
        admin.create_topics([new])[topic].result(30)

    def leaders() -> List[int]:
        found = admin.list_topics(topic, timeout=10).topics[topic].partitions
        return [found[number].leader for number in sorted(found)]

    return leaders


@pytest.mark.parametrize("settings", [{}, {"engine": "records"}, {"partitioner": "key"}], ids=str)
def test_remote_partition_without_a_leader_is_named_and_those_beside_it_are_copied(
    target: KafkaBroker, second: KafkaBroker, spark: SparkSession, new_flow: NewFlow, settings: Dict[str, Any]
) -> None:
    flow = new_flow("led", target=target, settings=settings, records=20)
    leaders = leaders_of(target, flow.remote_topic, [[1], [1], [2]])
    second.kill()
    until(lambda: leaders() == [1, 1, -1])
    keyed, error = "partitioner" in settings, str(flow.run(spark).error)
    advice = "check that the partition has a leader"
    reported = f"source->target: target answers with no end of {flow.remote_topic}-2 ({advice})"
    assert error == reported if keyed else f"{flow.topic}-2" in error
    second.restart()
    until(lambda: leaders() == [1, 1, 2])
    assert keyed or flow.copies() == flow.written * 2
    flow.copy(spark)
    assert flow.all_copied()


def test_groups_whose_offsets_are_on_a_broker_that_is_away_are_not_taken_for_none(
    target: KafkaBroker, second: KafkaBroker
) -> None:
    """No broker listed them, and a cut-over left them where they were."""
    target.create_topic("orders", 1)
    groups = {f"readers {number}" for number in range(12)}
    for group in groups:
        commit(target, group, "orders", 0)
    with KafkaCluster(ClusterConfig("source", {"bootstrap.servers": target.bootstrap})) as cluster:
        assert set(cluster.group_names()) == groups and not cluster.unlisted_brokers()
        second.kill()
        leaders = leaders_of(target, "__consumer_offsets")
        until(lambda: -1 in leaders())
        assert not groups <= set(cluster.group_names()) and cluster.unlisted_brokers() == ["2"]


def test_source_partitions_beside_one_without_a_leader_are_copied(
    target: KafkaBroker, second: KafkaBroker, spark: SparkSession, new_flow: NewFlow, command: Command
) -> None:
    def printed_by(*words: str) -> Tuple[int, Dict[str, Any]]:
        done = command(*words, flow.config, "--json")
        return done.code, done.documents[-1]

    flow = new_flow("away", source=target, records=20)
    second.kill()
    leaders = leaders_of(target, flow.topic)
    until(lambda: -1 in leaders())
    names = [f"{flow.topic}-{number}" for number, leader in enumerate(leaders()) if leader < 0]
    assert 0 < len(names) < flow.partitions
    healthy = flow.partitions - len(names)
    began = time.monotonic()
    error = flow.run(spark).error
    assert error is not None and (error.code, error.exit_code) == ("MIR-210", 1) and names[0] in str(error)
    # Far less than Spark's source needs to give up.
    assert flow.copies() == 20 * healthy and time.monotonic() - began < 100
    code, found = printed_by("status")
    assert (code, found["leaderless"], len(found["partitions"])) == (1, names, healthy)
    assert "no leader" in [each["code"] for each in found["problems"]]
    code, found = printed_by("plan")
    assert code == 0 and names[0] in "".join(found["topics"]["copied"][0]["notes"])
    assert printed_by("verify")[0] == 1

    flow.trigger = "1 second"
    with flow.running(spark) as ends:
        second.restart()
        until(lambda: -1 not in leaders())
        until(lambda: flow.copies() == 20 * flow.partitions, 120)
    assert [end.error for end in ends] == [None]
    assert [printed_by(*each)[0] for each in (["verify", "--complete"], ["status"])] == [0, 0]
