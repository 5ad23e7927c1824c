"""The table of raised retention: a source topic's `retention.ms` before the change. Rows are only added."""

from __future__ import annotations

from typing import Sequence

from pyspark.sql import SparkSession

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
    """Records the raised retention of every flow that shares one `state:` folder."""

    def __init__(self, spark: SparkSession, state: str) -> None:
        self._table = StateTable(spark, state, SOURCE_RETENTIONS)

    def append(self, flow: str, rows: Sequence[SourceRetention]) -> None:
        """Add `rows` in one commit. Raises StateError."""
        self._table.append([(flow, each.topic, each.action, each.before, each.raised) for each in rows], {})
