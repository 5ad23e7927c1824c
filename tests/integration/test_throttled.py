"""Brokers that allow the mirror less than it asks for: quotas, and a config that is too low."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Iterator

import pytest

from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import ClusterError
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.replication.copier import copy_lanes
from mirror_lib.replication.messages import TaskPlan
from tests.lab.brokers import KafkaBroker
from tests.lab.one_flow import NewFlow, OneFlow
from tests.lab.one_lane import task_plans
from tests.lab.ports import free_ports
from tests.lab.quotas import quota

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

# 1.0 MB. The lab's brokers measure over two seconds at least, so a third is more than they take or give at once: they
# put us off again and again until three seconds have passed.
RECORDS, BYTES_A_SECOND = 9000, 320_000.0
# A lane is fenced when it starts, which takes two epochs, and behind its records, which are old.
ONE_LIFE = 2


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    return new_flow("throttled", partitions=1, records=RECORDS, remote=True)


def plan_of_its_own_client(flow: OneFlow) -> TaskPlan:
    (plan,) = task_plans(flow)
    name = {"client_id": flow.topic}
    source, target = {**plan.source_options, **name}, {**plan.target_options, **name}
    return replace(plan, source_options=source, target_options=target)


@pytest.mark.parametrize("side", ["source", "target"])
def test_lane_waits_for_a_cluster_that_throttles_it_is_not_fenced_again_and_takes_empty_answers_for_no_gaps(
    flow: OneFlow, side: str
) -> None:
    rate = "consumer_byte_rate" if side == "source" else "producer_byte_rate"
    with quota(getattr(flow, side), flow.topic, rate, BYTES_A_SECOND):
        report = copy_lanes(plan_of_its_own_client(flow), 0)
    assert getattr(report, f"{side}_throttled_seconds") > 0
    assert {producer.epoch for producer in report.producers.values()} == {ONE_LIFE}
    assert flow.differences() == []


class LowBroker(KafkaBroker):
    """A broker that is ready without a transaction of the usual length."""

    def answers(self) -> bool:
        try:
            with KafkaCluster(ClusterConfig("low", {"bootstrap.servers": self.bootstrap}), 2) as cluster:
                return cluster.broker_count() == 1
        except ClusterError:
            return False


@pytest.fixture
def low(tmp_path: Path) -> Iterator[KafkaBroker]:
    port, controller_port = free_ports(2)
    broker = LowBroker("low", tmp_path / "low", port, controller_port, {"transaction.max.timeout.ms": "30000"})
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


def test_broker_config_that_is_too_low_is_named_with_the_value_to_set(
    new_flow: NewFlow, low: KafkaBroker, spark: SparkSession
) -> None:
    flow = new_flow("low", target=low, partitions=1, records=10)
    error = flow.run(spark).error
    assert error is not None and flow.copies() == 0
    assert "transaction.max.timeout.ms=60000" in str(error) and "Write on" not in str(error)
