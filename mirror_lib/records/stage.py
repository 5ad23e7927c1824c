"""Runs one Spark stage over changed rows: what all tasks are told in, what each came to out. One action."""

from __future__ import annotations

import json
from typing import Callable, Iterable, Iterator, List

import pyarrow as pa
import pyspark
from pyspark import TaskContext
from pyspark.sql import DataFrame, Row

from mirror_lib.records.dead_letters import DeadLetter
from mirror_lib.records.remainder import Unsettled
from mirror_lib.records.rows_at_once import COUNTED, AtOnce
from mirror_lib.records.writer import RowsPlan, RowsReport, RowWriter, nothing_done
from mirror_lib.replicate.lanes import from_text, to_text
from mirror_lib.replicate.warm_up import forget_archives
from mirror_lib.shipped import Shipped, shipped
from mirror_lib.spark_end import stage_error

REPORT_DDL = "report string, broken boolean, cut boolean, large boolean, beside string"
_FLAG = pa.bool_()
ARROW_TYPES = {"report": pa.string(), "broken": _FLAG, "cut": _FLAG, "large": _FLAG, "beside": pa.string()}

# Spark puts rows together for Python by their number: a few hundred of some MB each would take the executor's memory.
ROWS_KEY = "spark.sql.execution.arrow.maxRecordsPerBatch"
# Since 4.0 it also minds their bytes.
COUNTS = pyspark.__version__ >= "4"
BYTES_KEY, MOST_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch", 16 * 1024 * 1024

Batches = Iterable[pa.RecordBatch]


def append_rows(rows: DataFrame, given: RowsPlan, at_once: AtOnce = COUNTED) -> List[RowsReport]:
    """Append `rows`, in columns of `CHANGED_DDL`, with a task for each of their partitions, in which all rows of a
    remote partition are together and in order; large ones are `marked` as `at_once` says. That is set in their session,
    where nobody else may do so meanwhile. Raises `ClusterError`, in the words of what failed, if the rows cannot be
    computed or appended."""
    settings = rows.sparkSession.conf
    settings.set(ROWS_KEY, str(at_once.rows))
    settings.set(BYTES_KEY, str(MOST_BYTES))
    try:
        with shipped(rows.sparkSession, given) as held:
            found = rows.mapInArrow(_appender(held), REPORT_DDL).collect()
    except Exception as error:
        raise stage_error(given.plan.flow, rows.sparkSession, error) from error
    return [_report_of(row) for row in found]


def _report_of(row: Row) -> RowsReport:
    beside = json.loads(row["beside"])
    aged = tuple((topic, number) for topic, number in beside["aged"])
    dead = tuple(map(DeadLetter.from_json, beside["dead"]))
    failed = tuple(((topic, number), offset, reason) for (topic, number), offset, reason in beside["failed"])
    unsettled = tuple(((topic, number), Unsettled(*left)) for (topic, number), left in beside["unsettled"])
    newest = {(topic, number): at for topic, number, at in beside["newest"]}
    report, flags = from_text(row["report"]), (row["cut"], row["large"])
    return RowsReport(report, row["broken"], aged, dead, failed, *flags, unsettled, newest)


def _appender(given: Shipped[RowsPlan]) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def append(batches: Batches) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        number, attempt = (0, 0) if context is None else (context.partitionId(), context.attemptNumber())
        # An earlier attempt may be alive, under the same producers. The driver fences before anything is tried again.
        # Where Spark began the whole stage anew this counts from 0 again: then partitions find what was appended.
        found = RowWriter(given.value, number).run(batches) if attempt == 0 else nothing_done(number)
        forget_archives()
        yield _row_of(found)

    return append


def _row_of(found: RowsReport) -> pa.RecordBatch:
    dead = [letter.as_json() for letter in found.dead]
    newest = [(*source, at) for source, at in found.newest.items()]
    told = {"aged": found.aged, "dead": dead, "failed": found.failed, "unsettled": found.unsettled, "newest": newest}
    beside = json.dumps(told)
    values = (to_text(found.report), found.broken, found.cut, found.large, beside)
    arrays = [pa.array([value], type=kind) for value, kind in zip(values, ARROW_TYPES.values())]
    return pa.RecordBatch.from_arrays(arrays, names=list(ARROW_TYPES))
