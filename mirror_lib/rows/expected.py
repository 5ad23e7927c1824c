"""Rows of a flow's source in, the records that its remote logs should hold out, each where it can be looked for."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mirror_lib.config.record_change import RecordChange
from mirror_lib.rows.changed import changed
from mirror_lib.rows.origin import Provenance, origin_sql
from mirror_lib.rows.remote_names import RemoteNames


def expected(
    rows: DataFrame, change: RecordChange, remote: RemoteNames, provenance: Provenance, there: bool
) -> DataFrame:
    """`topic, partition, offset, key, value, headers, timestamp` as Kafka's source has them; dead letters left out.
    `provenance` is what their origins say.

    Topic and partition are the source's, or with `there` the remote ones; `source_topic`, `source_partition` and the
    offset are always the source's.
    """
    side = "remote" if there else "source"
    position = (f"{side}_topic as topic", f"{side}_partition as partition", "source_offset as offset")
    made = changed(rows, change, remote).where("failure is null")
    if change.provenance:
        known = [F.lit(each) for pair in provenance.topic_ids.items() for each in pair]
        topic_id = F.create_map(*known)[F.col("source_topic")] if known else F.lit("")
        made = made.withColumn("topic_id", F.coalesce(topic_id, F.lit("")))
        told = {"topic": "source_topic", "partition": "source_partition", "offset": "source_offset", "id": "topic_id"}
        made = made.withColumn("headers", F.expr(f"concat(headers, array({origin_sql(provenance.cluster, told)}))"))
    origin = ("source_topic", "source_partition")
    return made.selectExpr(*origin, *position, "key", "value", "headers", "timestamp_millis(timestamp) as timestamp")
