"""Counts the copied records as the input rows of Spark's streaming query.

The batch engine copies record batches and asks Spark for no row, so Spark itself would count none. Only this module
uses private parts of Spark for that. A Spark release that lacks them shows less, and the copy is unaffected.
"""

from __future__ import annotations

import logging
from typing import Any, Callable, Optional

from pyspark.sql import SparkSession

from mirror_lib.errors import cause_of

log = logging.getLogger(__name__)


class InputRows:
    """The input rows of a flow's streaming query, `numInputRows` in progress events, in Spark's UI, and in the charts
    of a notebook. Spark reads it off the plan of the micro-batch when `foreachBatch` has returned.

    Spark counts the rows of each task that succeeded once. Only tasks before a shuffle whose output was lost count
    twice."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._able = True

    def add(self, query_id: str, records: int) -> None:
        """Count `records` in the current micro-batch of that query, of which Spark itself reads no row."""
        if records:
            self._of(query_id, lambda metric: metric.add(records))

    def count(self, query_id: str) -> Optional[int]:
        """How many rows all actions have read in the current micro-batch of that query; `None` if unknown."""
        found = self._of(query_id, lambda metric: metric.value())
        return None if found is None else int(found)

    def _of(self, query_id: str, use: Callable[[Any], Any]) -> Any:
        if not self._able:
            return None
        try:
            query: Any = self._spark.streams.get(query_id)
            leaves = query._jsq.streamingQuery().lastExecution().executedPlan().collectLeaves()
            return use(leaves.apply(0).metrics().apply("numOutputRows"))
        except Exception as error:  # py4j has several classes, and a fork of Spark may raise another
            self._able = False
            lacks = "this Spark shows no input rows and counts no filtered records"
            log.warning("%s, copying is unaffected: %s", lacks, cause_of(error))
            return None
