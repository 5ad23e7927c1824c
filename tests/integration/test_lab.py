"""The clusters of `make clusters`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from confluent_kafka.admin import AdminClient

from tests.lab.checkout import CACHE, ROOT
from tests.lab.ports import free_ports


def test_clusters_to_try_things_on_are_filled_and_end_with_ctrl_c() -> None:
    ports, kept = free_ports(2), set(CACHE.glob("clusters-*"))
    environ = {**os.environ, "PORTS": f"{ports[0]} {ports[1]}"}
    command = [sys.executable, "-m", "tests.lab.two_clusters"]
    with subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True) as lab:
        assert lab.stdout is not None
        assert lab.stdout.readline().startswith(f"localhost:{ports[0]}: primary, with orders")
        topics = AdminClient({"bootstrap.servers": f"localhost:{ports[0]}"}).list_topics(timeout=30).topics
        assert {"orders", "payments.card"} <= set(topics)
        lab.send_signal(signal.SIGINT)
    assert lab.returncode == 0
    assert set(CACHE.glob("clusters-*")) == kept
