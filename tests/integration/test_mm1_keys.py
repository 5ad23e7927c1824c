"""MirrorMaker 1's topics with other partition counts: a file with `partitioner: key` resumes where the old group stood,
with each record where MirrorMaker 1 would have put it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List

import pytest
from confluent_kafka import Producer

from tests.lab.brokers import KafkaBroker
from tests.lab.crash import CrashPoint, run_mirror
from tests.lab.group_lab import commit
from tests.lab.java_producer import produce_by_java
from tests.lab.one_flow import NewFlow
from tests.lab.readers import read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

SOURCE_PARTITIONS, REMOTE_PARTITIONS = 3, 5


def test_file_with_keys_goes_on_where_the_group_stood_beside_other_writers_and_over_a_kill(
    spark: SparkSession, new_flow: NewFlow
) -> None:
    flow = new_flow("mm1-keyed")
    flow.target.create_topic(flow.topic, REMOTE_PARTITIONS, retention_ms="-1")
    flow.fill(2000)
    group = f"{flow.topic}-mirrormaker"
    starts = [30, 0, 700]
    for number, offset in enumerate(starts):
        commit(flow.source, group, flow.topic, offset, number)
    theirs(flow.target, flow.topic, 10)
    flow.settings = {
        "replication.policy.class": "IdentityReplicationPolicy",
        "partitioner": "key",
        "start.position": f"group {group}",
        "shared.remote.topics": "true",
    }
    crash = CrashPoint("mirror_lib.kafka.producer:_produce_request", "after", 2, flow.directory / "died", "kill driver")
    assert run_mirror(flow.config, crash=crash) == -9
    assert crash.reached
    theirs(flow.target, flow.topic, 10)
    assert flow.run(spark).error is None
    source, remote = flow.original(), read_topic(flow.target, flow.topic)
    probe = flow.target.create_topic(f"{flow.topic}-placed", REMOTE_PARTITIONS)
    keys = sorted({(each.key or b"").decode() for log in source.values() for each in log.values() if each.key})
    produce_by_java(flow.target, probe, keys)
    places = {each.key: number for number, log in read_topic(flow.target, probe).items() for each in log.values()}
    wanted: Dict[int, List[str]] = {}
    for number, log in source.items():
        for offset, record in log.items():
            if offset >= starts[number]:
                place = number % REMOTE_PARTITIONS if record.key is None else places[record.key]
                wanted.setdefault(place, []).append(f"{flow.topic}/{number}/{offset}")
    for place, log in remote.items():
        reported = [dict(each.headers).get("mirror.origin") for each in log.values()]
        ours = [(each or b"").decode().split("/", 1)[1].rpartition("/")[0] for each in reported if each is not None]
        assert len(ours) == len(set(ours)) and set(ours) == set(wanted.get(place, []))
        for number in range(SOURCE_PARTITIONS):
            offsets = [int(each.rpartition("/")[2]) for each in ours if f"/{number}/" in each]
            assert offsets == sorted(offsets)


def theirs(broker: KafkaBroker, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in range(count):
        producer.produce(topic, b"theirs", b"%d" % number)
    assert producer.flush(30) == 0
