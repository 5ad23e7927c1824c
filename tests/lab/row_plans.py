"""Plans for tasks that write rows, without a driver: what a test gives a `RowWriter` or a stage, and what comes next.
"""

from __future__ import annotations

import json
from array import array
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Dict, List, Sequence, Tuple

from pyspark.sql import functions as F

from mirror_lib.rows.origin import Provenance
from mirror_lib.rows.partition import LaneReport, LaneTask
from mirror_lib.rows.writer import LaneKey, RowsPlan, RowsReport
from tests.lab.one_flow import OneFlow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

GOOD = "cast(null as string)"


def plan_of(flow: OneFlow, end: int, exactly_once: bool = True, **fields: Any) -> RowsPlan:
    """What a driver without a ledger plans for a flow that keeps partitions: all of them up to `end`."""
    sources = [(flow.topic, number) for number in range(flow.partitions)]
    ranges = {source: (0, end) for source in sources}
    lanes: Dict[LaneKey, LaneTask] = {}
    for source in sources:
        remote = (flow.remote_topic, source[1])
        name = f"{flow.topic}.source->target.{flow.remote_topic}.{source[1]}" if exactly_once else None
        lanes[(remote, source)] = LaneTask(remote, source, name, 0, 1_000_000)
    plan = RowsPlan(
        flow="source->target",
        provenance=Provenance(f"{flow.topic}:source", {flow.topic: flow.source_topic_id()}),
        read=ranges,
        ranges=ranges,
        lanes=lanes,
        source_alias="source",
        target_alias="target",
        source_options={"bootstrap_servers": flow.source.bootstrap},
        target_options={"bootstrap_servers": flow.target.bootstrap},
    )
    return replace(plan, **fields)


def next_plan(plan: RowsPlan, lanes: Sequence[LaneReport], end: int) -> RowsPlan:
    """The micro-batch behind these reports, up to `end`: their producers are handed over."""
    going, ranges = dict(plan.lanes), dict(plan.ranges)
    for lane in lanes:
        assert lane.source is not None
        before = plan.lanes[(lane.remote, lane.source)]
        going[(lane.remote, lane.source)] = replace(
            before, downstream_offset=lane.part.downstream_offset, producer=lane.producer, sequence=lane.part.sequence
        )
        ranges[lane.source] = (lane.part.position, end)
    return replace(plan, lanes=going, ranges=ranges, read=ranges)


def rows_of(
    flow: OneFlow, spark: SparkSession, plan: RowsPlan, where: str = "true", value: str = "value", failure: str = GOOD
) -> DataFrame:
    """The rows of the plan's ranges as a flow makes them. `failure` is null for a good record."""
    starts = {str(number): begin for (_, number), (begin, _) in plan.read.items()}
    ends = {str(number): end for (_, number), (_, end) in plan.read.items()}
    options = {
        "kafka.bootstrap.servers": flow.source.bootstrap,
        "assign": json.dumps({flow.topic: sorted(map(int, starts))}),
        "startingOffsets": json.dumps({flow.topic: starts}),
        "endingOffsets": json.dumps({flow.topic: ends}),
        "includeHeaders": "true",
    }
    rows = spark.read.format("kafka").options(**options).load().where(where)
    good = F.expr(failure).isNull()
    return rows.select(
        F.col("topic").alias("source_topic"),
        F.col("partition").alias("source_partition"),
        F.col("offset").alias("source_offset"),
        F.when(good, F.lit(flow.remote_topic)).alias("remote_topic"),
        F.when(good, F.col("partition")).alias("remote_partition"),
        F.unix_millis("timestamp").alias("timestamp"),
        F.col("key"),
        F.expr(value).cast("binary").alias("value"),
        F.coalesce("headers", F.array()).alias("headers"),
        F.expr(failure).alias("failure"),
    )


def arrow_of(rows: DataFrame, at_once: int = 50) -> List[pa.RecordBatch]:
    """The rows that one task would be given, a source partition after the other, so many at a time."""
    found: Any = rows.coalesce(1)
    batches: List[pa.RecordBatch] = found._collect_as_arrow()
    return [batch.slice(at, at_once) for batch in batches for at in range(0, batch.num_rows, at_once)]


def lanes_of(reports: Sequence[RowsReport]) -> List[LaneReport]:
    return sorted((lane for report in reports for lane in report.lanes), key=lambda lane: lane.remote)


def syncs_of(lanes: Sequence[LaneReport]) -> List[Tuple[int, int, int, int]]:
    """Partition, upstream offset, downstream offset and record count of the rows that the ledger would get."""
    found: List[Tuple[int, int, int, int]] = []
    for lane in lanes:
        numbers = array("q", lane.part.syncs)
        found += [(lane.remote[1], a, b, count) for a, b, count in zip(*(numbers[i::3] for i in range(3)))]
    return found
