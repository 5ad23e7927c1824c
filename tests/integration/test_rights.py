"""Clusters with ACLs. With exactly the rights of docs/deploy/permissions.md each feature works, and `mirror doctor` or
an error names what is missing. Topic configs, ACLs and heartbeats arrive, and nothing stops the copy."""

from __future__ import annotations

import json
import logging
import re
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

import pytest
from confluent_kafka import TopicPartition
from kafka.admin import ACLOperation, ResourceType
from pyspark.sql import SparkSession

from mirror_lib.cli import main
from mirror_lib.config.loader import load
from mirror_lib.config.model import ClusterConfig, MirrorConfig, ReplicationFlow
from mirror_lib.control.service import ControlReport, background_control
from mirror_lib.control.sync import sync_topic_acls
from mirror_lib.control.topic_acls import AclChanges
from mirror_lib.errors import LoginError, MirrorError
from mirror_lib.facts import EVERY_TOPIC, LITERAL, PREFIXED, AclBinding, CommittedOffset, NewTopic, readable, unreadable
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.kafka.compacted_topic import InternalTopic, whole_topic
from mirror_lib.kafka.group_progress import GroupProgress
from mirror_lib.metrics import FlowMetrics
from mirror_lib.plan.preview import preview
from mirror_lib.takeover.origin import parse_origin, read_left
from tests.integration.conftest import Command, Done, Ground, Names
from tests.lab.brokers import KafkaBroker, second_broker
from tests.lab.flow_lab import Servers, run_config, small_config
from tests.lab.guarded import (
    ADMIN,
    PLAIN_LOGIN,
    GuardedBroker,
    Right,
    admin_of,
    allow,
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
from tests.unit.test_topic_acl_sync import Book

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

    def mirror(self, command: str, *options: str, state: str = "state", config: str = CONFIG, expected: int = 0) -> str:
        """What a command prints on both channels; it must end with the exit code `expected`."""
        clusters = {each: login_config(self.broker(each), "mirror").client_properties("consumer") for each in "AB"}
        path = self.directory / f"{state}.yaml"
        path.write_text(config.format(clusters=json.dumps(clusters), state=self.directory / state))
        self.output.readouterr()
        code = main([*command.split(), str(path), *options])
        said = self.output.readouterr()
        assert code == expected, said.err
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

    # What the target does not take is neither said to be committed nor passed over.
    with_offsets = "checkpoints.enabled: false\n    sync.group.offsets.enabled: true"
    textfile = pair.directory / "mirror.prom"
    keeping = CONFIG.replace("checkpoints.enabled: true", with_offsets) + f"metrics.textfile: {textfile}\n"
    pair.exactly(of(*RUNNING))
    assert "on B does not answer" in pair.mirror("run", "--once", config=keeping, expected=1)
    pair.exactly(of(*RUNNING, "fail-back"))
    said = pair.mirror("run", "--once", config=keeping, expected=1)
    assert re.search(r"^kafka_mirror_run_success.* 0", textfile.read_text(), re.MULTILINE)
    assert "group billing: the offset on orders-0 was not committed" in said and "grant Read on the group" in said
    said = pair.mirror("status", config=keeping, expected=1)
    assert "1 group not moved, billing: recorded, not committed" in said
    assert "not committed" in pair.mirror("failover", config=keeping)

    pair.exactly(of("identity policy", "fail-back"))
    pair.commit("B", "billing", 60)
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


@pytest.mark.long
def test_topic_without_describe_configs_is_named_and_the_others_are_copied(pair: Pair, spark: SparkSession) -> None:
    """`closed` has no remote topic, `there` has one; of neither may the configs be read on A."""
    names = ["orders", "closed", "there"]
    with KafkaCluster(login_config(pair.a, "admin")) as admin:
        admin.create_topics([NewTopic(f"one.{name}", 1, 1) for name in names])
    with KafkaCluster(login_config(pair.b, "admin")) as admin:
        admin.create_topics([NewTopic("one.there", 1, 1)])
    for name in names:
        pair.a.write(f"one.{name}", b"1", b"2", partition=0, **ADMIN)
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
        half_closed.open.write("orders", *[b"of %d" % number] * 10, partition=number, **ADMIN)
    servers: Servers = {"half": half_closed.properties(), "B": target.bootstrap}
    settings = {"topics": ["orders"], "tasks.max": 1, "sync.topic.acls.enabled": "false", "admin.timeout.ms": 20000}
    config = small_config(folder, "half-closed", servers, settings, flows=["half->B"], state=folder / "state")
    (outcome,) = run_config(config, spark)
    assert outcome.error is None, outcome.error
    assert sum(len(log) for log in read_topic(target, "half.orders").values()) == 20


# --- topic configs, ACLs and heartbeats: what arrives, what stays as it is; nothing stops the copy --------------------


@pytest.fixture(scope="module")
def guarded(lab_directory: Path) -> Iterator[GuardedBroker]:
    with guarded_cluster(lab_directory) as broker:
        yield broker


@pytest.fixture(scope="module")
def admin(guarded: GuardedBroker) -> Iterator[KafkaCluster]:
    """The one broker, which stands for both clusters: the copies have names of their own."""
    with login(guarded, "admin") as cluster:
        yield cluster


def flow_of(name: str, **settings: Any) -> ReplicationFlow:
    return ReplicationFlow(
        ClusterConfig("A", {}), ClusterConfig("B", {}), topics=(name,), heartbeats_replication=False, **settings
    )


def visible(cluster: KafkaCluster, here: Iterable[AclBinding], gone: Iterable[AclBinding] = ()) -> None:
    """Wait until the broker answers with what its controller has."""

    def seen() -> bool:
        acls = cluster.topic_acls() or frozenset()
        return acls.issuperset(here) and acls.isdisjoint(gone)

    until(seen)


def planned_acls(flow: ReplicationFlow, cluster: KafkaCluster, book: Book) -> AclChanges:
    """What `mirror plan` shows."""
    found = preview(flow, cluster, cluster, MirrorConfig((flow,), ""), partial(book.made, flow.name)).acls
    assert found is not None
    return found


def test_acls_arrive_translated_and_only_ours_are_deleted_and_only_if_asked(
    admin: KafkaCluster, topic_name: Names
) -> None:
    name = topic_name("orders")
    stem, who = name[:-2], f"User:{name}"
    literal = AclBinding(name, LITERAL, who, "*", "DESCRIBE", "ALLOW")
    every = AclBinding(EVERY_TOPIC, LITERAL, who, "10.0.0.1", "READ", "ALLOW")
    writes = replace(literal, operation="WRITE")
    originals = {
        literal,
        writes,
        every,
        replace(literal, operation="ALL"),
        replace(literal, operation="WRITE", permission="DENY"),
        replace(literal, topic=stem, pattern_type=PREFIXED),
    }
    copies = {
        replace(literal, topic=f"A.{name}"),
        replace(literal, topic=f"A.{name}", operation="READ"),
        replace(literal, topic=f"A.{name}", operation="WRITE", permission="DENY"),
        replace(literal, topic=f"A.{stem}", pattern_type=PREFIXED),
        replace(every, topic="A.", pattern_type=PREFIXED),
    }
    by_hand = replace(literal, topic=f"A.{name}", principal="User:other", operation="READ")
    flow, book = flow_of(name), Book()
    admin.create_topics([NewTopic(name, 1, 1)])
    assert set(admin.create_topic_acls([*originals, by_hand]).values()) == {None}
    visible(admin, {*originals, by_hand})
    assert frozenset(planned_acls(flow, admin, book).create) == copies
    synced = sync_topic_acls(flow, (flow,), admin, admin, book)
    assert (synced.changed, synced.deleted, synced.problems) == (len(copies), 0, ())
    visible(admin, copies)
    assert copies == {acl for acl in admin.topic_acls() or () if acl.topic.startswith("A.")} - {by_hand}
    assert sync_topic_acls(flow, (flow,), admin, admin, book).changed == 0

    gone = {replace(literal, topic=f"A.{stem}", pattern_type=PREFIXED), replace(literal, topic=f"A.{name}")}
    admin.delete_topic_acls([literal, replace(literal, topic=stem, pattern_type=PREFIXED)])
    visible(admin, set(), {literal})
    assert sync_topic_acls(flow, (flow,), admin, admin, book).deleted == 0
    visible(admin, copies)
    deleting = replace(flow, sync_topic_acls_delete=True)
    assert frozenset(planned_acls(deleting, admin, book).delete) == gone
    assert planned_acls(flow, admin, book) == replace(planned_acls(deleting, admin, book), delete=())
    assert sync_topic_acls(deleting, (flow,), admin, admin, book).deleted == len(gone)
    visible(admin, {*(copies - gone), by_hand}, gone)
    assert frozenset(copies - gone) == book.made(flow.name)
    admin.delete_topic_acls([*originals, *copies, by_hand])


def test_without_an_authorizer_nothing_is_copied_and_that_is_said(source_cluster: KafkaBroker) -> None:
    flow = flow_of("orders")
    with KafkaCluster(ClusterConfig("A", {"bootstrap.servers": source_cluster.bootstrap})) as cluster:
        synced = sync_topic_acls(flow, (flow,), cluster, cluster, Book())
    assert (synced.changed, synced.problems) == (0, ())
    assert synced.notes == ("no ACLs are copied: A has no authorizer",)


@dataclass
class GuardedFlow:
    """`A->B` over `topic`, both sides being one guarded broker, and what an operator sees of a run as `user`."""

    broker: GuardedBroker
    spark: SparkSession
    directory: Path
    topic: str
    more_topics: List[str] = field(default_factory=list)
    seen: List[FlowMetrics] = field(default_factory=list)
    copied: List[str] = field(default_factory=list)

    def config(self, user: str, **settings: str) -> MirrorConfig:
        side = login_config(self.broker, user).properties
        cluster = json.dumps({**side, "bootstrap.servers": self.broker.bootstrap})
        topics = [self.topic, *self.more_topics]
        flow = json.dumps({"topics": topics, "replication.factor": "1", "heartbeats.replication.enabled": "true"})
        way_back = json.dumps({"enabled": "false", "emit.heartbeats.enabled": "true"})
        path = self.directory / "mirror.yaml"
        path.write_text(
            f"name: {self.topic}\nstate: {self.directory / user}\nclusters:\n  A: {cluster}\n  B: {cluster}\n"
            f"flows:\n  A->B: {flow}\n  B->A: {way_back}\n"
        )
        return load(str(path))

    def run(self, user: str) -> Dict[str, ControlReport]:
        """What `mirror run` does; each flow's last report."""
        from mirror_lib.copy_job import run_flows
        from mirror_lib.ledger.event_tables import TopicAclTable
        from mirror_lib.ledger.runs import RunTable

        config, stop = self.config(user), threading.Event()
        reports: Dict[str, ControlReport] = {}
        made, last_run = TopicAclTable(self.spark, config.state), RunTable(self.spark, config.state).latest

        def watch(report: ControlReport) -> None:
            reports[report.flow] = report

        with background_control(config, config.flows, made, last_run, watch, stop):
            (outcome,) = run_flows(config, config.flows, self.spark, self.seen.append, stop)
        assert outcome.error is None
        self.copied = [each.topic for each in outcome.topics]
        return reports

    def read(self, topic: str) -> List[Tuple[Optional[bytes], Optional[bytes]]]:
        log = read_topic(self.broker, topic, login=ADMIN)[0]
        return [(record.key, record.value) for record in log.values()]


@pytest.fixture
def guarded_flow(
    guarded: GuardedBroker, admin: KafkaCluster, spark: SparkSession, tmp_path: Path, topic_name: Names
) -> GuardedFlow:
    flow = GuardedFlow(guarded, spark, tmp_path, topic_name("orders"))
    admin.create_topics([NewTopic(flow.topic, 1, 1)])
    large = (b"value %d" % number + b" " * 5000 for number in range(100))
    guarded.write(flow.topic, *large, partition=0, **ADMIN)
    return flow


def test_run_brings_all_in_line_before_it_copies_and_heartbeats_of_the_source_are_copied(
    guarded_flow: GuardedFlow, admin: KafkaCluster, command: Command
) -> None:
    read_right = AclBinding(guarded_flow.topic, LITERAL, "User:reader", "*", "READ", "ALLOW")
    # Without the source's limit this would stop the copy at its first record.
    admin.create_topics([NewTopic(f"A.{guarded_flow.topic}", 1, 1, {"max.message.bytes": "2000"})])
    admin.create_topic_acls([read_right])
    visible(admin, {read_right})
    reports = guarded_flow.run("admin")
    visible(admin, {replace(read_right, topic=f"A.{guarded_flow.topic}")})
    policies = readable(admin.topic_configs(["heartbeats"], ["cleanup.policy"]))["heartbeats"]
    assert len(guarded_flow.read(f"A.{guarded_flow.topic}")) == 100
    assert reports["A->B"].topic_configs == 1
    assert {flow: report.heartbeats for flow, report in reports.items()} == {"A->B": 1, "B->A": 1}
    assert policies["cleanup.policy"].value == "compact"
    written = guarded_flow.read("heartbeats")
    # MirrorMaker's clients count hops by this name.
    assert len(written) == 2 and guarded_flow.read("A.heartbeats") == written
    made = guarded_flow.spark.read.format("delta").load(f"{guarded_flow.config('admin').state}/topic_acls").collect()
    assert [(row.action, row.topic) for row in made] == [("created", f"A.{guarded_flow.topic}")]

    # Heartbeats are copied and count nowhere, unless the file names their topic.
    producer = guarded_flow.broker.producer(**ADMIN)
    producer.produce("heartbeats", b"later", b"key", 0)
    assert producer.flush(20) == 0
    orders = [guarded_flow.topic]
    assert guarded_flow.copied == orders
    assert {topic.topic for each in guarded_flow.seen for topic in each.topics} == set(orders)
    for more, topics, lag in ([], orders, 0), (["heartbeats"], ["heartbeats", *orders], 1):
        guarded_flow.more_topics = more
        guarded_flow.config("admin")
        both = [command(word, guarded_flow.directory / "mirror.yaml", "--json") for word in ("verify", "status")]
        (verified, status), codes = [each.documents[-1] for each in both], [each.code for each in both]
        assert (codes, [each["topic"] for each in verified["topics"]], status["lag"]) == ([0, 0], topics, lag)
        assert sorted({each["topic"] for each in status["partitions"]}) == topics


def test_flow_goes_on_copying_where_acls_and_heartbeats_are_refused(
    guarded_flow: GuardedFlow, caplog: pytest.LogCaptureFixture
) -> None:
    broker, topic = guarded_flow.broker, guarded_flow.topic
    for name in (topic, f"A.{topic}"):
        allow(broker, name, ACLOperation.ALL)
    allow(broker, "*", ACLOperation.ALL, ResourceType.TRANSACTIONAL_ID)
    reports = guarded_flow.run("mirror")
    assert len(guarded_flow.read(f"A.{topic}")) == 100
    assert reports["A->B"].heartbeats == 0
    assert [sentence for sentence in reports["A->B"].problems if "not allowed to list ACLs" in sentence]
    assert [sentence for sentence in reports["A->B"].problems if "cannot create heartbeats" in sentence]
    assert caplog.text.count("A->B: A: not allowed to list ACLs (grant Describe on the cluster)") == 1


def test_running_flow_follows_configs_and_acls_in_its_intervals_and_excluded_configs_stay_as_set_by_hand(
    guarded: GuardedBroker, admin: KafkaCluster, topic_name: Names
) -> None:
    name = topic_name("later")
    source, target = (replace(login_config(guarded, "admin"), alias=alias) for alias in "AB")
    intervals = {"sync_topic_configs_interval": 0.1, "sync_topic_acls_interval": 0.1, "emit_heartbeats_interval": None}
    excluded = (r"delete\.retention\.ms", r"min\.insync\.replicas")
    flow = flow_of(name, config_properties_exclude=excluded, **intervals)
    flow = replace(flow, source=source, target=target)
    config = MirrorConfig((flow,), "no state is needed", trigger="1 second")
    right = AclBinding(name, LITERAL, f"User:{name}", "*", "READ", "ALLOW")
    prefixed, more = replace(right, topic=name[:-1], pattern_type=PREFIXED), replace(right, operation="DESCRIBE")
    by_name, by_prefix, added = (replace(each, topic=f"A.{each.topic}") for each in (right, prefixed, more))
    seen: List[ControlReport] = []

    def retention(value: Optional[str]) -> None:
        assert admin.alter_topic_configs({name: {"retention.ms": value}}) == {name: None}

    def remote_becomes(configs: Dict[str, str]) -> None:
        """Wait until these are the remote topic's own configs."""

        def own() -> Dict[str, Optional[str]]:
            found = readable(admin.topic_configs([f"A.{name}"]))[f"A.{name}"]
            return {key: each.value for key, each in found.items() if each.source == "DYNAMIC_TOPIC_CONFIG"}

        until(lambda: own() == configs, what=str(configs))

    admin.create_topic_acls([right, prefixed])
    visible(admin, {right, prefixed})
    with background_control(config, config.flows, Book(), lambda _: None, seen.append, threading.Event()):
        # Rights may be granted before there is a topic. What a prefix means is known when one begins so.
        visible(admin, {by_name}, {by_prefix})
        by_hand = {"delete.retention.ms": "1000", "min.insync.replicas": "1"}
        configs = {name: {"retention.ms": "2000", "delete.retention.ms": "2000"}, f"A.{name}": by_hand}
        admin.create_topics([NewTopic(topic, 1, 1, each) for topic, each in configs.items()])
        visible(admin, {by_name, by_prefix}, {added})
        remote_becomes({**by_hand, "retention.ms": "2000"})
        admin.create_topic_acls([more])
        retention("3000")
        visible(admin, {by_name, by_prefix, added})
        remote_becomes({**by_hand, "retention.ms": "3000"})
        # The lab's brokers set a retention in their files: MirrorMaker 2 would keep the old value there for ever.
        retention(None)
        remote_becomes(by_hand)
    admin.delete_topic_acls([right, prefixed, more, by_name, by_prefix, added])
    assert seen[-1].topic_configs == 3
