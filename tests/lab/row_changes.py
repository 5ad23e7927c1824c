"""Changes for flows of the engine `records`, as Spark SQL: what a test calls instead of a configuration file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Sequence

from pyspark.sql import functions as F

from mirror_lib.records.engine import Changed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from mirror_lib.replicate.lanes import PartitionTask


@dataclass(frozen=True)
class Selected:
    """One remote topic, the same partition. `value` is an expression, `failure` one that is null for a good record."""

    remote_prefix: str = "source."
    where: str = "true"
    value: str = "value"
    failure: str = "cast(null as string)"
    repeatable: bool = True

    def __call__(self, rows: DataFrame, tasks: Sequence[PartitionTask]) -> Changed:
        good = F.expr(self.failure).isNull()
        changed = rows.where(self.where).select(
            F.col("topic").alias("source_topic"),
            F.col("partition").alias("source_partition"),
            F.col("offset").alias("source_offset"),
            F.when(good, F.concat(F.lit(self.remote_prefix), F.col("topic"))).alias("remote_topic"),
            F.when(good, F.col("partition")).alias("remote_partition"),
            F.unix_millis("timestamp").alias("timestamp"),
            F.col("key"),
            F.expr(self.value).cast("binary").alias("value"),
            F.coalesce("headers", F.array()).alias("headers"),
            F.expr(self.failure).alias("failure"),
        )
        return Changed(changed, self.repeatable, "" if self.repeatable else "the test says so")
