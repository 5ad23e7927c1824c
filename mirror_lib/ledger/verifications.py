"""The table of verifications: the result of each `mirror verify` of a flow. Rows are only added."""

from __future__ import annotations

from pyspark.sql import SparkSession

from mirror_lib.ledger.delta_table import StateTable
from mirror_lib.ledger.records import Verification
from mirror_lib.ledger.table_schema import Column, TableSchema

VERIFICATIONS = TableSchema(
    name="verifications",
    comment="one row for each flow that `mirror verify` compared",
    columns=(
        Column("flow", "string", "A->B"),
        Column("verdict", "string", "equal, differs or not compared: the worst of the topics"),
        Column("topics", "int", "topics that were compared"),
        Column("records", "bigint", "pairs of records that were compared"),
        Column("differing", "int", "topics whose copy differs"),
        Column("first_difference", "string", "one sentence on the first difference; null without one"),
        Column("scope", "string", "whole, or which part was compared"),
        Column("at", "timestamp", "when the comparison ended, by the clock of the machine that compared"),
    ),
    stamp="at",
)


class VerificationTable:
    """The verifications of every flow that shares one `state:` folder."""

    def __init__(self, spark: SparkSession, state: str) -> None:
        self._table = StateTable(spark, state, VERIFICATIONS)

    def append(self, found: Verification) -> None:
        values = (found.flow, found.verdict, found.topics, found.records, found.differing)
        self._table.append([(*values, found.first_difference or None, found.scope)], {})
