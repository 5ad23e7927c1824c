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
from typing import Callable, List, Optional, Sequence

from pyspark.sql import DataFrame, SparkSession, Window, WindowSpec
from pyspark.sql import functions as F

from mirror_lib.errors import ConflictError, MirrorError, SparkEndedError
from mirror_lib.ledger.delta_table import StateTable
from mirror_lib.ledger.offset_syncs import IS_RANGE
from mirror_lib.ledger.tables import COPIED_PARTITION, OFFSET_SYNCS, TableSchema
from mirror_lib.log_lines import of_this_flow

log = logging.getLogger(__name__)

FILES_TO_MERGE = 50
# Rewriting so many rows takes a second or two, so a chunk of this size is always included.
FEW_ROWS = 50_000
ROWS_TO_A_FILE = 1_000_000
# Files of so many rows are few and stay unchanged: rows of a filter, or of a log with many gaps, cannot be joined.
LARGE_FILE = ROWS_TO_A_FILE // 4
# A chunk is included when the newer rows are at least this share of its own: each row is then rewritten a few times.
SHARE = 0.5
_KEY = (*(column.name for column in COPIED_PARTITION), "remote_partition")
_UNTILS = ("upstream_until", "downstream_until")
_CARRIED = ("run_id", "query_id", "batch_id")
# Where a partition of a flow that repartitions records starts.
_IS_START = "upstream_offset = upstream_until and downstream_offset = downstream_until"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

_ORDER = ("upstream_offset", "downstream_offset", "record_count")
# `shift` is the distance between the two logs, `reached` and `reached_downstream` are the ends of the rows before this
# one. An invalid row (null, a negative count) has no shift, so it stays a range of its own, and readers of the result
# refuse it. Stamps must not decrease within joined rows: which of two rows is the later one must not change.
_CONTINUES = """coalesce(
    last_shift = shift AND upstream_offset <= reached AND upstream_end >= reached AND last_stamp <= stamp, false)"""
_IS_CONTINUED = """coalesce(
    next_shift = shift AND stamp <= next_stamp
    AND next_upstream_offset <= greatest(upstream_end, reached)
    AND next_upstream_end >= greatest(upstream_end, reached), false)"""
# A position between two runs that agree with it adds no information.
_IS_IDLE = """coalesce(
    record_count = 0 AND begins AND ends AND last_shift IS NOT NULL AND stamp <= next_stamp
    AND reached <= upstream_offset AND reached_downstream <= downstream_offset
    AND next_upstream_offset + next_shift >= downstream_offset, false)"""


def merged_rows(rows: DataFrame, key: Sequence[str], stamp: str, carried: Sequence[str]) -> DataFrame:
    """The fewest rows with the facts of `rows` (columns `key`, offsets, `stamp`, `carried`), by `key`, then upstream.

    Runs in SQL, since the table may be too large for a driver, and rows keep their stamps. Rows with the same shift
    that touch, overlap or repeat become one row, with `stamp` and `carried` of the last. A position is kept only as the
    first or the last row. Nothing is checked: contradictory and invalid rows are all kept. The result is the same for
    the row that was written last, and for the one that was written last among those with the highest end.
    """
    in_order = Window.partitionBy(*key).orderBy(*_ORDER, "stamp")
    lines = rows.select(
        *key,
        *_ORDER,
        F.col(stamp).alias("stamp"),
        F.struct(*carried, stamp).alias("written"),
        F.expr("upstream_offset + record_count AS upstream_end"),
        F.expr("CASE WHEN record_count >= 0 THEN downstream_offset - upstream_offset END AS shift"),
    )
    neighbours = _with_neighbours(lines, in_order)
    bounds = neighbours.withColumn("begins", ~F.expr(_CONTINUES)).withColumn("ends", ~F.expr(_IS_CONTINUED))
    of_runs = bounds.where((F.col("begins") | F.col("ends")) & ~F.expr(_IS_IDLE))
    # Only first and last rows of runs are left. So a first row either ends its run, or the next row does.
    last = of_runs.select(
        "*",
        F.lead("upstream_end").over(in_order).alias("run_end"),
        F.when(F.col("ends"), F.col("written")).otherwise(F.lead("written").over(in_order)).alias("run_written"),
    )
    return last.where("begins").select(
        *key,
        *("upstream_offset", "downstream_offset"),
        F.expr("CASE WHEN ends THEN record_count ELSE run_end - upstream_offset END AS record_count"),
        *(f"run_written.{name}" for name in (*carried, stamp)),
    )


def _with_neighbours(lines: DataFrame, in_order: WindowSpec) -> DataFrame:
    earlier = in_order.rowsBetween(Window.unboundedPreceding, -1)
    following = ("shift", "stamp", "upstream_offset", "upstream_end")
    return lines.select(
        "*",
        F.max("upstream_end").over(earlier).alias("reached"),
        F.max(F.expr("downstream_offset + record_count")).over(earlier).alias("reached_downstream"),
        *(F.lag(name).over(in_order).alias(f"last_{name}") for name in ("shift", "stamp")),
        *(F.lead(name).over(in_order).alias(f"next_{name}") for name in following),
    )


@dataclass(frozen=True)
class TableFile:
    """A file of a table: its rows of one flow, and when the first and the last were written (Unix µs)."""

    rows: int
    first_at: int
    last_at: int


@dataclass(frozen=True)
class Choice:
    """The rows to merge: those written from `since` on (Unix µs), which are in `files` files."""

    since: int
    rows: int
    files: int


