"""Compacts the ledger in the background into few files, and into the fewest rows with the same facts.

A crash at any point leaves either the old rows or the new ones. A failure never stops the copy: a table that is not
compacted is slower to read, but correct.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Callable, Optional, Sequence, Tuple

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from mirror_lib.errors import ConflictError, MirrorError, SparkEndedError
from mirror_lib.ledger.delta_table import StateTable
from mirror_lib.ledger.offset_syncs import IS_RANGE
from mirror_lib.ledger.tables import COPIED_PARTITION, OFFSET_SYNCS
from mirror_lib.log_lines import of_this_flow

log = logging.getLogger(__name__)

FILES_TO_MERGE = 50
ROWS_TO_A_FILE = 1_000_000
# Files of so many rows are few and stay unchanged: rows of a filter, or of a log with many gaps, cannot be joined.
LARGE_FILE = ROWS_TO_A_FILE // 4
_KEY = (*(column.name for column in COPIED_PARTITION), "remote_partition")
_UNTILS = ("upstream_until", "downstream_until")
_CARRIED = ("run_id", "query_id", "batch_id")
_WRITTEN = (OFFSET_SYNCS.stamp, *_CARRIED)
# Where a partition of a flow that repartitions records starts.
_IS_START = "upstream_offset = upstream_until and downstream_offset = downstream_until"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

_ORDER = ("upstream_offset", "downstream_offset", "record_count")
# `shift` is the distance between the two logs. An invalid row (null, a negative count) has none, so it stays a range of
# its own, and readers of the result refuse it. Stamps must not decrease within joined rows: which of two rows is the
# later one must not change.
_CONTINUES = """coalesce(
    last_shift = shift AND last_stamp <= stamp
    AND upstream_offset <= last_upstream_end AND last_upstream_end <= upstream_end, false)"""
# A position between two runs that agree with it adds no information.
_IS_IDLE = """coalesce(
    record_count = 0 AND stamp <= next_stamp AND last_upstream_end <= upstream_offset
    AND last_downstream_end <= downstream_offset AND downstream_offset <= next_downstream_offset, false)"""


def merged_rows(rows: DataFrame) -> DataFrame:
    """Few rows with the facts of `rows` of the ledger, which are no range rows.

    Runs in SQL, since the table may be too large for a driver. Rows with the same shift that touch, overlap or repeat
    become one row, with the stamp and the run of the last. A position is kept only as the first or the last row.
    Nothing is checked: contradictory and invalid rows are all kept. The result is the same for the row that was written
    last, and for the one that was written last among those with the highest end.
    """
    in_order = Window.partitionBy(*_KEY).orderBy(*_ORDER, "stamp")
    lines = rows.select(
        *_KEY,
        *_ORDER,
        F.col(OFFSET_SYNCS.stamp).alias("stamp"),
        F.struct(*_WRITTEN).alias("written"),
        F.expr("upstream_offset + record_count AS upstream_end"),
        F.expr("CASE WHEN record_count >= 0 THEN downstream_offset - upstream_offset END AS shift"),
    )
    lasts = (F.lag(name).over(in_order).alias(f"last_{name}") for name in ("shift", "upstream_end", "stamp"))
    begins = F.expr(f"CASE WHEN {_CONTINUES} THEN 0 ELSE 1 END").alias("begins")
    run = F.sum("begins").over(in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)).alias("run")
    numbered = lines.select("*", *lasts).select("*", begins).select("*", run)
    joined = numbered.groupBy(*_KEY, "run").agg(
        *(F.min(name).alias(name) for name in _ORDER[:2]),
        F.expr("max(upstream_end) - min(upstream_offset) AS record_count"),
        *(F.max(name).alias(name) for name in ("stamp", "written", "upstream_end")),
    )
    neighbours = joined.select(
        "*",
        F.lag("upstream_end").over(in_order).alias("last_upstream_end"),
        F.lag(F.expr("downstream_offset + record_count")).over(in_order).alias("last_downstream_end"),
        *(F.lead(name).over(in_order).alias(f"next_{name}") for name in ("downstream_offset", "stamp")),
    )
    return neighbours.where(f"NOT {_IS_IDLE}").select(*_KEY, *_ORDER, *(f"written.{name}" for name in _WRITTEN))


@dataclass(frozen=True)
class Choice:
    """The rows to merge: those written from `since` on (Unix µs), which are in `files` files."""

    since: int
    rows: int
    files: int


def chosen(files: Sequence[Tuple[int, int]]) -> Optional[Choice]:
    """Choose what was written after the last large file. `files`: the rows of each file, and when the last of them was
    written (Unix µs). Pure.

    So a check rewrites few more rows than a large file has. `None` if there is nothing to merge.
    """
    since = max((last_at + 1 for rows, last_at in files if rows >= LARGE_FILE), default=0)
    newer = [rows for rows, last_at in files if last_at >= since]
    return Choice(since, sum(newer), len(newer)) if newer else None


# Each commit adds a file, and each file costs every reader some milliseconds.
COMMITS_PER_CHECK = 100
SECONDS_TO_A_CLEANING = 24 * 3600.0
# How soon `wait` notices that the run has ended.
CHECK_SECONDS = 0.2


def is_due(version: Optional[int], commits: int) -> bool:
    """Whether to check for files to merge after a run's commit number `commits`, from 1: at every hundredth commit of
    the table, because many runs are short and a check costs more than all else that they do. Pure.

    `version`: the table's version at one moment of the run, -1 before its first commit, `None` if it is unknown."""
    if version is None:
        return commits % COMMITS_PER_CHECK == 1
    return (version + commits) % COMMITS_PER_CHECK == FILES_TO_MERGE


