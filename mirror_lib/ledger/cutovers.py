"""The table of cut-overs: a row before each step, and a row with its outcome. Rows are only added."""

from __future__ import annotations

from dataclasses import fields
from typing import List

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from mirror_lib.ledger.delta_table import StateTable
from mirror_lib.ledger.records import CutoverStep
from mirror_lib.ledger.table_schema import Column, TableSchema

CUTOVERS = TableSchema(
    name="cutovers",
    comment="a row before each step of a cut-over, and one with what came of it",
    columns=(
        Column("flow", "string", "A->B"),
        Column("cutover_id", "string", "the same in all rows of one cut-over, also where it was resumed"),
        Column("direction", "string", "over, or back"),
        Column("step", "string", "fence, silence, copy, verify, groups, check or unfence"),
        Column("status", "string", "started, done or failed"),
        Column("detail", "string", "one sentence"),
        Column("facts", "string", "JSON that later steps need: log ends of the silent source, ACLs of the fence"),
        Column("at", "timestamp", "when the row was written, by the driver's clock"),
    ),
    stamp="at",
)


class CutoverTable:
    """The cut-overs of every flow that shares one `state:` folder."""

    def __init__(self, spark: SparkSession, state: str) -> None:
        self._table = StateTable(spark, state, CUTOVERS)

    def append(self, row: CutoverStep) -> None:
        values = (row.flow, row.cutover_id, row.direction, row.step, row.status, row.detail, row.facts)
        self._table.append([values], {})

    def steps(self, flow: str) -> List[CutoverStep]:
        rows = self._table.rows(made_elsewhere=True)
        if rows is None:
            return []
        with self._table.explained("read"):
            found = rows.where(F.col("flow") == flow).orderBy("at").collect()
        return [CutoverStep(*(row[each.name] for each in fields(CutoverStep))) for row in found]
