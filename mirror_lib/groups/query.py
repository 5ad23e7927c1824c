"""The streaming queries of a flow's translation: the ledger in, a call for each trigger out.

A continuous query has a clock too, Spark's rate source: groups commit when no data moves, and a stream over the ledger
alone would sleep through it. The ledger's new rows come with the call, so that a pass need not read the whole table
again. A query that ends by itself (`availableNow`) reads the whole ledger in one micro-batch.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Callable, List, Optional, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mirror_lib.groups.ledger_stream import LedgerStream
from mirror_lib.ledger.records import LedgerRow

if TYPE_CHECKING:
    # Not at run time: Spark 3.3 has no such module.
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

# A catch-up of a flow with a filter adds millions between two triggers, more than Java's heap has room for.
MOST_ROWS = 50_000

# `None`: there are more than MOST_ROWS.
OnTrigger = Callable[[Optional[Sequence[LedgerRow]]], None]


def start_query(
    spark: SparkSession, flow: str, ledger: LedgerStream, checkpoint_location: str, seconds: float, call: OnTrigger
) -> StreamingQuery:
    """Start the query; `call` gets the flow's new ledger rows, mostly none, every `seconds`. The ledger must exist.

    Of more than MOST_ROWS it gets none, but `None`: the table has them.
    """

    def pass_on(batch: DataFrame, batch_id: int) -> None:
        call(_rows(batch))

    clock = spark.readStream.format("rate").options(rowsPerSecond=1, numPartitions=1).load()
    ticks = clock.select(*(F.lit(None).cast(type_name).alias(name) for name, type_name in ledger.types()))
    # The ledger first: a look for so many rows goes through the partitions in order, and is over when it has them.
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


def start_once(
    flow: str, ledger: LedgerStream, checkpoint_location: str, call: Callable[[DataFrame], None]
) -> StreamingQuery:
    """Start the query that ends by itself; `call` gets the flow's ledger. Not called where the ledger, which must
    exist, has no file."""
    writer = (
        ledger.whole(flow)
        .writeStream.queryName(f"translate {flow}")
        .foreachBatch(lambda batch, batch_id: call(batch))
        .option("checkpointLocation", checkpoint_location)
        .trigger(availableNow=True)
    )
    query: StreamingQuery = writer.start()
    return query


def _rows(batch: DataFrame) -> Optional[List[LedgerRow]]:
    found = batch.where("source_topic is not null").take(MOST_ROWS + 1)
    return None if len(found) > MOST_ROWS else [LedgerRow(*row) for row in found]
