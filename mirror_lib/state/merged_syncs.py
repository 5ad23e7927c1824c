"""The ledger's rows in, the same offset syncs out, joined where they continue each other, on Spark.

A ledger grows with every batch, but most of its rows continue the row before. What is left fits in the driver.
"""

from __future__ import annotations

from typing import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

# `shift` is the distance between the two logs, `reached` and `reached_downstream` how far the rows before this one go.
# A row that makes no sense (null, a negative count) has no shift, so it is a run of its own, which whoever reads the
# result is to see and refuse.
_CONTINUES = "coalesce(last_shift = shift AND upstream_offset <= reached AND upstream_end >= reached, false)"
_IS_CONTINUED = """coalesce(
    next_shift = shift
    AND next_upstream_offset <= greatest(upstream_end, reached)
    AND next_upstream_end >= greatest(upstream_end, reached), false)"""
# Between two runs that agree with it a position says nothing that they do not.
_IS_IDLE = """coalesce(
    record_count = 0 AND begins AND ends AND last_shift IS NOT NULL
    AND reached <= upstream_offset AND reached_downstream <= downstream_offset
    AND next_upstream_offset + next_shift >= downstream_offset, false)"""


def merged_syncs(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """Upstream offset, downstream offset and count of each run, by `key`, then in upstream order.

    `begins_key` is true in the first row of a key, which alone has the key's columns: they are long. Rows that lie on
    one line and touch are one run, also if they are stated twice or overlap; a row that lies wholly inside an earlier
    one may be left. A position stays where it is the first or the last word. Rows that contradict each other or make
    no sense are all there: nothing is checked here.
    """
    order = ("upstream_offset", "downstream_offset", "record_count")
    in_order = Window.partitionBy(*key).orderBy(*order)
    earlier = in_order.rowsBetween(Window.unboundedPreceding, -1)
    lines = rows.select(
        *key,
        *order,
        F.expr("upstream_offset + record_count AS upstream_end"),
        F.expr("CASE WHEN record_count >= 0 THEN downstream_offset - upstream_offset END AS shift"),
    )
    beside = lines.select(
        "*",
        (F.row_number().over(in_order) == 1).alias("begins_key"),
        F.max("upstream_end").over(earlier).alias("reached"),
        F.max(F.expr("downstream_offset + record_count")).over(earlier).alias("reached_downstream"),
        F.lag("shift").over(in_order).alias("last_shift"),
        *(F.lead(name).over(in_order).alias(f"next_{name}") for name in ("shift", "upstream_offset", "upstream_end")),
    )
    bounds = beside.withColumn("begins", ~F.expr(_CONTINUES)).withColumn("ends", ~F.expr(_IS_CONTINUED))
    of_runs = bounds.where((F.col("begins") | F.col("ends")) & ~F.expr(_IS_IDLE))
    # Only first and last rows of runs are left, so the row after a first one that is not its own last is its last.
    end = F.when(F.col("ends"), F.col("upstream_end")).otherwise(F.lead("upstream_end").over(in_order))
    runs = of_runs.withColumn("run_end", end).where("begins")
    # They are in this order already, and Spark knows it: this only makes sure that they stay.
    return runs.sortWithinPartitions(*key, *order).select(
        "begins_key",
        *(F.when(F.col("begins_key"), F.col(name)).alias(name) for name in key),
        *("upstream_offset", "downstream_offset"),
        F.expr("run_end - upstream_offset").alias("record_count"),
    )
