"""The streaming query of a flow: Spark's Kafka source by pattern, `foreachBatch`, a trigger and a checkpoint.

Spark owns discovery by pattern, triggers, the query's life, scheduling and retries of the lanes' tasks. It does not
read the records: through Spark's rows the same copy ran at a tenth to a quarter of the speed and would lose what
rows cannot carry (compression, batch boundaries, producer-side timestamps). `docs/design.md` has the measurements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Dict

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from mirror_lib.config.clients import spark_kafka_options
from mirror_lib.config.model import ReplicationFlow
from mirror_lib.config.values import AVAILABLE_NOW
from mirror_lib.errors import StateError, cause_of
from mirror_lib.spark_end import spark_ended
from mirror_lib.topics.filters import subscribe_pattern

if TYPE_CHECKING:
    # Not at run time: Spark 3.3 has no such module.
    from pyspark.sql.streaming.query import StreamingQuery

CopyBatch = Callable[[SparkSession, str, int], None]


def start_query(
    spark: SparkSession, flow: ReplicationFlow, checkpoint_location: str, trigger: str, copy_batch: CopyBatch
) -> StreamingQuery:
    """Start the flow's query. `copy_batch` gets the batch's session, the query's id and the batch id.

    Raises StateError where its checkpoint cannot be begun, SparkEndedError.
    """
    source = (
        spark.readStream.format("kafka")
        .options(**source_options(flow, spark.version))
        .option("subscribePattern", subscribe_pattern(flow))
        .load()
    )
    query_id: Dict[str, str] = {}

    def copy(batch: DataFrame, batch_id: int) -> None:
        # The batch says that there is something new; what to copy is decided by the ledger. Its rows stay unread.
        copy_batch(batch.sparkSession, query_id.get("id", ""), batch_id)

    writer = (
        source.writeStream.queryName(f"mirror {flow.name}")
        .foreachBatch(copy)
        .option("checkpointLocation", checkpoint_location)
    )
    timed = writer.trigger(availableNow=True) if trigger == AVAILABLE_NOW else writer.trigger(processingTime=trigger)
    try:
        query = timed.start()
    except Py4JJavaError as error:
        raise spark_ended(flow.name, spark) or StateError(
            f"{flow.name}: no checkpoint can be begun in {checkpoint_location}: {cause_of(error)}",
            "`state` must be a folder that the driver and every executor can write",
        ) from error
    query_id["id"] = str(query.id)
    return query


def source_options(flow: ReplicationFlow, spark_version: str) -> Dict[str, str]:
    """Options of Spark's Kafka source. It starts at the earliest offset and never fails on lost data: the ledger
    decides where copying starts, and `on.data.loss` what happens where the source lost something."""
    return {
        **spark_kafka_options(flow.source.client_properties("consumer"), spark_version),
        "kafka.isolation.level": flow.isolation_level,
        "startingOffsets": "earliest",
        "failOnDataLoss": "false",
        "groupIdPrefix": f"mirror-{flow.source.alias}-{flow.target.alias}",
    }
