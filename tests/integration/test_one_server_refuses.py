"""One broker of a cluster does not take the mirror's password: the others are used, by each client of the mirror."""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterator

import pytest
from kafka.admin import ACLOperation

from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import LoginError
from mirror_lib.facts import NewTopic
from mirror_lib.kafka.admin import KafkaCluster
from tests.integration.conftest import Ground
from tests.lab.brokers import second_broker
from tests.lab.flow_lab import QUIET
from tests.lab.guarded import PLAIN_LOGIN, GuardedBroker, allow, client_settings, guarded_cluster, login_config
from tests.lab.readers import read_topic

pytestmark = pytest.mark.long


@dataclass
class HalfClosed:
    """A cluster of two brokers; `closed` has another password of the user `mirror` than `open`."""

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


def test_login_that_no_server_takes_is_still_refused(half_closed: HalfClosed) -> None:
    with pytest.raises(LoginError):
        KafkaCluster(ClusterConfig("A", half_closed.properties(half_closed.closed)), 20)
    wrong = {key: value.replace("mirror-secret", "nope") for key, value in half_closed.properties().items()}
    with pytest.raises(LoginError):
        KafkaCluster(ClusterConfig("A", wrong), 20)


def test_run_copies_though_one_server_refuses_the_login(half_closed: HalfClosed, ground: Ground) -> None:
    from mirror_lib.config.loader import load
    from mirror_lib.copy_job import run_flows

    _, target, spark, folder = ground
    for operation in (ACLOperation.READ, ACLOperation.DESCRIBE_CONFIGS):
        allow(half_closed.open, "orders", operation)
    for number in (0, 1):
        half_closed.open.write("orders", *[b"of %d" % number] * 10, partition=number, **client_settings("admin"))
    settings = {"topics": ["orders"], "replication.factor": 1, "tasks.max": 1, **QUIET}
    settings.update({"sync.topic.acls.enabled": "false", "admin.timeout.ms": 20000})
    document = {
        "name": "half-closed",
        "clusters": {"half": half_closed.properties(), "B": {"bootstrap.servers": target.bootstrap}},
        "flows": {"half->B": settings},
        "state": str(folder / "state"),
    }
    path = folder / "mirror.yaml"
    path.write_text(json.dumps(document))
    config = load(str(path))
    (outcome,) = run_flows(config, config.flows, spark, lambda _: None, threading.Event())
    assert outcome.error is None, outcome.error
    assert sum(len(log) for log in read_topic(target, "half.orders").values()) == 20
