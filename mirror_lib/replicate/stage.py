"""Runs one Spark stage: task plans in, task reports out. No shuffle, one action.

Offset syncs come back as typed rows and are collected once; each task's counters follow them as one JSON document.
"""

from __future__ import annotations

from typing import Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from mirror_lib.replicate.lane import copy_lanes
from mirror_lib.replicate.lanes import TaskPlan, TaskReport
from mirror_lib.replicate.report_text import from_text, to_text, with_syncs
from mirror_lib.replicate.reporting import Listener
from mirror_lib.replicate.tailing import Tail
from mirror_lib.replicate.worker_imports import forget_archives
from mirror_lib.spark_end import stage_error
from mirror_lib.state.records import OffsetSync

# Arrow batches must match the declared types exactly: `int` is int32.
REPORT_DDL = (
    "task int, topic string, partition int, upstream_offset bigint, downstream_offset bigint, record_count bigint, "
    "report string"
)
ARROW_SCHEMA = pa.schema(
    [
        ("task", pa.int32()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("upstream_offset", pa.int64()),
        ("downstream_offset", pa.int64()),
        ("record_count", pa.int64()),
        ("report", pa.string()),
    ]
)
ROWS_PER_ARROW_BATCH = 50_000

RowTuple = Tuple[int, Optional[str], Optional[int], Optional[int], Optional[int], Optional[int], Optional[str]]


def listening(spark: SparkSession, tail: Tail) -> Listener:
    """Where the tasks of a stage that tails can tell of their passes: a port of the driver."""
    host = str(spark.conf.get("spark.driver.host"))
    bind_to = str(spark.conf.get("spark.driver.bindAddress", host))
    return Listener(bind_to, host, tail.pass_seconds, tail.batch_seconds)


def task_slots(spark: SparkSession) -> int:
    """How many tasks Spark can run at once by now; `spark.default.parallelism` says so only where nobody set it."""
    context = spark.sparkContext._jsc.sc()
    return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))


def run_tasks(spark: SparkSession, plans: Sequence[TaskPlan]) -> List[TaskReport]:
    """Copy with every task, in parallel as the cluster's cores allow. Raises `ClusterError` in its words if one keeps
    failing, and `SparkEndedError`."""
    if not plans:
        return []
    # Row i of the range is plan i: a plan travels with the task, so a driver's state is never needed on an executor.
    stage = spark.range(0, len(plans), 1, len(plans)).mapInArrow(_copier(tuple(plans)), REPORT_DDL)
    try:
        rows = stage.collect()
    except Exception as error:
        raise stage_error(plans[0].flow, spark, error) from error
    syncs: Dict[int, List[OffsetSync]] = {}
    reports: List[TaskReport] = []
    for row in rows:
        if row["report"] is None:
            sync = OffsetSync(*(row[name] for name in ARROW_SCHEMA.names[1:-1]))
            syncs.setdefault(row["task"], []).append(sync)
        else:
            reports.append(from_text(row["report"]))
    return [with_syncs(report, syncs.get(report.task, [])) for report in reports]


def _copier(plans: Tuple[TaskPlan, ...]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def copy(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        attempt = context.attemptNumber() if context is not None else 0
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield from _rows_of(copy_lanes(plans[index], attempt))
        forget_archives()

    return copy


def _rows_of(report: TaskReport) -> Iterator[pa.RecordBatch]:
    rows: List[RowTuple] = [
        (report.task, sync.topic, sync.partition, sync.upstream_offset, sync.downstream_offset, sync.record_count, None)
        for sync in report.syncs
    ]
    rows.append((report.task, None, None, None, None, None, to_text(with_syncs(report, []))))
    for at in range(0, len(rows), ROWS_PER_ARROW_BATCH):
        columns = list(zip(*rows[at : at + ROWS_PER_ARROW_BATCH]))
        arrays = [pa.array(column, type=kind) for column, kind in zip(columns, ARROW_SCHEMA.types)]
        yield pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)
