"""What brokers answer the mirror: about remote topics, its own compacted topics, the times of records, groups and their
offsets: what is read, created, committed, deleted and refused."""

from __future__ import annotations

import time
from typing import Any, Dict, Iterator, List

import pytest
from confluent_kafka import Message, ShareConsumer, TopicPartition
from kafka import KafkaAdminClient
from kafka.protocol.consumer import JoinGroupRequest

from mirror_lib.config.model import IDENTITY_POLICY, ClusterConfig, ReplicationFlow
from mirror_lib.errors import ClusterError, RefusedError
from mirror_lib.facts import CommittedOffset, NewTopic, OffsetRange, readable
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.kafka.compacted_topic import InternalTopic
from mirror_lib.kafka.group_progress import GroupProgress
from mirror_lib.kafka.offsets import first_records
from mirror_lib.replication.copied_topics import TopicWatch
from mirror_lib.topics.remote_topics import _refuses_tiers, apply_plan, plan_flow
from tests.integration.conftest import Names
from tests.lab.brokers import KafkaBroker
from tests.lab.group_lab import CLASSIC, KIP_848, committed, member, offsets
from tests.lab.one_flow import until

NO_LIMIT = "9223372036854775807"
IN_USE = "UNKNOWN_MEMBER_ID: the group has members, so it is in use on this cluster"


@pytest.fixture(scope="module")
def config(target_cluster: KafkaBroker) -> ClusterConfig:
    return ClusterConfig("backup", {"bootstrap.servers": target_cluster.bootstrap})


@pytest.fixture(scope="module")
def target(config: ClusterConfig) -> Iterator[KafkaCluster]:
    with KafkaCluster(config) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def source(source_cluster: KafkaBroker) -> Iterator[KafkaCluster]:
    with KafkaCluster(ClusterConfig("primary", {"bootstrap.servers": source_cluster.bootstrap})) as cluster:
        yield cluster


# --- remote topics ------------------------------------------------------------------------------------------------


def flow(*topics: str, **settings: Any) -> ReplicationFlow:
    settings = {"replication_factor": 1, "heartbeats_replication": False, **settings}
    return ReplicationFlow(ClusterConfig("primary", {}), ClusterConfig("backup", {}), topics=topics, **settings)


def write(broker: KafkaBroker, topic: str, timestamp: int) -> str:
    """Write one record; the broker's refusal, or `""`."""
    refusals: List[str] = []

    def note(error: Any, _: Message) -> None:
        refusals.append("" if error is None else error.name())

    producer = broker.producer()
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
    written = [write(target_cluster, topic, in_ten_years) for topic in (remote.name, ordinary)]
    assert written == ["", "INVALID_TIMESTAMP"]


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
    watch = TopicWatch(flow(bad, good), (), source, target)
    watch.refresh()
    assert [bool(watch.take_news(lambda: ())) for _ in range(2)] == [True, False]
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


# --- the compacted topics of the mirror, and the times of records at offsets ---------------------------------------


@pytest.fixture
def internal(config: ClusterConfig, target: KafkaCluster, topic_name: Names) -> Iterator[InternalTopic]:
    with InternalTopic(config, topic_name("A.checkpoints.internal"), 1) as topic:
        topic.ensure(target)
        yield topic


def produce(broker: KafkaBroker, topic: str, *records: Dict[str, Any], **settings: str) -> None:
    """Write with another client, as MirrorMaker would."""
    producer = broker.producer(linger_ms=50, **settings)
    for record in records:
        producer.produce(topic, **{"partition": 0, **record})
    assert producer.flush(20) == 0


def test_the_last_value_of_each_key_counts_in_a_topic_that_is_created_once(
    target: KafkaCluster, internal: InternalTopic
) -> None:
    assert internal.latest() == {}
    internal.append([(b"one", b"1"), (b"two", b"2"), (b"one", b"3"), (b"", b"")])
    assert internal.latest() == {b"one": b"3", b"two": b"2", b"": b""}
    internal.ensure(target)
    assert target.topics()[internal.topic].partitions == 1
    configs = readable(target.topic_configs([internal.topic], ["cleanup.policy"]))[internal.topic]
    assert configs["cleanup.policy"].value == "compact"
    internal.append([])
    internal.append([(b"two", b"4")])
    assert internal.latest() == {b"one": b"3", b"two": b"4", b"": b""}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
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
    config: ClusterConfig, target: KafkaCluster, topic_name: Names
) -> None:
    with InternalTopic(config, topic_name("A"), 1, answer_seconds=2) as topic:
        assert topic.latest() == {}
        with pytest.raises(ClusterError, match=f"cannot write {topic.topic}"):
            topic.append([(b"key", b"value")])
        assert topic.topic not in target.topics()
        # The failed write does not come later.
        topic.ensure(target)
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


