from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Iterator, List

import pytest
from confluent_kafka import Message, Producer

from mirror_lib.config.model import IDENTITY_POLICY, ClusterConfig, ReplicationFlow
from mirror_lib.errors import RefusedError
from mirror_lib.facts import NewTopic, OffsetRange, readable
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.topics.remote_topics import _refuses_tiers, apply_plan, plan_flow
from tests.integration.conftest import Names
from tests.lab.brokers import KafkaBroker

NO_LIMIT = "9223372036854775807"


def connect(alias: str, broker: KafkaBroker) -> KafkaCluster:
    return KafkaCluster(ClusterConfig(alias, {"bootstrap.servers": broker.bootstrap}))


@pytest.fixture(scope="module")
def source(source_cluster: KafkaBroker) -> Iterator[KafkaCluster]:
    with connect("primary", source_cluster) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def target(target_cluster: KafkaBroker) -> Iterator[KafkaCluster]:
    with connect("backup", target_cluster) as cluster:
        yield cluster


def flow(*topics: str, **settings: Any) -> ReplicationFlow:
    settings = {"replication_factor": 1, "heartbeats_replication": False, **settings}
    return ReplicationFlow(ClusterConfig("primary", {}), ClusterConfig("backup", {}), topics=topics, **settings)


def write(bootstrap: str, topic: str, timestamp: int) -> str:
    """Write one record; the broker's refusal, or `""`."""
    refusals: List[str] = []

    def note(error: Any, _: Message) -> None:
        refusals.append("" if error is None else error.name())

    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    producer.produce(topic, b"value", b"key", 0, timestamp=timestamp, on_delivery=note)
    producer.flush(20)
    return "".join(refusals) if refusals else "no answer"


def test_remote_topics_have_the_sources_partitions_and_configs_and_take_timestamps_that_an_ordinary_topic_refuses(
    source: KafkaCluster, target: KafkaCluster, target_cluster: KafkaBroker, topic_name: Names
) -> None:
    name, ordinary = topic_name("orders"), topic_name("ordinary")
    configs = {"cleanup.policy": "compact", "retention.ms": "1234567", "min.insync.replicas": "1",
               "message.timestamp.type": "LogAppendTime"}  # fmt: skip
    assert source.create_topics([NewTopic(name, 3, 1, configs)]) == {name: None}
    plan = plan_flow(flow(name), source, target)
    done = apply_plan(plan, target)
    assert apply_plan(plan, target) == done, "twice does no harm"
    (copied,) = done.copied
    remote = target.topics()[f"primary.{name}"]
    assert (remote.partitions, remote.topic_id) == (3, copied.remote_topic_id)
    assert (copied.create, copied.grow_to) == (None, None)
    assert len(remote.topic_id) == 22
    found = {key: entry.value for key, entry in readable(target.topic_configs([remote.name]))[remote.name].items()}
    assert {key: found[key] for key in ("cleanup.policy", "retention.ms", "message.timestamp.type")} == {
        "cleanup.policy": "compact", "retention.ms": "1234567", "message.timestamp.type": "CreateTime",
    }  # fmt: skip
    assert found["message.timestamp.before.max.ms"] == found["message.timestamp.after.max.ms"] == NO_LIMIT
    target.create_topics([NewTopic(ordinary, 1, 1)])
    in_ten_years = int((time.time() + 10 * 365 * 86400) * 1000)
    written = [write(target_cluster.bootstrap, topic, in_ten_years) for topic in (remote.name, ordinary)]
    assert written == ["", "INVALID_TIMESTAMP"]


