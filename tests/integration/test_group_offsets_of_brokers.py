"""Groups and their offsets as brokers answer about them: what is read, committed, deleted and refused."""

from __future__ import annotations

from typing import Iterator

import pytest
from confluent_kafka import ShareConsumer, TopicPartition
from kafka import KafkaAdminClient
from kafka.protocol.consumer import JoinGroupRequest

from mirror_lib.config.model import ClusterConfig
from mirror_lib.facts import CommittedOffset, NewTopic
from mirror_lib.kafka.admin import KafkaCluster
from tests.integration.conftest import Names
from tests.lab.brokers import KafkaBroker
from tests.lab.group_lab import CLASSIC, KIP_848, commit, committed, member
from tests.lab.one_flow import until

IN_USE = "UNKNOWN_MEMBER_ID: the group has members, so it is in use on this cluster"


@pytest.fixture(scope="module")
def target(target_cluster: KafkaBroker) -> Iterator[KafkaCluster]:
    with connect(target_cluster) as cluster:
        yield cluster


@pytest.fixture
def topic(target: KafkaCluster, topic_name: Names) -> str:
    name = topic_name("orders")
    assert target.create_topics([NewTopic(name, 3, 1)]) == {name: None}
    return name


def connect(broker: KafkaBroker, answer_seconds: float = 60) -> KafkaCluster:
    return KafkaCluster(ClusterConfig("backup", {"bootstrap.servers": broker.bootstrap}), answer_seconds)


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


def test_a_consumer_that_commits_without_being_a_member_makes_a_simple_group(
    target: KafkaCluster, target_cluster: KafkaBroker, topic: str
) -> None:
    commit(target_cluster, topic, topic, 7)
    found = target.describe_groups([topic])[topic]
    # Kafka cannot see whether this consumer is alive, and lets anyone commit for it.
    assert (found.state, found.simple, found.members) == ("Empty", True, ())
    assert topic in target.group_names()
    assert target.commit_offsets(topic, {(topic, 0): CommittedOffset(9)}) == {(topic, 0): None}


def test_a_group_that_is_not_there_is_left_out_and_has_no_offsets(target: KafkaCluster, topic_name: Names) -> None:
    group = topic_name("absent")
    assert group not in target.group_names()
    assert target.describe_groups([group]) == {}
    assert target.committed_offsets([group]) == {group: {}}
    assert target.delete_offsets(group, [("orders", 0)]) == {("orders", 0): None}


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
