"""Servers and lines that keep the mirror waiting, or allow it less than it asks for: quotas, a narrow line, silence."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Iterator

import pytest

from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import ClusterError
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.kafka.connection import LogClient, Network
from mirror_lib.replication.copier import copy_lanes
from mirror_lib.replication.messages import TaskPlan
from tests.lab.brokers import KafkaBroker
from tests.lab.far_proxy import far, two_listeners
from tests.lab.one_flow import NewFlow, OneFlow
from tests.lab.one_lane import task_plans, up_to
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
    flow = new_flow("throttled", partitions=1)
    flow.fill(RECORDS)
    flow.create_remote_topic()
    return flow


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


BYTES_PER_SECOND = 1_000_000
LARGE_RECORDS = 8
RECORD_BYTES = 900_000


def test_records_arrive_over_a_narrow_line(new_flow: NewFlow, tmp_path: Path) -> None:
    near, controller, behind, proxy = free_ports(4)
    properties = two_listeners(near, behind, proxy, controller)
    source = KafkaBroker("narrow", tmp_path / "narrow", near, controller, properties)
    try:
        source.start()
        flow = new_flow("narrow", source=source, partitions=1)
        large = (b"%02d" % number + os.urandom(RECORD_BYTES) for number in range(LARGE_RECORDS))
        source.write(flow.topic, *large, batch_num_messages=1)
        flow.written = LARGE_RECORDS
        flow.create_remote_topic()
        (plan,) = task_plans(flow)
        options = {"bootstrap_servers": f"127.0.0.1:{proxy}", "request_timeout_ms": 2000}
        copy_lanes(up_to(plan, 1), 0)  # a first transaction on a cluster takes seconds
        with far(proxy, behind, 5, BYTES_PER_SECOND):
            (part,) = copy_lanes(replace(plan, source_options=options, max_seconds=5.0), 0).partitions
        assert (part.position, part.stopped) == (LARGE_RECORDS, None)
        assert flow.differences() == []
    finally:
        source.kill()


def connect(seconds: float, **options: object) -> None:
    network = Network()
    client = LogClient(network, "source", {"socket_connection_setup_timeout_ms": 500, **options})
    try:
        client.connect(time.monotonic() + seconds)
    finally:
        client.close()
        network.close()


def test_a_server_that_never_answers_keeps_no_task_from_the_others(source_cluster: KafkaBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        for _ in range(6):  # Which is asked first is left to chance.
            connect(20, bootstrap_servers=[address, source_cluster.bootstrap])
        with pytest.raises(ClusterError, match="cannot reach the cluster source"):
            connect(3, bootstrap_servers=[address], security_protocol="SSL", ssl_check_hostname=False)


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
    flow = new_flow("low", target=low, partitions=1)
    flow.fill(10)
    error = flow.run(spark).error
    assert error is not None and flow.copies() == 0
    assert "transaction.max.timeout.ms=60000" in str(error) and "Write on" not in str(error)
