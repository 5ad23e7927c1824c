"""The ledger's rows in, rows that say the same out, joined where they continue each other, on Spark.

A ledger grows with every batch, but most of its rows continue the row before.
"""

from __future__ import annotations

from typing import Sequence

from pyspark.sql import DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

_ORDER = ("upstream_offset", "downstream_offset", "record_count")
# `shift` is the distance between the two logs, `reached` and `reached_downstream` how far the rows before this one go.
# A row that makes no sense (null, a negative count) has no shift, so it is a run of its own, which whoever reads the
# result is to see and refuse. Of what was written later only rows that lie further on may take a row's place: who asks
# which of two rows is the last word must not hear another answer, so stamps go up in what is joined.
_CONTINUES = """coalesce(
    last_shift = shift AND upstream_offset <= reached AND upstream_end >= reached AND last_stamp <= stamp, false)"""
_IS_CONTINUED = """coalesce(
    next_shift = shift AND stamp <= next_stamp
    AND next_upstream_offset <= greatest(upstream_end, reached)
    AND next_upstream_end >= greatest(upstream_end, reached), false)"""
# Between two runs that agree with it a position says nothing that they do not.
_IS_IDLE = """coalesce(
    record_count = 0 AND begins AND ends AND last_shift IS NOT NULL AND stamp <= next_stamp
    AND reached <= upstream_offset AND reached_downstream <= downstream_offset
    AND next_upstream_offset + next_shift >= downstream_offset, false)"""


def merged_rows(rows: DataFrame, key: Sequence[str], stamp: str, carried: Sequence[str]) -> DataFrame:
    """`rows` (columns `key`, offsets, `stamp`, `carried`) in as few as say the same, by `key`, then in upstream order.

    Rows that lie on one line and touch are one, also if they are stated twice or overlap, with `stamp` and `carried` of
    the last. A position stays where it is the first or the last word. Rows that contradict each other or make no sense
    are all there: nothing is checked here. The row that was written last, and of those that end last the one that was
    written last, say the same afterwards.
    """
    in_order = Window.partitionBy(*key).orderBy(*_ORDER, "stamp")
    lines = rows.select(
        *key,
        *_ORDER,
        F.col(stamp).alias("stamp"),
        F.struct(*carried, stamp).alias("written"),
        F.expr("upstream_offset + record_count AS upstream_end"),
        F.expr("CASE WHEN record_count >= 0 THEN downstream_offset - upstream_offset END AS shift"),
    )
    beside = _beside(lines, in_order)
    bounds = beside.withColumn("begins", ~F.expr(_CONTINUES)).withColumn("ends", ~F.expr(_IS_CONTINUED))
    of_runs = bounds.where((F.col("begins") | F.col("ends")) & ~F.expr(_IS_IDLE))
    # Only first and last rows of runs are left, so the row after a first one that is not its own last is its last.
    last = of_runs.select(
        "*",
        F.lead("upstream_end").over(in_order).alias("run_end"),
        F.when(F.col("ends"), F.col("written")).otherwise(F.lead("written").over(in_order)).alias("run_written"),
    )
    return last.where("begins").select(
        *key,
        *("upstream_offset", "downstream_offset"),
        F.expr("CASE WHEN ends THEN record_count ELSE run_end - upstream_offset END AS record_count"),
        *(f"run_written.{name}" for name in (*carried, stamp)),
    )


def _beside(lines: DataFrame, in_order: WindowSpec) -> DataFrame:
    """Each row with what the rows around it say."""
    earlier = in_order.rowsBetween(Window.unboundedPreceding, -1)
    following = ("shift", "stamp", "upstream_offset", "upstream_end")
    return lines.select(
        "*",
        F.max("upstream_end").over(earlier).alias("reached"),
        F.max(F.expr("downstream_offset + record_count")).over(earlier).alias("reached_downstream"),
        *(F.lag(name).over(in_order).alias(f"last_{name}") for name in ("shift", "stamp")),
        *(F.lead(name).over(in_order).alias(f"next_{name}") for name in following),
    )
