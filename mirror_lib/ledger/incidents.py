"""The table of incidents: data that was lost, skipped, healed or copied again, and news. Rows are only added."""

from __future__ import annotations

from typing import Dict, List, Sequence, Tuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from mirror_lib.facts import TopicPartition
from mirror_lib.ledger.delta_table import StateTable
from mirror_lib.ledger.records import (
    INCIDENT_KINDS,
    OFFSETS_SKIPPED,
    TOPIC_RECREATED,
    Incident,
    LeftOut,
)
from mirror_lib.ledger.table_schema import Column, TableSchema
from mirror_lib.spark.jobs import local_rows

INCIDENTS = TableSchema(
    name="incidents",
    comment="data that was lost, skipped, healed or copied again; one row for each partition and range",
    columns=(
        Column("flow", "string", "A->B"),
        Column("run_id", "string", "the driver's life that wrote the row, see the table runs"),
        Column("batch_id", "bigint", "Spark's batch id, -1 outside of a batch"),
        Column("kind", "string", f"{', '.join(INCIDENT_KINDS[:-1])} or {INCIDENT_KINDS[-1]}"),
        Column("topic", "string", "topic on A"),
        Column("partition", "int", "its partition, -1 for the whole topic"),
        Column("from_offset", "bigint", "first upstream offset concerned, -1 where not known"),
        Column("until_offset", "bigint", "upstream offset after the last one, -1 where not known"),
        Column("reason", "string", "one sentence"),
        Column("at", "timestamp", "when the row was written, by the driver's clock"),
    ),
    stamp="at",
)


_RANGE = (("topic", "string"), ("partition", "int"), ("first", "bigint"), ("end", "bigint"))
# How many ranges of a partition are listed.
RANGES_SHOWN = 20


class IncidentTable:
    """The incidents of every flow that shares one `state:` folder."""

    def __init__(self, spark: SparkSession, state: str) -> None:
        self._table = StateTable(spark, state, INCIDENTS)

    def append(self, flow: str, incidents: Sequence[Incident], *, run_id: str, batch_id: int) -> None:
        self._table.append([_values(flow, incident, run_id, batch_id) for incident in incidents], {})

    def skipped(self, flow: str, ranges: Sequence[Tuple[str, int, int, int]]) -> List[Tuple[str, int, int]]:
        """Topic, partition and offset of each record that `on.error: skip` skipped within `ranges`.

        A range is topic, partition, first offset and end. Raises StateError."""
        rows = self._table.rows()
        if rows is None:
            return []
        with self._table.explained("read"):
            asked = local_rows(rows.sparkSession, _RANGE, ranges)
            own = rows.where((F.col("flow") == flow) & (F.col("kind") == OFFSETS_SKIPPED))
            found = own.join(F.broadcast(asked), ["topic", "partition"])
            found = found.where("from_offset >= first and from_offset < end")
            reported = found.select("topic", "partition", "from_offset").distinct().collect()
        return [(row["topic"], row["partition"], row["from_offset"]) for row in reported]

    def left_out(self, flow: str) -> Dict[TopicPartition, LeftOut]:
        """The offsets that `on.error: skip` skipped, by partition, since a topic's last re-creation.

        Raises StateError."""
        rows = self._table.rows()
        if rows is None:
            return {}
        with self._table.explained("read"):
            own = rows.where(F.col("flow") == flow)
            recreated = own.where(F.col("kind") == TOPIC_RECREATED).groupBy("topic").agg(F.max("at").alias("since"))
            skipped = own.where(F.col("kind") == OFFSETS_SKIPPED).join(recreated, "topic", "left")
            # After a crash a range may be recorded twice.
            once = skipped.where("since is null or at > since")
            once = once.select("topic", "partition", "from_offset", "until_offset").distinct()
            found = once.groupBy("topic", "partition").agg(
                F.expr("sum(until_offset - from_offset)").alias("offsets"),
                F.expr(f"slice(array_sort(collect_list(struct(from_offset, until_offset))), 1, {RANGES_SHOWN})").alias(
                    "ranges"
                ),
            )
            reported = found.collect()
        return {
            (row["topic"], row["partition"]): LeftOut(row["offsets"], tuple((a, b) for a, b in row["ranges"]))
            for row in reported
        }


def _values(flow: str, incident: Incident, run_id: str, batch_id: int) -> tuple[object, ...]:
    where = (incident.topic, incident.partition, incident.from_offset, incident.until_offset)
    return (flow, run_id, batch_id, incident.kind, *where, incident.reason)