# --- groups and their offsets ---------------------------------------------------------------------------------------


@pytest.fixture
def topic(target: KafkaCluster, topic_name: Names) -> str:
    name = topic_name("orders")
    assert target.create_topics([NewTopic(name, 3, 1)]) == {name: None}
    return name


@pytest.mark.parametrize("protocol", [CLASSIC, KIP_848])
def test_offsets_of_a_live_group_are_left_alone_until_its_members_have_gone(
    target: KafkaCluster, target_cluster: KafkaBroker, topic: str, protocol: str
) -> None:
    group, where = f"live {topic} ü", (topic, 0)
    with member(target_cluster, group, topic, group_protocol=protocol) as consumer:
        until(lambda: consumer.poll(0.1) is None and len(consumer.assignment()) == 3)
        assert group in target.group_names()
        found = target.describe_groups([group])[group]
        assert (found.state, found.simple, found.has_members) == ("Stable", False, True)
        assert [each.host for each in found.members] == (["/127.0.0.1"] if protocol == CLASSIC else [])
        consumer.commit(offsets=[TopicPartition(*where, 5)], asynchronous=False)
        refused = target.commit_offsets(group, {where: CommittedOffset(6), (topic, 1): CommittedOffset(1)})
        assert refused == {where: IN_USE, (topic, 1): IN_USE}
        assert (target.delete_offsets(group, [where])[where] or "").startswith("GROUP_SUBSCRIBED_TO_TOPIC: ")
    found = target.describe_groups([group])[group]
    assert (found.state, found.simple, found.members) == ("Empty", False, ())
    assert group in target.group_names()
    assert target.committed_offsets([group]) == {group: {where: CommittedOffset(5)}}
    # The same orders are carried out as soon as no one is there.
    assert target.commit_offsets(group, {where: CommittedOffset(6)}) == {where: None}
    assert target.delete_offsets(group, [where, (topic, 2)]) == {where: None, (topic, 2): None}
    assert target.committed_offsets([group]) == {group: {}}


def test_a_static_member_that_is_away_still_counts_as_a_member(
    target: KafkaCluster, target_cluster: KafkaBroker, topic: str
) -> None:
    with member(target_cluster, topic, topic, group_instance_id="one"):
        pass
    assert target.describe_groups([topic])[topic].has_members
    assert target.commit_offsets(topic, {(topic, 0): CommittedOffset(1)}) == {(topic, 0): IN_USE}


def test_a_group_that_is_not_there_is_left_out_and_has_no_offsets(target: KafkaCluster, topic_name: Names) -> None:
    group = topic_name("absent")
    assert group not in target.group_names()
    assert target.describe_groups([group]) == {}
    assert target.committed_offsets([group]) == {group: {}}
    assert target.delete_offsets(group, [("orders", 0)]) == {("orders", 0): None}


def join(broker: KafkaBroker, group: str, protocol_type: str) -> None:
    """Be a member of a group of another protocol, as Connect's workers are, for half a minute."""
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="default", metadata=b"")
    request = JoinGroupRequest(
        group_id=group, session_timeout_ms=30000, rebalance_timeout_ms=30000, member_id="",
        protocol_type=protocol_type, protocols=[protocol], max_version=3,
    )  # fmt: skip
    coordinator = client._manager.run(client._find_coordinator_id, group)
    answer = client._manager.run(client._manager.send, request, coordinator)
    client.close()
    assert answer.error_code == 0


def test_groups_that_are_not_consumer_groups_are_not_listed(
    target: KafkaCluster, target_cluster: KafkaBroker, topic: str, topic_name: Names
) -> None:
    workers, sharing = topic_name("connect"), topic_name("share")
    join(target_cluster, workers, "connect")
    reader = ShareConsumer({"bootstrap.servers": target_cluster.bootstrap, "group.id": sharing})
    reader.subscribe([topic])
    try:
        everything = KafkaAdminClient(bootstrap_servers=target_cluster.bootstrap)
        while not {workers, sharing} <= {each["group_id"] for each in everything.list_groups()}:
            reader.poll(0.1)
        everything.close()
        assert not {workers, sharing} & set(target.group_names())
        # Its members are seen all the same, so that no one takes the name for a free one.
        assert target.describe_groups([workers, sharing])[workers].has_members
    finally:
        reader.close()


