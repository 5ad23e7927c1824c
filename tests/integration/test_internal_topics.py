"""The compacted topics of the mirror on real brokers, and the times of records at offsets."""

from __future__ import annotations

from typing import Any, Dict, Iterator

import pytest

from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import ClusterError
from mirror_lib.facts import readable
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.kafka.compacted_topic import InternalTopic
from mirror_lib.kafka.offsets import first_records
from tests.integration.conftest import Names
from tests.lab.brokers import KafkaBroker

CODECS = pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])


@pytest.fixture(scope="module")
def config(target_cluster: KafkaBroker) -> ClusterConfig:
    return ClusterConfig("backup", {"bootstrap.servers": target_cluster.bootstrap})


@pytest.fixture(scope="module")
def cluster(config: ClusterConfig) -> Iterator[KafkaCluster]:
    with KafkaCluster(config) as connected:
        yield connected


@pytest.fixture
def internal(config: ClusterConfig, cluster: KafkaCluster, topic_name: Names) -> Iterator[InternalTopic]:
    with InternalTopic(config, topic_name("A.checkpoints.internal"), 1) as topic:
        topic.ensure(cluster)
        yield topic


def produce(broker: KafkaBroker, topic: str, *records: Dict[str, Any], **settings: str) -> None:
    """Write with another client, as MirrorMaker would."""
    producer = broker.producer(linger_ms=50, **settings)
    for record in records:
        producer.produce(topic, **{"partition": 0, **record})
    assert producer.flush(20) == 0


def test_the_last_value_of_each_key_counts_in_a_topic_that_is_created_once(
    cluster: KafkaCluster, internal: InternalTopic
) -> None:
    assert internal.latest() == {}
    internal.append([(b"one", b"1"), (b"two", b"2"), (b"one", b"3"), (b"", b"")])
    assert internal.latest() == {b"one": b"3", b"two": b"2", b"": b""}
    internal.ensure(cluster)
    assert cluster.topics()[internal.topic].partitions == 1
    configs = readable(cluster.topic_configs([internal.topic], ["cleanup.policy"]))[internal.topic]
    assert configs["cleanup.policy"].value == "compact"
    internal.append([])
    internal.append([(b"two", b"4")])
    assert internal.latest() == {b"one": b"3", b"two": b"4", b"": b""}


def test_topic_without_a_legal_name_is_refused_and_one_with_too_many_replicas_gets_those_that_there_are(
    config: ClusterConfig, cluster: KafkaCluster, topic_name: Names
) -> None:
    with pytest.raises(ClusterError, match=r"cannot create no name .*: INVALID_TOPIC"):
        InternalTopic(config, topic_name("no name "), 1).ensure(cluster)
    with InternalTopic(config, topic_name("A"), 3) as topic:
        topic.ensure(cluster)
        topic.append([(b"key", b"value")])
        assert topic.latest() == {b"key": b"value"}


@CODECS
def test_what_others_wrote_is_read_whatever_its_compression_and_so_is_the_time_of_a_record_inside_a_batch(
    config: ClusterConfig, target_cluster: KafkaBroker, internal: InternalTopic, codec: str
) -> None:
    records = [{"key": f"key {n}", "value": b"value " * n, "timestamp": 1_000_000 + 10 * n} for n in range(200)]
    produce(target_cluster, internal.topic, *records, {"key": "key 7", "value": None}, compression_type=codec)
    del records[7]
    assert internal.latest() == {str(each["key"]).encode(): each["value"] for each in records}
    for offset in (0, 57, 99):
        times = first_records(config, {(internal.topic, 0): offset}).times
        assert times == {(internal.topic, 0): 1_000_000 + 10 * offset}


def test_a_topic_whose_head_is_gone_is_read_from_where_it_begins(
    config: ClusterConfig, target_cluster: KafkaBroker, topic_name: Names
) -> None:
    name = target_cluster.create_topic(topic_name("A"), cleanup_policy="compact,delete")
    with InternalTopic(config, name, 1) as topic:
        for number in range(5):
            topic.append([(b"%d" % number, b"value")])
        target_cluster.expire(name, {0: 3})
        assert topic.latest() == {b"3": b"value", b"4": b"value"}


def test_a_topic_that_is_not_there_is_empty_and_is_not_created_by_looking(
    config: ClusterConfig, cluster: KafkaCluster, topic_name: Names
) -> None:
    with InternalTopic(config, topic_name("A"), 1, answer_seconds=2) as topic:
        assert topic.latest() == {}
        with pytest.raises(ClusterError, match=f"cannot write {topic.topic}"):
            topic.append([(b"key", b"value")])
        assert topic.topic not in cluster.topics()
        # The failed write does not come later.
        topic.ensure(cluster)
        assert topic.latest() == {}
        topic.append([(b"key", b"value")])
        assert topic.latest() == {b"key": b"value"}


def test_an_offset_without_a_record_has_no_time_and_one_that_expired_has_that_of_the_first_left(
    config: ClusterConfig, target_cluster: KafkaBroker, topic_name: Names
) -> None:
    expired, ended, marked, empty = (target_cluster.create_topic(topic_name(stem)) for stem in "abcd")
    for name in (expired, ended):
        for number in range(5):
            produce(target_cluster, name, {"value": b"v", "timestamp": 2_000 + number})
    target_cluster.expire(expired, {0: 3})
    producer = target_cluster.producer(transactional_id=marked)
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(marked, b"v", partition=0, timestamp=3_000)
    producer.commit_transaction(20)
    asked = {(expired, 0): 1, (ended, 0): 5, (marked, 0): 1, (empty, 0): 0, ("nowhere", 0): 0, (ended, 7): 0}
    assert first_records(config, asked).times == {(expired, 0): 2_003}
    assert first_records(config, asked).without == {(ended, 0), (marked, 0), (empty, 0)}
    # Beyond the end, where the log may be cut or the offset was committed by mistake.
    assert first_records(config, {(ended, 0): 500, (marked, 0): 0}).times == {(marked, 0): 3_000}
    assert first_records(config, {}).times == {}


def test_large_batches_of_many_partitions_are_all_found(
    config: ClusterConfig, target_cluster: KafkaBroker, topic_name: Names
) -> None:
    name = target_cluster.create_topic(topic_name("large"), 12)
    large = [{"partition": n, "value": b"v" * 300_000, "timestamp": 4_000 + n} for n in range(12)]
    produce(target_cluster, name, *large)
    assert first_records(config, {(name, n): 0 for n in range(12)}).times == {(name, n): 4_000 + n for n in range(12)}
