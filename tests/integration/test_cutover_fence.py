"""`mirror cutover run --fence-source`: an ACL keeps producers away from the source until the way back removes it."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Iterator, List

import pytest
from confluent_kafka import Producer

from mirror_lib.cli import main
from mirror_lib.facts import LITERAL, AclBinding, NewTopic
from mirror_lib.kafka.admin import KafkaCluster
from tests.lab.guarded import GuardedBroker, client_settings, guarded_cluster, login_config
from tests.lab.one_flow import until

CONFIG = """\
clusters: {clusters}
flows:
  A->B:
    topics: [orders]
    replication.factor: 1
    emit.heartbeats.enabled: false
    heartbeats.replication.enabled: false
state: {state}
"""


@pytest.fixture(scope="module")
def brokers(lab_directory: Path) -> Iterator[List[GuardedBroker]]:
    with ExitStack() as stack:
        yield [stack.enter_context(guarded_cluster(lab_directory)) for _ in "AB"]


def refused(broker: GuardedBroker, value: bytes) -> str:
    """Why an application's record is not taken; empty where it is."""
    answers: List[str] = []
    own = Producer({"bootstrap.servers": broker.bootstrap, **client_settings("mirror"), "log_level": 0})
    own.produce("orders", value, on_delivery=lambda error, _: answers.append("" if error is None else error.name()))
    own.flush(30)
    return answers[0]


def test_application_may_not_write_between_the_cutover_and_the_way_back(
    brokers: List[GuardedBroker], tmp_path: Path
) -> None:
    path = tmp_path / "mirror.yaml"
    clusters = {
        alias: login_config(broker, "admin").client_properties("consumer") for alias, broker in zip("AB", brokers)
    }
    path.write_text(CONFIG.format(clusters=json.dumps(clusters), state=tmp_path / "state"))
    allowed = [AclBinding("orders", LITERAL, "User:mirror", "*", each, "ALLOW") for each in ("WRITE", "DESCRIBE")]
    with KafkaCluster(login_config(brokers[0], "admin")) as admin:
        admin.create_topics([NewTopic("orders", 1, 1)])
        admin.create_topic_acls(allowed)
        until(lambda: refused(brokers[0], b"first") == "")
        before = admin.topic_acls()

        options = ["--execute", "--quiet-seconds", "1", "--fence-source"]
        assert main(["cutover", "run", str(path), *options]) == 0
        until(lambda: refused(brokers[0], b"fenced") == "TOPIC_AUTHORIZATION_FAILED")

        assert main(["cutover", "back", str(path), "--execute"]) == 0
        until(lambda: admin.topic_acls() == before)
        until(lambda: refused(brokers[0], b"again") == "")
