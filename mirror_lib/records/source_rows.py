"""The partitions of a pass in; Spark's Kafka rows of exactly their ranges out, read when they are asked for."""

from __future__ import annotations

import json
from typing import Dict, Iterable, Mapping

from pyspark.sql import DataFrame, SparkSession

from mirror_lib.config.clients import spark_kafka_options
from mirror_lib.config.model import ReplicationFlow
from mirror_lib.replicate.lanes import PartitionTask

# What a consumer asks for at once, where the file does not say: Kafka's 1 MB of a partition and 500 records a poll keep
# Spark waiting between answers.
FETCH = {
    "kafka.fetch.max.bytes": str(16 * 1024 * 1024),
    "kafka.max.partition.fetch.bytes": str(4 * 1024 * 1024),
    "kafka.max.poll.records": "5000",
    "kafka.receive.buffer.bytes": str(1024 * 1024),
}
# Formats that Spark reads through its older interface, Kafka among them by default: there each of its own rows becomes
# one of Java objects, and one of its own again.
_READ_THE_OLD_WAY = "spark.sql.sources.useV1SourceList"


def source_rows(spark: SparkSession, flow: ReplicationFlow, tasks: Iterable[PartitionTask]) -> DataFrame:
    """Rows with headers, a Spark partition for each partition of the source, in the order of its offsets.

    Offsets that have left the source's log meanwhile fail the query: they must not be passed over in silence.
    """
    starts: Dict[str, Dict[str, int]] = {}
    ends: Dict[str, Dict[str, int]] = {}
    for task in tasks:
        number = str(task.partition)
        # One source partition may go to several remote ones, which may have come to different places.
        start = min(task.upstream_offset, starts.get(task.topic, {}).get(number, task.upstream_offset))
        starts.setdefault(task.topic, {})[number] = start
        ends.setdefault(task.topic, {})[number] = task.end
    options = {
        **FETCH,
        **spark_kafka_options(flow.source.client_properties("consumer"), spark.version),
        "kafka.isolation.level": flow.isolation_level,
        "assign": json.dumps({topic: [int(number) for number in numbers] for topic, numbers in starts.items()}),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
        "includeHeaders": "true",
        "failOnDataLoss": "true",
        "groupIdPrefix": f"mirror-{flow.source.alias}-{flow.target.alias}",
    }
    return _loaded_the_new_way(spark, options)


def _loaded_the_new_way(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    # What others read in this session they read as it was set: which interface it is, is decided here and now.
    old = spark.conf.get(_READ_THE_OLD_WAY) or ""
    spark.conf.set(_READ_THE_OLD_WAY, ",".join(name for name in old.split(",") if name.strip() != "kafka"))
    try:
        return spark.read.format("kafka").options(**options).load()
    finally:
        spark.conf.set(_READ_THE_OLD_WAY, old)
