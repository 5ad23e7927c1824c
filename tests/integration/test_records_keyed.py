"""Flows that place records by their keys: where Kafka's producer would, once each, in order, whatever is killed."""

from __future__ import annotations

import shutil
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Dict, List, Tuple

import pytest
from confluent_kafka import Producer

from mirror_lib.config.loader import load
from mirror_lib.errors import RefusedError
from mirror_lib.groups.position_formats import TopicPosition
from mirror_lib.groups.positions import translate_positions
from tests.integration.conftest import Command
from tests.lab.brokers import KafkaBroker
from tests.lab.crash import CrashPoint, run_mirror
from tests.lab.group_lab import commit, committed
from tests.lab.one_flow import NewFlow, OneFlow
from tests.lab.readers import LogRecord, read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REMOTE_PARTITIONS = 5
RECORDS = 2000


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    flow = new_flow("keyed", settings={"partitioner": "key"})
    flow.target.create_topic(flow.remote_topic, REMOTE_PARTITIONS, retention_ms="-1")
    flow.fill(RECORDS)
    return flow


def placed_by_a_producer(broker: KafkaBroker, topic: str, keys: List[bytes]) -> Dict[bytes, int]:
    """Where librdkafka's port of Java's partitioner puts these keys."""
    broker.create_topic(topic, REMOTE_PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random", "log_level": 0})
    for key in keys:
        producer.produce(topic, b"", key)
    assert producer.flush(30) == 0
    return {record.key or b"": n for n, log in read_topic(broker, topic).items() for record in log.values()}


def assert_placed_once_and_in_order(flow: OneFlow) -> None:
    assert flow.false_origins() == []
    source, remote = flow.original(), flow.remote()
    keys = sorted({record.key for log in source.values() for record in log.values() if record.key is not None})
    places = placed_by_a_producer(flow.target, f"{flow.topic}-placed-{flow.written}", keys)
    wanted: Dict[Tuple[int, int], List[LogRecord]] = defaultdict(list)
    for number, log in source.items():
        for record in log.values():
            place = number % REMOTE_PARTITIONS if record.key is None else places[record.key]
            wanted[(number, place)].append(record)
    # The value of a copy names its source partition, where it has a value.
    assert sum(map(len, remote.values())) == sum(map(len, wanted.values()))
    for place, log in remote.items():
        left = {number: list(records) for (number, at), records in wanted.items() if at == place}
        for copy in log.values():
            number = next(number for number, records in left.items() if records and records[0] == copy)
            left[number].pop(0)
        assert not any(left.values())


def test_keyed_copy_is_exact_after_its_driver_died_in_a_task_and_after_its_ledger_was_lost(
    spark: SparkSession, flow: OneFlow
) -> None:
    crash = CrashPoint("mirror_lib.kafka.producer:_produce_request", "after", 2, flow.directory / "died", "kill driver")
    assert run_mirror(flow.config, crash=crash) == -9
    assert crash.reached
    flow.fill(100)
    flow.copy(spark)
    assert_placed_once_and_in_order(flow)
    shutil.rmtree(flow.state)
    flow.fill(100)
    flow.copy(spark)
    assert_placed_once_and_in_order(flow)


@pytest.mark.long
def test_keyed_flow_that_begins_at_latest_copies_what_comes_and_refuses_a_topic_that_was_created_anew(
    spark: SparkSession, flow: OneFlow
) -> None:
    flow.settings["consumer.auto.offset.reset"] = "latest"
    flow.copy(spark)
    assert flow.copies() == 0
    flow.fill(50)
    flow.copy(spark)
    assert flow.copies() == 50 * flow.partitions
    flow.create_source_anew(200)
    error = flow.run(spark).error
    assert isinstance(error, RefusedError) and "created again" in str(error)
    assert flow.copies() == 50 * flow.partitions


@pytest.mark.long
def test_group_is_told_to_start_by_time_and_moved_by_no_command(
    spark: SparkSession, flow: OneFlow, command: Command
) -> None:
    flow.settings["sync.group.offsets.enabled"] = "true"
    group, config, places = f"{flow.topic}-readers", str(flow.config), range(flow.partitions)
    for number in places:
        commit(flow.source, group, flow.topic, 10 * number, number)

    def said(*words: str) -> Tuple[int, Dict[str, Any]]:
        done = command(*words, "--json")
        return done.code, done.documents[-1]

    flow.copy(spark)
    code, plan = said("groups", "plan", config, "--group", group)
    rows = [(each["offset"], each["to_offset"], each["verdict"]) for each in plan["positions"]]
    assert (code, rows) == (0, [(10 * number, None, "repartitioned") for number in places])
    code, moved = said("groups", "plan", config, "--group", group, "--execute")
    assert (code, moved["run_id"]) == (1, None)
    _, status = said("status", config)
    (shown,) = [each for each in status["groups"] if each["group"] == group]
    assert shown["verdict"] == "repartitioned"
    (problem,) = [each for each in status["problems"] if each["code"] == "group not moved"]
    assert "--to-datetime" in problem["remedy"]
    _, ready = said("cutover", "plan", config)
    (gate,) = [each for each in ready["gates"] if each["code"] == "groups"]
    assert (gate["level"], gate["detail"]) == ("blocking", "repartitioned") and "--leave-groups" in gate["remedy"]
    quick = ("--quiet-seconds", "1", "--wait-seconds", "20")
    refused = command("cutover", "run", config, *quick, "--execute")
    assert refused.code == 3 and "MIR-335" in refused.err and "--to-datetime" in refused.err
    assert said("failover", config)[1]["repartitioned"] is True
    answers = translate_positions(spark, load(config), load(config).flows[0], [TopicPosition(flow.topic, 0, 10)])
    assert [(each.remote_offset, each.verdict) for each in answers] == [(None, "repartitioned")]
    assert committed(flow.target, group, {flow.remote_topic: REMOTE_PARTITIONS}) == {}


@pytest.mark.long
def test_micro_batches_smaller_than_that_of_a_dead_driver_are_exact_whatever_is_killed_among_them(
    spark: SparkSession, flow: OneFlow
) -> None:
    """All is written, and none of it in the ledger. Who then continues in small steps is killed on the way: the ledger
    must not stand before a step that the dead driver had taken and this one has not."""
    stage, settled = "mirror_lib.rows.stage:append_rows", "mirror_lib.rows.repartitioned:RepartitioningMirror._settle"
    assert run_mirror(flow.config, crash=CrashPoint(stage, "after", 1, flow.directory / "first")) == -9
    assert flow.copies() == RECORDS * flow.partitions
    flow.fill(50)
    flow.settings["max.bytes.per.second"] = 200_000
    assert run_mirror(flow.config, crash=CrashPoint(settled, "after", 3, flow.directory / "second")) == -9
    flow.settings.pop("max.bytes.per.second")
    flow.copy(spark)
    assert_placed_once_and_in_order(flow)
