"""Runs one Spark stage over changed rows: each task appends its rows with a `RowWriter` and returns a `RowsReport`."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import asdict, replace
from typing import Any, Callable, Dict, Iterable, Iterator, List

import pyarrow as pa
import pyspark
from pyspark import TaskContext
from pyspark.sql import DataFrame

from mirror_lib.kafka.record_batch import Producer
from mirror_lib.ledger.records import Incident
from mirror_lib.log_lines import format_worker_entries
from mirror_lib.replication.messages import partition_report
from mirror_lib.replication.warm_up import forget_archives
from mirror_lib.rows.partition import LaneReport
from mirror_lib.rows.writer import RowsPlan, RowsReport, RowWriter
from mirror_lib.spark.errors import stage_error
from mirror_lib.spark.jobs import Shipped, shipped

REPORT_DDL = "report string"

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
    return [report_from(row["report"]) for row in found]


def _appender(plan: Shipped[RowsPlan]) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def append(batches: Batches) -> Iterator[pa.RecordBatch]:
        format_worker_entries()
        context = TaskContext.get()
        number, attempt = (0, 0) if context is None else (context.partitionId(), context.attemptNumber())
        report = RowWriter(replace(plan.value, **plan.secret), number, retried=attempt > 0).run(batches)
        forget_archives()
        yield pa.RecordBatch.from_arrays([pa.array([report_text(report)], pa.string())], names=["report"])

    return append


def report_text(report: RowsReport) -> str:
    """A task's report as one line of JSON."""
    fields = asdict(report)
    for lane in fields["lanes"]:
        lane["syncs"] = b64encode(lane["syncs"]).decode("ascii")
    return json.dumps(fields)


def report_from(text: str) -> RowsReport:
    """Parse a line that `report_text` wrote."""
    fields: Dict[str, Any] = json.loads(text)
    fields["lanes"] = tuple(_lane(lane) for lane in fields["lanes"])
    fields["failed"] = tuple(((topic, n), at, why) for (topic, n), at, why in fields["failed"])
    fields["incidents"] = tuple(Incident(**each) for each in fields["incidents"])
    return RowsReport(**fields)


def _lane(fields: Dict[str, Any]) -> LaneReport:
    given = {
        **fields,
        "remote": tuple(fields["remote"]),
        "source": None if fields["source"] is None else tuple(fields["source"]),
        "producer": None if fields["producer"] is None else Producer(**fields["producer"]),
        "part": partition_report(fields["part"]),
        "syncs": b64decode(fields["syncs"]),
        "newest": tuple(map(tuple, fields["newest"])),
        "counts": tuple(map(tuple, fields["counts"])),
    }
    return LaneReport(**given)
