"""Flows that go through Spark's rows, as a file asks for them: exact after kills, and honest where they cannot be."""

from __future__ import annotations

import shutil
import time
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Tuple

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from mirror_lib.errors import RefusedError
from mirror_lib.rows.partition import LaneTask
from mirror_lib.rows.stage import append_rows
from mirror_lib.rows.writer import LaneKey, RowsPlan, RowsReport, RowWriter
from tests.integration.conftest import Command, Names
from tests.lab.arrow_rows import with_columns
from tests.lab.crash import CrashPoint, run_mirror
from tests.lab.flow_lab import NOON
from tests.lab.group_lab import commit, committed
from tests.lab.murmur2 import partition_of_key
from tests.lab.one_flow import NewFlow, OneFlow
from tests.lab.readers import LogRecord, lies, origin_of, read_topic
from tests.lab.row_plans import arrow_of, lanes_of, next_plan, plan_of, rows_of, syncs_of

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


@pytest.mark.long
@pytest.mark.parametrize("worker_killed", [False, True])
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


@pytest.mark.parametrize(("provenance", "code"), [("on", "MIR-313"), ("off", "MIR-329")])
def test_remote_topic_with_records_of_somebody_else_is_refused(
    spark: SparkSession, flow: OneFlow, provenance: str, code: str
) -> None:
    flow.settings["provenance"] = provenance
    flow.create_remote_topic()
    flow.target.write(flow.remote_topic, b"by hand")
    error = flow.run(spark).error
    assert isinstance(error, RefusedError) and error.code == code
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
    # Nor where the partition stops before it, at a record that is too large with its origin.
    for number in range(flow.partitions):
        flow.source.write(flow.topic, bytes(1_048_500), partition=number, message_max_bytes=2_000_000)
    flow.written += 1
    flow.fill(50)
    for on_error in ("fail", "skip"):
        flow.settings["on.error"] = on_error
        assert (flow.run(spark).error is None) is (on_error == "skip")
        assert origins(letters_of(flow)) == without_value(flow)


RAISES = """\
from pyspark.sql import functions as F


@F.udf("binary")
def looked_up(value):
    raise LookupError("no such customer")


def customers(rows):
    return rows.withColumn("value", looked_up("value"))
"""


@pytest.mark.long
@pytest.mark.parametrize("partitioner", ["source", "key"])
def test_function_that_raises_on_an_executor_is_told_by_what_it_raised(
    spark: SparkSession, flow: OneFlow, partitioner: str
) -> None:
    (flow.directory / "house_of_failures.py").write_text(RAISES)
    flow.settings.update({"transform": "house_of_failures:customers", "partitioner": partitioner})
    assert flow.run(spark).error is not None
    ends = spark.read.format("delta").load(str(flow.state / "runs")).where("kind = 'ended'").collect()
    (outcome,) = [row["outcome"].partition(": ")[2] for row in ends]
    assert outcome == "source->target: LookupError: no such customer (the executors' logs have the trace)"


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


# --- records placed by their keys: where Kafka's producer would, once each, in order, whatever is killed --------------

REMOTE_PARTITIONS = 5


@pytest.fixture
def keyed(new_flow: NewFlow) -> OneFlow:
    flow = new_flow("keyed", settings={"partitioner": "key"})
    flow.target.create_topic(flow.remote_topic, REMOTE_PARTITIONS, retention_ms="-1")
    flow.fill(RECORDS)
    return flow


def assert_placed_once_and_in_order(keyed: OneFlow) -> None:
    assert keyed.false_origins() == []
    source, remote = keyed.original(), keyed.remote()
    wanted: Dict[Tuple[int, int], List[LogRecord]] = defaultdict(list)
    for number, log in source.items():
        for record in log.values():
            wanted[(number, partition_of_key(record.key, number, REMOTE_PARTITIONS))].append(record)
    # The value of a copy names its source partition, where it has a value.
    assert sum(map(len, remote.values())) == sum(map(len, wanted.values()))
    for place, log in remote.items():
        left = {number: list(records) for (number, at), records in wanted.items() if at == place}
        for copy in log.values():
            number = next(number for number, records in left.items() if records and records[0] == copy)
            left[number].pop(0)
        assert not any(left.values())


@pytest.mark.long
def test_keyed_copy_is_exact_after_its_driver_died_in_a_task_and_after_its_ledger_was_lost(
    spark: SparkSession, keyed: OneFlow
) -> None:
    crash = CrashPoint(*MID_TASK, keyed.directory / "died", "kill driver")
    assert run_mirror(keyed.config, crash=crash) == -9
    assert crash.reached
    keyed.settings["select"] = '"*, reverse(key) as key"'
    error = keyed.run(spark).error
    assert isinstance(error, RefusedError) and error.code == "MIR-317"
    keyed.settings.pop("select")
    keyed.fill(100)
    keyed.copy(spark)
    assert_placed_once_and_in_order(keyed)
    shutil.rmtree(keyed.state)
    keyed.fill(100)
    keyed.copy(spark)
    assert_placed_once_and_in_order(keyed)