def test_config_that_the_flow_chooses_is_set_at_creation_and_one_that_no_broker_knows_is_refused(
    source: KafkaCluster, target: KafkaCluster, topic_name: Names
) -> None:
    name, other = topic_name("orders"), topic_name("other")
    source.create_topics([NewTopic(name, 1, 1, {"retention.ms": "1234567"}), NewTopic(other, 1, 1)])
    chosen = replace(flow(name), remote_topic_configs=(("retention.ms", "7654321"),))
    apply_plan(plan_flow(chosen, source, target), target)
    found = readable(target.topic_configs([f"primary.{name}"]))[f"primary.{name}"]
    assert found["retention.ms"].value == "7654321"
    wrong = replace(flow(other), remote_topic_configs=(("retention.msec", "1"),))
    done = apply_plan(plan_flow(wrong, source, target), target)
    assert [each.name for each in done.blocked] == [other] and "retention.msec" in done.blocked[0].reason


def test_remote_topics_follow_growth_and_are_never_shrunk(
    source: KafkaCluster, target: KafkaCluster, topic_name: Names
) -> None:
    names = grows, larger, meanwhile = [topic_name(stem) for stem in ("grows", "larger", "meanwhile")]
    source.create_topics([NewTopic(grows, 1, 1), NewTopic(larger, 1, 1)])
    target.create_topics([NewTopic(f"primary.{larger}", 5, 1)])
    every = flow(*names)
    apply_plan(plan_flow(every, source, target), target)
    source.create_partitions({grows: 4})
    source.create_topics([NewTopic(meanwhile, 3, 1)])
    plan = plan_flow(every, source, target)
    assert {each.source.name: each.grow_to for each in plan.copied} == {grows: 4, larger: None, meanwhile: None}
    # It appears after planning, with too few partitions.
    target.create_topics([NewTopic(f"primary.{meanwhile}", 1, 1)])
    ids = {each.source.name: each.remote_topic_id for each in apply_plan(plan, target).copied}
    found = [target.topics()[f"primary.{name}"] for name in names]
    assert [each.partitions for each in found] == [4, 5, 3] and found[2].topic_id == ids[meanwhile]
    again = plan_flow(every, source, target)
    assert [(each.create, each.grow_to) for each in again.copied] == [(None, None)] * 3


def test_cluster_without_tiered_storage_is_found_out_before_a_topic_is_created(
    target: KafkaCluster, topic_name: Names
) -> None:
    name = topic_name("tiers")
    assert _refuses_tiers(target, name) and name not in target.topics()


def test_a_refused_remote_topic_is_skipped_with_the_brokers_reason_and_the_others_go_on(
    source: KafkaCluster, target: KafkaCluster, topic_name: Names
) -> None:
    bad, good = topic_name("a.bad"), topic_name("b.good")
    source.create_topics([NewTopic(bad, 1, 1), NewTopic(good, 1, 1)])
    plan = plan_flow(flow(bad, good), source, target)
    collides = f"primary.{bad}".replace(".", "_")
    target.create_topics([NewTopic(collides, 1, 1)])
    done = apply_plan(plan, target)
    assert [each.source.name for each in done.copied] == [good]
    (blocked,) = done.blocked
    assert blocked.name == bad
    assert blocked.reason.startswith(f"cannot create primary.{bad} on backup: INVALID_TOPIC")
    assert "collides with existing topic" in blocked.reason
    replanned = plan_flow(flow(bad, good), source, target)
    assert [each.reason for each in replanned.blocked] == [
        f"collides with existing topic {collides}: Kafka treats . and _ alike in metric names"
    ]


def test_an_identity_flow_onto_the_same_cluster_is_refused(source: KafkaCluster, topic_name: Names) -> None:
    source.create_topics([NewTopic(topic_name("orders"), 1, 1)])
    with pytest.raises(RefusedError, match="same cluster"):
        plan_flow(flow(".*", replication_policy=IDENTITY_POLICY), source, source)


def test_offsets_of_unknown_partitions_are_left_out_and_named(
    source: KafkaCluster, topic_name: Names, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic_name("orders")
    source.create_topics([NewTopic(name, 1, 1)])
    found = source.offsets([(name, 0), (name, 7), ("nowhere", 0)], "read_committed")
    assert found == {(name, 0): OffsetRange(0, 0)}
    assert f"nowhere-0, {name}-7" in caplog.text
    assert source.topic_configs(["nowhere"]) == {}
