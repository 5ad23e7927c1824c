"""A target whose brokers allow shorter transactions than a fence asks for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Iterator

import pytest

from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import ClusterError
from mirror_lib.kafka.admin import KafkaCluster
from tests.lab.brokers import KafkaBroker
from tests.lab.one_flow import NewFlow
from tests.lab.ports import free_ports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


@pytest.mark.long
def test_broker_config_that_is_too_low_is_named_with_the_value_to_set(
    new_flow: NewFlow, low: KafkaBroker, spark: SparkSession
) -> None:
    flow = new_flow("low", target=low, partitions=1)
    flow.fill(10)
    error = flow.run(spark).error
    assert error is not None and flow.copies() == 0
    assert "transaction.max.timeout.ms=60000" in str(error) and "Write on" not in str(error)
