"""The table of raised retention: `retention.ms` of a topic of the source, before it is changed. Rows are only added."""

from __future__ import annotations

from typing import Dict, Sequence

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from mirror_lib.ledger.delta_table import StateTable
from mirror_lib.ledger.records import SourceRetention
from mirror_lib.ledger.table_schema import Column, TableSchema

SOURCE_RETENTIONS = TableSchema(
    name="source_retentions",
    comment="a row before retention.ms of a topic of the source is raised, and one after it is restored",
    columns=(
        Column("flow", "string", "A->B"),
        Column("topic", "string", "topic on A"),
        Column("action", "string", "raise or restore"),
        Column("before", "string", "retention.ms that was set on the topic before it was raised, null if none was"),
        Column("raised", "string", "retention.ms that it was raised to"),
        Column("at", "timestamp", "when the row was written, by the driver's clock"),
    ),
    stamp="at",
    lost="`mirror retention restore` finds no topic whose retention.ms was raised: restore it by kafka-configs.",
)


class SourceRetentionTable:
    """The raised retention of every flow that shares one `state:` folder."""

    def __init__(self, spark: SparkSession, state: str) -> None:
        self._table = StateTable(spark, state, SOURCE_RETENTIONS)

    def append(self, flow: str, rows: Sequence[SourceRetention]) -> None:
        """Add `rows` in one commit. Raises StateError."""
        self._table.append([(flow, each.topic, each.action, each.before, each.raised) for each in rows], {})

    def raised(self, flow: str) -> Dict[str, SourceRetention]:
        """By topic of the source what was raised and not restored. Raises StateError."""
        rows = self._table.rows(made_elsewhere=True)
        if rows is None:
            return {}
        with self._table.explained("read"):
            found = rows.where(F.col("flow") == flow).orderBy("at").collect()
        rows_of = (SourceRetention(row["topic"], row["action"], row["before"], row["raised"]) for row in found)
        last = {each.topic: each for each in rows_of}
        return {topic: each for topic, each in last.items() if each.action == SourceRetention.RAISE}
