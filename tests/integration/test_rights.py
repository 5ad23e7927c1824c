"""The second table of docs/deploy/permissions.md: with exactly these rights each feature works, and what is missing is
named."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable, Iterator, List

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

from mirror_lib.cli import main
from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.errors import MirrorError
from mirror_lib.facts import CommittedOffset, NewTopic, unreadable
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.kafka.compacted_topic import InternalTopic, whole_topic
from mirror_lib.kafka.group_progress import GroupProgress
from mirror_lib.takeover.origin import parse_origin, read_left
from tests.lab.guarded import GuardedBroker, admin_of, client_settings, guarded_cluster, login_config
from tests.lab.one_flow import until
from tests.lab.readers import read_topic
from tests.lab.rights_page import Right, further_rights, grant, granted, rights, take

pytestmark = pytest.mark.long

CONFIG = """\
clusters: {clusters}
flows:
  A->B:
    topics: [orders]
    groups: [billing]
    groups.simple: include
    replication.policy.class: IdentityReplicationPolicy
    replication.factor: 1
    delivery: at-least-once
    emit.heartbeats.enabled: false
    heartbeats.replication.enabled: false
    sync.topic.acls.enabled: false
    sync.topic.configs.enabled: false
    emit.checkpoints.enabled: true
    checkpoints.topic.replication.factor: 1
    commit.source.group: KafkaMirror
