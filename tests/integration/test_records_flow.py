"""Flows that go through Spark's rows, as a file asks for them: exact after kills, and honest where they cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional, Tuple

import pytest
from confluent_kafka import Producer

from mirror_lib.errors import RefusedError
from tests.integration.conftest import Command
from tests.lab.crash import CrashPoint, run_mirror
from tests.lab.flow_lab import NOON
from tests.lab.one_flow import NewFlow, OneFlow
from tests.lab.readers import LogRecord, origin_of, read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINE = "mirror_lib.rows.stage:append_rows"
# Of a task with several requests the first one is on its way.
MID_TASK = ("mirror_lib.kafka.producer:_produce_request", "after", 2)
RECORDS = 3000


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    return new_flow("rows", settings={"engine": "records"}, records=RECORDS)


FAILS_WITHOUT_VALUE = {"select": "\"*, if(value is null, raise_error('no value'), value) as value\""}


def letters_of(flow: OneFlow) -> List[LogRecord]:
    logs = read_topic(flow.target, f"{flow.topic}-dead")
    return [record for log in logs.values() for record in log.values()]


def origins(dead_letters: List[LogRecord]) -> List[Tuple[str, str]]:
    reported = [(origin_of(each) or "").split("/") for each in dead_letters]
    return sorted((partition, offset) for _, _, partition, offset, _ in reported)


def values_of(flow: OneFlow) -> List[Optional[bytes]]:
    return [each.value for log in read_topic(flow.source, flow.topic).values() for each in log.values()]


def without_value(flow: OneFlow) -> List[Tuple[str, str]]:
    return sorted((str(n), str(at)) for n, log in flow.original().items() for at, r in log.items() if r.value is None)


@pytest.mark.parametrize("worker_killed", [False, pytest.param(True, marks=pytest.mark.long)])
def test_filtered_records_are_counted_once_whatever_is_killed(
    spark: SparkSession, flow: OneFlow, command: Command, worker_killed: bool
) -> None:
    """A marker of a transaction is no record. What a killed run did not commit, the next one counts."""
    flow.settings["where"] = "length(value) > 0"
    producer = Producer({"bootstrap.servers": flow.source.bootstrap, "transactional.id": flow.topic, "log_level": 0})
    producer.init_transactions(30)
    for value in (b"kept", None):
        producer.begin_transaction()
        producer.produce(flow.topic, value, partition=0, timestamp=NOON)
        producer.commit_transaction(30)
    crash = CrashPoint(*MID_TASK, flow.directory / "died")
    assert (run_mirror(flow.config, crash=crash) if worker_killed else command("run", flow.config, "--once").code) == 0
    assert crash.reached == worker_killed
    before = sum(not value for value in values_of(flow))
    (status,) = command("status", flow.config, "--json").documents
    assert status["run"]["filtered"] == before
    flow.fill(200)
    assert run_mirror(flow.config, crash=CrashPoint(ENGINE, "after", 1, flow.directory / "died again")) == -9
    values = values_of(flow)
    assert flow.run(spark).filtered == sum(not value for value in values) - before > 0
    assert flow.copies() == sum(value is not None for value in values)


@pytest.mark.long
@pytest.mark.parametrize("provenance", [True, False], ids=["origins", "negative control: no origins"])
def test_values_that_differ_each_time_are_copied_once_whatever_is_killed(
    spark: SparkSession, flow: OneFlow, provenance: bool
) -> None:
    flow.settings["select"] = "\"*, coalesce(cast(cast(rand() as string) as binary), value) as value\""
    flow.settings["provenance"] = "on" if provenance else "off"
    assert run_mirror(flow.config, crash=CrashPoint(ENGINE, "after", 1, flow.directory / "died")) == -9
    assert flow.copies() == RECORDS * flow.partitions
    flow.copy(spark)
    assert flow.copies() == (1 if provenance else 2) * RECORDS * flow.partitions
    assert not provenance or flow.false_origins() == []


def test_remote_topic_with_records_of_somebody_else_is_refused(spark: SparkSession, flow: OneFlow) -> None:
    flow.create_remote_topic()
    flow.target.write(flow.remote_topic, b"by hand")
    error = flow.run(spark).error
    assert isinstance(error, RefusedError) and "mirror.origin" in str(error)
    assert flow.copies() == 1 + RECORDS * (flow.partitions - 1)


def test_record_that_cannot_be_changed_is_a_dead_letter_once(spark: SparkSession, flow: OneFlow) -> None:
    flow.settings.update({**FAILS_WITHOUT_VALUE, "dead.letter.topic": f"{flow.topic}-dead"})
    flow.target.create_topic(f"{flow.topic}-dead", 2, retention_ms="-1")
    crash = CrashPoint(ENGINE, "after", 1, flow.directory / "died")
    assert run_mirror(flow.config, crash=crash) == -9
    assert origins(letters_of(flow)) == without_value(flow)
    outcome = flow.run(spark)
    assert outcome.error is None and outcome.dead_letters == len(without_value(flow)) > 0
    kept = {n: [each for each in log.values() if each.value is not None] for n, log in flow.original().items()}
    assert {n: list(log.values()) for n, log in flow.remote().items()} == kept
    dead_letters = letters_of(flow)
    assert origins(dead_letters) == without_value(flow)
    assert all(each.value is None and each.headers[-2][0] == "mirror.error" for each in dead_letters)
    # What is in the ledger is not read again: neither is it by a run that finds more of them.
    flow.fill(50)
    again = flow.run(spark)
    assert again.error is None and again.dead_letters == len(without_value(flow)) - len(dead_letters)
    assert origins(letters_of(flow)) == without_value(flow)


def test_reason_of_stopped_partitions_is_logged_once(
    spark: SparkSession, flow: OneFlow, caplog: pytest.LogCaptureFixture
) -> None:
    """Each cycle repeated it for each partition, after the line of the event."""
    flow.settings.update(FAILS_WITHOUT_VALUE)
    outcome = flow.run(spark)
    said = [each.getMessage() for each in caplog.records if "value cannot be computed" in each.getMessage()]
    assert outcome.error is not None and len(said) == 1 and "MIR-606" in said[0]


@pytest.mark.long
@pytest.mark.parametrize("partitioner", ["source", "key"])
def test_flow_without_a_fence_copies_all_into_a_remote_topic_that_others_write_to(
    spark: SparkSession, flow: OneFlow, partitioner: str
) -> None:
    flow.settings.update({"delivery": "at-least-once", "shared.remote.topics": "true", "partitioner": partitioner})
    # The rest has to be read, under ids that are written down before anything is appended.
    crash = CrashPoint(*MID_TASK, flow.directory / "died", "kill driver")
    assert run_mirror(flow.config, crash=crash) == -9
    flow.copy(spark)
    flow.fill(100)
    flow.copy(spark)
    every = [record for log in flow.original().values() for record in log.values()]
    copies = [record for log in flow.remote().values() for record in log.values()]
    assert set(copies) == set(every)


@pytest.mark.long
def test_verify_tells_what_was_left_out_because_it_could_not_be_changed(
    spark: SparkSession, flow: OneFlow, command: Command
) -> None:
    flow.settings.update({**FAILS_WITHOUT_VALUE, "on.error": "skip"})
    flow.copy(spark)
    verified = command("verify", flow.config, "--json")
    (topic,) = verified.documents[0]["topics"]
    assert verified.code == 0
    missing = {n: [at for at, each in log.items() if each.value is None] for n, log in flow.original().items()}
    skipped = {each["partition"]: each["left_out"] for each in topic["partitions"]}
    assert {n: each["offsets"] for n, each in skipped.items()} == {n: len(missing[n]) for n in missing}
    for n, each in skipped.items():
        assert each["ranges"] == [[at, at + 1] for at in missing[n][:20]]
