"""Runs one Spark stage over changed rows: each task appends its rows with a `RowWriter` and returns a `RowsReport`."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Callable, Iterable, Iterator, List

import pyarrow as pa
import pyspark
from pyspark import TaskContext
from pyspark.sql import DataFrame

from mirror_lib.log_lines import format_worker_entries
from mirror_lib.replication.stage import REPORT_DDL, forget_archives, reported
from mirror_lib.rows.writer import RowsPlan, RowsReport, RowWriter
from mirror_lib.spark.errors import stage_error
from mirror_lib.spark.jobs import Shipped, shipped

# Spark passes rows to Python in groups of so many. Since 4.0 it also limits the bytes of a group. Earlier releases get
# small groups, so that large records do not exhaust the executor's memory.
ROWS_KEY, MOST_ROWS, MOST_ROWS_BEFORE_4 = "spark.sql.execution.arrow.maxRecordsPerBatch", 10_000, 1_000
BYTES_KEY, MOST_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch", 16 * 1024 * 1024

Batches = Iterable[pa.RecordBatch]


def append_rows(rows: DataFrame, plan: RowsPlan) -> List[RowsReport]:
    """Append `rows`, in columns of `CHANGED_DDL`, with one task for each of their partitions. All rows of a remote
    partition must be in one of them, the rows of each source partition in order. Raises `ClusterError` with the message
    of the failure, if the rows cannot be computed or appended.

    No other thread may run anything in the session of `rows` meanwhile.
    """
    settings = rows.sparkSession.conf
    settings.set(ROWS_KEY, str(MOST_ROWS if pyspark.__version__ >= "4" else MOST_ROWS_BEFORE_4))
    settings.set(BYTES_KEY, str(MOST_BYTES))
    secret = {"source_options": plan.source_options, "target_options": plan.target_options}
    bare = replace(plan, source_options={}, target_options={})
    try:
        with shipped(rows.sparkSession, bare, secret) as held:
            found = rows.mapInArrow(_appender(held), REPORT_DDL).collect()
    except Exception as error:
        raise stage_error(plan.flow, rows.sparkSession, error) from error
    return [pickle.loads(row.report) for row in found]


def _appender(plan: Shipped[RowsPlan]) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def append(batches: Batches) -> Iterator[pa.RecordBatch]:
        format_worker_entries()
        context = TaskContext.get()
        number, attempt = (0, 0) if context is None else (context.partitionId(), context.attemptNumber())
        report = RowWriter(replace(plan.value, **plan.secret), number, retried=attempt > 0).run(batches)
        forget_archives()
        yield reported(report)

    return append
