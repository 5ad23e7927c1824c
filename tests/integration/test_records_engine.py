"""The engine `records` on real brokers, without a ledger: what lies on the remote logs after whatever happens."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import pyarrow as pa
import pyspark
import pytest
from confluent_kafka import Producer
from pyspark.sql import functions as F

from mirror_lib.config.loader import load
from mirror_lib.errors import RefusedError
from mirror_lib.records.engine import Changed, RecordEngine
from mirror_lib.records.ready import made_ready
from mirror_lib.records.rows_at_once import RowsAtOnce
from mirror_lib.records.source_rows import source_rows
from mirror_lib.records.writer import RowsPlan, RowsReport, RowWriter
from mirror_lib.replicate.lanes import PartitionTask, TaskPlan, TaskReport
from tests.lab.arrow_rows import with_columns
from tests.lab.brokers import KafkaBroker
from tests.lab.dataset import COMPACT_QUICKLY, set_configs
from tests.lab.one_flow import OneFlow, until
from tests.lab.one_lane import next_plan, task_plans
from tests.lab.readers import differences, lies, read_topic
from tests.lab.row_changes import Selected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = 300
# What the first 100 records of each partition are, as far as Spark can tell.
EARLY = "offset < 100"


@pytest.fixture
def flow(
    source_cluster: KafkaBroker, target_cluster: KafkaBroker, topic_name: Callable[[str], str], tmp_path: Path
) -> OneFlow:
    flow = OneFlow(source_cluster, target_cluster, topic_name("records"), tmp_path)
    flow.fill(RECORDS)
    flow.create_remote_topic()
    return flow


class Life:
    """One driver's life of the engine, pass by pass."""

    def __init__(
        self, flow: OneFlow, spark: SparkSession, change: Optional[Selected] = None, counts: Optional[bool] = None
    ) -> None:
        at_once = None if counts is None else RowsAtOnce(counts)
        self._engine = RecordEngine(load(str(flow.config)).flows[0], change or Selected(), at_once)
        self._spark = spark

    def copy(self, plan: TaskPlan) -> TaskReport:
        (report,) = self._engine.copy(self._spark, [plan])
        return report


def plan_of(flow: OneFlow, **options: Any) -> TaskPlan:
    (plan,) = task_plans(flow, **options)
    return plan


def arrow_rows(flow: OneFlow, spark: SparkSession, plan: TaskPlan, change: Selected) -> List[pa.RecordBatch]:
    """The rows that a task would be given, a partition after the other."""
    rows = change(source_rows(spark, load(str(flow.config)).flows[0], plan.tasks), plan.tasks).rows
    found: Any = rows.coalesce(1)
    batches: List[pa.RecordBatch] = found._collect_as_arrow()
    return [batch.slice(at, 50) for batch in batches for at in range(0, batch.num_rows, 50)]


def interrupted(flow: OneFlow, spark: SparkSession, plan: TaskPlan, change: Selected) -> RowsReport:
    """A life that appended what `change` leaves, and could not report it."""
    ready = made_ready(plan)
    rows = arrow_rows(flow, spark, plan, change)
    return RowWriter(RowsPlan(ready.plan, True, False), 0).run(rows)


def syncs_of(report: TaskReport) -> List[Tuple[int, int, int, int]]:
    syncs = [sync for of_partition in report.syncs for sync in of_partition]
    return [(each.partition, each.upstream_offset, each.downstream_offset, each.record_count) for each in syncs]


def stopped(report: TaskReport) -> List[str]:
    return [part.stopped for part in report.partitions if part.stopped is not None]


def test_passes_without_a_change_leave_an_exact_copy(flow: OneFlow, spark: SparkSession) -> None:
    life, plan = Life(flow, spark), plan_of(flow)
    first = life.copy(plan)
    assert first.records == 3 * RECORDS and {part.position for part in first.partitions} == {RECORDS}
    flow.fill(100)
    second = life.copy(next_plan(plan, first, flow.written))
    assert second.records == 300 and not stopped(second)
    assert flow.differences() == []
    assert lies(syncs_of(first) + syncs_of(second), flow.original(), read_topic(flow.target, flow.remote_topic)) == []


