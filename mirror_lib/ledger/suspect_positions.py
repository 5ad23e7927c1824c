"""Finds positions of the ledger that may skip records which were never copied, and removes them, for `mirror repair`.

A position is a row without records. A driver that was fenced while a batch was unacknowledged once recorded the end of
what it had fetched as a position.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Sequence

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from mirror_lib.ledger.delta_table import StateTable
from mirror_lib.ledger.incidents import INCIDENTS
from mirror_lib.ledger.offset_syncs import OFFSET_SYNCS
from mirror_lib.ledger.records import COPIED_AGAIN, DATA_LOST, OFFSETS_SKIPPED, PartitionKey, Position
from mirror_lib.ledger.table_schema import PARTITION_KEY, partition_key
from mirror_lib.spark.jobs import local_rows

_ROW = (
    *((name, "int" if name == "partition" else "string") for name in PARTITION_KEY),
    ("upstream_offset", "bigint"),
    ("downstream_offset", "bigint"),
)


@dataclass(frozen=True)
class SuspectPosition:
    """A row without records at `position`, which passes the upstream offsets from `copied_until` on.

    `contradicted`: another row says that records before the position lie after it, so the position is wrong whatever
    the source holds. `copied_past`: records after the position were copied since. `explained`: an incident says why
    some of the offsets were passed.
    """

    key: PartitionKey
    copied_until: int
    position: Position
    contradicted: bool
    copied_past: bool
    explained: bool


class SuspectPositions:
    """The suspect positions of every flow that shares one `state:` folder. Every method raises `StateError`."""

    def __init__(self, spark: SparkSession, state: str) -> None:
        self._spark = spark
        self._ledger = StateTable(spark, state, OFFSET_SYNCS)
        self._incidents = StateTable(spark, state, INCIDENTS)

    def of(self, flow: str) -> List[SuspectPosition]:
        """Those of `flow`, by topic, partition and offset. The first row of a partition is where it began, and none."""
        table = self._ledger.rows()
        if table is None:
            return []
        # Rows of dead letters and ranges are places in other partitions, where one record does not follow the other.
        rows = table.where((F.col("flow") == flow) & F.col("remote_partition").isNull())
        names = [*PARTITION_KEY, "upstream_offset", "downstream_offset"]
        position = rows.where("record_count = 0").select(*names).distinct().alias("p")
        other = rows.select(*names, "record_count").alias("o")
        end, below = "o.upstream_offset + o.record_count", "o.downstream_offset + o.record_count <= p.downstream_offset"
        before = f"{below} and ({end} < p.upstream_offset or ({end} = p.upstream_offset and o.record_count > 0))"
        after = "o.record_count > 0 and o.downstream_offset >= p.downstream_offset"
        found = (
            position.join(other, [F.col(f"p.{name}") == F.col(f"o.{name}") for name in PARTITION_KEY])
            .groupBy(*(F.col(f"p.{name}") for name in names))
            .agg(
                F.expr(f"max(case when {before} then {end} end)").alias("copied_until"),
                F.expr(f"max({after} and o.upstream_offset < p.upstream_offset)").alias("contradicted"),
                F.expr(f"max({after} and o.upstream_offset >= p.upstream_offset)").alias("copied_past"),
            )
            .where("copied_until < upstream_offset")
            .orderBy("source_topic", "partition", "upstream_offset")
        )
        with self._ledger.explained("read"):
            passed = found.collect()
        explained = self._incidents_of(flow) if passed else []
        return [
            SuspectPosition(
                key=partition_key(row),
                copied_until=row["copied_until"],
                position=Position(row["upstream_offset"], row["downstream_offset"]),
                contradicted=bool(row["contradicted"]),
                copied_past=bool(row["copied_past"]),
                explained=any(_explains(incident, row) for incident in explained),
            )
            for row in passed
        ]

    def _incidents_of(self, flow: str) -> List[Row]:
        table = self._incidents.rows()
        if table is None:
            return []
        rows = table.where((F.col("flow") == flow) & F.col("kind").isin(DATA_LOST, OFFSETS_SKIPPED, COPIED_AGAIN))
        with self._incidents.explained("read"):
            return rows.select("topic", "partition", "from_offset", "until_offset").distinct().collect()

    def remove(self, flow: str, positions: Sequence[SuspectPosition]) -> None:
        """Delete these rows in one commit. No other row changes."""
        if not positions:
            return
        offsets = [(each.position.upstream_offset, each.position.downstream_offset) for each in positions]
        keys = [tuple(getattr(each.key, name) for name in PARTITION_KEY) for each in positions]
        gone = local_rows(self._spark, _ROW, [(*key, *at) for key, at in zip(keys, offsets)]).alias("gone")
        same = " and ".join(f"t.{name} = gone.{name}" for name, _ in _ROW)
        condition = (F.col("t.flow") == flow) & F.expr(f"t.record_count = 0 and {same}")
        self._ledger.change(
            lambda: self._ledger.delta().alias("t").merge(gone, condition).whenMatchedDelete().execute()
        )


def _explains(incident: Row, row: Row) -> bool:
    """Whether the incident's offsets, an open end at -1, are among those that the row passes."""
    first, until, passed_from = incident["from_offset"], incident["until_offset"], row["copied_until"]
    same = (incident["topic"], incident["partition"]) == (row["source_topic"], row["partition"])
    return same and first < row["upstream_offset"] and (until < 0 or max(until, first + 1) > passed_from)
