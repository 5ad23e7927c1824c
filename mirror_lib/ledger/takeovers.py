"""The table of take-overs: the offsets at which partitions resume after another tool. Rows are only added."""

from __future__ import annotations

from typing import FrozenSet, Sequence, Tuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from mirror_lib.ledger.delta_table import StateTable
from mirror_lib.ledger.records import (
    PartitionKey,
    TakeoverRow,
)
from mirror_lib.ledger.table_schema import COPIED_PARTITION, PARTITION_KEY, Column, TableSchema, partition_key

TAKEOVERS = TableSchema(
    name="takeovers",
    comment="one row for each partition that resumes after another tool",
    columns=(
        *COPIED_PARTITION,
        Column("taken_from", "string", "where the position was kept: a topic on B, or a group on A"),
        Column("kept_offset", "bigint", "the next upstream offset by that position; -1 where none was kept"),
        Column("upstream_offset", "bigint", "where the mirror resumes"),
        Column("downstream_offset", "bigint", "the end of the remote log, where it continues to write"),
        Column("tail_records", "bigint", "records that lay on the remote log behind the kept position"),
        Column("doubled_records", "bigint", "records that lay there once more"),
        Column("older_records", "boolean", "whether the remote log holds records before those that were compared"),
        Column("run_id", "string", "the take-over's life, see the table runs"),
        Column("at", "timestamp", "when the row was written, by the driver's clock"),
    ),
    stamp="at",
)


class TakeoverTable:
    """The take-overs of every flow that shares one `state:` folder."""

    def __init__(self, spark: SparkSession, state: str) -> None:
        self._table = StateTable(spark, state, TAKEOVERS)

    def append(self, flow: str, rows: Sequence[TakeoverRow], *, run_id: str) -> None:
        """Add `rows` in one commit. Call it before the ledger's append.

        After a crash between the two in the other order, the ledger would count as complete."""
        self._table.append([_values(flow, row, run_id) for row in rows], {})

    def incomplete(self, flow: str) -> FrozenSet[PartitionKey]:
        """The partitions whose remote log has records before the ledger's first row."""
        rows = self._table.rows()
        if rows is None:
            return frozenset()
        with self._table.explained("read"):
            older = rows.where((F.col("flow") == flow) & F.col("older_records"))
            found = older.select(*PARTITION_KEY).distinct().collect()
        return frozenset(map(partition_key, found))


def _values(flow: str, row: TakeoverRow, run_id: str) -> Tuple[object, ...]:
    key = row.key
    topics = (key.source_topic, row.remote_topic, key.partition, key.source_topic_id, key.remote_topic_id)
    resumes_at = (row.resumes_at.upstream_offset, row.resumes_at.downstream_offset)
    kept = -1 if row.kept_offset is None else row.kept_offset
    return (flow, *topics, row.taken_from, kept, *resumes_at, row.tail, row.doubled, row.older, run_id)