@pytest.mark.long
def test_keyed_flow_does_not_look_for_what_a_killed_run_wrote_in_other_partitions(
    spark: SparkSession, keyed: OneFlow
) -> None:
    assert run_mirror(keyed.config, crash=CrashPoint(*MID_TASK, keyed.directory / "died", "kill driver")) == -9
    keyed.target.grow(keyed.remote_topic, REMOTE_PARTITIONS + 2)
    error = keyed.run(spark).error
    assert isinstance(error, RefusedError) and error.code == "MIR-317"


@pytest.mark.long
def test_keyed_flow_that_begins_at_latest_copies_what_comes_and_refuses_a_topic_that_was_created_anew(
    spark: SparkSession, keyed: OneFlow
) -> None:
    keyed.settings["consumer.auto.offset.reset"] = "latest"
    keyed.copy(spark)
    assert keyed.copies() == 0
    keyed.fill(50)
    keyed.copy(spark)
    assert keyed.copies() == 50 * keyed.partitions
    keyed.create_source_anew(200)
    error = keyed.run(spark).error
    assert isinstance(error, RefusedError) and "created again" in str(error)
    assert keyed.copies() == 50 * keyed.partitions


@pytest.mark.long
def test_group_is_told_to_start_by_time_and_moved_by_no_command(
    spark: SparkSession, keyed: OneFlow, command: Command
) -> None:
    keyed.settings["sync.group.offsets.enabled"] = "true"
    group, config, places = f"{keyed.topic}-readers", str(keyed.config), range(keyed.partitions)
    for number in places:
        commit(keyed.source, group, keyed.topic, 10 * number, number)

    def said(*words: str) -> Tuple[int, Dict[str, Any]]:
        done = command(*words, "--json")
        return done.code, done.documents[-1]

    keyed.copy(spark)
    code, plan = said("groups", "plan", config, "--group", group)
    rows = [(each["offset"], each["to_offset"], each["verdict"]) for each in plan["positions"]]
    assert (code, rows) == (0, [(10 * number, None, "repartitioned") for number in places])
    code, moved = said("groups", "plan", config, "--group", group, "--execute")
    assert (code, moved["run_id"]) == (1, None)
    quick = ("--quiet-seconds", "1", "--wait-seconds", "20")
    refused = command("cutover", "run", config, *quick, "--execute")
    assert refused.code == 3 and "MIR-335" in refused.err and "--to-datetime" in refused.err
    asked = command("translate-position", config, "--topic", keyed.topic, "--partition", 0, "--offset", 10)
    assert asked.code == 1 and "repartitioned" in asked.out
    assert committed(keyed.target, group, {keyed.remote_topic: REMOTE_PARTITIONS}) == {}


@pytest.mark.long
def test_micro_batches_smaller_than_that_of_a_dead_driver_are_exact_whatever_is_killed_among_them(
    spark: SparkSession, keyed: OneFlow, command: Command
) -> None:
    """All is written, and none of it in the ledger. Who then continues in small steps is killed on the way: the ledger
    must not stand before a step that the dead driver had taken and this one has not."""
    stage, settled = "mirror_lib.rows.stage:append_rows", "mirror_lib.rows.repartitioned:RepartitioningMirror._settle"
    assert run_mirror(keyed.config, crash=CrashPoint(stage, "after", 1, keyed.directory / "first")) == -9
    assert keyed.copies() == RECORDS * keyed.partitions
    keyed.fill(50)
    keyed.settings["max.bytes.per.second"] = 200_000
    assert run_mirror(keyed.config, crash=CrashPoint(settled, "after", 3, keyed.directory / "second")) == -9
    keyed.settings.pop("max.bytes.per.second")
    keyed.copy(spark)
    assert_placed_once_and_in_order(keyed)
    assert command("verify", keyed.config).code == 0


# --- tasks that write rows, without a ledger: what lies on the remote logs after whatever happens --------------------

FEW = 300
# What the first 100 records of each partition are, as far as Spark can tell.
EARLY = "offset < 100"


@pytest.fixture
def few(new_flow: NewFlow) -> OneFlow:
    return new_flow("rows", settings={"engine": "records"}, records=FEW, remote=True)


def attempt(few: OneFlow, spark: SparkSession, plan: RowsPlan, retried: bool = False, **change: str) -> RowsReport:
    """One attempt of one task at the rows of a plan."""
    return RowWriter(plan, 0, retried).run(arrow_of(rows_of(few, spark, plan, **change), 50))


