"""Keys and partition counts in, a column with the partition of each record out: `murmur2.placed` within Spark."""

from __future__ import annotations

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from mirror_lib.changes.catalyst import murmur2_column


def placed_column(spark: SparkSession, key: Column, partition: Column, count: Column) -> Column:
    """The partition, an int, of `count` partitions, of a record with `key` that came from `partition`."""
    hashed = murmur2_column(spark, key).bitwiseAND(F.lit(0x7FFFFFFF))
    return F.coalesce(hashed, partition) % count
