"""A server of `bootstrap.servers` that takes connections and never answers, as one whose machine hangs."""

from __future__ import annotations

import socket
import time

import pytest

from mirror_lib.errors import ClusterError
from mirror_lib.kafka.connection import LogClient, Network
from tests.lab.brokers import KafkaBroker

pytestmark = pytest.mark.long


def test_a_server_that_never_answers_keeps_no_task_from_the_others(source_cluster: KafkaBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        listed = [f"127.0.0.1:{silent.getsockname()[1]}", source_cluster.bootstrap]
        options = {"bootstrap_servers": listed, "socket_connection_setup_timeout_ms": 500}
        # Which is asked first is left to chance.
        for _ in range(6):
            network = Network()
            client = LogClient(network, "source", options)
            client.connect(time.monotonic() + 20)
            client.close()
            network.close()


def test_a_server_that_never_answers_to_tls_ends_no_patience_but_its_own() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = {
            "bootstrap_servers": [f"127.0.0.1:{silent.getsockname()[1]}"],
            "socket_connection_setup_timeout_ms": 500,
            "security_protocol": "SSL",
            "ssl_check_hostname": False,
        }
        network = Network()
        client = LogClient(network, "source", options)
        with pytest.raises(ClusterError, match="cannot reach the cluster source"):
            client.connect(time.monotonic() + 3)
        client.close()
        network.close()
