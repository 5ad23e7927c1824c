"""Every MirrorMaker 2 and Connect example on two real clusters: what its document says of topics and groups is so."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Dict, Iterator, Mapping, Sequence, Tuple

import pytest
from confluent_kafka.admin import ConfigResource, ResourceType
from pyspark.sql import SparkSession

from mirror_lib.cli import main
from mirror_lib.facts import TopicPartition
from mirror_lib.groups.mm2_format import decode_checkpoint
from tests.lab.brokers import KafkaBroker, clusters
from tests.lab.crash import mirror
from tests.lab.examples import CONNECTORS, EXAMPLES, filled_in
from tests.lab.group_lab import commit, read_on
from tests.lab.one_flow import until
from tests.lab.readers import differences, read_topic

CHECKPOINTS = "emrsource.checkpoints.internal"
Sites = Tuple[KafkaBroker, KafkaBroker]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    """Clusters of this module alone: the examples copy every topic there is."""
    with clusters(["one", "two"], tmp_path_factory.mktemp("sites")) as (one, two):
        yield one, two


@pytest.fixture
def sites(both: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> Iterator[Sites]:
    """Both clusters, empty again afterwards. The files are filled in in the folder of the test."""
    monkeypatch.chdir(tmp_path)
    yield both
    for broker in both:
        admin = broker.admin()
        for future in admin.delete_topics(sorted(broker.topics)).values():
            future.result(30)


def run(files: Sequence[Path], sites: Sites, *options: str) -> None:
    """`mirror run FILES --once`, in this process."""
    paths = filled_in(files, [broker.bootstrap for broker in sites], Path.cwd())
    assert main(["run", *paths, "--once", *options]) == 0


def plan(files: Sequence[Path], sites: Sites) -> None:
    """`mirror plan FILES`, which changes neither cluster."""
    before = [broker.topics for broker in sites]
    assert main(["plan", *filled_in(files, [broker.bootstrap for broker in sites], Path.cwd())]) == 0
    assert [broker.topics for broker in sites] == before


def fill(broker: KafkaBroker, topic: str, count: int = 20, partitions: int = 0, **configs: str) -> str:
    """Records of an application; the topic is made where `partitions` are given."""
    if partitions:
        broker.create_topic(topic, partitions, **configs)
    producer = broker.producer()
    for number in range(count):
        producer.produce(topic, b"%d" % number, b"key %d" % (number % 7))
    assert producer.flush(30) == 0
    return topic


def assert_copied(source: KafkaBroker, topic: str, target: KafkaBroker, remote: str) -> None:
    ours = read_topic(source, topic)
    assert sum(len(log) for log in ours.values()) > 0
    assert differences(ours, read_topic(target, remote)) == []


def configs_of(broker: KafkaBroker, topic: str) -> Dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    # The client has to outlive the answer.
    admin = broker.admin()
    found = admin.describe_configs([resource])[resource].result(30)
    return {key: entry.value for key, entry in found.items()}


def count_of(found: Mapping[TopicPartition, Sequence[object]]) -> int:
    return sum(len(records) for records in found.values())


@pytest.mark.long
def test_hdinsight_one_way_prefixes_topics_and_leaves_internal_ones(sites: Sites) -> None:
    source, destination = sites
    fill(source, "TestMirrorMakerTopic", partitions=2)
    fill(source, "app.internal", partitions=1)
    fill(destination, "there", partitions=1)
    plan([EXAMPLES / "hdinsight" / "one-way.properties"], sites)
    run([EXAMPLES / "hdinsight" / "one-way.properties"], sites)
    assert_copied(source, "TestMirrorMakerTopic", destination, "source.TestMirrorMakerTopic")
    assert "source.app.internal" not in destination.topics
    assert not {name for name in source.topics if name.startswith("destination.")}


def test_hdinsight_both_ways_a_group_goes_on_where_it_left(sites: Sites) -> None:
    primary, secondary = sites
    files = [EXAMPLES / "hdinsight" / "both-ways-with-groups.properties"]
    topic = fill(primary, "TestMirrorMakerTopic", 20, partitions=2)
    fill(secondary, "orders", 20, partitions=1)
    assert count_of(read_on(primary, "my-group", [topic])) == 20
    run(files, sites)
    remote = f"primary-kafka-cluster.{topic}"
    assert_copied(primary, topic, secondary, remote)
    assert_copied(secondary, "orders", primary, "secondary-kafka-cluster.orders")
    assert count_of(read_on(secondary, "my-group", [remote])) == 0
    fill(primary, topic, 5)
    run(files, sites)
    assert count_of(read_on(secondary, "my-group", [remote])) == 5
    assert not {name for site in sites for name in site.topics if name.count("-kafka-cluster.") > 1}


@pytest.mark.long
def test_dzone_active_passive_copies_topics_with_their_configs(sites: Sites) -> None:
    source, target = sites
    sizes = {"topic_1": 1, "topic_2": 2, "compact_3": 5, "compacted_topic_1": 1, "compacted_topic_2": 1}
    for topic, partitions in sizes.items():
        policy = "compact" if topic.startswith("compacted") else "delete"
        fill(source, topic, partitions=partitions, cleanup_policy=policy)
    fill(target, "stays", partitions=1)
    assert count_of(read_on(source, "app", ["topic_2"])) == 20
    run([EXAMPLES / "dzone" / "active-passive.properties"], sites)
    for topic, partitions in sizes.items():
        assert_copied(source, topic, target, f"source.{topic}")
        assert len(read_topic(target, f"source.{topic}")) == partitions
    assert configs_of(target, "source.compacted_topic_1")["cleanup.policy"] == "compact"
    assert not {name for name in source.topics if name.startswith("target.")}
    # "A heartbeat topic on each side", and the copy of the source's.
    assert "heartbeats" in source.topics
    assert {"heartbeats", "source.heartbeats"} <= target.topics
    assert read_topic(target, "source.checkpoints.internal")[0]


@pytest.mark.long
def test_dzone_active_active_copies_both_ways(sites: Sites) -> None:
    source, target = sites
    fill(source, "topic_1", partitions=1)
    fill(target, "topic_2", partitions=1)
    run([EXAMPLES / "dzone" / "active-active.properties"], sites)
    assert_copied(source, "topic_1", target, "source.topic_1")
    assert_copied(target, "topic_2", source, "target.topic_2")
    records = {name for site in sites for name in site.topics if "topic_" in name}
    assert records == {"topic_1", "topic_2", "source.topic_1", "target.topic_2"}


@pytest.mark.long
def test_mirrormaker_1_command_for_all_topics_copies_each_under_its_name(sites: Sites) -> None:
    source, target = sites
    topics = [fill(source, name, partitions=1) for name in ("test-topic", "orders")]
    for topic in topics:  # these client files begin at the end where the group has no offset
        commit(source, "KafkaMirror", topic, 0)
    folder = EXAMPLES / "mm1" / "hortonworks"
    for file in folder.glob("*.properties"):
        text = file.read_text().replace("SOURCE_BROKERS", source.bootstrap)
        Path(file.name).write_text(text.replace("TARGET_BROKERS", target.bootstrap))
    command = shlex.split((folder / "all-topics.sh").read_text().splitlines()[-1])
    assert main([*command[1:], "--once", "--state", str(Path.cwd() / "state")]) == 0
    assert target.topics == set(topics)
    for topic in topics:
        assert_copied(source, topic, target, topic)


def test_the_three_connectors_together_are_one_flow(sites: Sites) -> None:
    source, target = sites
    fill(source, "foo", partitions=1)
    fill(source, "foo-2", partitions=3)
    fill(source, "bar-foo", partitions=1)
    assert count_of(read_on(source, "app", ["foo"])) == 20
    run(CONNECTORS, sites)
    assert_copied(source, "foo", target, "emrsource.foo")
    assert_copied(source, "foo-2", target, "emrsource.foo-2")
    assert "emrsource.bar-foo" not in target.topics
    assert "heartbeats" in target.topics
    # What `curl …/status` is for.
    assert main(["verify", *filled_in(CONNECTORS, [broker.bootstrap for broker in sites], Path.cwd())]) == 0
    assert read_topic(target, CHECKPOINTS)[0]


@pytest.mark.long
def test_each_connector_alone_does_its_part(sites: Sites) -> None:
    source, target = sites
    copying, translating, beating = ([file] for file in CONNECTORS)
    fill(source, "foo", partitions=1)
    assert count_of(read_on(source, "app", ["foo"])) == 20
    plan(translating, sites)
    run(translating, sites)
    assert target.topics == {CHECKPOINTS}
    assert not read_topic(target, CHECKPOINTS)[0]  # nothing is copied yet
    run(copying, sites)
    assert_copied(source, "foo", target, "emrsource.foo")
    fill(source, "foo", 5)
    run(translating, sites)
    assert target.topics == {"emrsource.foo", CHECKPOINTS}
    copies = read_topic(target, "emrsource.foo")[0]
    (record,) = read_topic(target, CHECKPOINTS)[0].values()
    found = decode_checkpoint(record.key or b"", record.value or b"")
    assert (found.group, found.topic, found.upstream_offset) == ("app", "emrsource.foo", 20)
    assert len(copies) == sum(offset < found.downstream_offset for offset in copies) == 20
    plan(beating, sites)
    run(beating, sites)
    assert target.topics == {"emrsource.foo", CHECKPOINTS, "heartbeats"} and source.topics == {"foo"}
    assert len(read_topic(target, "heartbeats")[0]) == 1
    # Those that copy nothing go on until they are stopped.
    commit(source, "app", "foo", 10)
    paths = filled_in(CONNECTORS[1:], [broker.bootstrap for broker in sites], Path.cwd())
    with mirror("run", *paths) as running:
        until(lambda: len(read_topic(target, "heartbeats")[0]) > 1, 60)
        until(lambda: len(read_topic(target, CHECKPOINTS)[0]) > 1, 60)
        assert running.process.poll() is None
        running.process.terminate()
        assert running.wait(30) == 0
    assert "copies nothing" in running.output
