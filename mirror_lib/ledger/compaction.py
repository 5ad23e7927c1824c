"""Compacts the tables in the background: few files, and as few ledger rows as hold the same facts.

A crash at any point leaves the old rows or the new ones, never both or none. A failure never ends the copy: a table
that is not compacted is slower to read and just as correct.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Callable, List, Optional, Protocol, Sequence

from pyspark.sql import DataFrame, SparkSession, Window, WindowSpec
from pyspark.sql import functions as F

from mirror_lib.errors import ConflictError, MirrorError, SparkEndedError
from mirror_lib.ledger.delta_table import COMMIT_NAME, StateTable
from mirror_lib.ledger.offset_syncs import IS_RANGE, OFFSET_SYNCS
from mirror_lib.ledger.table_schema import COPIED_PARTITION, TableSchema
from mirror_lib.log_lines import of_this_flow

log = logging.getLogger(__name__)

FILES_TO_MERGE = 50
# So many rows are rewritten in a second or two, so they are taken along whatever they would save.
FEW_ROWS = 50_000
ROWS_TO_A_FILE = 1_000_000
# Files of so many rows are few, and stay as they are: what a filter or a log full of gaps writes has no rows to join.
LARGE_FILE = ROWS_TO_A_FILE // 4
# A chunk is taken along when what was written after it has this share of its rows: each row is rewritten a few times.
SHARE = 0.5
_KEY = (*(column.name for column in COPIED_PARTITION), "remote_partition")
_UNTILS = ("upstream_until", "downstream_until")
_CARRIED = ("run_id", "query_id", "batch_id")
# Of a flow that repartitions records, the ranges of so many of the last commits stay as they are. Older ones
# become one where they are of a time that is at most such a share of their age: a group that is far behind reads that
# much more again.
RANGES_KEPT = 512
RANGES_SHARE = 64
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

_ORDER = ("upstream_offset", "downstream_offset", "record_count")
# `shift` is the distance between the two logs, `reached` and `reached_downstream` how far the rows before this one go.
# A row that makes no sense (null, a negative count) has no shift, so it is a range of its own, which a reader of the
# result is to see and refuse. Of what was written later only rows that lie further on may take a row's place: who asks
# which of two rows is the last word must not hear another answer, so stamps go up in what is joined.
_CONTINUES = """coalesce(
    last_shift = shift AND upstream_offset <= reached AND upstream_end >= reached AND last_stamp <= stamp, false)"""
_IS_CONTINUED = """coalesce(
    next_shift = shift AND stamp <= next_stamp
    AND next_upstream_offset <= greatest(upstream_end, reached)
    AND next_upstream_end >= greatest(upstream_end, reached), false)"""
# Between two runs that agree with it a position says nothing that they do not.
_IS_IDLE = """coalesce(
    record_count = 0 AND begins AND ends AND last_shift IS NOT NULL AND stamp <= next_stamp
    AND reached <= upstream_offset AND reached_downstream <= downstream_offset
    AND next_upstream_offset + next_shift >= downstream_offset, false)"""


def merged_rows(rows: DataFrame, key: Sequence[str], stamp: str, carried: Sequence[str]) -> DataFrame:
    """`rows` (columns `key`, offsets, `stamp`, `carried`) in as few as say the same, by `key`, then in upstream order.
    In SQL, since Spark rewrites a table that may be too large for a driver, and rows keep their stamps.

    Rows that lie on one line and touch are one, also if they are stated twice or overlap, with `stamp` and `carried` of
    the last. A position stays where it is the first or the last word. Rows that contradict each other or make no sense
    are all there: nothing is checked here. The row that was written last, and of those that end last the one that was
    written last, say the same afterwards.
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
    # Only first and last rows of runs are left, so the row after a first one that is not its own last is its last.
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
    """Each row with what the rows around it say."""
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
    """A file of a table: how many rows of a flow it has, and when the first and the last were written (Unix µs)."""

    rows: int
    first_at: int
    last_at: int


@dataclass(frozen=True)
class Choice:
    """What to merge: the rows written from `since` on (Unix µs), which are in `files` files."""

    since: int
    rows: int
    files: int


