"""The ledger as a stream: the rows that commits add, for a streaming query. Rows taken back are not told."""

from __future__ import annotations

from typing import Mapping, Sequence, Tuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mirror_lib.ledger.delta_table import StateTable, own_session
from mirror_lib.ledger.offset_syncs import IS_RANGE, OFFSET_SYNCS
from mirror_lib.ledger.records import LedgerRow

# Commits that delete or rewrite rows are skipped. Delta 2.3 has no such option: there `ignoreChanges` keeps the stream
# alive. Later versions take the first of the two where both are given.
CHANGES = {"skipChangeCommits": "true", "ignoreChanges": "true"}
# All files in one micro-batch: a part of the rows would translate wrongly.
WHOLE = {**CHANGES, "maxFilesPerTrigger": str(2**31 - 1)}
LEDGER_ROW = tuple(LedgerRow.__dataclass_fields__)


class LedgerStream:
    """The ledger of every flow that shares one `state:` folder. `path` is the table's folder."""

    def __init__(self, spark: SparkSession, state: str) -> None:
        self._spark = own_session(spark)
        self._table = StateTable(spark, state, OFFSET_SYNCS)
        self.path = self._table.path

    def exists(self) -> bool:
        """Whether anything was ever written. StateError where that cannot be found out."""
        return self._table.rows(made_elsewhere=True) is not None

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
        # A dead letter's row is of another topic than the copies.
        own = self._table.complete(rows).where(f"remote_partition is null or {IS_RANGE}")
        return own.where(F.col("flow") == flow).select(*LEDGER_ROW)

    @staticmethod
    def types() -> Sequence[Tuple[str, str]]:
        """Name and Spark SQL type of each column of `added`."""
        types = {column.name: column.type for column in OFFSET_SYNCS.columns}
        return [(name, types[name]) for name in LEDGER_ROW]