state: {state}
"""
SYNCS, KEPT, CHECKPOINTS = "mm2-offset-syncs.B.internal", "mm2-offsets.A.internal", "A.checkpoints.internal"
ADMIN = client_settings("admin")
Act = Callable[["Pair"], object]
RUNNING = ["identity policy", "emit.checkpoints", "mirror mm1", "delivery: at-least-once"]


@dataclass
class Pair:
    """Two clusters on which `mirror` may do what a test grants."""

    a: GuardedBroker
    b: GuardedBroker
    directory: Path
    output: pytest.CaptureFixture[str]

    def broker(self, cluster: str) -> GuardedBroker:
        return self.a if cluster == "A" else self.b

    def exactly(self, wanted: List[Right]) -> None:
        """Grant these and nothing else."""
        for cluster in "AB":
            with admin_of(self.broker(cluster)) as admin:
                for old in granted(admin, "mirror"):
                    take(admin, old)
                acls = {repr(each): each.acl("mirror") for each in wanted if each.cluster == cluster}
                grant(admin, list(acls.values()))

    def mirror(
        self, command: str, *options: str, state: str = "state", config: str = CONFIG, expected: int = 0
    ) -> str:
        """What a command prints on both channels; it must end with the exit code `expected`."""
        clusters = {each: login_config(self.broker(each), "mirror").client_properties("consumer") for each in "AB"}
        path = self.directory / f"{state}.yaml"
        path.write_text(config.format(clusters=json.dumps(clusters), state=self.directory / state))
        self.output.readouterr()
        code = main([*command.split(), str(path), *options])
        said = self.output.readouterr()
        assert code == expected, said.err
        return said.out + said.err

    def consumer(self, cluster: str, group: str) -> Consumer:
        return Consumer({"bootstrap.servers": self.broker(cluster).bootstrap, "group.id": group, **ADMIN})

    def commit(self, cluster: str, group: str, offset: int) -> None:
        consumer = self.consumer(cluster, group)
        consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
        consumer.close()

    def committed(self, cluster: str, group: str) -> int:
        """Negative where there is none."""
        consumer = self.consumer(cluster, group)
        (found,) = consumer.committed([TopicPartition("orders", 0)], 30)
        consumer.close()
        return int(found.offset)

    def write(self, cluster: str, topic: str, *records: bytes, key: bytes = b"k") -> None:
        producer = Producer({"bootstrap.servers": self.broker(cluster).bootstrap, **ADMIN, "log_level": 0})
        for value in records:
            producer.produce(topic, value, key, 0)
        assert producer.flush(30) == 0


@pytest.fixture(scope="module")
def brokers(lab_directory: Path) -> Iterator[List[GuardedBroker]]:
    with ExitStack() as stack:
        yield [stack.enter_context(guarded_cluster(lab_directory)) for _ in "AB"]


@pytest.fixture
def pair(brokers: List[GuardedBroker], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Pair:
    return Pair(brokers[0], brokers[1], tmp_path, capsys)


def of(*features: str) -> List[Right]:
    """What the page asks for: of the first table what copying and groups need on A, of the second these features."""
    own = [each for each in rights() if each.cluster == "A" and each.feature in ("copying", "groups")]
    return [*own, *(each for each in further_rights() if each.feature.startswith(tuple(features)))]


def test_exactly_the_further_rights_are_enough(pair: Pair, spark: SparkSession) -> None:
    with KafkaCluster(login_config(pair.a, "admin")) as admin:
        admin.create_topics([NewTopic("orders", 1, 1)])
    pair.write("A", "orders", *(b"%d" % number for number in range(100)))
    pair.commit("A", "billing", 40)

    moving = [each for each in rights() if each.cluster == "B" and each.feature == "groups"]
    pair.exactly([*of(*RUNNING), *moving])
    pair.mirror("run", "--once")
    assert [record.value for record in read_topic(pair.b, "orders", login=ADMIN)[0].values()] == [
        b"%d" % number for number in range(100)
    ]
    assert any(read_topic(pair.b, CHECKPOINTS, login=ADMIN).values())
    assert pair.committed("A", "KafkaMirror") == 100

    pair.exactly([*of("identity policy", "rollback of group offsets"), *moving])
    moved = pair.mirror("groups plan", "--execute")
    assert pair.committed("B", "billing") == 40
    found = re.search(r"--run (\w+)", moved)
    assert found is not None, moved
    pair.mirror("groups rollback", "--run", found.group(1), "--execute")
    assert pair.committed("B", "billing") < 0

    pair.commit("B", "billing", 60)
    pair.exactly(of("identity policy", "fail-back"))
    pair.mirror("groups plan", "--reverse", "--execute")
    assert pair.committed("A", "billing") == 60

    kept = b'["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"orders"}]'
    with KafkaCluster(login_config(pair.b, "admin")) as admin:
        admin.create_topics([NewTopic(KEPT, 1, 1)])
    pair.write("B", KEPT, b'{"offset":99}', key=kept)
    pair.exactly(of("identity policy", "take-over of a MirrorMaker 2"))
    assert "1 take over" in pair.mirror("takeover", state="mm2")
    pair.exactly(of("identity policy", "take-over of a MirrorMaker 1"))
    assert "1 take over" in pair.mirror("takeover", "--from", "group=KafkaMirror", state="mm1")


def test_topic_without_describe_configs_is_named_and_the_others_are_copied(pair: Pair, spark: SparkSession) -> None:
    """`closed` has no remote topic, `there` has one; of neither may the configs be read on A."""
    names = ["orders", "closed", "there"]
    with KafkaCluster(login_config(pair.a, "admin")) as admin:
        admin.create_topics([NewTopic(f"one.{name}", 1, 1) for name in names])
    with KafkaCluster(login_config(pair.b, "admin")) as admin:
        admin.create_topics([NewTopic("one.there", 1, 1)])
    for name in names:
        pair.write("A", f"one.{name}", b"1", b"2")
    ours = [Right("", "A", "Topic", "one.*", "Read"), Right("", "A", "Topic", "one.orders", "DescribeConfigs")]
    theirs = [Right("", "B", "Topic", "one.*", each) for each in ("Create", "Write", "Read", "Alter", "AlterConfigs")]
    pair.exactly([*ours, *theirs])
    config = CONFIG.replace("[orders]", '["one[.].*"]').replace("sync.topic.configs.enabled: false", "tasks.max: 1")
    config = config.replace("    commit.source.group: KafkaMirror\n", "").replace("true", "false")
    planned = json.loads(pair.mirror("plan", "--json", state="one", config=config, expected=1).splitlines()[0])
    assert [each["source"]["name"] for each in planned["topics"]["copied"]] == ["one.orders", "one.there"]
    assert [each["name"] for each in planned["topics"]["skipped"] if each["wanted"]] == ["one.closed"]
    output = pair.mirror("run", "--once", state="one", config=config, expected=1)
    last = output.strip().splitlines()[-1]
    assert "MIR-205" in last and "one.closed" in last and "DescribeConfigs" in last
    assert "one.there" in next(line for line in output.splitlines() if "A->B control" in line)
    for name in ("one.orders", "one.there"):
        assert [each.value for each in read_topic(pair.b, name, login=ADMIN)[0].values()] == [b"1", b"2"]


def cluster_of(pair: Pair, cluster: str) -> KafkaCluster:
    return KafkaCluster(config_of(pair, cluster))


def config_of(pair: Pair, cluster: str) -> ClusterConfig:
    return replace(login_config(pair.broker(cluster), "mirror"), alias=cluster)


def of_cluster(cluster: str, act: Callable[[KafkaCluster], object]) -> Act:
    """What one question or request to a cluster answers."""

    def answer(pair: Pair) -> object:
        with cluster_of(pair, cluster) as connected:
            return act(connected)

    return answer


def creating(topic: str) -> Act:
    return of_cluster("B", lambda on: on.create_topics([NewTopic(topic, 1, 1)]))


def looking_at(cluster: str, group: str) -> Act:
    return of_cluster(cluster, lambda on: on.committed_offsets([group]))


COMMITTING = of_cluster("A", lambda on: on.commit_offsets("billing", {("orders", 0): CommittedOffset(1)}))


def writing(topic: str) -> Act:
    def act(pair: Pair) -> None:
        with InternalTopic(config_of(pair, "B"), topic, 1) as there:
            there.append([(b"k", b"v")])

    return act


def reading(topic: str) -> Act:
    return lambda pair: whole_topic(config_of(pair, "B"), topic, 1)


def committing_progress(pair: Pair) -> None:
    flow = ReplicationFlow(config_of(pair, "A"), config_of(pair, "B"), commit_source_group="KafkaMirror")
    with cluster_of(pair, "A") as source, GroupProgress(source, flow) as progress:
        progress.commit({("orders", 0): CommittedOffset(1)})


def taking_over(pair: Pair) -> object:
    for broker, topic in ((pair.a, SYNCS), (pair.b, KEPT)):
        with KafkaCluster(login_config(broker, "admin")) as admin:
            if topic not in admin.topics():  # without it the answer is the same as without the right
                admin.create_topics([NewTopic(topic, 1, 1)])
    flow = ReplicationFlow(config_of(pair, "A"), config_of(pair, "B"))
    with cluster_of(pair, "A") as source, cluster_of(pair, "B") as target:
        return read_left(parse_origin("mm2"), flow, source, target)


@pytest.mark.parametrize(
    ("feature", "cluster", "name", "operation", "act", "sentence"),
    [
        ("identity", "B", "orders", "Create", creating("orders"), "grant Create on the topic"),
        ("identity", "B", "orders", "Write", writing("orders"), "grant Write on the topic"),
        ("identity", "B", "orders", "Read", reading("orders"), "needs Read on the topic"),
        ("identity", "B", "orders", "Alter", of_cluster("B", lambda on: on.create_partitions({"orders": 1})),
         "grant Alter on the topic"),
        ("identity", "B", "orders", "DescribeConfigs",
         of_cluster("B", lambda on: unreadable("B", on.topic_configs(["orders"]))), "grant DescribeConfigs"),
        ("emit.checkpoints", "B", CHECKPOINTS, "Create", creating(CHECKPOINTS), "grant Create on the topic"),
        ("emit.checkpoints", "B", CHECKPOINTS, "Write", writing(CHECKPOINTS), "grant Write on the topic"),
        ("emit.checkpoints", "B", CHECKPOINTS, "Read", reading(CHECKPOINTS), "needs Read on the topic"),
        ("fail-back", "A", "billing", "Read", COMMITTING, "grant Read on the group"),
        ("fail-back", "A", "orders", "Read", COMMITTING, "grant Read on the topic"),
        ("fail-back", "B", "billing", "Describe", looking_at("B", "billing"), "grant Describe on the group"),
        ("rollback of group offsets", "B", "billing", "Delete",
         of_cluster("B", lambda on: on.delete_offsets("billing", [("orders", 0)])), "grant Delete on the group"),
        ("take-over of a MirrorMaker 2", "B", KEPT, "Read", taking_over, "grant Read on it"),
        ("take-over of a MirrorMaker 2", "A", SYNCS, "Read", taking_over, "grant Read on it"),
        ("take-over of a MirrorMaker 2", "B", "A-mm2", "Describe",
         of_cluster("B", lambda on: on.describe_groups(["A-mm2"])), "grant Describe on the group"),
        ("take-over of a MirrorMaker 1", "A", "KafkaMirror", "Describe", looking_at("A", "KafkaMirror"),
         "grant Describe on the group"),
        ("mirror mm1", "A", "KafkaMirror", "Read", committing_progress, "grant Read on the group"),
    ],
)  # fmt: skip
def test_a_missing_right_is_named(
    pair: Pair, caplog: pytest.LogCaptureFixture, feature: str, cluster: str, name: str, operation: str, act: Act,
    sentence: str,
) -> None:  # fmt: skip
    wanted, asked = of("identity policy", feature), (cluster, name, operation)
    right = next(each for each in wanted if (each.cluster, each.name, each.operation) == asked)
    pair.exactly(wanted)

    def reported() -> str:
        caplog.clear()
        try:
            return f"{act(pair)} {caplog.text}"
        except MirrorError as error:
            return f"{error} {caplog.text}"

    until(lambda: sentence not in reported(), 20)  # the authorizer learns of it a moment later
    admin = admin_of(pair.broker(cluster))
    take(admin, right.acl("mirror"))
    admin.close()
    until(lambda: sentence in reported(), 20)