def stopped(report: RowsReport) -> List[str]:
    return [str(lane.part.stopped) for lane in report.lanes if lane.part.stopped is not None]


def test_stages_behind_one_another_leave_an_exact_copy_and_fence_once(new_flow: NewFlow, spark: SparkSession) -> None:
    # Behind old records a lane would fence again.
    new = {"first_timestamp": int(time.time() * 1000)}
    flow = new_flow("rows", settings={"engine": "records"}, records=FEW, remote=True, **new)
    plan = plan_of(flow, FEW)
    first = lanes_of(append_rows(rows_of(flow, spark, plan).coalesce(2), plan))
    assert sum(lane.part.records for lane in first) == 3 * FEW
    flow.fill(100)
    later = next_plan(plan, first, flow.written)
    second = lanes_of(append_rows(rows_of(flow, spark, later).coalesce(2), later))
    assert [(lane.part.records, lane.part.position) for lane in second] == [(100, flow.written)] * 3
    assert [one.producer for one in first] == [other.producer for other in second]
    assert flow.differences() == [] and flow.false_origins() == []
    assert lies(syncs_of([*first, *second]), flow.original(), flow.remote()) == []


@pytest.mark.parametrize("retried", [False, True], ids=["another driver", "another attempt"])
def test_what_an_interrupted_attempt_wrote_is_found_and_without_origins_written_again(
    few: OneFlow, spark: SparkSession, retried: bool
) -> None:
    plan = plan_of(few, FEW)
    attempt(few, spark, plan, where=EARLY)
    lanes = lanes_of([attempt(few, spark, plan, retried)])
    assert [(lane.part.recovered, lane.part.records) for lane in lanes] == [(100, 200)] * 3
    assert few.differences() == [] and few.false_origins() == []
    assert lies(syncs_of(lanes), few.original(), few.remote()) == []
    # The negative control.
    attempt(few, spark, plan_of(few, FEW, provenance=None))
    assert few.copies() == 2 * 3 * FEW


@pytest.mark.parametrize("exactly_once", [True, False])
def test_task_whose_driver_was_overtaken_is_refused(few: OneFlow, spark: SparkSession, exactly_once: bool) -> None:
    plan = plan_of(few, FEW, exactly_once)
    rows = arrow_of(rows_of(few, spark, plan, where="partition = 0"))

    def given() -> Iterator[pa.RecordBatch]:
        yield from rows[:1]
        assert not stopped(attempt(few, spark, plan))
        yield from rows[1:]

    zombie = RowWriter(plan, 0, False).run(given())
    # Without the fence both write.
    assert zombie.fenced == exactly_once
    assert (few.differences() == []) == exactly_once


@pytest.mark.parametrize("exactly_once", [True, False])
def test_dead_letters_of_several_partitions_lie_in_one_once_each(
    few: OneFlow, spark: SparkSession, topic_name: Names, exactly_once: bool
) -> None:
    """Also where no lane has a transactional id: two producers that a broker takes for one would lose records."""
    dead = (few.target.create_topic(topic_name("dead"), 1, retention_ms="-1"), 0)
    plan = plan_of(few, FEW, exactly_once)
    letters: Dict[LaneKey, LaneTask] = {}
    for source in plan.ranges:
        name = f"{few.topic}.dead.{source[1]}" if exactly_once else None
        letters[(dead, source)] = LaneTask(dead, source, name, 0, 1_000_000, shared=True)
    plan = replace(plan, lanes={**plan.lanes, **letters})
    bad = "if(offset % 10 = 3, 'no number', null)"
    for _ in range(2):
        rows = arrow_of(rows_of(few, spark, plan, failure=bad))
        sent = [in_dead_letters(each, dead[0]) for each in rows]
        report = RowWriter(plan, 0, False).run(sent)
        assert not (report.broken or report.failed or stopped(report))
    reported = [origin_of(each) or "" for each in read_topic(few.target, dead[0])[0].values()]
    wanted = [(n, at) for n in range(3) for at in range(3, FEW, 10)]
    assert sorted((int(each.split("/")[2]), int(each.split("/")[3])) for each in reported) == wanted
    good = {n: [r for at, r in log.items() if at % 10 != 3] for n, log in few.original().items()}
    assert {n: list(log.values()) for n, log in few.remote().items()} == good


def in_dead_letters(rows: pa.RecordBatch, topic: str) -> pa.RecordBatch:
    bad = [failure is not None for failure in rows.column("failure").to_pylist()]
    topics = [topic if each else name for each, name in zip(bad, rows.column("remote_topic").to_pylist())]
    numbers = [0 if each else number for each, number in zip(bad, rows.column("remote_partition").to_pylist())]
    columns = {"remote_topic": topics, "remote_partition": numbers}
    given = {name: pa.array(cells, rows.schema.field(name).type) for name, cells in columns.items()}
    return with_columns(rows, **given)
