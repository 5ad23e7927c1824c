"""Commits rows to the Delta tables under `state:` and reads them, on any file system that Spark can write.

Each table is the folder `<state>/<name>`.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, TypeVar
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.utils import AnalysisException  # type: ignore[attr-defined]  # Spark 3.3 has no pyspark.errors

from mirror_lib.errors import ConflictError, MirrorError, StateError, VanishedError, cause_of, messages_of
from mirror_lib.ledger.state_files import is_absent, newest_version, on_local_disk
from mirror_lib.ledger.table_reader import STEPS, TableRows, read_table, refuse_lost_lines, refuse_replaced
from mirror_lib.ledger.tables import SINCE, Column, TableSchema, lacking
from mirror_lib.spark.errors import memory_hint, spark_ended
from mirror_lib.spark.jobs import local_rows, named
from mirror_lib.spark.session import active, cloned

log = logging.getLogger(__name__)

T = TypeVar("T")

TABLE_PROPERTIES = {
    # Delta's default is every 10 commits: with one commit a second, every tenth would wait for a checkpoint.
    "delta.checkpointInterval": "100",
    # Every commit lists the log's files, so a long log slows commits down.
    "delta.logRetentionDuration": "interval 1 days",
    "delta.deletedFileRetentionDuration": "interval 1 days",
    # The tables are read completely, so statistics of each file are useless, and they cost a fourth of a commit.
    "delta.dataSkippingNumIndexedCols": "0",
    # Every Delta reader can read reader version 1. The creating session may have other defaults, as on Databricks.
    "delta.ignoreProtocolDefaults": "true",
    "delta.minReaderVersion": "1",
    "delta.minWriterVersion": "2",
    "delta.enableDeletionVectors": "false",
    "delta.columnMapping.mode": "none",
}
# Delta 3.0 added this property; older releases refuse a table with an unknown property.
CLASSIC_CHECKPOINTS = {"delta.checkpointPolicy": "classic"}
# Attempts of a change that conflicts with other commits.
CHANGES = 5
# By a table's path. While a flow of this driver creates the table, Delta already treats the folder as a table, but
# cannot read it.
_CREATION: Dict[str, threading.Lock] = {}
# By a table's path: its version when this process first asked for it.
_VERSIONS: Dict[str, Optional[int]] = {}
# By a table's path: locked by a change that Delta refused once, so that no append conflicts with its next attempt.
_ALONE: Dict[str, threading.Lock] = {}

# Turns Spark's code generation off, which takes most of the time of the first read of a table's log. The log's state is
# then cached for all sessions.
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
# Delta's VACUUM lists a folder with up to this number of tasks (default: 10,000), and a commit then waits for them.
_FEW_TASKS = {"spark.sql.sources.parallelPartitionDiscovery.parallelism": "2"}

# The tables are small and read completely. So a snapshot of Delta's log has few partitions, and file statistics are not
# used in planning, which takes most of a first read. Parquet's own statistics stay in use.
# OPTIMIZE leaves larger files alone, so that no row is rewritten often.
_SMALL_TABLES = {
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.databricks.delta.stats.skipping": "false",
    "spark.databricks.delta.optimize.minFileSize": str(16 * 1024 * 1024),
}
_OWN: WeakKeyDictionary[SparkSession, SparkSession] = WeakKeyDictionary()
_OWN_LOCK = threading.Lock()


def own_session(spark: SparkSession) -> SparkSession:
    """The session for the tables under `state:`, cloned from `spark` at the first call.

    Only this session has the settings for these tables, so they do not affect other queries of the application."""
    with _OWN_LOCK:
        if spark not in _OWN:
            _OWN[spark] = cloned(spark, _SMALL_TABLES)
        return _OWN[spark]


def table_properties(spark_version: str) -> Mapping[str, str]:
    major, minor = (int(part) for part in spark_version.split(".")[:2])
    return {**TABLE_PROPERTIES, **(CLASSIC_CHECKPOINTS if (major, minor) >= (3, 5) else {})}


def now_micros() -> int:
    """Unix µs."""
    return time.time_ns() // 1000


def seconds_ago(seconds: float) -> str:
    """The time before so many seconds, by this driver's clock, as an SQL expression."""
    return f"timestamp_micros({now_micros() - round(seconds * 1e6)})"


