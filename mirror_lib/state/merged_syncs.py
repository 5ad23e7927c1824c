"""The ledger's rows in, one row a partition out: its offset syncs, joined where they continue each other, on Spark.

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
    """One row for each `key`, with a column `triples`: a JSON list of numbers, flat.

    They are upstream offset, downstream offset, count, and so on, by upstream offset, then downstream offset. Rows that
    lie on one line and touch are one triple, also if they are stated twice or overlap; a row that lies wholly inside
    an earlier one may be left. A position stays where it is the first or the last word. Rows that contradict each other
    or make no sense are all there: nothing is checked here.
    """
    in_order = Window.partitionBy(*key).orderBy("upstream_offset", "downstream_offset", "record_count")
    earlier = in_order.rowsBetween(Window.unboundedPreceding, -1)
    lines = rows.select(
        *key,
        *("upstream_offset", "downstream_offset", "record_count"),
        F.expr("upstream_offset + record_count AS upstream_end"),
        F.expr("CASE WHEN record_count >= 0 THEN downstream_offset - upstream_offset END AS shift"),
    )
    beside = lines.select(
        "*",
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
    triple = F.array("upstream_offset", "downstream_offset", F.expr("run_end - upstream_offset"))
    flat = F.flatten(F.sort_array(F.collect_list(triple)))
    return runs.groupBy(*key).agg(F.to_json(flat).alias("triples"))
