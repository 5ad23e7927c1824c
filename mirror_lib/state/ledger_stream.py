"""The ledger as a stream: the rows that commits add, for a streaming query. Rows taken back are not told."""

from __future__ import annotations

from typing import Mapping, Sequence, Tuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mirror_lib.state.offset_syncs import OFFSET_SYNCS
from mirror_lib.state.records import LedgerRow
from mirror_lib.state.tables import StateTable, own_session

# Commits that delete or rewrite rows are skipped. Delta 2.3 has no such option: there `ignoreChanges` keeps the stream
# alive. Later versions take the first of the two where both are given.
CHANGES = {"skipChangeCommits": "true", "ignoreChanges": "true"}
# All files in one micro-batch: a part of the rows would translate wrongly.
WHOLE = {**CHANGES, "maxFilesPerTrigger": str(2**31 - 1)}
# A table of an older release has no such column, and rows that have something there are not of copies.
DEAD_LETTERS = "remote_partition"
LEDGER_ROW = tuple(name for name in LedgerRow.__dataclass_fields__ if name != DEAD_LETTERS)


class LedgerStream:
    """The ledger of every flow that shares one `state:` folder. `path` is the table's folder."""

    def __init__(self, spark: SparkSession, state: str) -> None:
        self._spark = own_session(spark)
        self._table = StateTable(spark, state, OFFSET_SYNCS)
        self.path = self._table.path

    def exists(self) -> bool:
        """Whether anything was ever written. StateError where that cannot be found out."""
        return self._table.rows(made_elsewhere=True) is not None

    def make(self) -> None:
        """Make it, empty, where it is not there yet. StateError."""
        self._table.make()

    def added(self, flow: str) -> DataFrame:
        """A streaming DataFrame of the flow's rows, in the columns LEDGER_ROW, from now on. It must exist.

        The stream reports no deleted rows, so its reader must read the whole table now and then. With Delta 2.3 it
        repeats the rows that a compaction or a deletion rewrote, merged as they are then.
        """
        with self._table.explained("read"):
            return self._rows(flow, {**CHANGES, "startingVersion": "latest"})

    def whole(self, flow: str) -> DataFrame:
        """A streaming DataFrame of the flow's rows, all of them in the first micro-batch. The ledger must exist."""
        with self._table.explained("read"):
            return self._rows(flow, WHOLE)

    def _rows(self, flow: str, options: Mapping[str, str]) -> DataFrame:
        rows = self._spark.readStream.format("delta").options(**options).load(self.path)
        if DEAD_LETTERS in rows.columns:
            rows = rows.where(F.col(DEAD_LETTERS).isNull())
        return rows.where(F.col("flow") == flow).select(*LEDGER_ROW)

    @staticmethod
    def types() -> Sequence[Tuple[str, str]]:
        """Name and Spark SQL type of each column of `added`."""
        types = {column.name: column.type for column in OFFSET_SYNCS.columns}
        return [(name, types[name]) for name in LEDGER_ROW]