def _refused_for_another(error: Exception) -> bool:
    # Decided by the message, because not every version of Delta's Python package has a class for it. The stack trace is
    # not searched: it always contains `java.util.concurrent`.
    return "concurrent" in " ".join((type(error).__name__, *messages_of(error))).lower()


# Spark reads larger tables in parts, and in several tasks.
LARGE_TABLE = 64 * 1024 * 1024
UNREADABLE = (
    "no record on the target is lost; check the storage, the permissions of Spark there, and that it runs with Delta's "
    f"extension; {STEPS} has the steps for a damaged table"
)


def vanished(path: str) -> VanishedError:
    return VanishedError(
        f"the table {path} is gone. No record on the target is lost, and this run creates no other table in its place",
        "put the folder back (is its file system mounted?) and start again; if it is lost, start again without it: "
        "that run reads the remote topics from their start to find the copied records",
    )


class StateTable:
    """One Delta table. The first append creates it; before that it reads as empty.

    A table that this object has read or written is not created again: `VanishedError` if its folder is gone. Methods
    that read or write raise StateError if that fails."""

    def __init__(self, spark: SparkSession, state: str, schema: TableSchema) -> None:
        # Late, because Spark may bring Delta's Python part with the jars of its session.
        self._delta: Any = import_module("delta.tables").DeltaTable
        self._spark = own_session(spark)
        self._schema = schema
        self._counted = False
        self._has_columns = False  # whether the table has all columns of this release
        self._is_checked = False
        self._found = False  # whether this object has seen the table
        self._stamp = 0
        self._state = state.rstrip("/")
        self.path = f"{self._state}/{schema.name}"
        self._alone = _ALONE.setdefault(self.path, threading.Lock())
        self._creation = _CREATION.setdefault(self.path, threading.Lock())

    @property
    def version(self) -> Optional[int]:
        """The table's version when this process first asked for it; -1 if there was none, `None` if it is unknown."""
        if self.path not in _VERSIONS:
            _VERSIONS[self.path] = newest_version(self._spark, self.path)
        return _VERSIONS[self.path]

    def rows(self) -> Optional[DataFrame]:
        """The table's current rows, or `None` if it does not exist. Raises StateError if it cannot be read.

        Delta caches for an hour that a folder without a first commit is no table. Another process may have created it
        meanwhile: a read checks that, in a fraction of a second.
        """
        with self.explained("read"):
            if not self._is_checked:
                self._on_disk(lambda folder: refuse_lost_lines(folder, import_module("deltalake").DeltaTable(folder)))
                self._is_checked = True
            with self._creation:
                if not self._exists() and not self._can_be_read():
                    return None
                self._found = True
            return self.complete(self._spark.read.format("delta").load(self.path))

    def collected(self, query: Callable[[DataFrame], DataFrame]) -> List[Row]:
        """The rows of `query` over the table; none if it does not exist."""
        rows = self.rows()
        if rows is None:
            return []
        with self.explained("read"):
            return query(rows).collect()

    def of_flow(self, flow: str, columns: Sequence[str], kinds: Sequence[str] = ()) -> List[Dict[str, Any]]:
        """The rows of `flow`, of these `kinds` if any, as `TableReader.rows` returns them; Spark reads them where that
        cannot."""
        read = self.rows_without_spark(columns, flow, kinds)
        if read is not None:
            return [] if read.rows is None else list(read.rows.to_pylist())
        of_kinds = F.col("kind").isin(*kinds) if kinds else F.lit(True)
        own = (F.col("flow") == flow) & of_kinds
        found = self.collected(lambda rows: rows.where(own).select(*columns))
        return [row.asDict() for row in found]

    def rows_without_spark(self, columns: Sequence[str], flow: str, kinds: Sequence[str] = ()) -> Optional[TableRows]:
        """The current rows of `flow`, for the start of a run: the first read of a table by Spark takes seconds.

        `None` if the table is not on a disk of this machine, is large, has vanished, or cannot be read so: then Spark
        reads it, and says what is wrong with it. Raises StateError if a commit lost lines."""

        def read(folder: str) -> Optional[TableRows]:
            found = read_table(folder, columns, flow, kinds, LARGE_TABLE)
            replaced = (f"{os.path.dirname(folder)}/{name}" for name in self._schema.replaced)
            is_gone = found.rows is None and (self._found or any(map(os.path.isdir, replaced)))
            return None if is_gone else found

        with self.explained("read"):
            found = self._on_disk(read)
            if found is not None and found.rows is not None:
                lacking(self._schema, found.since, self.path)
                self._found = True
            return found

    def _on_disk(self, read: Callable[[str], T]) -> Optional[T]:
        """`read` of the table's folder; `None` for other storage, and after an error that is no StateError: there is no
        table yet, no package, or damage that Spark's read reports."""
        try:
            folder = on_local_disk(self._spark, self.path)
            return None if folder is None else read(folder)
        except StateError:
            raise
        except Exception as error:
            log.debug("%s is read by Spark: %s", self.path, cause_of(error))
            return None

    def exists(self) -> bool:
        with self.explained("read"), self._creation:
            return self._exists()

    def _exists(self) -> bool:
        """Whether the table exists. Raises `VanishedError` if it did and its folder is gone."""
        if self._delta.isDeltaTable(self._spark, self.path):
            return True
        if self._found and is_absent(self._spark, self.path):
            raise vanished(self.path)
        refuse_replaced(self._schema, self._state, partial(self._delta.isDeltaTable, self._spark))
        return False

    def complete(self, rows: DataFrame) -> DataFrame:
        """Add the columns that a table of an older release lacks to its `rows`; the table itself does not change."""
        for column in self._lacking(rows):
            rows = rows.withColumn(column.name, F.lit(None).cast(column.type))
        return rows

    def _lacking(self, rows: DataFrame) -> List[Column]:
        found = {each.name: int(each.metadata.get(SINCE, 1)) for each in rows.schema.fields}
        return lacking(self._schema, found, self.path)

    def _migrate(self) -> None:
        """Add the columns that a table of an older release lacks, before a write. The table must exist."""
        if self._has_columns:
            return
        with self._creation:  # the second of two flows of a driver finds nothing to add
            names = [column.name for column in self._lacking(self._spark.read.format("delta").load(self.path))]
            if names:
                empty = self._described(self._stamped([]))
                empty.write.format("delta").mode("append").option("mergeSchema", "true").save(self.path)
                log.warning("%s: the columns %s were added to a table of an older release", self.path, ", ".join(names))
            self._has_columns = True

    def _described(self, rows: DataFrame) -> DataFrame:
        columns = self._schema.columns
        return rows.select([F.col(each.name).alias(each.name, metadata=each.metadata()) for each in columns])

    def _can_be_read(self) -> bool:
        try:
            self._spark.read.format("delta").load(self.path)
        except AnalysisException:
            return False
        return True

    def rows_of_one_version(self) -> DataFrame:
        """Repeated queries of the result return the same rows. The table must exist."""
        with self.explained("read"):
            (last,) = self.delta().history(1).select("version").collect()
            return self.complete(self._spark.read.format("delta").option("versionAsOf", last[0]).load(self.path))

    def count(self) -> int:
        """From the file statistics in Delta's log. The table must exist."""
        with self.explained("count the rows of"):
            session = self._spark if self._counted else cloned(self._spark, _INTERPRETED)
            self._counted = True
            return session.read.format("delta").load(self.path).count()

    def make(self) -> None:
        with self.explained("create"):
            self._created_with(self._stamped([]))

    def delta(self) -> Any:
        with self.explained("open"):
            return self._delta.forPath(self._spark, self.path)

    def change(self, make: Callable[[], object]) -> None:
        """Change rows in place; if Delta refuses, retry while no other thread of this process appends.

        Delta refuses a change if other processes or threads changed or appended rows meanwhile. Any other error of
        `make`, or that of the last attempt, becomes a StateError.
        """
        with self.explained("change rows of"):
            self._migrate()
            with self._alone:
                pass  # a change that Delta refused once comes first
            if self._made(make):
                return
            # The lock stays until the end: an append between two attempts would conflict with the next one, too.
            with self._alone:
                if not any(self._made(make) for _ in range(CHANGES - 2)):
                    make()

    def _made(self, change: Callable[[], object]) -> bool:
        try:
            change()
        except Exception as error:
            if not _refused_for_another(error):
                raise
            log.info("%s: a change was refused and is tried again: %s", self.path, cause_of(error))
            return False
        return True

    def merge_files(self, enough: int) -> bool:
        """By Delta's OPTIMIZE, if the table has `enough` files; whether it has."""
        rows = self.rows()
        with self.explained("merge"):
            if rows is None or len(rows.inputFiles()) < enough:
                return False
            self.delta().optimize().executeCompaction()
            return True

    def tidy(self, enough: int) -> None:
        """`merge_files`, and delete the merged ones. A failure costs only time."""
        try:
            if self.merge_files(enough):
                self.drop_replaced_files()
        except MirrorError as error:
            log.info("the files of %s were not merged: %s", self.path, error)

    def drop_replaced_files(self) -> None:
        """Delete the files that no retained version needs any more."""
        with self.explained("clean"):
            if self._delta.isDeltaTable(self._spark, self.path):
                self._delta.forPath(cloned(self._spark, _FEW_TASKS), self.path).vacuum()

    def append(self, rows: Sequence[Tuple[object, ...]]) -> None:
        """Add `rows` in one commit and one file; values are in the order of the columns, without the stamp.

        Without rows there is no commit. Raises StateError if the write fails.
        """
        if rows:
            with self.explained("write to"):
                self._append(self._stamped(rows))
            log.debug("%d rows appended to %s", len(rows), self.path)

    def append_frame(self, rows: DataFrame) -> None:
        """The same for rows with `written_columns`."""
        with self.explained("write to"):
            self._append(self._with_stamp(rows))

    def _append(self, stamped: DataFrame) -> None:
        if not self._created_with(stamped):
            self._migrate()
            with self._alone:
                pass  # a change that Delta refused once comes first
            stamped.write.format("delta").mode("append").save(self.path)

    def add_absent(self, rows: Sequence[Tuple[object, ...]], keys: Sequence[str]) -> None:
        """Add the `rows` whose values of `keys` are not in the table, in one commit.

        Of two concurrent calls Delta refuses one, which then reads the table again. Raises StateError.
        """
        same = " AND ".join(f"present.{key} = given.{key}" for key in keys)
        self.make()
        with self.explained("write to"):
            given = self._stamped(rows).alias("given")
        self.change(lambda: self.delta().alias("present").merge(given, same).whenNotMatchedInsertAll().execute())

    def _stamped(self, rows: Sequence[Tuple[object, ...]]) -> DataFrame:
        # Not Spark's `current_timestamp`: its value becomes part of the generated Java code, so that every commit would
        # compile its own.
        now = self.stamp()
        return self._with_stamp(local_rows(self._spark, self.written_columns, [(*row, now) for row in rows]))

    def stamp(self, after: int = 0) -> int:
        """The commit time of new rows in Unix µs: later than `after` and than each earlier result, also if the clock
        was set back."""
        self._stamp = max(now_micros(), self._stamp + 1, after + 1)
        return self._stamp

    @property
    def written_columns(self) -> Sequence[Tuple[str, str]]:
        """Names and types, with the stamp in Unix µs."""
        return [*self._schema.given(), (self._schema.stamp, "bigint")]

    def _with_stamp(self, rows: DataFrame) -> DataFrame:
        stamp = self._schema.stamp
        return rows.withColumn(stamp, F.expr(f"timestamp_micros({stamp})"))

    @contextmanager
    def explained(self, action: str) -> Iterator[None]:
        """Turn errors of Spark and Delta into a StateError that names the table, or into a SparkEndedError."""
        try:
            with active(self._spark), named(self._spark, f"{action} {self._schema.name}", again=False):
                yield
        except MirrorError:
            raise
        except Exception as error:
            what = f"could not {action} the table {self.path}"
            gone = spark_ended(what, self._spark)
            if gone is not None:
                raise gone from error
            said = cause_of(error)
            if _refused_for_another(error):
                raise ConflictError(f"{what}: {said}", "another process changed the table at that moment") from error
            raise StateError(f"{what}: {said}", memory_hint(said) or UNREADABLE) from error

    def _created_with(self, rows: DataFrame) -> bool:
        """Create the table with its first rows, in one commit. False if it exists already."""
        # Delta's table builder needs a commit of its own, twice the time of an append. It also permanently refuses a
        # folder in which a driver died, or the disk was full, before the first commit.
        with self._creation:
            if self._exists():
                self._found = True
                return False
            writer = self._described(rows).write.format("delta").options(**table_properties(self._spark.version))
            try:
                writer.mode("append").save(self.path)
            except Exception as error:
                # Two drivers may create the table at the same time. The second one's next append finds it, even if
                # Delta's view of the folder was outdated.
                if not _refused_for_another(error):
                    raise
                return False
            self._found = True
            return True
