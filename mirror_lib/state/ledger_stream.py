"""The ledger as a stream: the rows that commits add, for a streaming query. Rows taken back are not told."""

from __future__ import annotations

from typing import Sequence, Tuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mirror_lib.state.offset_syncs import OFFSET_SYNCS
from mirror_lib.state.records import LedgerRow
from mirror_lib.state.tables import StateTable

LEDGER_ROW = tuple(LedgerRow.__dataclass_fields__)


class LedgerStream:
    """The ledger of every flow that shares one `state:` folder. `path` is the table's folder."""

    def __init__(self, spark: SparkSession, state: str) -> None:
        self._spark = spark
        self._table = StateTable(spark, state, OFFSET_SYNCS)
        self.path = self._table.path

    def exists(self) -> bool:
        """Whether anything was ever written. StateError where that cannot be found out."""
        return self._table.rows() is not None

    def make(self) -> None:
        """Make it, empty, where it is not there yet. StateError."""
        self._table.make()

    def added(self, flow: str) -> DataFrame:
        """A streaming DataFrame of the flow's rows, in the columns of `LedgerRow`, from now on. It must exist."""
        with self._table.explained("read"):
            # Commits that cut or delete rows are passed over: the stream cannot tell of them, so who reads it must
            # look at the whole table now and then.
            options = {"startingVersion": "latest", "skipChangeCommits": "true"}
            rows = self._spark.readStream.format("delta").options(**options).load(self.path)
            return rows.where(F.col("flow") == flow).select(*LEDGER_ROW)

    @staticmethod
    def types() -> Sequence[Tuple[str, str]]:
        """Name and Spark SQL type of each column of `added`."""
        types = {column.name: column.type for column in OFFSET_SYNCS.columns}
        return [(name, types[name]) for name in LEDGER_ROW]