def chosen(files: Sequence[TableFile]) -> Optional[Choice]:
    """The newest files, and older chunks as long as they are not much larger than all that is newer, up to one of large
    files. Pure.

    So each row is rewritten about as often as the table doubles. `None` where there are no files to be merged.
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
    """Files whose times overlap belong together: no bound of time goes between them. The newest first."""
    chunks: List[Choice] = []
    for file in sorted(files, key=lambda each: (each.last_at, each.first_at), reverse=True):
        if chunks and file.last_at >= chunks[-1].since:
            last = chunks.pop()
            chunks.append(Choice(min(last.since, file.first_at), last.rows + file.rows, last.files + 1))
        else:
            chunks.append(Choice(file.first_at, file.rows, 1))
    return chunks


class TableCompaction:
    """The rows of one flow in a table of a `state:` folder; `places` are the columns by which rows are looked for."""

    def __init__(self, spark: SparkSession, state: str, flow: str, schema: TableSchema, places: Sequence[str]) -> None:
        self.table = StateTable(spark, state, schema)
        self._schema = schema
        self._flow = flow
        self._places = places

    def _merged(self, rows: DataFrame) -> DataFrame:
        """What takes the place of `rows`."""
        return rows

    def due(self, enough: int = FILES_TO_MERGE) -> Optional[Choice]:
        """What is worth merging, if it is in `enough` files. StateError where the table cannot be read."""
        rows = self.table.rows_in_files(enough)
        if rows is None:
            return None
        with self.table.explained("look through"):
            found = chosen(self._files(rows))
        return found if found is not None and found.files >= enough else None

    def tidy(self, enough: int) -> bool:
        """Merge what is worth it, if it is in `enough` files; whether anything was. StateError."""
        found = self.due(enough)
        if found is not None:
            self.merge(found)
        return found is not None

    def merge(self, found: Choice) -> None:
        """Put merged rows in the place of those that are chosen, in one commit, which streams of the table pass over.

        StateError where it failed, also because other processes wrote meanwhile: then nothing was done, and nothing is
        wrong.
        """
        rows = self.table.rows()
        if rows is None:
            return
        since = f"flow = {text_literal(self._flow)} AND {self._schema.stamp} >= {_timestamp(found.since)}"
        # Delta reads and replaces at one and the same version, and refuses where others wrote in the meantime.
        options = {"replaceWhere": since, COMMIT_NAME: f"{self._flow} compaction"}
        with self.table.explained("merge"):
            merged = self._merged(self._gathered(rows.where(since), found))
            ready = merged.select(*(column.name for column in self._schema.columns))
            writer = ready.write.format("delta").mode("overwrite").options(**options)
            self.table.change(lambda: writer.save(self.table.path))
        log.info("%s: %d files of %s were merged", self._flow, found.files, self._schema.name)

    def _gathered(self, rows: DataFrame, found: Choice) -> DataFrame:
        """In the tasks that write a file each: by places, so that who looks for one reads one file."""
        files = -(-found.rows // ROWS_TO_A_FILE)
        # What has one place goes to one task at once.
        return rows.repartitionByRange(files, *self._places) if files > 1 else rows.coalesce(1)

    def _files(self, rows: DataFrame) -> List[TableFile]:
        at = F.expr(f"unix_micros({self._schema.stamp})")
        facts = (F.count("*").alias("rows"), F.min(at).alias("first_at"), F.max(at).alias("last_at"))
        own = rows.where(F.col("flow") == self._flow).groupBy(F.input_file_name()).agg(*facts)
        return [TableFile(row["rows"], row["first_at"], row["last_at"]) for row in own.collect()]


class LedgerCompaction(TableCompaction):
    """The rows of one flow in the ledger."""

    def __init__(self, spark: SparkSession, state: str, flow: str) -> None:
        super().__init__(spark, state, flow, OFFSET_SYNCS, ("source_topic", "partition"))

    def _merged(self, rows: DataFrame) -> DataFrame:
        exact = merged_rows(rows.where(f"not ({IS_RANGE})"), _KEY, OFFSET_SYNCS.stamp, _CARRIED)
        exact = exact.select("*", *(F.lit(None).cast("bigint").alias(name) for name in _UNTILS))
        return exact.unionByName(merged_ranges(rows.where(IS_RANGE)).select(*exact.columns))


def merged_ranges(rows: DataFrame, kept: int = RANGES_KEPT, share: int = RANGES_SHARE) -> DataFrame:
    """Range rows of the ledger in fewer, which say a little less. Each is of one source and one remote partition, and
    spans both ranges of those that it takes the place of, with the sum of their counts.

    What is merged now is merged again as a whole: times are cut at powers of two.
    """
    stamp, ends = OFFSET_SYNCS.stamp, ("upstream", "downstream")
    timed = rows.withColumn("at", F.expr(f"unix_micros({stamp})"))
    newest = timed.select("at").distinct().orderBy(F.desc("at")).limit(kept)
    (bounds,) = newest.agg(F.min("at").alias("first"), F.max("at").alias("last")).collect()
    if bounds["first"] is None:
        return rows
    power = f"cast(floor(log2(greatest(({bounds['last']}L - at) div {share}, 1))) as int)"
    old = timed.where(F.col("at") < bounds["first"]).withColumn("power", F.expr(power))
    merged = old.groupBy(*_KEY, "power", F.expr("at div shiftleft(1L, power)")).agg(
        *(F.min(f"{end}_offset").alias(f"{end}_offset") for end in ends),
        F.sum("record_count").alias("record_count"),
        *(F.expr(f"max_by({name}, at)").alias(name) for name in (*_CARRIED, stamp)),
        *(F.max(name).alias(name) for name in _UNTILS),
    )
    recent = timed.where(F.col("at") >= bounds["first"])
    return recent.select(*rows.columns).unionByName(merged.select(*rows.columns)).coalesce(1)


def _timestamp(micros: int) -> str:
    return f"TIMESTAMP '{_EPOCH + timedelta(microseconds=micros)}'"


def text_literal(value: str) -> str:
    """A text in Spark SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


