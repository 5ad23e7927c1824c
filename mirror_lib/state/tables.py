"""What the Delta tables under `state:` share. In: a table's columns and plain tuples. Out: commits and DataFrames.

A table is a folder `<state>/<name>` on any file system that Spark can write.
"""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Iterator, Mapping, Optional, Sequence, Tuple

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mirror_lib.errors import MirrorError, StateError, cause_of
from mirror_lib.local_rows import local_rows

log = logging.getLogger(__name__)

# The option of Delta's writer that puts a text into the commit. Delta's own transactions (`txnVersion`) would do as a
# name too, but to look one up Delta goes through the table's whole state: measured, five times the time of an append.
COMMIT_NAME = "userMetadata"
# Delta's default is every 10 commits. With one a second, each tenth would wait for a checkpoint.
COMMITS_TO_A_CHECKPOINT = {"delta.checkpointInterval": "100"}
# While one flow of a driver creates a table, Delta already calls the folder a table and does not find one in it.
_CREATION = threading.Lock()


@dataclass(frozen=True)
class Column:
    """A column of a public table: name, Spark SQL type, and what its value means."""

    name: str
    type: str
    comment: str


@dataclass(frozen=True)
class TableSchema:
    """A public table: folder name under `state:`, what a row is, its columns. `stamp` is filled in at the commit."""

    name: str
    comment: str
    columns: Tuple[Column, ...]
    stamp: str

    def given(self) -> Sequence[Tuple[str, str]]:
        """The columns that a writer gives: name and type."""
        return [(column.name, column.type) for column in self.columns if column.name != self.stamp]


class StateTable:
    """One Delta table. It is made at the first append; before that it reads as empty."""

    def __init__(self, spark: SparkSession, state: str, schema: TableSchema) -> None:
        self._spark = spark
        self._schema = schema
        self._last_name: Optional[str] = None
        self.path = f"{state.rstrip('/')}/{schema.name}"

    def rows(self) -> Optional[DataFrame]:
        """The table as it is now, or `None` if nothing was ever written. StateError if it cannot be read."""
        with self.explained("read"):
            with _CREATION:
                if not DeltaTable.isDeltaTable(self._spark, self.path):
                    return None
            return self._spark.read.format("delta").load(self.path)

    def delta(self) -> DeltaTable:
        """The table for changes in place. It must exist."""
        with self.explained("open"):
            return DeltaTable.forPath(self._spark, self.path)

    def append(self, rows: Sequence[Tuple[object, ...]], options: Mapping[str, str]) -> None:
        """Add `rows` in one commit and one file; values in the order of the columns, without the stamp.

        `options` go to the Delta writer. With a COMMIT_NAME among them the append happens once, however often in a row
        this object is asked for it. No rows, no commit. StateError if it could not be written.
        """
        if not rows:
            return
        name = options.get(COMMIT_NAME)
        with self.explained("write to"):
            # What was never tried cannot be there: nobody else uses the names of this driver's life.
            if name is not None and name == self._last_name and self._has_commit(name):
                return
            self._last_name = name
            with _CREATION:
                self._create_if_absent()
            given = local_rows(self._spark, self._schema.given(), rows)
            stamped = given.withColumn(self._schema.stamp, F.current_timestamp())
            stamped.write.format("delta").mode("append").options(**options).save(self.path)
        log.debug("%d rows appended to %s", len(rows), self.path)

    @contextmanager
    def explained(self, action: str) -> Iterator[None]:
        """Turn whatever Spark or Delta raises inside into a StateError that names the table."""
        try:
            yield
        except MirrorError:
            raise
        except Exception as error:
            raise StateError(
                f"could not {action} the table {self.path}: {cause_of(error)}",
                "check that Spark may read and write this folder, that it runs with Delta's extension,"
                " and that nothing else wrote other columns there",
            ) from error

    def _has_commit(self, name: str) -> bool:
        if not DeltaTable.isDeltaTable(self._spark, self.path):
            return False
        commits = DeltaTable.forPath(self._spark, self.path).history()
        return bool(commits.where(F.col("userMetadata") == name).limit(1).collect())

    def _create_if_absent(self) -> None:
        if DeltaTable.isDeltaTable(self._spark, self.path):
            return
        builder = DeltaTable.createIfNotExists(self._spark).location(self.path).comment(self._schema.comment)
        for key, value in COMMITS_TO_A_CHECKPOINT.items():
            builder = builder.property(key, value)
        for column in self._schema.columns:
            builder = builder.addColumn(column.name, column.type, comment=column.comment)
        try:
            builder.execute()
        except Exception:
            # Two drivers may create it at the same moment: the loser finds it made.
            if not DeltaTable.isDeltaTable(self._spark, self.path):
                self._create_in_remains()

    def _create_in_remains(self) -> None:
        # A driver that died here, or whose disk was full, left a log without a commit. Delta's builder refuses such a
        # folder for ever; a write goes through, or says what is wrong with the place itself.
        columns = self._schema.columns
        named = [F.col(column.name).alias(column.name, metadata={"comment": column.comment}) for column in columns]
        empty = local_rows(self._spark, [(column.name, column.type) for column in columns], []).select(named)
        empty.write.format("delta").mode("append").options(**COMMITS_TO_A_CHECKPOINT).save(self.path)
