"""A source at the end of a narrow line: an answer takes longer than a request may wait, and than a pass lasts."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from mirror_lib.replication.copier import copy_lanes
from tests.lab.brokers import KafkaBroker
from tests.lab.far_proxy import far
from tests.lab.one_flow import NewFlow
from tests.lab.one_lane import task_plans
from tests.lab.ports import free_ports

BYTES_PER_SECOND = 1_000_000
RECORDS = 8
RECORD_BYTES = 900_000


@pytest.mark.long
def test_records_arrive_over_a_narrow_line(new_flow: NewFlow, tmp_path: Path) -> None:
    near, controller, behind, proxy = free_ports(4)
    two_listeners = {
        "listeners": f"PLAINTEXT://127.0.0.1:{near},FAR://127.0.0.1:{behind},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{near},FAR://127.0.0.1:{proxy}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,FAR:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
    }
    source = KafkaBroker("narrow", tmp_path / "narrow", near, controller, two_listeners)
    try:
        source.start()
        flow = new_flow("narrow", source=source, partitions=1)
        producer = Producer({"bootstrap.servers": source.bootstrap, "linger.ms": 0})
        for number in range(RECORDS):
            producer.produce(flow.topic, b"%02d" % number + os.urandom(RECORD_BYTES), partition=0)
            producer.flush(30)
        flow.written = RECORDS
        flow.create_remote_topic()
        (plan,) = task_plans(flow)
        options = {"bootstrap_servers": f"127.0.0.1:{proxy}", "request_timeout_ms": 2000}
        with far(proxy, behind, 5, BYTES_PER_SECOND):
            (part,) = copy_lanes(replace(plan, source_options=options, max_seconds=3.0), 0).partitions
        assert (part.position, part.stopped) == (RECORDS, None)
        assert flow.differences() == []
    finally:
        source.kill()