def test_pass_ends_when_it_has_enough_gaps_to_tell_and_the_next_one_goes_on(
    flow: OneFlow, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirror_lib.records.writer.QUEUE_BYTES", 0)
    plan, every_third = replace(plan_of(flow), most_syncs=20), Selected(where="offset % 3 = 0")
    ended = interrupted(flow, spark, plan, every_third)
    (first, *_), told = ended.report.partitions, len(syncs_of(ended.report))
    assert ended.cut and 20 <= told == ended.report.records < RECORDS // 3
    rest = [task for task in plan.tasks if task.remote != first.remote]
    task = next(task for task in plan.tasks if task.remote == first.remote)
    goes_on = replace(task, upstream_offset=first.position, downstream_offset=first.downstream_offset)
    report = Life(flow, spark, every_third).copy(replace(plan_of(flow), tasks=(*rest, goes_on)))
    source = {number: {at: log[at] for at in log if at % 3 == 0} for number, log in flow.original().items()}
    remote = read_topic(flow.target, flow.remote_topic)
    assert differences(source, remote) == []
    assert lies(syncs_of(ended.report) + syncs_of(report), source, remote) == []


def test_what_an_interrupted_life_wrote_is_found_and_not_written_again(flow: OneFlow, spark: SparkSession) -> None:
    plan = plan_of(flow)
    assert interrupted(flow, spark, plan, Selected(where=EARLY)).report.records == 300
    report = Life(flow, spark).copy(plan)
    assert (report.recovered, report.records) == (300, 600)
    assert flow.differences() == []
    assert lies(syncs_of(report), flow.original(), read_topic(flow.target, flow.remote_topic)) == []


def test_passes_that_end_before_what_was_left_does_go_on_with_it(flow: OneFlow, spark: SparkSession) -> None:
    plan, life = plan_of(flow), Life(flow, spark)
    interrupted(flow, spark, plan, Selected(where=EARLY))
    short = replace(plan, tasks=tuple(replace(task, end=40) for task in plan.tasks))
    first = life.copy(short)
    assert (first.recovered, first.records) == (120, 0)
    assert [part.sequence for part in first.partitions] == [None] * 3
    second = life.copy(next_plan(plan, first, RECORDS))
    assert (second.recovered, second.records) == (180, 600)
    assert flow.differences() == []


@pytest.fixture
def gapped(
    spark: SparkSession,
    source_cluster: KafkaBroker,
    target_cluster: KafkaBroker,
    topic_name: Callable[[str], str],
    tmp_path: Path,
) -> OneFlow:
    """Of two partitions. A life copied five records of one key and told nobody; the remote log's cleaner left the last
    one. What came then is another of that key, which only `LATER` leaves: as if the source was cleaned too."""
    flow = OneFlow(source_cluster, target_cluster, topic_name("gapped"), tmp_path, partitions=2)
    flow.create_remote_topic()
    set_configs(flow.target, flow.remote_topic, {"cleanup.policy": "compact", **COMPACT_QUICKLY})
    append(flow, 0, 6)
    plan = to_ends(plan_of(flow), 6)
    interrupted(flow, spark, plan, Selected(where="offset < 5"))
    until(lambda: fenced_and_left(flow, plan) == 1)
    return flow


LATER = Selected(where="partition = 1 or offset = 5")


def append(flow: OneFlow, partition: int, records: int) -> None:
    producer = Producer({"bootstrap.servers": flow.source.bootstrap, "log_level": 0})
    for number in range(records):
        producer.produce(flow.topic, b"%d" % number, b"key", partition)
    assert producer.flush(60) == 0


def fenced_and_left(flow: OneFlow, plan: TaskPlan) -> int:
    """How many copies are left by now. A marker behind them ends their segment, so that it is cleaned."""
    time.sleep(0.5)
    made_ready(plan)
    return flow.copies()


def to_ends(plan: TaskPlan, *ends: int) -> TaskPlan:
    """The same up to these ends, for so many of its partitions."""
    tasks = sorted(plan.tasks, key=lambda task: task.partition)
    return replace(plan, tasks=tuple(replace(task, end=end) for task, end in zip(tasks, ends)))


def test_row_that_was_passed_before_the_end_is_refused_where_no_other_row_comes(
    gapped: OneFlow, spark: SparkSession
) -> None:
    append(gapped, 0, 1)  # which `LATER` does not leave
    plan, life = to_ends(plan_of(gapped), 6), Life(gapped, spark, LATER)
    first = life.copy(plan)
    assert not stopped(first)  # the later copy of its key may be one of a row behind
    (part,) = first.partitions
    assert (part.position, part.left, syncs_of(first)) == (6, True, [])
    second = life.copy(to_ends(next_plan(plan, first, 7), 7))
    assert "nobody can tell whether offset 5" in stopped(second)[0]
    assert [(part.position, part.refused) for part in second.partitions] == [(6, True)]


def test_full_pass_that_took_the_last_row_of_its_source_leaves_nothing_to_another(
    gapped: OneFlow, spark: SparkSession
) -> None:
    append(gapped, 1, 1)
    plan = replace(to_ends(plan_of(gapped), 6, 1), max_seconds=0.0)
    ready = made_ready(plan)
    rows = arrow_rows(gapped, spark, plan, LATER)
    each = [batch.slice(at, 1) for batch in rows for at in range(batch.num_rows)]
    one, other = sorted(each, key=lambda row: int(row.column("source_partition")[0].as_py()))
    found = RowWriter(RowsPlan(ready.plan, True, False), 0).run([one, other])
    assert found.cut and "is not what the flow gives now" in stopped(found.report)[0]


def test_copies_that_nothing_on_the_source_belongs_to_are_refused_also_where_no_row_comes(
    flow: OneFlow, spark: SparkSession
) -> None:
    plan, nothing = plan_of(flow), Selected(where="false")
    interrupted(flow, spark, plan, Selected(where=EARLY))
    short = replace(plan, tasks=tuple(replace(task, end=100) for task in plan.tasks))
    report = Life(flow, spark, nothing).copy(short)
    assert not stopped(report) and [part.left for part in report.partitions] == [True] * 3
    report = Life(flow, spark, nothing).copy(plan)
    assert len(stopped(report)) == 3 and "nothing more comes before the end of" in stopped(report)[0]
    assert {part.position for part in report.partitions} == {0}


def test_pass_whose_time_is_up_ends_behind_what_it_took(flow: OneFlow, spark: SparkSession) -> None:
    life, plan = Life(flow, spark), replace(plan_of(flow), max_seconds=0.0)
    report = life.copy(plan)
    assert 0 < report.records < 3 * RECORDS
    for _ in range(9):
        if {part.position for part in report.partitions} == {RECORDS}:
            break
        report = life.copy(next_plan(plan, report, RECORDS))
    assert flow.differences() == []


def test_other_rows_than_the_interrupted_life_had_are_refused(flow: OneFlow, spark: SparkSession) -> None:
    plan = plan_of(flow)
    interrupted(flow, spark, plan, Selected(where=EARLY))
    before = flow.copies()
    report = Life(flow, spark, Selected(value="concat(value, 'x')")).copy(plan)
    assert len(stopped(report)) == 3 and "is not what the flow gives now" in stopped(report)[0]
    assert flow.copies() == before


def test_flow_that_gives_other_rows_each_time_writes_them_again_and_says_so(flow: OneFlow, spark: SparkSession) -> None:
    plan = plan_of(flow)
    interrupted(flow, spark, plan, Selected(where=EARLY))
    report = Life(flow, spark, Selected(value="concat(value, 'x')", repeatable=False)).copy(plan)
    assert not stopped(report)
    assert {each.kind for part in report.partitions for each in part.incidents} == {"copied again"}
    assert flow.copies() == 300 + 3 * RECORDS


def test_rows_that_are_left_out_are_gaps_and_an_empty_pass_moves_on(flow: OneFlow, spark: SparkSession) -> None:
    plan, life = plan_of(flow), Life(flow, spark, Selected(where="offset % 3 = 1"))
    report = life.copy(plan)
    kept = {number: [at for at in range(RECORDS) if at % 3 == 1] for number in range(3)}
    assert report.records == sum(map(len, kept.values()))
    assert {part.position for part in report.partitions} == {RECORDS}
    remote, source = read_topic(flow.target, flow.remote_topic), flow.original()
    assert {n: list(log.values()) for n, log in remote.items()} == {n: [source[n][at] for at in kept[n]] for n in kept}
    assert lies([row for row in syncs_of(report) if row[3]], source, remote) == []
    flow.fill(100)
    empty = Life(flow, spark, Selected(where="false")).copy(next_plan(plan, report, flow.written))
    assert (empty.records, stopped(empty)) == (0, [])
    assert {part.position for part in empty.partitions} == {flow.written}


def test_row_that_fails_stops_its_partition_there_or_is_left_out(flow: OneFlow, spark: SparkSession) -> None:
    change = Selected(failure="if(partition = 1 and offset = 70, 'no number', null)")
    plan = plan_of(flow)
    report = Life(flow, spark, change).copy(plan)
    assert [part.position for part in sorted(report.partitions, key=lambda p: p.partition)] == [RECORDS, 70, RECORDS]
    assert stopped(report) == [f"{flow.topic}-1 at offset 70: no number"]
    assert [part.partition for part in report.partitions if part.fails] == [1]
    flow.settings["on.error"] = "skip"
    second = Life(flow, spark, change).copy(next_plan(plan, report, RECORDS))
    assert not stopped(second) and second.records == RECORDS - 71
    told = [(each.kind, each.from_offset, each.until_offset) for p in second.partitions for each in p.incidents]
    assert told == [("offsets skipped", 70, 71)]


@pytest.mark.parametrize("exactly_once", [True, False])
def test_task_whose_driver_was_overtaken_is_refused(flow: OneFlow, spark: SparkSession, exactly_once: bool) -> None:
    plan = plan_of(flow, exactly_once=exactly_once)
    rows = arrow_rows(flow, spark, replace(plan, tasks=plan.tasks[:1]), Selected())
    zombie = RowWriter(RowsPlan(made_ready(plan).plan, True, False), 0)

    def given() -> Iterator[pa.RecordBatch]:
        yield from rows[:1]
        assert not stopped(Life(flow, spark).copy(plan))
        yield from rows[1:]

    report = zombie.run(given()).report
    # Without the fence both write.
    assert report.fenced == exactly_once
    assert (flow.differences() == []) == exactly_once


def test_record_that_is_as_long_as_a_marker_is_found_where_no_fence_leaves_one(
    flow: OneFlow, spark: SparkSession
) -> None:
    plan = plan_of(flow, exactly_once=False)
    # Offset 1 alone is a batch of 78 bytes.
    assert interrupted(flow, spark, plan, Selected(where="offset = 1")).report.records == 3
    report = Life(flow, spark, Selected(where="offset > 0")).copy(plan)
    assert (report.recovered, report.records) == (3, 3 * (RECORDS - 2))


@pytest.mark.parametrize(("name", "by"), [("source_offset", 1000), ("source_partition", 7)])
def test_rows_that_say_another_origin_than_theirs_are_refused_and_not_lost(
    flow: OneFlow, spark: SparkSession, name: str, by: int
) -> None:
    life, plan = Life(flow, spark, Elsewhere(name=name, by=by)), plan_of(flow)
    try:
        told = "".join(stopped(life.copy(plan)))
    except RefusedError as error:
        told = str(error)
    assert "was given offsets 0 to 299" in told or "where it would be lost" in told
    assert flow.copies() == 0


@dataclass(frozen=True)
class Elsewhere(Selected):
    """As a function of rows can do, of which Spark knows no more than the types."""

    name: str = ""
    by: int = 0

    def __call__(self, rows: DataFrame, tasks: Sequence[PartitionTask]) -> Changed:
        made = super().__call__(rows, tasks)
        return made._replace(rows=made.rows.withColumn(self.name, F.col(self.name) + self.by))


def test_rows_of_a_topic_that_was_created_anew_are_written_only_where_topics_have_no_ids(
    flow: OneFlow, spark: SparkSession
) -> None:
    plan = plan_of(flow)
    known = replace(plan, tasks=tuple(replace(task, source_topic_id=flow.source_topic_id()) for task in plan.tasks))
    flow.create_source_anew(RECORDS)
    report = Life(flow, spark).copy(known)
    assert len(stopped(report)) == 3 and "was deleted and created again" in stopped(report)[0]
    assert flow.copies() == 0
    assert Life(flow, spark).copy(plan).records == 3 * RECORDS


def large_records(flow: OneFlow, count: int, partitions: Sequence[int]) -> None:
    """Appended: the first of each partition is large by its headers alone, the others by their values."""
    producer = Producer({"bootstrap.servers": flow.source.bootstrap, "log_level": 0})
    trace: Dict[str, Union[str, bytes, None]] = {"n": None, "trace": os.urandom(900_000)}
    for partition in partitions:
        producer.produce(flow.topic, b"", b"0", partition, headers=trace)
        for number in range(1, count):
            producer.produce(flow.topic, os.urandom(900_000), b"%d" % number, partition)
    assert producer.flush(30) == 0


def test_large_records_go_to_python_a_few_at_a_time(flow: OneFlow, spark: SparkSession) -> None:
    large_records(flow, 30, [0])
    life, plan = Life(flow, spark), plan_of(flow)
    behind = replace(plan.tasks[0], upstream_offset=RECORDS, end=RECORDS + 30)
    plan = replace(plan, tasks=(behind,), max_seconds=0.0)
    report = life.copy(plan)
    if pyspark.__version__ < "4":  # the first pass ends before the first of them
        assert [part.position for part in report.partitions] == [RECORDS] and not stopped(report)
        report = life.copy(next_plan(plan, report, RECORDS + 30))
    # A task whose time is up ends behind what came first.
    assert 0 < report.records < 25


@pytest.mark.parametrize("counts", [True, False])
def test_records_of_all_sizes_are_copied_whether_spark_minds_bytes_or_not(
    flow: OneFlow, spark: SparkSession, counts: bool
) -> None:
    large_records(flow, 2, range(3))
    flow.written += 2
    flow.fill(100)
    life, plan, passes = Life(flow, spark, counts=counts), plan_of(flow), 0
    syncs: List[Tuple[int, int, int, int]] = []
    while plan.tasks:
        report = life.copy(plan)
        syncs += syncs_of(report)
        passes += 1
        done = {part.partition for part in report.partitions if part.position == flow.written}
        plan = replace(plan, tasks=tuple(task for task in plan.tasks if task.partition not in done))
        plan = next_plan(plan, report, flow.written)
    assert passes == (1 if counts else 2)
    assert flow.differences() == []
    assert lies(syncs, flow.original(), read_topic(flow.target, flow.remote_topic)) == []


def shared(plan: TaskPlan) -> TaskPlan:
    """The same where others write to the remote topic too, and the ids of its lanes are written down."""
    begun = made_ready(plan).plan
    ids = {lane: frozenset([producer.producer_id]) for lane, producer in begun.producers.items()}
    return replace(plan, tasks=tuple(replace(task, shared=True) for task in plan.tasks), known_ids=ids)


@pytest.mark.parametrize("others", [False, True], ids=["alone", "with-others"])
def test_attempt_that_finds_what_another_one_of_it_appended_leaves_it_to_the_next_pass(
    flow: OneFlow, spark: SparkSession, others: bool
) -> None:
    plan = shared(plan_of(flow)) if others else plan_of(flow)
    interrupted(flow, spark, plan, Selected(where=EARLY))
    ready = RowsPlan(made_ready(plan).plan, True, False)
    rows = arrow_rows(flow, spark, plan, Selected())
    assert RowWriter(ready, 0).run(rows[:4]).report.records == 100
    # Spark begins a stage anew where it has lost what a task of the one before gave it.
    second = RowWriter(ready, 0).run(rows)
    assert second.broken and not stopped(second.report)
    report = Life(flow, spark).copy(plan)
    assert not stopped(report)
    assert flow.differences() == []


@pytest.mark.parametrize("large", [False, True])
def test_second_row_of_a_record_is_refused_also_where_it_would_come_in_the_next_pass(
    flow: OneFlow, spark: SparkSession, large: bool
) -> None:
    plan = plan_of(flow)
    plan = replace(plan, tasks=plan.tasks[:1], max_seconds=0.0)
    rows = arrow_rows(flow, spark, plan, Selected())
    again = changed_cells(rows[0].slice(49), source_offset=[-1 - 49]) if large else rows[0].slice(49)
    report = RowWriter(RowsPlan(made_ready(plan).plan, True, False), 0).run([rows[0], again, *rows[1:]]).report
    (told,) = stopped(report)
    assert f"{flow.topic}-0 at offset 49: the flow gives more than one record of it" in told


def test_second_row_of_a_record_that_failed_is_refused_as_one_dead_letter_tells_of_it(
    flow: OneFlow, spark: SparkSession
) -> None:
    plan = plan_of(flow)
    rows = arrow_rows(flow, spark, replace(plan, tasks=plan.tasks[:1]), Selected())[0].slice(0, 2)
    failed = changed_cells(rows, failure=["no number"] * 2, remote_topic=["dead"] * 2, remote_partition=[0, 0])
    ready = RowsPlan(made_ready(plan).plan, True, False)
    assert not RowWriter(ready, 0).run([failed]).failed
    twice = changed_cells(failed, source_offset=[1, 1])
    ((_, offset, reason),) = RowWriter(ready, 0).run([twice]).failed
    assert offset == 1 and "more than one record of it that failed" in reason


def changed_cells(rows: pa.RecordBatch, **columns: List[Any]) -> pa.RecordBatch:
    given = {name: pa.array(cells, rows.schema.field(name).type) for name, cells in columns.items()}
    return with_columns(rows, **given)