class Upkeep:
    """Keeps a table that one flow writes in few files, in the background during a run. Call it from one thread."""

    def __init__(self, table: StateTable, flow: str) -> None:
        self.table = table
        self._flow = flow
        self._commits = 0
        self._cleaned_at: Optional[float] = None
        self._warned = False
        self._thread: Optional[threading.Thread] = None

    def committed(self) -> None:
        self._commits += 1
        if not is_due(self.table.version, self._commits) or (self._thread and self._thread.is_alive()):
            return
        name = f"upkeep of {self._flow}"
        self._thread = threading.Thread(target=of_this_flow(self._check), name=name, daemon=True)
        self._thread.start()

    def wait(self, seconds: float, ended: Callable[[], bool] = lambda: False) -> None:
        until = time.monotonic() + seconds
        while self._thread is not None and self._thread.is_alive() and time.monotonic() < until and not ended():
            self._thread.join(CHECK_SECONDS)

    def tidy(self, enough: int) -> bool:
        """Whether there were `enough` files to merge. After a StateError the table is unchanged and correct."""
        return self.table.merge_files(enough)

    def expire(self) -> None:
        """Delete rows that nothing needs any more. Raises StateError."""

    def _check(self) -> None:
        try:
            if self.tidy(FILES_TO_MERGE):
                self._clean()
        except (ConflictError, SparkEndedError) as error:
            # Another process changed the same rows, or the driver ends. A later check merges them.
            log.info("%s: maintenance of %s failed: %s", self._flow, self.table.path, error)
        except MirrorError as error:
            level = logging.INFO if self._warned else logging.WARNING
            self._warned = True
            sentence = "%s: the upkeep of %s failed: %s. The table stays correct; each commit adds a file to read"
            log.log(level, sentence, self._flow, self.table.path, error)

    def _clean(self) -> None:
        now = time.monotonic()
        if self._cleaned_at is None or now - self._cleaned_at > SECONDS_TO_A_CLEANING:
            self._cleaned_at = now
            self.expire()
            self.table.drop_replaced_files()


class LedgerCompaction(Upkeep):
    """Compacts one flow's rows in the ledger."""

    def __init__(self, spark: SparkSession, state: str, flow: str) -> None:
        super().__init__(StateTable(spark, state, OFFSET_SYNCS), flow)

    def due(self, enough: int) -> Optional[Choice]:
        """`None` if they are in fewer than `enough` files. Raises StateError if the table cannot be read."""
        rows = self.table.rows()
        with self.table.explained("look through"):
            if rows is None or len(rows.inputFiles()) < enough:
                return None
            own = rows.where(F.col("flow") == self._flow).groupBy(F.input_file_name())
            files = own.agg(F.count("*"), F.max(F.expr(f"unix_micros({OFFSET_SYNCS.stamp})"))).collect()
            found = chosen([(count, last_at) for _, count, last_at in files])
        return found if found is not None and found.files >= enough else None

    def tidy(self, enough: int) -> bool:
        found = self.due(enough)
        if found is not None:
            self.merge(found)
        return found is not None

    def merge(self, found: Choice) -> None:
        """Replace the chosen rows by merged ones, in one commit, which streams of the table skip.

        Raises StateError if it fails, also because another process wrote meanwhile. The table is then unchanged and
        correct.
        """
        rows = self.table.rows()
        if rows is None:
            return
        at = _EPOCH + timedelta(microseconds=found.since)
        since = f"flow = {text_literal(self._flow)} AND {OFFSET_SYNCS.stamp} >= TIMESTAMP '{at}'"
        # Delta reads and replaces rows of one version, and refuses the commit if another process wrote meanwhile.
        with self.table.explained("merge"):
            own, files = rows.where(since), -(-found.rows // ROWS_TO_A_FILE)
            # Each task writes one file, by partition: a look-up reads one file.
            spread = own.repartitionByRange(files, "source_topic", "partition") if files > 1 else own.coalesce(1)
            ready = _merged(spread).select(*(column.name for column in OFFSET_SYNCS.columns))
            writer = ready.write.format("delta").mode("overwrite").option("replaceWhere", since)
            self.table.change(lambda: writer.save(self.table.path))
        log.info("%s: %d files of %s were merged", self._flow, found.files, OFFSET_SYNCS.name)


def _merged(rows: DataFrame) -> DataFrame:
    exact = merged_rows(rows.where(f"not ({IS_RANGE})"))
    exact = exact.select("*", *(F.lit(None).cast("bigint").alias(name) for name in _UNTILS))
    return exact.unionByName(merged_ranges(rows.where(IS_RANGE)).select(*exact.columns))


def merged_ranges(rows: DataFrame) -> DataFrame:
    """Merge the range rows of each partition into one, but for the row of its start, which keeps its time."""
    stamp, moved = OFFSET_SYNCS.stamp, rows.where(f"not ({_IS_START})")
    merged = moved.groupBy(*_KEY).agg(
        *(F.min(name).alias(name) for name in ("upstream_offset", "downstream_offset")),
        F.sum("record_count").alias("record_count"),
        *(F.expr(f"max_by({name}, {stamp})").alias(name) for name in _CARRIED),
        *(F.max(name).alias(name) for name in (stamp, *_UNTILS)),
    )
    return rows.where(_IS_START).unionByName(merged.select(*rows.columns)).coalesce(1)


def text_literal(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
