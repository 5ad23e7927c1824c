"""The table of incidents: what an operator must be able to look up later. Rows are only ever added."""

from __future__ import annotations

from typing import Sequence

from pyspark.sql import SparkSession

from mirror_lib.state.records import Incident
from mirror_lib.state.tables import Column, StateTable, TableSchema

INCIDENTS = TableSchema(
    name="incidents",
    comment="data that was lost, skipped, healed or copied again; one row for each partition and range",
    columns=(
        Column("flow", "string", "A->B"),
        Column("run_id", "string", "the driver's life that wrote the row, see the table runs"),
        Column("batch_id", "bigint", "Spark's batch id, -1 outside of a batch"),
        Column(
            "kind",
            "string",
            "data lost, offsets skipped, remote log healed, topic recreated or partition stopped",
        ),
        Column("topic", "string", "topic on A"),
        Column("partition", "int", "its partition"),
        Column("from_offset", "bigint", "first upstream offset concerned, -1 where not known"),
        Column("until_offset", "bigint", "upstream offset after the last one, -1 where not known"),
        Column("reason", "string", "one sentence"),
        Column("at", "timestamp", "when the row was written, by the driver's clock"),
    ),
    stamp="at",
)


class IncidentTable:
    """The incidents of every flow that shares one `state:` folder."""

    def __init__(self, spark: SparkSession, state: str) -> None:
        self._table = StateTable(spark, state, INCIDENTS)

    def append(self, flow: str, incidents: Sequence[Incident], *, run_id: str, batch_id: int) -> None:
        """Add `incidents` in one commit; none, no commit."""
        self._table.append([_values(flow, incident, run_id, batch_id) for incident in incidents], {})


def _values(flow: str, incident: Incident, run_id: str, batch_id: int) -> tuple[object, ...]:
    where = (incident.topic, incident.partition, incident.from_offset, incident.until_offset)
    return (flow, run_id, batch_id, incident.kind, *where, incident.reason)