def chosen(files: Sequence[TableFile]) -> Optional[Choice]:
    """Choose the newest files, and older chunks until one is much larger than all newer rows, or has large files. Pure.

    So each row is rewritten about as often as the table doubles. `None` if there is nothing to merge.
    """
    found: Optional[Choice] = None
    for chunk in _chunks(files):
        if chunk.rows >= chunk.files * LARGE_FILE:
            break
        if found is not None and chunk.rows > FEW_ROWS and chunk.rows * SHARE > found.rows:
            break
        before = found or Choice(chunk.since, 0, 0)
        found = Choice(chunk.since, before.rows + chunk.rows, before.files + chunk.files)
    return found


def _chunks(files: Sequence[TableFile]) -> List[Choice]:
    """Groups files whose times overlap, since no time separates their rows. The newest group comes first."""
    chunks: List[Choice] = []
    for file in sorted(files, key=lambda each: (each.last_at, each.first_at), reverse=True):
        if chunks and file.last_at >= chunks[-1].since:
            last = chunks.pop()
            chunks.append(Choice(min(last.since, file.first_at), last.rows + file.rows, last.files + 1))
        else:
            chunks.append(Choice(file.first_at, file.rows, 1))
    return chunks


class TableCompaction:
    """Keeps a table of a `state:` folder, which `flow` writes, in few files."""

    def __init__(self, spark: SparkSession, state: str, flow: str, schema: TableSchema) -> None:
        self.table = StateTable(spark, state, schema)
        self._flow = flow

    def tidy(self, enough: int) -> bool:
        """Whether there were `enough` files to merge. After a StateError the table is unchanged and correct."""
        return self.table.merge_files(enough)

    def expire(self) -> None:
        """Delete rows that nothing needs any more. Raises StateError."""


class LedgerCompaction(TableCompaction):
    """Compacts one flow's rows in the ledger."""

    def __init__(self, spark: SparkSession, state: str, flow: str) -> None:
        super().__init__(spark, state, flow, OFFSET_SYNCS)

    def due(self, enough: int = FILES_TO_MERGE) -> Optional[Choice]:
        """`None` if they are in fewer than `enough` files. Raises StateError if the table cannot be read."""
        rows = self.table.rows()
        with self.table.explained("look through"):
            if rows is None or len(rows.inputFiles()) < enough:
                return None
            found = chosen(self._files(rows))
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
            merged = _merged(_gathered(rows.where(since), found))
            ready = merged.select(*(column.name for column in OFFSET_SYNCS.columns))
            writer = ready.write.format("delta").mode("overwrite").option("replaceWhere", since)
            self.table.change(lambda: writer.save(self.table.path))
        log.info("%s: %d files of %s were merged", self._flow, found.files, OFFSET_SYNCS.name)

    def _files(self, rows: DataFrame) -> List[TableFile]:
        at = F.expr(f"unix_micros({OFFSET_SYNCS.stamp})")
        facts = (F.count("*").alias("rows"), F.min(at).alias("first_at"), F.max(at).alias("last_at"))
        own = rows.where(F.col("flow") == self._flow).groupBy(F.input_file_name()).agg(*facts)
        return [TableFile(row["rows"], row["first_at"], row["last_at"]) for row in own.collect()]


def _gathered(rows: DataFrame, found: Choice) -> DataFrame:
    """Distribute rows over tasks that write one file each: by partition, so that a look-up reads one file."""
    files = -(-found.rows // ROWS_TO_A_FILE)
    return rows.repartitionByRange(files, "source_topic", "partition") if files > 1 else rows.coalesce(1)


def _merged(rows: DataFrame) -> DataFrame:
    exact = merged_rows(rows.where(f"not ({IS_RANGE})"), _KEY, OFFSET_SYNCS.stamp, _CARRIED)
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

    def __init__(self, flow: str, rows: TableCompaction) -> None:
        self._flow = flow
        self._rows = rows
        self._commits = 0
        self._cleaned_at: Optional[float] = None
        self._warned = False
        self._thread: Optional[threading.Thread] = None

    def committed(self) -> None:
        self._commits += 1
        if not is_due(self._rows.table.version, self._commits) or (self._thread and self._thread.is_alive()):
            return
        name = f"upkeep of {self._flow}"
        self._thread = threading.Thread(target=of_this_flow(self._check), name=name, daemon=True)
        self._thread.start()

    def wait(self, seconds: float, ended: Callable[[], bool] = lambda: False) -> None:
        until = time.monotonic() + seconds
        while self._thread is not None and self._thread.is_alive() and time.monotonic() < until and not ended():
            self._thread.join(CHECK_SECONDS)

    def _check(self) -> None:
        try:
            if self._rows.tidy(FILES_TO_MERGE):
                self._clean()
        except (ConflictError, SparkEndedError) as error:
            # Another process changed the same rows, or the driver ends. A later check merges them.
            log.info("%s: maintenance of %s failed: %s", self._flow, self._rows.table.path, error)
        except MirrorError as error:
            level = logging.INFO if self._warned else logging.WARNING
            self._warned = True
            sentence = "%s: the upkeep of %s failed: %s. The table stays correct; each commit adds a file to read"
            log.log(level, sentence, self._flow, self._rows.table.path, error)

    def _clean(self) -> None:
        now = time.monotonic()
        if self._cleaned_at is None or now - self._cleaned_at > SECONDS_TO_A_CLEANING:
            self._cleaned_at = now
            self._rows.expire()
            self._rows.table.drop_replaced_files()
