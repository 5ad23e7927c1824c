"""Commits rows to the Delta tables under `state:` and reads them, on any file system that Spark can write.

A table is the folder `<state>/<name>`.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple
from weakref import WeakKeyDictionary

from delta.tables import DeltaTable
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.utils import AnalysisException  # type: ignore[attr-defined]  # Spark 3.3 has no pyspark.errors

from mirror_lib.errors import (
    ConflictError,
    DamagedError,
    MirrorError,
    NewerTableError,
    StateError,
    cause_of,
    messages_of,
)
from mirror_lib.ledger.delta_log import Fault
from mirror_lib.ledger.state_files import CommitLog
from mirror_lib.ledger.table_check import examined
from mirror_lib.ledger.table_schema import SINCE, Column, TableSchema, lacking
from mirror_lib.spark.errors import memory_hint, spark_ended
from mirror_lib.spark.jobs import local_rows, named
from mirror_lib.spark.session import active, cloned

log = logging.getLogger(__name__)


# The option of Delta's writer that puts a text into the commit. Delta's own transactions (`txnVersion`) would do as a
# name too, but to look one up Delta goes through the table's whole state: measured, five times the time of an append.
COMMIT_NAME = "userMetadata"
# The operator's opt-in, by table: Delta's log keeps about this number of commits instead of two days of them.
KEPT_COMMITS = "mirror.keptCommits"
TABLE_PROPERTIES = {
    # Delta's default is every 10 commits. With one a second, each tenth would wait for a checkpoint.
    "delta.checkpointInterval": "100",
    # Every commit lists the files of the commits before it that are still kept.
    "delta.logRetentionDuration": "interval 1 days",
    "delta.deletedFileRetentionDuration": "interval 1 days",
    # Tables that are read whole gain nothing by each file's least and greatest values, which cost a fourth of a commit.
    "delta.dataSkippingNumIndexedCols": "0",
    # Every Delta reader can read reader version 1. The creating session may have other defaults, as on Databricks.
    "delta.ignoreProtocolDefaults": "true",
    "delta.minReaderVersion": "1",
    "delta.minWriterVersion": "2",
    "delta.enableDeletionVectors": "false",
    "delta.columnMapping.mode": "none",
}
# Delta 3.0 added it, and older ones refuse a table with a property that they do not know.
CLASSIC_CHECKPOINTS = {"delta.checkpointPolicy": "classic"}
# Names and types of all columns in, and the value of the stamp among them, a bigint (Unix µs).
Rows = Callable[[Sequence[Tuple[str, str]], int], DataFrame]
# How often a change is tried that other commits conflict with.
CHANGES = 5
# By a table's path. While one flow of a driver creates it, Delta already calls the folder a table and finds none in it.
_CREATION: Dict[str, threading.Lock] = {}
# By a table's path: held by a change that was refused once, and that an append would conflict with again.
_ALONE: Dict[str, threading.Lock] = {}

# No Java code is made for a query. The first look at a table's log is mostly that, for a few hundred lines; what is
# found is kept for all sessions.
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
# Delta's VACUUM lists a folder with so many tasks, by default 10,000, and a commit that comes then waits for them.
_FEW_TASKS = {"spark.sql.sources.parallelPartitionDiscovery.parallelism": "2"}

# The tables are small and read whole: few partitions for a snapshot of Delta's log, and no planning by each file's
# statistics, which is most of a first read. Parquet's own statistics stay.
_SMALL_TABLES = {"spark.databricks.delta.snapshotPartitions": "2", "spark.databricks.delta.stats.skipping": "false"}
_OWN: WeakKeyDictionary[SparkSession, SparkSession] = WeakKeyDictionary()
_OWN_LOCK = threading.Lock()

# A log that was never shortened takes several turns.
MOST_AT_ONCE = 1000
# Commits before the first checkpoint that is left.
BEFORE_A_CHECKPOINT = int(TABLE_PROPERTIES["delta.checkpointInterval"])


def dispensable(checkpoints: Sequence[int], kept: int) -> range:
    """The commits, by version, to delete next: all before the last of `checkpoints` that has `kept` versions behind it.

    At most MOST_AT_ONCE, the oldest first. Behind the newest checkpoint there may be more commits. Pure.
    """
    needed = [version for version in checkpoints if version <= max(checkpoints) - kept]
    if not needed:
        return range(0)
    first = max(min(checkpoints) - BEFORE_A_CHECKPOINT, 0)
    return range(first, min(max(needed), first + MOST_AT_ONCE))


def own_session(spark: SparkSession) -> SparkSession:
    """The session for the tables under `state:`, like `spark` as that is at the first call. Settings for these tables
    are in it alone, so that no other query of the application meets them."""
    with _OWN_LOCK:
        if spark not in _OWN:
            _OWN[spark] = cloned(spark, _SMALL_TABLES)
        return _OWN[spark]


def table_properties(spark_version: str) -> Mapping[str, str]:
    """The properties of a new table. Pure."""
    major, minor = (int(part) for part in spark_version.split(".")[:2])
    return {**TABLE_PROPERTIES, **(CLASSIC_CHECKPOINTS if (major, minor) >= (3, 5) else {})}


def _now() -> int:
    """Unix µs."""
    return time.time_ns() // 1000


def _refused_for_another(error: Exception) -> bool:
    """Whether Delta refused a change because of another commit at the same moment."""
    # By its text: Delta's Python package has no class for it in every version. Java's own package of that name is in
    # every trace.
    return "concurrent" in " ".join((type(error).__name__, *messages_of(error))).lower()


def names_flow(spark: SparkSession, state: str, table: str, flow: str) -> bool:
    """Whether a table of another release, in the folder `table`, has rows of `flow`. StateError."""
    of_table = StateTable(spark, state, TableSchema(table, "", (), ""))
    with of_table.explained("read"):
        return of_table.has_rows(F.col("flow") == flow)


# How many damaged files a message names.
FAULTS_NAMED = 3


def damaged(path: str, schema: TableSchema, faults: Sequence[Fault]) -> DamagedError:
    """The error of a table with damaged files. Pure."""
    more = len(faults) - FAULTS_NAMED
    named = "; ".join(map(str, faults[:FAULTS_NAMED])) + (f"; and {more} more files" if more > 0 else "")
    return DamagedError(
        f"the table {path} is damaged: {named}. No record on the target is lost. {schema.lost}",
        "`mirror state rebuild CONFIG` shows what fixes it, and `mirror state rebuild CONFIG --execute` does it",
    )


class StateTable:
    """One Delta table. It is made at the first append; before that it reads as empty."""

    def __init__(self, spark: SparkSession, state: str, schema: TableSchema) -> None:
        self._spark = own_session(spark)
        self._schema = schema
        self._last_name: Optional[str] = None
        self._counted = False
        # The columns of later releases, once the table was looked at.
        self._lacks: Optional[List[Column]] = None
        self._examined = False
        self.path = f"{state.rstrip('/')}/{schema.name}"
        self._alone = _ALONE.setdefault(self.path, threading.Lock())
        self._creation = _CREATION.setdefault(self.path, threading.Lock())

    def rows(self, *, made_elsewhere: bool = False) -> Optional[DataFrame]:
        """The table as it is now, or `None` if nothing was ever written. StateError if it cannot be read.

        Delta remembers for an hour that a folder without a first commit is no table. Where another process may have
        made it meanwhile (`made_elsewhere`), that is checked by a read, which takes a fraction of a second.
        """
        with self.explained("read"):
            self._refuse_damage()
            with self._creation:
                if not DeltaTable.isDeltaTable(self._spark, self.path) and not (made_elsewhere and self._can_be_read()):
                    return None
            return self.complete(self._spark.read.format("delta").load(self.path))

    def _refuse_damage(self) -> None:
        """Raises `DamagedError`. To be called before the first read: Delta does not notice a commit that lost lines,
        and Spark prints lines about a file that it cannot read."""
        if not self._examined:
            found = examined(self._spark, self.path, data=False)
            if found.faults:
                raise damaged(self.path, self._schema, found.faults)
            self._examined = not found.failed

    def _why_unreadable(self, data: bool) -> Optional[MirrorError]:
        """What its files say of a table that Delta could not read; `None` where they are whole."""
        found = examined(self._spark, self.path, data=data)
        if found.faults:
            return damaged(self.path, self._schema, found.faults)
        if found.needs_newer_delta:
            return NewerTableError(
                f"the table {self.path} needs reader version {found.protocol and found.protocol[0]} of Delta, and this "
                "mirror gave it version 1: nothing was written there",
                "run the mirror with the Delta that wrote it, or name another folder as `state`",
            )
        return None

    def has_rows(self, where: SparkColumn) -> bool:
        """Whether the table is there and has such rows, whatever its columns are."""
        if not DeltaTable.isDeltaTable(self._spark, self.path):
            return False
        return bool(self._spark.read.format("delta").load(self.path).where(where).take(1))

    def complete(self, rows: DataFrame) -> DataFrame:
        """With the columns that a table of an older release lacks, which stays as it is: reading changes nothing."""
        # Another process may have added them since the first look.
        for column in (each for each in self._lacking(rows) if each.name not in rows.columns):
            rows = rows.withColumn(column.name, F.lit(None).cast(column.type))
        return rows

    def _lacking(self, rows: DataFrame) -> List[Column]:
        """Of the table's rows. Raises `RefusedError`."""
        if self._lacks is None:
            found = {each.name: int(each.metadata.get(SINCE, 1)) for each in rows.schema.fields}
            self._lacks = lacking(self._schema, found, self.path)
        return self._lacks

    def _migrate(self) -> None:
        """Add the columns that a table of an older release lacks, before this one writes to it. It must exist."""
        if self._lacks == []:
            return
        with self._creation:  # of two flows of a driver the later one finds nothing to add
            self._lacks = None
            names = [column.name for column in self._lacking(self._spark.read.format("delta").load(self.path))]
            if names:
                empty = self._described(self._stamped([]))
                empty.write.format("delta").mode("append").option("mergeSchema", "true").save(self.path)
                log.warning("%s: the columns %s were added to a table of an older release", self.path, ", ".join(names))
            self._lacks = []

    def _described(self, rows: DataFrame) -> DataFrame:
        """The rows with what the table keeps of each column."""
        columns = self._schema.columns
        return rows.select([F.col(each.name).alias(each.name, metadata=each.metadata()) for each in columns])

    def _can_be_read(self) -> bool:
        try:
            self._spark.read.format("delta").load(self.path)
        except AnalysisException:
            return False
        return True

    def rows_of_one_version(self) -> DataFrame:
        """The table as it is now, which it stays however often it is asked. It must exist. StateError."""
        with self.explained("read"):
            (last,) = self.delta().history(1).select("version").collect()
            return self.complete(self._spark.read.format("delta").option("versionAsOf", last[0]).load(self.path))

    def count(self) -> int:
        """How many rows the table has, from what Delta's log says of its files. It must exist. StateError."""
        with self.explained("count the rows of"):
            session = self._spark if self._counted else cloned(self._spark, _INTERPRETED)
            self._counted = True
            return session.read.format("delta").load(self.path).count()

    def make(self) -> None:
        """Make the table, empty, where it is not there yet. StateError if it cannot be written."""
        with self.explained("create"):
            self._created_with(self._stamped([]), {})

    def delta(self) -> DeltaTable:
        """The table for changes in place. It must exist."""
        with self.explained("open"):
            return DeltaTable.forPath(self._spark, self.path)

    def change(self, make: Callable[[], object]) -> None:
        """Change rows in place, and where Delta refuses it, try again while no other thread of this process appends.

        Delta refuses what others have changed meanwhile, and also where they appended. What `make` raises otherwise, or
        at last, is a StateError.
        """
        with self.explained("change rows of"):
            self._migrate()
            with self._alone:
                pass  # a change that was refused once goes first
            if self._made(make):
                return
            # Held until the end: an append that was let in between would conflict with the next attempt as well.
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

    def rows_in_files(self, enough: int) -> Optional[DataFrame]:
        """The table as it is now, where it is in `enough` files, else `None`. StateError."""
        rows = self.rows()
        with self.explained("look through"):
            return rows if rows is not None and len(rows.inputFiles()) >= enough else None

    def drop_replaced_files(self) -> None:
        """Delete the files that no version of the last days needs any more. StateError."""
        with self.explained("clean"):
            if DeltaTable.isDeltaTable(self._spark, self.path):
                DeltaTable.forPath(cloned(self._spark, _FEW_TASKS), self.path).vacuum()

    def shorten_log(self) -> None:
        """Delete old commits of Delta's log where the table has the property KEPT_COMMITS.

        The table stays readable as it is, and as it was that number of commits ago. Without the property Delta's own
        retention is all there is. StateError.
        """
        with self.explained("shorten the log of"):
            kept = self._property(KEPT_COMMITS)
            if kept is None:
                return
            commits = CommitLog(self._spark, self.path)
            gone = dispensable(commits.checkpoints(), int(kept))
            if gone:
                commits.delete(gone)
                log.info("%s: the log of %d commits before version %d was deleted", self.path, len(gone), gone.stop)

    def _property(self, name: str) -> Optional[str]:
        (found,) = self.delta().detail().select(F.col("properties")[name]).collect()
        value: Optional[str] = found[0]
        return value

    def append(self, rows: Sequence[Tuple[object, ...]], options: Mapping[str, str]) -> None:
        """Add `rows` in one commit and one file; values in the order of the columns, without the stamp.

        `options` go to the Delta writer. With a COMMIT_NAME among them the append happens once, however often in a row
        this object is asked for it. No rows, no commit. StateError if it could not be written.
        """
        if rows:
            self._append(lambda: self._stamped(rows), options)
            log.debug("%d rows appended to %s", len(rows), self.path)

    def append_made(self, made: Rows, options: Mapping[str, str]) -> None:
        """Add the rows that `made` gives, in the same way."""
        self._append(lambda: self._with_stamp(made(self._columns(), _now())), options)

    def _append(self, made: Callable[[], DataFrame], options: Mapping[str, str]) -> None:
        name = options.get(COMMIT_NAME)
        with self.explained("write to"):
            # What was never tried cannot be there: no other process uses the names of this run.
            if name is not None and name == self._last_name and self._has_commit(name):
                return
            self._last_name = name
            stamped = made()
            if not self._created_with(stamped, options):
                self._migrate()
                with self._alone:
                    pass  # a change that was refused once goes first
                stamped.write.format("delta").mode("append").options(**options).save(self.path)

    def add_absent(self, rows: Sequence[Tuple[object, ...]], keys: Sequence[str]) -> None:
        """Add the `rows` whose values under `keys` no row of the table has, in one commit.

        Of two that add rows in this way at the same time Delta refuses one, which then looks again. StateError.
        """
        same = " AND ".join(f"present.{key} = given.{key}" for key in keys)
        self.make()
        with self.explained("write to"):
            given = self._stamped(rows).alias("given")
        self.change(lambda: self.delta().alias("present").merge(given, same).whenNotMatchedInsertAll().execute())

    def _stamped(self, rows: Sequence[Tuple[object, ...]]) -> DataFrame:
        # Not Spark's own `current_timestamp`: it stands in the Java code that is made of the plan, so that every commit
        # would have its own made and compiled.
        now = _now()
        return self._with_stamp(local_rows(self._spark, self._columns(), [(*row, now) for row in rows]))

    def _columns(self) -> Sequence[Tuple[str, str]]:
        return [*self._schema.given(), (self._schema.stamp, "bigint")]

    def _with_stamp(self, rows: DataFrame) -> DataFrame:
        stamp = self._schema.stamp
        return rows.withColumn(stamp, F.expr(f"timestamp_micros({stamp})"))

    @contextmanager
    def explained(self, action: str) -> Iterator[None]:
        """Turn whatever Spark or Delta raises inside into a StateError that names the table, or a SparkEndedError."""
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
            hint = memory_hint(said)
            why = None if hint else self._why_unreadable(action == "read")
            if why is not None:
                raise why from error
            raise StateError(
                f"{what}: {said}",
                hint
                or "check that Spark may read and write this folder, that it runs with Delta's extension,"
                " and that nothing else wrote other columns there",
            ) from error

    def _has_commit(self, name: str) -> bool:
        if not DeltaTable.isDeltaTable(self._spark, self.path):
            return False
        commits = DeltaTable.forPath(self._spark, self.path).history()
        return bool(commits.where(F.col("userMetadata") == name).limit(1).collect())

    def _created_with(self, rows: DataFrame, options: Mapping[str, str]) -> bool:
        """Create the table with its first rows, in one commit. False if it is there already."""
        # Delta's builder would need a commit of its own, twice the time of an append, and refuses for ever a folder in
        # which a driver died, or a disk was full, before the first commit.
        with self._creation:
            if DeltaTable.isDeltaTable(self._spark, self.path):
                return False
            given = {**table_properties(self._spark.version), **options}
            try:
                self._described(rows).write.format("delta").mode("append").options(**given).save(self.path)
            except Exception as error:
                # Two drivers may create it at the same moment: the loser's next append finds it, even where Delta's own
                # look at the folder was an old one.
                if not _refused_for_another(error):
                    raise
                return False
            return True
