"""The tables of docs/deploy/permissions.md on clusters with ACLs: with exactly these rights each feature works, and
`mirror doctor` or an error names what is missing."""

from __future__ import annotations

import json
import logging
import re
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable, Dict, Iterator, List

import pytest
from confluent_kafka import TopicPartition
from kafka.admin import ACLOperation
from pyspark.sql import SparkSession

from mirror_lib.cli import main
from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.errors import LoginError, MirrorError
from mirror_lib.facts import CommittedOffset, NewTopic, unreadable
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.kafka.compacted_topic import InternalTopic, whole_topic
from mirror_lib.kafka.group_progress import GroupProgress
from mirror_lib.takeover.origin import parse_origin, read_left
from tests.integration.conftest import Command, Done, Ground
from tests.lab.brokers import second_broker
from tests.lab.flow_lab import Servers, run_config, small_config
from tests.lab.guarded import (
    PLAIN_LOGIN,
    GuardedBroker,
    Right,
    admin_of,
    allow,
    client_settings,
    further_rights,
    grant,
    granted,
    guarded_cluster,
    login,
    login_config,
    rights,
    take,
)
from tests.lab.one_flow import until
from tests.lab.readers import consumer_of, read_topic

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

    def mirror(self, command: str, *options: str, state: str = "state") -> str:
        """What a command prints on both channels; it must end with 0."""
        clusters = {each: login_config(self.broker(each), "mirror").client_properties("consumer") for each in "AB"}
        path = self.directory / f"{state}.yaml"
        path.write_text(CONFIG.format(clusters=json.dumps(clusters), state=self.directory / state))
        self.output.readouterr()
        code = main([*command.split(), str(path), *options])
        said = self.output.readouterr()
        assert code == 0, said.err
        return said.out + said.err

    def commit(self, cluster: str, group: str, offset: int) -> None:
        consumer = consumer_of(self.broker(cluster), group, **ADMIN)
        consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
        consumer.close()

    def committed(self, cluster: str, group: str) -> int:
        """Negative where there is none."""
        consumer = consumer_of(self.broker(cluster), group, **ADMIN)
        (found,) = consumer.committed([TopicPartition("orders", 0)], 30)
        consumer.close()
        return int(found.offset)

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


@pytest.mark.long
def test_exactly_the_further_rights_are_enough(pair: Pair, spark: SparkSession) -> None:
    with KafkaCluster(login_config(pair.a, "admin")) as admin:
        admin.create_topics([NewTopic("orders", 1, 1)])
    pair.a.write("orders", *(b"%d" % number for number in range(100)), partition=0, **ADMIN)
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
    producer = pair.b.producer(**ADMIN)
    producer.produce(KEPT, b'{"offset":99}', kept, 0)
    assert producer.flush(30) == 0
    pair.exactly(of("identity policy", "take-over of a MirrorMaker 2"))
    assert "1 take over" in pair.mirror("takeover", state="mm2")
    pair.exactly(of("identity policy", "take-over of a MirrorMaker 1"))
    assert "1 take over" in pair.mirror("takeover", "--from", "group=KafkaMirror", state="mm1")


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


COMMITTING = of_cluster("A", lambda on: on.commit_offsets("billing", {("orders", 0): CommittedOffset(1)}))


def writing(pair: Pair) -> None:
    with InternalTopic(config_of(pair, "B"), "orders", 1) as there:
        there.append([(b"k", b"v")])


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


