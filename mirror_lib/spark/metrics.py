"""Publishes the copied records in Spark's own metrics: gauges for every sink of Spark's metrics system, and the input
rows of its streaming query.

The batch engine copies record batches and asks Spark for no row, so Spark itself would count none. Only this module
uses private parts of Spark for that. A Spark release that lacks them shows less, and the copy is unaffected.
"""

from __future__ import annotations

import logging
from typing import Any, Callable, Dict, Mapping, Optional, Sequence

from pyspark.sql import SparkSession

from mirror_lib.errors import cause_of
from mirror_lib.metrics import COUNTED, CURRENT, FlowMetrics, gauges

log = logging.getLogger(__name__)

# The unit is in the name; a gauge is an integer.
_COUNTED, _CURRENT = gauges(COUNTED), gauges(CURRENT)


def gauges_for(spark: SparkSession, flows: Sequence[str]) -> Callable[[FlowMetrics], None]:
    """A function that shows the metrics of these flows in Spark's metrics. If Spark's private parts differ, there are
    no gauges: a warning names the reason, and the copy is unaffected."""
    try:
        return FlowGauges(spark, flows).show
    except Exception as error:  # py4j has several classes, and a fork of Spark may raise another
        log.warning("this Spark shows no gauges of the mirror, copying is unaffected: %s", cause_of(error))
        return lambda snapshot: None


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
        except Exception as error:  # as above
            self._able = False
            lacks = "this Spark shows no input rows and counts no filtered records"
            log.warning("%s, copying is unaffected: %s", lacks, cause_of(error))
            return None


class FlowGauges:
    """Gauges `mirror.FLOW.NAME` of a run's flows, where `->` in names becomes `-`. Spark keeps them until it ends."""

    def __init__(self, spark: SparkSession, flows: Sequence[str]) -> None:
        java: Any = spark._jvm
        registered = java.java.util.HashMap()
        self._gauges: Dict[str, Dict[str, Any]] = {}
        for flow in flows:
            own = {name: java.org.apache.spark.util.LongAccumulator() for name in _COUNTED + _CURRENT}
            self._gauges[flow] = own
            for name, gauge in own.items():
                registered.put(f"mirror.{flow.replace('->', '-')}.{name}", gauge)
        context = java.org.apache.spark.SparkContext.getOrCreate()
        # A Scala object whose class has a method of the same name, so that Java sees no static one.
        source = getattr(getattr(java.org.apache.spark.metrics.source, "LongAccumulatorSource$"), "MODULE$")
        source.register(context, java.org.apache.spark.api.python.PythonUtils.toScalaMap(registered))

    def show(self, snapshot: FlowMetrics) -> None:
        """Add the copied records, and set the current values."""
        gauges = self._gauges[snapshot.flow]
        for name in _COUNTED:
            gauges[name].add(int(getattr(snapshot, name) or 0))
        for name, value in current(snapshot).items():
            gauges[name].reset()
            gauges[name].add(value)


def current(snapshot: FlowMetrics) -> Mapping[str, int]:
    """The gauges that replace their last value. An unknown lag in seconds, as of a flow without lag, is 0. Pure."""
    return {name: round(getattr(snapshot, name) or 0) for name in _CURRENT}
