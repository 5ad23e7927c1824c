"""Topic configs, ACLs and heartbeats on real brokers: what arrives, what is left alone; nothing stops the copy."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional

import pytest
from kafka.admin import ACLOperation, ResourceType

from mirror_lib.cluster import KafkaCluster
from mirror_lib.config.loader import load
from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.control.beside import ControlBeside
from mirror_lib.control.report import ControlReport
from mirror_lib.control.sync import sync_topic_acls, sync_topic_configs
from mirror_lib.facts import EVERY_TOPIC, LITERAL, PREFIXED, AclBinding, NewTopic
from tests.lab.brokers import KafkaBroker
from tests.lab.guarded import PLAIN_MODULE, GuardedBroker, allow, guarded_cluster, login, login_config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Names = Callable[[str], str]
NO_LIMIT = "9223372036854775807"


def connect(alias: str, broker: KafkaBroker) -> KafkaCluster:
    return KafkaCluster(ClusterConfig(alias, {"bootstrap.servers": broker.bootstrap}))


@pytest.fixture(scope="module")
def source(source_cluster: KafkaBroker) -> Iterator[KafkaCluster]:
    with connect("A", source_cluster) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def target(target_cluster: KafkaBroker) -> Iterator[KafkaCluster]:
    with connect("B", target_cluster) as cluster:
        yield cluster


@dataclass
class TwoTopics:
    """A topic and its remote topic, whose configs are set by hand and synced."""

    source: KafkaCluster
    target: KafkaCluster
    name: str

    def create(self, configs: Dict[str, str], remote_configs: Dict[str, str]) -> None:
        self.source.create_topics([NewTopic(self.name, 1, 1, configs)])
        self.target.create_topics([NewTopic(f"A.{self.name}", 1, 1, remote_configs)])

    def set(self, **configs: Optional[str]) -> None:
        """Change the source topic's configs, `_` for `.`; `None` removes one."""
        changes = {key.replace("_", "."): value for key, value in configs.items()}
        assert self.source.alter_topic_configs({self.name: changes}) == {self.name: None}

    def sync(self, **settings: Any) -> int:
        """How many configs were changed. None must be refused."""
        side = ClusterConfig("A", {}), ClusterConfig("B", {})
        flow = ReplicationFlow(*side, topics=(self.name,), heartbeats_replication=False, **settings)
        synced = sync_topic_configs(flow, (flow,), self.source, self.target)
        assert synced.problems == ()
        return synced.changed

    def remote(self) -> Dict[str, Optional[str]]:
        """The remote topic's own configs, without what it has by default."""
        found = self.target.topic_configs([f"A.{self.name}"])[f"A.{self.name}"]
        return {key: entry.value for key, entry in found.items() if entry.source == "DYNAMIC_TOPIC_CONFIG"}


@pytest.fixture
def topics(source: KafkaCluster, target: KafkaCluster, topic_name: Names) -> TwoTopics:
    return TwoTopics(source, target, topic_name("orders"))


def test_config_changed_on_the_source_arrives_and_is_not_sent_again(topics: TwoTopics) -> None:
    topics.create({"retention.ms": "1000"}, {"retention.ms": "1000"})
    assert topics.sync() == 0
    topics.set(retention_ms="2000", cleanup_policy="compact")
    assert topics.sync() == 2
    assert topics.remote() == {"retention.ms": "2000", "cleanup.policy": "compact"}
    assert topics.sync() == 0


def test_override_removed_on_the_source_is_removed_from_the_remote_topic(topics: TwoTopics) -> None:
    # The lab's brokers set a retention in their files, which is where MirrorMaker 2 would keep the old value for ever.
    topics.create({"retention.ms": "1000", "segment.ms": "5000"}, {"retention.ms": "1000", "segment.ms": "5000"})
    topics.set(retention_ms=None, segment_ms=None)
    assert topics.sync() == 2
    assert topics.remote() == {}


def test_excluded_config_set_by_hand_survives_and_another_returns_to_the_sources(topics: TwoTopics) -> None:
    by_hand = {"delete.retention.ms": "1000", "retention.bytes": "1000", "min.insync.replicas": "1"}
    topics.create({"delete.retention.ms": "2000", "retention.bytes": "2000"}, by_hand)
    assert topics.sync(config_properties_exclude=(r"delete\.retention\.ms", r"min\.insync\.replicas")) == 1
    assert topics.remote() == {**by_hand, "retention.bytes": "2000"}


