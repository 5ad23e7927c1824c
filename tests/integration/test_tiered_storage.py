"""Records in tiered storage (KIP-405), which at times gives nothing: brokers then answer as if none were there."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Iterator, Tuple

import pytest

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.control.sync import Synced, sync_topic_configs
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.replication.copier import copy_lanes
from tests.integration.conftest import Names
from tests.lab.brokers import KafkaBroker, clusters
from tests.lab.one_flow import OneFlow, until
from tests.lab.one_lane import task_plans
from tests.lab.readers import differences, read_topic
from tests.lab.tiered import AT_ONCE, SlowStore, first_local_offset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

# Three empty answers used to be enough, one for a remote log. A broker gives each after half a second.
SLOW_SECONDS = 4.0

Clusters = Tuple[KafkaBroker, KafkaBroker, SlowStore]


@dataclass
class TieredFlow(OneFlow):
    """A flow of one partition whose topics are made by the tests."""

    def __post_init__(self) -> None:
        self.partitions = 1

    def tiered(self, broker: KafkaBroker, topic: str, fill: Callable[[], None]) -> None:
        """Fill three segments of a topic, and wait until the broker has handed the first two to the storage."""
        broker.create_topic(topic, 1, **AT_ONCE)
        for _ in range(3):
            fill()
            time.sleep(1.1)  # the next record then begins a segment
        fill()
        until(lambda: first_local_offset(broker, topic) >= self.written // 2)


@pytest.fixture(scope="module")
def tiered_clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    folder = tmp_path_factory.mktemp("tiered")
    store = SlowStore(folder / "store").compiled()
    with clusters(["source", "target"], folder, store.broker_properties()) as (source, target):
        yield source, target, store


def test_what_a_killed_life_wrote_is_found_though_tiered_storage_does_not_give_it_yet(
    tiered_clusters: Clusters, topic_name: Names, tmp_path: Path
) -> None:
    source, target, store = tiered_clusters
    flow = TieredFlow(source, target, topic_name("written"), tmp_path)
    source.create_topic(flow.topic, 1, retention_ms="-1")

    def copy_and_tell_nobody() -> None:
        flow.fill(500)
        (plan,) = task_plans(flow)
        copy_lanes(plan, 0)

    flow.tiered(target, flow.remote_topic, copy_and_tell_nobody)
    before = flow.written
    flow.fill(5)
    (plan,) = task_plans(flow)
    with store.slow(SLOW_SECONDS):
        report = copy_lanes(plan, 0)
    assert (report.recovered, report.records) == (before, 5)
    assert not differences(read_topic(source, flow.topic), read_topic(target, flow.remote_topic))


def test_topic_in_tiered_storage_is_copied_to_a_cluster_without_it(
    tiered_clusters: Clusters, target_cluster: KafkaBroker, topic_name: Names, tmp_path: Path,
    spark: SparkSession,
) -> None:  # fmt: skip
    source, _, _ = tiered_clusters
    flow = TieredFlow(source, target_cluster, topic_name("tiers"), tmp_path)
    flow.tiered(source, flow.topic, lambda: flow.fill(100))
    flow.settings["sync.topic.configs.enabled"] = "true"
    for _ in range(2):
        outcome = flow.run(spark)
        assert outcome.error is None, outcome.error
    flow.assert_exact(spark)
    with KafkaCluster(ClusterConfig("source", {"bootstrap.servers": source.bootstrap})) as here, KafkaCluster(
        ClusterConfig("target", {"bootstrap.servers": target_cluster.bootstrap})
    ) as there:
        mirrored = ReplicationFlow(ClusterConfig("source", {}), ClusterConfig("target", {}), topics=(flow.topic,))
        assert sync_topic_configs(mirrored, (mirrored,), here, there) == Synced()