# Each commit is a file, and each file costs every reader some milliseconds.
COMMITS_PER_CHECK = 100
# With so many the first commit of a run has them merged, however short it is.
OVERDUE_FILES = 500
SECONDS_TO_A_CLEANING = 24 * 3600.0
# How soon a stop is heard.
CHECK_SECONDS = 0.2


def files_to_merge(commits: int) -> Optional[int]:
    """How many files are to be merged after that commit of a run, the first being 1; `None`: no check is made. Pure.

    Many runs are short. They have to wait for what they begin, so at first they begin only what must be done.
    """
    if commits % COMMITS_PER_CHECK != 1:
        return None
    return OVERDUE_FILES if commits == 1 else FILES_TO_MERGE


class Tidied(Protocol):
    """One flow's rows in a table."""

    @property
    def table(self) -> StateTable:
        """The table, whose log is shortened too where the operator asked for it."""

    def tidy(self, enough: int) -> bool:
        """Merge what is worth it, where it is in `enough` files; whether anything was.

        StateError: nothing was done then, and nothing is wrong.
        """


class Upkeep:
    """The upkeep of one flow's rows in one driver's life. Call it from one thread."""

    def __init__(self, flow: str, rows: Tidied) -> None:
        self._flow = flow
        self._rows = rows
        self._commits = 0
        self._cleaned_at: Optional[float] = None
        self._warned = False
        self._thread: Optional[threading.Thread] = None

    def committed(self) -> None:
        """The flow has made a commit: looks now and then whether its rows are worth merging."""
        self._commits += 1
        enough = files_to_merge(self._commits)
        if enough is None or (self._thread is not None and self._thread.is_alive()):
            return
        look, name = of_this_flow(self._check), f"upkeep of {self._flow}"
        self._thread = threading.Thread(target=look, args=(enough,), name=name, daemon=True)
        self._thread.start()

    def wait(self, seconds: float, ended: Callable[[], bool] = lambda: False) -> None:
        """Let what was begun come to its end, for `seconds` at most, and not where all has `ended`."""
        until = time.monotonic() + seconds
        while self._thread is not None and self._thread.is_alive() and time.monotonic() < until and not ended():
            self._thread.join(CHECK_SECONDS)

    def _check(self, enough: int) -> None:
        try:
            if self._rows.tidy(enough):
                self._clean()
            # A short life leaves the log to the next long one, and to Delta's own retention.
            if enough != OVERDUE_FILES:
                self._rows.table.shorten_log()
        except (ConflictError, SparkEndedError) as error:
            # Another process merged or cut the same rows, or the driver ends. There is a next time.
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
            self._rows.table.drop_replaced_files()