@pytest.mark.long
@pytest.mark.parametrize(
    ("feature", "cluster", "name", "operation", "act", "sentence"),
    [
        ("identity", "B", "orders", "Create", of_cluster("B", lambda on: on.create_topics([NewTopic("orders", 1, 1)])),
         "grant Create on the topic"),
        ("identity", "B", "orders", "Write", writing, "grant Write on the topic"),
        ("identity", "B", "orders", "Read", lambda pair: whole_topic(config_of(pair, "B"), "orders", 1),
         "needs Read on the topic"),
        ("identity", "B", "orders", "DescribeConfigs",
         of_cluster("B", lambda on: unreadable("B", on.topic_configs(["orders"]))), "grant DescribeConfigs"),
        ("fail-back", "A", "billing", "Read", COMMITTING, "grant Read on the group"),
        ("fail-back", "A", "orders", "Read", COMMITTING, "grant Read on the topic"),
        ("fail-back", "B", "billing", "Describe", of_cluster("B", lambda on: on.committed_offsets(["billing"])),
         "grant Describe on the group"),
        ("rollback of group offsets", "B", "billing", "Delete",
         of_cluster("B", lambda on: on.delete_offsets("billing", [("orders", 0)])), "grant Delete on the group"),
        ("take-over of a MirrorMaker 2", "B", KEPT, "Read", taking_over, "grant Read on it"),
        ("take-over of a MirrorMaker 2", "A", SYNCS, "Read", taking_over, "grant Read on it"),
        ("take-over of a MirrorMaker 2", "B", "A-mm2", "Describe",
         of_cluster("B", lambda on: on.describe_groups(["A-mm2"])), "grant Describe on the group"),
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


# --- mirror doctor ------------------------------------------------------------------------------------------------

FLOW = {
    **{"topics": "[orders]", "groups": "[billing]"},
    **{"sync.group.offsets.enabled": "true", "emit.checkpoints.enabled": "false"},
}
MISSING = [
    ("orders", "Read", "topics", "copies no topic"),
    ("A.*", "Create", "create-topic", "cannot be created"),
    ("mirror.A->B.*", "Write", "acl-transactional-id", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
]


class Doctor:
    """`mirror doctor` about `A->B`."""

    def __init__(self, folder: Path, command: Command, servers: Servers) -> None:
        self.command = command
        self.path = small_config(folder, "mirror", servers, FLOW, flows=["A->B"], state=folder / "state")

    def checks(self) -> Done:
        return self.command("doctor", self.path, "--no-spark", "--json")

    def reports(self, code: str, said: str) -> bool:
        found = [each for each in self.checks().documents if each["code"] == code and each["level"] != "ok"]
        return any(said in each["detail"] for each in found)


def test_doctor_names_a_missing_permission_and_the_rights_of_the_page_are_enough(
    tmp_path: Path, command: Command
) -> None:
    """One broker stands for both clusters: the remote topics have names of their own."""
    page = [each for each in rights() if not each.feature.startswith(("`sync.topic.acls", "heartbeats"))]
    acls = {(each.name, each.operation): each.acl("mirror") for each in page}
    with guarded_cluster(tmp_path) as broker, login(broker, "admin") as connection, admin_of(broker) as admin:
        connection.create_topics([NewTopic("orders", 2, 1), NewTopic("secret", 1, 1)])
        properties = login_config(broker, "mirror").properties
        doctor = Doctor(tmp_path, command, {"A": properties, "B": properties})
        grant(admin, list({repr(each.acl("mirror")): each.acl("mirror") for each in page}.values()))
        until(lambda: doctor.checks().code == 0)
        for name, operation, code, said in MISSING:
            take(admin, acls[name, operation])
            until(lambda code=code, said=said: doctor.reports(code, said))  # type: ignore[misc]
            grant(admin, [acls[name, operation]])


def test_cluster_that_does_not_answer_blocks_the_doctor(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirror_lib.doctor.cluster_checks.ANSWER_SECONDS", 2.0)
    done = Doctor(tmp_path, command, {"A": "127.0.0.1:9", "B": "127.0.0.1:10"}).checks()
    checks = done.documents
    assert done.code == 1
    assert [(each["subject"], each["code"], each["level"]) for each in checks[1:]] == [
        ("A", "login", "blocking"),
        ("B", "login", "blocking"),
    ]
    assert all("cannot reach" in each["detail"] and each["remedy"] for each in checks[1:])


# --- one broker of a cluster does not take the mirror's password ---------------------------------------------------


@dataclass
class HalfClosed:
    """A cluster of two brokers; `closed` has another password of the user `mirror` than `open`: the others are used, by
    each client of the mirror."""

    open: GuardedBroker
    closed: GuardedBroker

    def properties(self, *brokers: GuardedBroker) -> Dict[str, str]:
        servers = ",".join(each.bootstrap for each in brokers or (self.closed, self.open))
        return {**login_config(self.open, "mirror").properties, "bootstrap.servers": servers}


@pytest.fixture(scope="module")
def half_closed(lab_directory: Path) -> Iterator[HalfClosed]:
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    other = {"listener.name.plaintext.plain.sasl.jaas.config": PLAIN_LOGIN.replace('"mirror-secret"', '"other"')}
    with guarded_cluster(lab_directory) as first:
        with KafkaCluster(login_config(first, "admin")) as admin:
            assert admin.create_topics([NewTopic("orders", 2, 1)]) == {"orders": None}
        with second_broker(first, first.directory.parent / "closed", other) as second:
            assert isinstance(second, GuardedBroker)
            yield HalfClosed(first, second)


@pytest.mark.long
def test_login_that_no_server_takes_is_still_refused(half_closed: HalfClosed) -> None:
    with pytest.raises(LoginError):
        KafkaCluster(ClusterConfig("A", half_closed.properties(half_closed.closed)), 20)
    wrong = {key: value.replace("mirror-secret", "nope") for key, value in half_closed.properties().items()}
    with pytest.raises(LoginError):
        KafkaCluster(ClusterConfig("A", wrong), 20)


@pytest.mark.long
def test_run_copies_though_one_server_refuses_the_login(half_closed: HalfClosed, ground: Ground) -> None:
    _, target, spark, folder = ground
    for operation in (ACLOperation.READ, ACLOperation.DESCRIBE_CONFIGS):
        allow(half_closed.open, "orders", operation)
    for number in (0, 1):
        half_closed.open.write("orders", *[b"of %d" % number] * 10, partition=number, **client_settings("admin"))
    servers: Servers = {"half": half_closed.properties(), "B": target.bootstrap}
    settings = {"topics": ["orders"], "tasks.max": 1, "sync.topic.acls.enabled": "false", "admin.timeout.ms": 20000}
    config = small_config(folder, "half-closed", servers, settings, flows=["half->B"], state=folder / "state")
    (outcome,) = run_config(config, spark)
    assert outcome.error is None, outcome.error
    assert sum(len(log) for log in read_topic(target, "half.orders").values()) == 20