def test_offsets_come_back_as_they_were_committed_with_their_metadata(
    target: KafkaCluster, target_cluster: KafkaBroker, topic: str
) -> None:
    group = f"{topic} with spaces, ümlaut & 漢字"
    written = {
        (topic, 0): CommittedOffset(3, "grüße"),
        (topic, 1): CommittedOffset(0),
        (topic, 2): CommittedOffset(10_000_000, '{"far": "beyond the end"}'),
    }
    assert target.commit_offsets(group, written) == dict.fromkeys(written)
    assert target.committed_offsets([group]) == {group: written}
    assert group in target.group_names()
    seen = committed(target_cluster, group, {topic: 3})
    assert seen == {place: (at.offset, at.metadata) for place, at in written.items()}


@pytest.mark.parametrize("first_note", [4000, 5000], ids=["all taken", "the first part fails"])
def test_more_positions_and_notes_than_a_coordinator_takes_at_once_are_committed_unless_the_group_goes_on_meanwhile(
    target: KafkaCluster, target_cluster: KafkaBroker, topic_name: Names, first_note: int
) -> None:
    topic = target_cluster.create_topic(topic_name("wide"), 400)
    written = {(topic, number): CommittedOffset(number, "m" * 4000) for number in range(400)}
    written[topic, 0] = CommittedOffset(0, "m" * first_note)
    done = target.commit_offsets(topic, written, again=lambda: first_note == 4000)
    [committed_now] = target.committed_offsets([topic]).values()
    assert set(committed_now) == {where for where, reason in done.items() if reason is None}
    if first_note == 4000:
        assert committed_now == written
    else:
        assert 0 < len(committed_now) < 399
        assert (done[topic, 399] or "").startswith("OFFSET_METADATA_TOO_LARGE")
        assert target.commit_offsets(topic, written, again=lambda: True)[topic, 399] is None


def test_a_partition_that_the_broker_refuses_does_not_stop_the_others(target: KafkaCluster, topic: str) -> None:
    notes = {(topic, 0): "x" * 5000, (topic, 1): "", (topic, 99): "", ("nowhere", 0): ""}
    done = target.commit_offsets(topic, {place: CommittedOffset(2, note) for place, note in notes.items()})
    assert {place: (reason or "").partition(":")[0] for place, reason in done.items()} == {
        (topic, 0): "OFFSET_METADATA_TOO_LARGE",
        (topic, 1): "",
        (topic, 99): "UNKNOWN_TOPIC_OR_PARTITION",
        ("nowhere", 0): "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert target.committed_offsets([topic]) == {topic: {(topic, 1): CommittedOffset(2)}}


def test_offsets_of_a_transaction_count_when_it_is_committed(
    target: KafkaCluster, target_cluster: KafkaBroker, topic: str
) -> None:
    producer = target_cluster.producer(transactional_id=topic)
    with member(target_cluster, topic, topic) as consumer:
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 8)], consumer.consumer_group_metadata(), 20)
        assert target.committed_offsets([topic]) == {topic: {}}
        producer.commit_transaction(20)
        until(lambda: target.committed_offsets([topic]) == {topic: {(topic, 0): CommittedOffset(8)}})


def test_what_was_taken_back_of_a_deleted_topic_is_not_committed_with_the_rest(
    target_cluster: KafkaBroker, topic_name: Names
) -> None:
    """Progress follows the ledger, and what is not there any more holds up nothing else."""
    kept, gone = (target_cluster.create_topic(topic_name(stem), 2) for stem in ("kept", "gone"))
    config = ClusterConfig("source", {"bootstrap.servers": target_cluster.bootstrap})
    flow = ReplicationFlow(config, config, commit_source_group=kept, commit_source_group_interval=0.5)
    with KafkaCluster(config) as source:
        with GroupProgress(source, flow) as progress:
            progress.commit({(gone, 0): CommittedOffset(5), (kept, 0): CommittedOffset(1)})
            assert offsets(target_cluster, kept, kept, 2) == {0: 1}
            target_cluster.delete_topic(gone)
            progress.withdraw([(gone, 0)])
            progress.offer({(kept, 0): CommittedOffset(7)})
            until(lambda: offsets(target_cluster, kept, kept, 2) == {0: 7})
            progress.offer({(kept, 0): CommittedOffset(8)})
        assert offsets(target_cluster, kept, kept, 2) == {0: 8}
        with member(target_cluster, kept, kept):
            with pytest.raises(RefusedError) as refused, GroupProgress(source, flow):
                pass
            assert refused.value.code == "MIR-301"
