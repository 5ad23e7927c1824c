"""Runs one Spark stage over changed rows: each task appends its rows with a `RowWriter` and returns a `RowsReport`."""

from __future__ import annotations

from dataclasses import replace
from typing import Iterable, Iterator, List, Tuple

import pyarrow as pa
import pyspark
from pyspark import TaskContext
from pyspark.sql import DataFrame

from mirror_lib.log_lines import format_worker_entries
from mirror_lib.replication.stage import Task, collected, forget_archives, reported
from mirror_lib.rows.writer import RowsPlan, RowsReport, RowWriter
from mirror_lib.spark.jobs import Shipped

# Spark passes rows to Python in groups of so many. Since 4.0 it also limits the bytes of a group. Earlier releases get
# small groups, so that large records do not exhaust the executor's memory.
ROWS_KEY, MOST_ROWS, MOST_ROWS_BEFORE_4 = "spark.sql.execution.arrow.maxRecordsPerBatch", 10_000, 1_000
BYTES_KEY, MOST_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch", 16 * 1024 * 1024


def append_rows(rows: DataFrame, plan: RowsPlan) -> List[RowsReport]:
    """Append `rows`, in columns of `CHANGED_DDL`, with one task for each of their partitions. All rows of a remote
    partition must be in one of them, the rows of each source partition in order. Raises `ClusterError` with the message
    of the failure, if the rows cannot be computed or appended.

    No other thread may run anything in the session of `rows` meanwhile.
    """
    settings = rows.sparkSession.conf
    settings.set(ROWS_KEY, str(MOST_ROWS if pyspark.__version__ >= "4" else MOST_ROWS_BEFORE_4))
    settings.set(BYTES_KEY, str(MOST_BYTES))
    return collected(rows.sparkSession, plan.flow, lambda: rows, [plan], _appender)


def _appender(plans: Shipped[Tuple[RowsPlan, ...]]) -> Task:
    def append(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        format_worker_entries()
        context = TaskContext.get()
        number, attempt = (0, 0) if context is None else (context.partitionId(), context.attemptNumber())
        plan = replace(plans.value[0], **plans.secret)
        report = RowWriter(plan, number, retried=attempt > 0).run(batches)
        forget_archives()
        yield reported(report)

    return append
