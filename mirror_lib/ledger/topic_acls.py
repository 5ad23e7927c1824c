"""The table of ACLs that flows created on their targets: flows delete only these. Rows are only added."""

from __future__ import annotations

from typing import FrozenSet, Sequence

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from mirror_lib.facts import AclBinding
from mirror_lib.ledger.delta_table import StateTable
from mirror_lib.ledger.table_schema import Column, TableSchema

CREATED, GIVEN_UP = "created", "given up"
_OF_ACL = tuple(AclBinding.__dataclass_fields__)

TOPIC_ACLS = TableSchema(
    name="topic_acls",
    comment="ACLs of remote topics that flows created on their targets, and gave up again",
    columns=(
        Column("flow", "string", "A->B"),
        Column("action", "string", "created, or given up: deleted right after the row was written"),
        Column("topic", "string", "name or prefix on B, * for every topic"),
        Column("pattern_type", "string", "LITERAL or PREFIXED"),
        Column("principal", "string", "e.g. User:alice"),
        Column("host", "string", "address, or * for any"),
        Column("operation", "string", "e.g. READ"),
        Column("permission", "string", "ALLOW or DENY"),
        Column("at", "timestamp", "when the row was written, by the driver's clock"),
    ),
    stamp="at",
)


class TopicAclTable:
    """The ACLs of every flow that shares one `state:` folder. Methods raise StateError if a read or write fails."""

    def __init__(self, spark: SparkSession, state: str) -> None:
        self._table = StateTable(spark, state, TOPIC_ACLS)

    def made(self, flow: str) -> FrozenSet[AclBinding]:
        """The ACLs that the flow created and has not given up since."""
        rows = self._table.rows()
        if rows is None:
            return frozenset()
        with self._table.explained("read"):
            last = rows.where(F.col("flow") == flow).groupBy(*_OF_ACL).agg(F.max_by("action", "at").alias("action"))
            found = last.where(F.col("action") == CREATED).collect()
        return frozenset(AclBinding(*(row[name] for name in _OF_ACL)) for row in found)

    def created(self, flow: str, acls: Sequence[AclBinding]) -> None:
        self._append(flow, CREATED, acls)

    def given_up(self, flow: str, acls: Sequence[AclBinding]) -> None:
        """Record that the flow gives up these ACLs. Call it before their deletion."""
        self._append(flow, GIVEN_UP, acls)

    def _append(self, flow: str, action: str, acls: Sequence[AclBinding]) -> None:
        self._table.append([(flow, action, *(getattr(acl, name) for name in _OF_ACL)) for acl in acls], {})
