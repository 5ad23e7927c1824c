"""Rows of Spark's Kafka source and a `RecordChange` in; the records that go to the target, each with its place, out.

Every step takes one row at a time and keeps order, so Spark has one task for each source partition, in offset order.
"""

from __future__ import annotations

from typing import Dict, List, Optional

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from mirror_lib.changes.catalyst import guarded
from mirror_lib.changes.placement import placed_column
from mirror_lib.changes.remote_names import RemoteNames
from mirror_lib.changes.select_list import HEADERS_TYPE, REMOTE_TOPIC, Output, outputs
from mirror_lib.changes.sentences import explained, refuse_other_rows
from mirror_lib.changes.transform import FAILURE, transformed
from mirror_lib.config.record_change import KEY, SOURCE, RecordChange

CHANGED_DDL = (
    "source_topic string, source_partition int, source_offset bigint, remote_topic string, remote_partition int, "
    f"timestamp bigint, key binary, value binary, headers {HEADERS_TYPE}, failure string"
)
KAFKA_ROWS_DDL = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    f"headers {HEADERS_TYPE}"
)
# Names of the headers that say where a record came from, and of the one with the reason of a dead letter.
PROVENANCE = ("mirror.source.cluster", "mirror.source.topic", "mirror.source.partition", "mirror.source.offset")
ERROR_HEADER = "mirror.error"

_NAMES = "map<string, array<struct<topic: string, partitions: int>>>"
_MADE, _NAMED, _TO = "mirror made", "mirror named", "mirror to"


def changed(rows: DataFrame, change: RecordChange, remote: RemoteNames) -> DataFrame:
    """The records that `rows` (KAFKA_ROWS_DDL) become, as CHANGED_DDL: one row for each remote topic of each record.

    A record on which an expression fails has a `failure`: the reason. It goes to the dead letter topic as it came, with
    position and reason in headers; where there is none, it stands for itself, at no place. `transform` comes first,
    then `where`, then `select`. Raises ConfigError where the change cannot be made as it is written.
    """
    taken = transformed(rows, change)
    kept = _kept(taken, change)
    parts = outputs(kept, change)
    made = _made(kept, change, parts)
    return _addressed(made, change, remote, any(part.name == REMOTE_TOPIC for part in parts))


def no_rows(spark: SparkSession) -> DataFrame:
    """Rows as Kafka's source gives them, but none: to look at a change before anything is read."""
    columns = (pair.strip().split(" ", 1) for pair in KAFKA_ROWS_DDL.split(", "))
    nothing = [F.lit(None).cast(kind).alias(name) for name, kind in columns]
    return spark.range(0).select(*nothing)


def _kept(rows: DataFrame, change: RecordChange) -> DataFrame:
    """The rows that `where` takes, and those on which it fails, which have a FAILURE then."""
    if change.where is None:
        return rows
    where = f"struct(coalesce(cast(({change.where}) as boolean), false) as taken)"
    with explained("where", change.place("where"), rows.columns):
        decided = guarded(rows.sparkSession, F.expr(where), _whole())
        # A row that failed before, or fails here, has no decision.
        taken = rows.where(F.coalesce(decided.getField("taken"), F.lit(True)))
    refuse_other_rows(rows, taken, "where", change.place("where"))
    failed = F.when(_whole() & decided.isNull(), F.lit(f"where cannot be computed: {change.where}"))
    return taken.withColumn(FAILURE, F.coalesce(F.col(FAILURE), failed))


def _made(rows: DataFrame, change: RecordChange, parts: List[Output]) -> DataFrame:
    """Add the record's new parts as one struct, null where they cannot be computed, and the reason then."""
    whole = F.struct(*(part.column.alias(part.name) for part in parts))
    if change.select is None:
        return rows.withColumn(_MADE, whole)
    spark = rows.sparkSession
    made = rows.withColumn(_MADE, guarded(spark, whole, _whole()))
    failed = F.when(_whole() & F.col(_MADE).isNull(), _reason(spark, parts))
    return made.withColumn(FAILURE, F.coalesce(F.col(FAILURE), failed))


def _reason(spark: SparkSession, parts: List[Output]) -> Column:
    """Which parts cannot be computed: looked at one by one, and only for a row that failed."""
    told = []
    for part in parts:
        alone = guarded(spark, F.struct(part.column.alias("part")), F.col(_MADE).isNull())
        told.append(F.when(alone.isNull(), F.lit(f"{part.name} cannot be computed: {part.text}")))
    return F.concat(F.lit("select: "), F.concat_ws("; ", *told))


