"""One broker of a cluster does not take the mirror's password: the others are used, by each client of the mirror."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterator

import pytest

from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import LoginError
from mirror_lib.facts import NewTopic
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.kafka.admin_client import log_client
from tests.lab.guarded import PLAIN_LOGIN, GuardedBroker, guarded_cluster, login_config
from tests.lab.second_broker import second_broker

# Each client draws a server at random: with one chance in two to be refused, so many calls would not all succeed.
CALLS = 8


@dataclass
class HalfClosed:
    """A cluster of two brokers; `closed` has another password of the user `admin` than `open` for clients."""

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
        with second_broker(first, first.directory.parent / "closed", {**other, "super.users": "User:admin"}) as second:
            assert isinstance(second, GuardedBroker)
            yield HalfClosed(first, second)


def test_broker_that_refuses_the_login_is_not_used_while_another_takes_it(half_closed: HalfClosed) -> None:
    config = ClusterConfig("A", half_closed.properties())
    for _ in range(CALLS):
        with KafkaCluster(config, 20) as cluster:
            assert cluster.cluster_id() == half_closed.open.cluster_id
            cluster.topics()
        with log_client(config, "consumer", time.monotonic() + 20) as client:
            client.refresh_leaders(["orders"], time.monotonic() + 20)


def test_login_that_no_server_takes_is_still_refused_at_once(half_closed: HalfClosed) -> None:
    began = time.monotonic()
    with pytest.raises(LoginError):
        KafkaCluster(ClusterConfig("A", half_closed.properties(half_closed.closed)), 20)
    with pytest.raises(LoginError):
        wrong = {**half_closed.properties(), "sasl.jaas.config": half_closed.properties()["sasl.jaas.config"] + " "}
        wrong["sasl.jaas.config"] = wrong["sasl.jaas.config"].replace("mirror-secret", "nope")
        KafkaCluster(ClusterConfig("A", wrong), 20)
    assert time.monotonic() - began < 15
