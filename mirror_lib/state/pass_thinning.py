"""The passes of a flow that places records anew kept few: older ones become one, the more of them the older they are.

Several passes in a row are a pass, too: their records lie between where the remote logs stood before the first and
behind the last. A group that is far behind reads a little more again. Killed anywhere, old rows are there or new ones.
"""

from __future__ import annotations

import logging
from typing import Collection, Dict, List, Mapping, Sequence, Tuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mirror_lib.local_rows import local_rows
from mirror_lib.state.compaction import text_literal
from mirror_lib.state.row_passes import ELSEWHERE, PLACE, REMOTE, ROW_PASSES
from mirror_lib.state.tables import COMMIT_NAME, StateTable

log = logging.getLogger(__name__)

# So many passes at the end stay as they are.
KEPT_WHOLE = 512
# Of older ones so many become one as a 64th of those behind them: so about 64 are left each time their number doubles.
SHARE = 64


def merged_into(
    numbers: Sequence[int], borders: Collection[int], whole: int = KEPT_WHOLE, share: int = SHARE
) -> Mapping[int, int]:
    """By number of a pass the number of the one that it becomes a part of, which is the last one of these. Pure.

    No pass of `borders` goes with the one before: another process's lie between the two, or a remote partition is new.
    """
    blocks: Dict[Tuple[int, int, int], List[int]] = {}
    stretch, last = 0, max(numbers, default=0)
    for number in sorted(numbers):
        stretch += number in borders
        behind = last - number
        # A power of two: what is merged now is merged again as a whole.
        size = 1 if behind < whole else 1 << max(0, (behind // share).bit_length() - 1)
        blocks.setdefault((stretch, size, number // size), []).append(number)
    return {number: block[-1] for block in blocks.values() for number in block}


class PassThinning:
    """The passes of one flow in a `state:` folder; see `Tidied`."""

    def __init__(self, spark: SparkSession, state: str, flow: str, whole: int = KEPT_WHOLE, share: int = SHARE) -> None:
        self._spark = spark
        self.table = StateTable(spark, state, ROW_PASSES)
        self._flow = flow
        self._bounds = whole, share

    def tidy(self, enough: int) -> bool:
        """Merge what is old, and put all but the last pass into one file, where the table has `enough` files."""
        rows = self.table.rows_in_files(enough)
        if rows is None:
            return False
        with self.table.explained("look through"):
            own = rows.where(F.col("flow") == self._flow)
            numbers = [row["pass"] for row in own.select("pass").distinct().collect()]
            elsewhere = own.where(F.col("side") == ELSEWHERE).select("pass")
            new = own.where(F.col("side") == REMOTE).groupBy(*PLACE).agg(F.min("pass").alias("pass")).select("pass")
            borders = {row["pass"] for row in elsewhere.union(new).distinct().collect()}
        if len(numbers) < 2:
            return False
        last = max(numbers)
        into = merged_into(numbers, borders, *self._bounds)
        # The last pass is what the flow goes on from: it is never touched.
        before = f"flow = {text_literal(self._flow)} AND pass < {last}"
        options = {"replaceWhere": before, COMMIT_NAME: f"{self._flow} thinning"}
        with self.table.explained("merge"):
            writer = self._merged(rows.where(before), into).write.format("delta").mode("overwrite").options(**options)
            self.table.change(lambda: writer.save(self.table.path))
        log.info("%s: %d passes became %d", self._flow, len(numbers), len(set(into.values())))
        return True

    def _merged(self, rows: DataFrame, into: Mapping[int, int]) -> DataFrame:
        given = local_rows(self._spark, [("pass", "bigint"), ("into", "bigint")], sorted(into.items()))
        numbered = rows.join(F.broadcast(given), "pass", "left").withColumn("into", F.expr("coalesce(into, pass)"))
        made = numbered.groupBy("flow", "into", *PLACE).agg(
            F.min("from_offset").alias("from_offset"),
            F.max("until_offset").alias("until_offset"),
            F.expr("max_by(run_id, pass)").alias("run_id"),
            F.max("at").alias("at"),
        )
        named = made.withColumnRenamed("into", "pass").select(*(column.name for column in ROW_PASSES.columns))
        return named.coalesce(1).sortWithinPartitions("pass")
