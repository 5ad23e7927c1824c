"""The streaming query of a flow: Spark's Kafka source, `foreachBatch`, a trigger and a checkpoint.

For the batch engine Spark provides discovery by pattern, triggers, the query's lifetime, scheduling and task retries.
It does not read the records: through Spark's rows the same copy ran at a tenth to a quarter of the speed and would lose
what rows cannot carry (compression, batch boundaries, producer-side timestamps). `docs/project/how-it-works.md` has the
measurements. For a flow that changes records the query's rows are what is written.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from mirror_lib.config.client_options import spark_kafka_options
from mirror_lib.config.model import ReplicationFlow
from mirror_lib.config.values import AVAILABLE_NOW
from mirror_lib.errors import StateError, cause_of
from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.reach import accepting
from mirror_lib.ledger.state_files import read_file
from mirror_lib.spark.errors import spark_ended
from mirror_lib.topics.filters import subscribe_pattern

if TYPE_CHECKING:
    # Not at run time: Spark 3.3 has no such module.
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

CopyRows = Callable[[DataFrame, str, int], None]

# Fetch sizes of a consumer of rows, unless the file sets them. With Kafka's defaults, 1 MB of a partition and 500
# records a poll, Spark waits between answers.
FETCH = {
    "kafka.fetch.max.bytes": str(16 * 1024 * 1024),
    "kafka.max.partition.fetch.bytes": str(4 * 1024 * 1024),
    "kafka.max.poll.records": "5000",
    "kafka.receive.buffer.bytes": str(1024 * 1024),
}


def batch_options(flow: ReplicationFlow, spark_version: str) -> Mapping[str, str]:
    """The options of a query whose rows are not read. It only signals new records; the ledger decides what to copy."""
    return {**source_options(flow, spark_version), "subscribePattern": subscribe_pattern(flow)}


def row_options(
    flow: ReplicationFlow, spark_version: str, starts: Mapping[TopicPartition, int], most_offsets: int
) -> Mapping[str, str]:
    """The options of a query that reads the partitions of `starts` from these offsets on, with at most `most_offsets`
    offsets in a micro-batch. Its checkpoint must be a new one."""
    assigned: Dict[str, List[int]] = {}
    begins: Dict[str, Dict[str, int]] = {}
    for (topic, number), offset in sorted(starts.items()):
        assigned.setdefault(topic, []).append(number)
        begins.setdefault(topic, {})[str(number)] = offset
    return {
        **FETCH,
        **source_options(flow, spark_version),
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(begins),
        # Offsets that have left the source's log must not be skipped silently.
        "failOnDataLoss": "true",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": str(most_offsets),
    }


def batch_ends(spark: SparkSession, checkpoint_location: str, batch_id: int) -> Mapping[TopicPartition, int]:
    """The end offset of a micro-batch in each partition, exclusive, from the checkpoint's offset log. Spark writes it
    before it runs the batch: a line with the version, one with metadata, then one for each source."""
    ends = json.loads(read_file(spark, f"{checkpoint_location}/offsets/{batch_id}").strip().split("\n")[-1])
    return {(topic, int(number)): offset for topic, own in ends.items() for number, offset in own.items()}


def start_query(
    spark: SparkSession,
    flow: ReplicationFlow,
    options: Mapping[str, str],
    checkpoint_location: str,
    trigger: str,
    copy: CopyRows,
    filtered: Callable[[DataFrame], DataFrame],
) -> StreamingQuery:
    """Start the flow's query over Spark's Kafka source. `copy` gets the rows that `filtered` keeps, the query's id and
    the batch id. Raises `StateError` if its checkpoint cannot be created, and `SparkEndedError`."""
    query_id: Dict[str, str] = {}

    def call(batch: DataFrame, batch_id: int) -> None:
        copy(batch, query_id.get("id", ""), batch_id)

    writer = (
        filtered(spark.readStream.format("kafka").options(**options).load())
        .writeStream.queryName(f"mirror {flow.name}")
        .foreachBatch(call)
        .option("checkpointLocation", checkpoint_location)
    )
    timed = writer.trigger(availableNow=True) if trigger == AVAILABLE_NOW else writer.trigger(processingTime=trigger)
    try:
        query = timed.start()
    except Py4JJavaError as error:
        raise spark_ended(flow.name, spark) or StateError(
            f"{flow.name}: cannot create a checkpoint in {checkpoint_location}: {cause_of(error)}",
            "`state` must be a folder that the driver and every executor can write",
        ) from error
    query_id["id"] = str(query.id)
    return query


def source_options(flow: ReplicationFlow, spark_version: str) -> Dict[str, str]:
    """Options of Spark's Kafka source. It starts at the earliest offset and never fails on lost data: the ledger
    decides where copying starts, and `on.data.loss` decides about records that the source lost."""
    return {
        **spark_kafka_options(accepting(flow.source), spark_version),
        "kafka.isolation.level": flow.isolation_level,
        "startingOffsets": "earliest",
        "failOnDataLoss": "false",
        "groupIdPrefix": f"mirror-{flow.source.alias}-{flow.target.alias}",
    }


class InputRows:
    """The input rows of a flow's streaming query, `numInputRows` in progress events, in Spark's UI, and in the charts
    of a notebook. Spark reads it off the plan of the micro-batch when `foreachBatch` has returned. The batch engine
    asks Spark for no row, so Spark itself would count none. A Spark without the private parts in use shows less.

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