def test_source_default_is_set_where_defaults_come_from_the_source(topics: TwoTopics) -> None:
    topics.create({}, {"segment.ms": "5000"})
    assert topics.sync(use_defaults_from="source") == 1
    assert topics.remote() == {"segment.ms": str(7 * 24 * 3600 * 1000)}


def test_what_lets_the_remote_topic_admit_every_record_is_not_undone(topics: TwoTopics) -> None:
    exact = {
        "message.timestamp.type": "CreateTime",
        "message.timestamp.before.max.ms": NO_LIMIT,
        "max.message.bytes": "3000000",
    }
    topics.create({"message.timestamp.type": "LogAppendTime", "max.message.bytes": "2000000"}, exact)
    assert topics.sync(config_properties_exclude=()) == 0
    topics.set(max_message_bytes="4000000")
    assert topics.sync(config_properties_exclude=()) == 1
    assert topics.remote() == {**exact, "max.message.bytes": "4000000"}


@pytest.fixture(scope="module")
def guarded(lab_directory: Path) -> Iterator[GuardedBroker]:
    with guarded_cluster(lab_directory) as broker:
        yield broker


class Book:
    """Remembers as the table does, for tests that are about the brokers."""

    def __init__(self) -> None:
        self.acls: List[AclBinding] = []

    def made(self, flow: str) -> frozenset[AclBinding]:
        return frozenset(self.acls)

    def created(self, flow: str, acls: Any) -> None:
        self.acls += acls

    def given_up(self, flow: str, acls: Any) -> None:
        self.acls = [acl for acl in self.acls if acl not in acls]


def visible(cluster: KafkaCluster, here: set[AclBinding], gone: set[AclBinding] = frozenset()) -> None:  # type: ignore
    """Wait until the broker answers with what its controller was told."""
    while True:
        acls = cluster.topic_acls()
        assert acls is not None
        if here <= acls and not gone & acls:
            return
        time.sleep(0.05)


def test_acls_arrive_translated_and_only_ours_are_deleted_and_only_if_asked(
    guarded: GuardedBroker, topic_name: Names
) -> None:
    # One broker stands for both clusters: the copies have names of their own.
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
    by_hand = replace(literal, topic=f"A.{name}", principal="User:somebody", operation="READ")
    flow = ReplicationFlow(ClusterConfig("A", {}), ClusterConfig("B", {}), topics=(name,), heartbeats_replication=False)
    book = Book()
    with login(guarded, "admin") as cluster:
        cluster.create_topics([NewTopic(name, 1, 1)])
        assert set(cluster.create_topic_acls([*originals, by_hand]).values()) == {None}
        visible(cluster, {*originals, by_hand})
        synced = sync_topic_acls(flow, (flow,), cluster, cluster, book)
        assert (synced.changed, synced.deleted, synced.problems) == (len(copies), 0, ())
        visible(cluster, copies)
        assert copies == {acl for acl in cluster.topic_acls() or () if acl.topic.startswith("A.")} - {by_hand}
        assert sync_topic_acls(flow, (flow,), cluster, cluster, book).changed == 0

        gone = {replace(literal, topic=f"A.{stem}", pattern_type=PREFIXED), replace(literal, topic=f"A.{name}")}
        cluster.delete_topic_acls([literal, replace(literal, topic=stem, pattern_type=PREFIXED)])
        visible(cluster, set(), {literal})
        assert sync_topic_acls(flow, (flow,), cluster, cluster, book).deleted == 0
        visible(cluster, copies)
        deleting = replace(flow, sync_topic_acls_delete=True)
        assert sync_topic_acls(deleting, (flow,), cluster, cluster, book).deleted == len(gone)
        visible(cluster, {*(copies - gone), by_hand}, gone)
        assert frozenset(copies - gone) == book.made(flow.name)
        cluster.delete_topic_acls([*originals, *copies, by_hand])


def test_without_an_authorizer_nothing_is_copied_and_that_is_said(source: KafkaCluster, target: KafkaCluster) -> None:
    flow = ReplicationFlow(ClusterConfig("A", {}), ClusterConfig("B", {}))
    synced = sync_topic_acls(flow, (flow,), source, target, Book())
    assert (synced.changed, synced.problems) == (0, ())
    assert synced.notes == ("no ACLs are copied: A has no authorizer",)
