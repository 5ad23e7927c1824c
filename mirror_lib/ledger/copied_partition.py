"""How tables name a partition that a flow copies: the columns of it, and a row's columns in, its key out."""

from __future__ import annotations

from pyspark.sql import Row

from mirror_lib.ledger.records import PartitionKey
from mirror_lib.ledger.schema import Column

COPIED_PARTITION = (
    Column("flow", "string", "A->B"),
    Column("source_topic", "string", "topic on A"),
    Column("remote_topic", "string", "its copy on B"),
    Column("partition", "int", "the same on both sides"),
    Column("source_topic_id", "string", "Kafka's id of the source topic, empty where brokers have none"),
    Column("remote_topic_id", "string", "Kafka's id of the remote topic, empty where brokers have none"),
)
# In the order of PartitionKey's fields.
PARTITION_KEY = ("source_topic_id", "remote_topic_id", "source_topic", "partition")


def partition_key(row: Row) -> PartitionKey:
    """The key of the partition that a row with the columns of PARTITION_KEY speaks of."""
    return PartitionKey(*(row[name] for name in PARTITION_KEY))
