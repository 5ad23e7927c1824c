"""Rows of a flow's source in, the records that its remote logs should hold out, each where it can be looked for."""

from __future__ import annotations

from pyspark.sql import DataFrame

from mirror_lib.changes.changed import changed
from mirror_lib.changes.remote_names import RemoteNames
from mirror_lib.config.record_change import RecordChange


def expected(rows: DataFrame, change: RecordChange, remote: RemoteNames) -> DataFrame:
    """`topic, partition, offset, key, value, headers, timestamp` as Kafka's source has them; dead letters left out.

    Topic and partition are the source's, or the remote ones where the flow places records anew; `source_topic`,
    `source_partition` and the offset are always the source's.
    """
    side = "remote" if change.places_anew else "source"
    position = (f"{side}_topic as topic", f"{side}_partition as partition", "source_offset as offset")
    made = changed(rows, change, remote).where("failure is null")
    origin = ("source_topic", "source_partition")
    return made.selectExpr(*origin, *position, "key", "value", "headers", "timestamp_millis(timestamp) as timestamp")
