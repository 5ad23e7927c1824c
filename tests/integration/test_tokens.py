"""OAUTHBEARER with a real broker: Python's client and Spark's by the same properties, tokens that end, and refusals."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Dict, Iterator

import pytest
from confluent_kafka import Producer

from mirror_lib.cli import main
from mirror_lib.config.client_options import spark_kafka_options
from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import LoginError
from mirror_lib.kafka.admin import KafkaCluster
from tests.lab.brokers import KafkaBroker
from tests.lab.flow_lab import QUIET
from tests.lab.group_lab import committed, read_on
from tests.lab.readers import differences, read_topic
from tests.lab.token_broker import TokenBroker, token_broker
from tests.lab.token_server import SECRET, Issuer, issuer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

LIFE_SECONDS = 12.0


@pytest.fixture(scope="module")
def provider(lab_directory: Path) -> Iterator[Issuer]:
    with issuer(lab_directory / "issuer", tls=True) as made:
        made.life_seconds = LIFE_SECONDS
        made.clients.update(stranger=SECRET)
        yield made


@pytest.fixture(scope="module")
def broker(lab_directory: Path, provider: Issuer) -> Iterator[TokenBroker]:
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    with token_broker(lab_directory / "tokens", provider) as started:
        yield started


def cluster_id(properties: Dict[str, str]) -> str:
    with KafkaCluster(ClusterConfig("A", properties), answer_seconds=15) as cluster:
        return cluster.cluster_id()


def test_both_clients_log_in_by_the_same_properties(broker: TokenBroker, spark: SparkSession) -> None:
    client = broker.client()
    topic = broker.create_topic("both")
    broker.write(topic, b"one")
    assert cluster_id(client) == broker.cluster_id
    before = len(broker.issuer.requests)
    options = spark_kafka_options(client, spark.version)
    records = spark.read.format("kafka").options(**options).option("subscribe", topic).load()
    assert [row.value for row in records.select("value").collect()] == [b"one"]
    of_java = broker.issuer.requests[before:]
    assert {(client_id, scope) for client_id, scope, _ in of_java} == {("mirror", "kafka.write")}
    # The properties of Kafka 4.1.
    line = client["sasl.jaas.config"].replace('clientId="mirror" ', "").replace(f'clientSecret="{SECRET}" ', "")
    own = {"client.id": "mirror", "client.secret": SECRET}
    client = {**client, **{f"sasl.oauthbearer.client.credentials.{key}": value for key, value in own.items()}}
    client["sasl.jaas.config"] = line
    assert cluster_id(client) == broker.cluster_id
    options = {**spark_kafka_options(client, spark.version), "subscribe": broker.create_topic("of-4-1")}
    assert spark.read.format("kafka").options(**options).load().count() == 0


def test_a_token_for_another_audience_is_the_brokers_refusal(broker: TokenBroker) -> None:
    broker.issuer.audience = "another"
    try:
        with pytest.raises(LoginError) as caught:
            cluster_id(broker.client(client_id="stranger"))
    finally:
        broker.issuer.audience = "kafka"
    said = str(caught.value)
    assert SECRET not in said and said.startswith("cannot log in to the cluster A at ")
    assert "the broker refused the token: " in said and "check the token's audience" in said
    # The refused token is not used again: its life is not waited out.
    assert cluster_id(broker.client(client_id="stranger")) == broker.cluster_id


def test_a_whole_flow_by_token_is_exact_and_goes_on_past_the_tokens_life(
    broker: TokenBroker, target_cluster: KafkaBroker, spark: SparkSession, tmp_path: Path
) -> None:
    topic = broker.create_topic("flow", 3)
    clusters = {"A": broker.client(client_id="flow"), "B": {"bootstrap.servers": target_cluster.bootstrap}}
    broker.issuer.clients["flow"] = SECRET
    flow = {"topics": [topic], "groups": ["by-token"], "replication.factor": 1, "tasks.max": 2, **QUIET}
    flow["sync.group.offsets.enabled"] = True
    config = tmp_path / "mirror.yaml"
    document = {"name": topic, "clusters": clusters, "flows": {"A->B": flow}, "state": str(tmp_path / "state")}
    config.write_text(json.dumps(document))  # YAML has all of JSON
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for round_ in range(2):
        for number in range(3000):
            producer.produce(topic, b"%d:%d" % (round_, number), b"key %d" % (number % 50))
        assert producer.flush(60) == 0
        read_on(broker, "by-token", [topic], 1000)
        assert main(["run", str(config), "--once"]) == 0
        assert main(["verify", str(config)]) == 0
        remote = read_topic(target_cluster, f"A.{topic}")
        assert differences(read_topic(broker, topic), remote) == []
        moved = committed(target_cluster, "by-token", {f"A.{topic}": 3})
        unread = [at for (_, number), (start, _) in moved.items() for at in remote[int(number)] if at >= start]
        unread += [at for number, log in remote.items() if (f"A.{topic}", number) not in moved for at in log]
        assert len(unread) == 3000 * (round_ + 1) - 1000 * (round_ + 1)
        time.sleep(LIFE_SECONDS)
    assert len({token for client_id, _, token in broker.issuer.requests if client_id == "flow"}) > 2
