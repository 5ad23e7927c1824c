"""The streaming query of a flow's translation: the ledger and a clock in, a call for each trigger out.

Groups commit when no data moves, so a stream over the ledger alone would sleep through it: Spark's rate source is the
clock. The ledger's new rows come with the call, so that a pass need not read the whole table again.
"""

from __future__ import annotations

import logging
from typing import Callable, List, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from mirror_lib.state.ledger_stream import LedgerStream
from mirror_lib.state.records import LedgerRow

log = logging.getLogger(__name__)

OnTrigger = Callable[[Sequence[LedgerRow]], None]


def start_query(
    spark: SparkSession, flow: str, ledger: LedgerStream, checkpoint_location: str, seconds: float, call: OnTrigger
) -> StreamingQuery:
    """Start the query; `call` gets the flow's new ledger rows, mostly none, every `seconds`. The ledger must exist."""

    def pass_on(batch: DataFrame, batch_id: int) -> None:
        call(_rows(batch))

    clock = spark.readStream.format("rate").option("rowsPerSecond", 1).load()
    ticks = clock.select(*(F.lit(None).cast(type_name).alias(name) for name, type_name in ledger.types()))
    added = ledger.added(flow)
    writer = (
        added.unionByName(ticks)
        .writeStream.queryName(f"translate {flow}")
        .foreachBatch(pass_on)
        .option("checkpointLocation", checkpoint_location)
        .trigger(processingTime=f"{max(1, round(seconds * 1000))} milliseconds")
    )
    query: StreamingQuery = writer.start()
    return query


def _rows(batch: DataFrame) -> List[LedgerRow]:
    return [LedgerRow(*row) for row in batch.where("source_topic is not null").collect()]
