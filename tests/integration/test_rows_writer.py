"""Tasks that write rows, on real brokers and without a ledger: what lies on the remote logs after whatever happens."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Dict, Iterator, List

import pyarrow as pa
import pytest

from mirror_lib.rows.partition import LaneTask
from mirror_lib.rows.stage import append_rows
from mirror_lib.rows.writer import LaneKey, RowsPlan, RowsReport, RowWriter
from tests.integration.conftest import Names
from tests.lab.arrow_rows import with_columns
from tests.lab.one_flow import NewFlow, OneFlow
from tests.lab.readers import lies, origin_of, read_topic
from tests.lab.row_plans import arrow_of, lanes_of, next_plan, plan_of, rows_of, syncs_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 300
# What the first 100 records of each partition are, as far as Spark can tell.
EARLY = "offset < 100"


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    return new_flow("rows", settings={"engine": "records"}, records=RECORDS, remote=True)


def attempt(flow: OneFlow, spark: SparkSession, plan: RowsPlan, retried: bool = False, **change: str) -> RowsReport:
    """One attempt of one task at the rows of a plan."""
    return RowWriter(plan, 0, retried).run(arrow_of(rows_of(flow, spark, plan, **change), 50))


def stopped(report: RowsReport) -> List[str]:
    return [str(lane.part.stopped) for lane in report.lanes if lane.part.stopped is not None]


def test_stages_behind_one_another_leave_an_exact_copy_and_fence_once(new_flow: NewFlow, spark: SparkSession) -> None:
    # Behind old records a lane would fence again.
    new = {"first_timestamp": int(time.time() * 1000)}
    flow = new_flow("rows", settings={"engine": "records"}, records=RECORDS, remote=True, **new)
    plan = plan_of(flow, RECORDS)
    first = lanes_of(append_rows(rows_of(flow, spark, plan).coalesce(2), plan))
    assert sum(lane.part.records for lane in first) == 3 * RECORDS
    flow.fill(100)
    later = next_plan(plan, first, flow.written)
    second = lanes_of(append_rows(rows_of(flow, spark, later).coalesce(2), later))
    assert [(lane.part.records, lane.part.position) for lane in second] == [(100, flow.written)] * 3
    assert [one.producer for one in first] == [other.producer for other in second]
    assert flow.differences() == [] and flow.false_origins() == []
    assert lies(syncs_of([*first, *second]), flow.original(), flow.remote()) == []


@pytest.mark.parametrize("retried", [False, True], ids=["another driver", "another attempt"])
def test_what_an_interrupted_attempt_wrote_is_found_and_without_origins_written_again(
    flow: OneFlow, spark: SparkSession, retried: bool
) -> None:
    plan = plan_of(flow, RECORDS)
    attempt(flow, spark, plan, where=EARLY)
    lanes = lanes_of([attempt(flow, spark, plan, retried)])
    assert [(lane.part.recovered, lane.part.records) for lane in lanes] == [(100, 200)] * 3
    assert flow.differences() == [] and flow.false_origins() == []
    assert lies(syncs_of(lanes), flow.original(), flow.remote()) == []
    # The negative control.
    attempt(flow, spark, plan_of(flow, RECORDS, provenance=None))
    assert flow.copies() == 2 * 3 * RECORDS


@pytest.mark.parametrize("exactly_once", [True, False])
def test_task_whose_driver_was_overtaken_is_refused(flow: OneFlow, spark: SparkSession, exactly_once: bool) -> None:
    plan = plan_of(flow, RECORDS, exactly_once)
    rows = arrow_of(rows_of(flow, spark, plan, where="partition = 0"))

    def given() -> Iterator[pa.RecordBatch]:
        yield from rows[:1]
        assert not stopped(attempt(flow, spark, plan))
        yield from rows[1:]

    zombie = RowWriter(plan, 0, False).run(given())
    # Without the fence both write.
    assert zombie.fenced == exactly_once
    assert (flow.differences() == []) == exactly_once


@pytest.mark.parametrize("exactly_once", [True, False])
def test_dead_letters_of_several_partitions_lie_in_one_once_each(
    flow: OneFlow, spark: SparkSession, topic_name: Names, exactly_once: bool
) -> None:
    """Also where no lane has a transactional id: two producers that a broker takes for one would lose records."""
    dead = (flow.target.create_topic(topic_name("dead"), 1, retention_ms="-1"), 0)
    plan = plan_of(flow, RECORDS, exactly_once)
    letters: Dict[LaneKey, LaneTask] = {}
    for source in plan.ranges:
        name = f"{flow.topic}.dead.{source[1]}" if exactly_once else None
        letters[(dead, source)] = LaneTask(dead, source, name, 0, 1_000_000, shared=True)
    plan = replace(plan, lanes={**plan.lanes, **letters})
    bad = "if(offset % 10 = 3, 'no number', null)"
    for _ in range(2):
        rows = arrow_of(rows_of(flow, spark, plan, failure=bad))
        sent = [in_dead_letters(each, dead[0]) for each in rows]
        report = RowWriter(plan, 0, False).run(sent)
        assert not (report.broken or report.failed or stopped(report))
    reported = [origin_of(each) or "" for each in read_topic(flow.target, dead[0])[0].values()]
    wanted = [(n, at) for n in range(3) for at in range(3, RECORDS, 10)]
    assert sorted((int(each.split("/")[2]), int(each.split("/")[3])) for each in reported) == wanted
    good = {n: [r for at, r in log.items() if at % 10 != 3] for n, log in flow.original().items()}
    assert {n: list(log.values()) for n, log in flow.remote().items()} == good


def in_dead_letters(rows: pa.RecordBatch, topic: str) -> pa.RecordBatch:
    bad = [failure is not None for failure in rows.column("failure").to_pylist()]
    topics = [topic if each else name for each, name in zip(bad, rows.column("remote_topic").to_pylist())]
    numbers = [0 if each else number for each, number in zip(bad, rows.column("remote_partition").to_pylist())]
    columns = {"remote_topic": topics, "remote_partition": numbers}
    given = {name: pa.array(cells, rows.schema.field(name).type) for name, cells in columns.items()}
    return with_columns(rows, **given)