def _whole() -> Column:
    return F.col(FAILURE).isNull() & (F.col("offset") >= 0)


def _addressed(rows: DataFrame, change: RecordChange, remote: RemoteNames, chooses: bool) -> DataFrame:
    named = rows.withColumn(_NAMED, _named(remote, chooses))
    faults = [F.when(F.coalesce(F.size(_NAMED), F.lit(0)) < 1, _nowhere(chooses))]
    if change.select or change.transform:
        faults = [*_unusable(), *faults]
    named = named.withColumn(FAILURE, F.coalesce(F.col(FAILURE), *faults))
    place = F.when(F.col(FAILURE).isNull(), F.col(_NAMED)).otherwise(_dead(change, remote))
    # Most flows have one remote topic for each: then nothing has to be spread out.
    to = place[0] if remote.one_each or chooses else F.explode_outer(place)
    return _finished(named.withColumn(_TO, to), change, remote)


def _unusable() -> List[Column]:
    """Why no record can be made of the new parts, where that is so."""
    nameless = F.exists(_part("headers"), lambda header: header["key"].isNull())
    timeless = F.col(_MADE).isNotNull() & _part("timestamp").isNull()
    return [F.when(timeless, F.lit("timestamp is null")), F.when(nameless, F.lit("a header has no key"))]


def _nowhere(chooses: bool) -> Column:
    if not chooses:
        return F.lit("the topic has no remote topic")
    given = F.coalesce(_part(REMOTE_TOPIC), F.lit("null"))
    return F.concat(F.lit("remote_topic is "), given, F.lit(", which rename does not give this topic"))


def _named(remote: RemoteNames, chooses: bool) -> Column:
    """The remote topics of a row's topic, with their partition counts; of these the one that the select chose."""
    # Spark makes a constant of it, once for each pass.
    names = F.from_json(F.lit(remote.as_json()), _NAMES)[F.col("topic")]
    return F.filter(names, lambda name: name["topic"] == _part(REMOTE_TOPIC)) if chooses else names


def _dead(change: RecordChange, remote: RemoteNames) -> Column:
    topic = change.dead_letter_topic
    count = 0 if topic is None else remote.partitions[topic]
    entry = F.struct(F.lit(topic).cast("string").alias("topic"), F.lit(count).alias("partitions"))
    return F.array(entry)


def _part(name: str) -> Column:
    return F.col(f"`{_MADE}`")[name]


def _finished(rows: DataFrame, change: RecordChange, remote: RemoteNames) -> DataFrame:
    good, to = F.col(FAILURE).isNull(), F.col(f"`{_TO}`")
    headers = F.concat(_part("headers"), _origin(remote)) if change.provenance_headers else _part("headers")
    dead = F.concat(F.col("headers"), _origin(remote, F.col(FAILURE)))
    spark, partition = rows.sparkSession, F.col("partition")
    by_count = F.when(to["partitions"] > 0, partition % to["partitions"])
    columns: Dict[str, Column] = {
        "source_topic": F.col("topic"),
        "source_partition": partition,
        "source_offset": F.col("offset"),
        "remote_topic": to["topic"],
        "remote_partition": F.when(good, _place(spark, change, to)).otherwise(by_count),
        "timestamp": F.expr(f"unix_millis(case when {FAILURE} is null then `{_MADE}`.timestamp else timestamp end)"),
        "key": _or(good, "key"),
        "value": _or(good, "value"),
        "headers": F.when(good, headers).otherwise(dead),
        "failure": F.col(FAILURE),
    }
    return rows.select(*(column.alias(name) for name, column in columns.items()))


def _or(good: Column, name: str) -> Column:
    """The record's new part, or the one that it came with."""
    return F.when(good, _part(name)).otherwise(F.col(name))


def _place(spark: SparkSession, change: RecordChange, to: Column) -> Column:
    partition = F.col("partition")
    if change.partitioner == SOURCE:
        return partition
    count = to["partitions"] if change.partitioner == KEY else F.lit(int(change.partitioner))
    return placed_column(spark, _part("key"), partition, count)


def _origin(remote: RemoteNames, reason: Optional[Column] = None) -> Column:
    values = [F.lit(remote.source_alias), F.col("topic"), F.col("partition"), F.col("offset")]
    pairs = [*zip(PROVENANCE, values), *([(ERROR_HEADER, reason)] if reason is not None else [])]
    texts = (F.struct(F.lit(name).alias("key"), v.cast("string").cast("binary").alias("value")) for name, v in pairs)
    return F.array(*texts).cast(HEADERS_TYPE)
