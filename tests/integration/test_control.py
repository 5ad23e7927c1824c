"""Topic configs, ACLs and heartbeats on real brokers: what arrives, what stays as it is; nothing stops the copy."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Optional, Tuple

import pytest
from kafka.admin import ACLOperation, ResourceType

from mirror_lib.config.loader import load
from mirror_lib.config.model import ClusterConfig, MirrorConfig, ReplicationFlow
from mirror_lib.control.service import ControlReport, background_control
from mirror_lib.control.sync import sync_topic_acls
from mirror_lib.control.topic_acls import AclChanges
from mirror_lib.facts import EVERY_TOPIC, LITERAL, PREFIXED, AclBinding, NewTopic, readable
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.metrics import FlowMetrics
from mirror_lib.plan.preview import preview
from tests.integration.conftest import Command, Names
from tests.lab.brokers import KafkaBroker
from tests.lab.guarded import GuardedBroker, allow, client_settings, guarded_cluster, login, login_config
from tests.lab.one_flow import until
from tests.lab.readers import read_topic
from tests.unit.test_topic_acl_sync import Book

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
        log = read_topic(self.broker, topic, login=client_settings("admin"))[0]
        return [(record.key, record.value) for record in log.values()]


@pytest.fixture
def guarded_flow(
    guarded: GuardedBroker, admin: KafkaCluster, spark: SparkSession, tmp_path: Path, topic_name: Names
) -> GuardedFlow:
    flow = GuardedFlow(guarded, spark, tmp_path, topic_name("orders"))
    admin.create_topics([NewTopic(flow.topic, 1, 1)])
    large = (b"value %d" % number + b" " * 5000 for number in range(100))
    guarded.write(flow.topic, *large, partition=0, **client_settings("admin"))
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
    producer = guarded_flow.broker.producer(**client_settings("admin"))
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
