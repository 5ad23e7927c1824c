"""The table of the lanes' producer ids. Rows are only added, each before the id's first append."""

from __future__ import annotations

from typing import Dict, FrozenSet, Sequence, Set, Tuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from mirror_lib.ledger.delta_table import StateTable
from mirror_lib.ledger.table_schema import Column, TableSchema

LANE_PRODUCERS = TableSchema(
    name="lane_producers",
    comment="one row for each producer id that a lane appends under; only of flows with shared.remote.topics",
    columns=(
        Column("flow", "string", "A->B"),
        Column("lane", "int", "the lane, 0 to 63; 64 to 127 of topics whose records go by their keys alongside others"),
        Column("producer_id", "bigint", "the producer id in the lane's record batches on B"),
        Column("run_id", "string", "the driver's life that was given the id, see the table runs"),
        Column("at", "timestamp", "when the row was written, by the driver's clock"),
    ),
    stamp="at",
)


class LaneProducerTable:
    """The producer ids of every flow that shares one `state:` folder."""

    def __init__(self, spark: SparkSession, state: str) -> None:
        self._table = StateTable(spark, state, LANE_PRODUCERS)

    def ids(self, flow: str) -> Dict[int, FrozenSet[int]]:
        """By lane of `flow`, every producer id that may have been used for appends."""
        rows = self._table.rows()
        if rows is None:
            return {}
        with self._table.explained("read"):
            found = rows.where(F.col("flow") == flow).select("lane", "producer_id").collect()
        ids: Dict[int, Set[int]] = {}
        for row in found:
            ids.setdefault(row["lane"], set()).add(row["producer_id"])
        return {lane: frozenset(own) for lane, own in ids.items()}

    def add(self, flow: str, ids: Sequence[Tuple[int, int]], *, run_id: str) -> None:
        self._table.append([(flow, lane, producer_id, run_id) for lane, producer_id in ids], {})
