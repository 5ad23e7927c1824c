"""Rows of Spark's Kafka source and a `RecordChange` in; the records that go to the target, each with its place, out.

Every step takes one row at a time and keeps order, so Spark has one task for each source partition, in offset order.
"""

from __future__ import annotations

from typing import List, Optional

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from mirror_lib.config.record_change import KEY, SOURCE, RecordChange
from mirror_lib.rows.catalyst import guarded, murmur2_column
from mirror_lib.rows.remote_names import RemoteNames
from mirror_lib.rows.select_list import HEADERS_TYPE, REMOTE_TOPIC, Output, outputs
from mirror_lib.rows.sentences import FAILURE, explained, refuse_other_rows
from mirror_lib.rows.transform import transformed

CHANGED_DDL = (
    "source_topic string, source_partition int, source_offset bigint, remote_topic string, remote_partition int, "
    f"timestamp bigint, key binary, value binary, headers {HEADERS_TYPE}, failure string"
)
KAFKA_ROWS_DDL = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    f"headers {HEADERS_TYPE}"
)
# The header with the reason of a dead letter.
ERROR_HEADER = "mirror.error"

_NAMES = "map<string, array<struct<topic: string, partitions: int>>>"
# Columns of our own on the way. No column of Kafka's or of a user's is likely to have a blank in its name.
_NEW, _MADE, _NAMED, _TO = "`mirror new`", "`mirror made`", "`mirror named`", "`mirror to`"
# Why no record can be made of new parts, where that is so. Kafka's own are never so, and Spark runs what stands behind
# `exists` row by row.
_UNUSABLE = {
    "timestamp": f"case when {_MADE}.timestamp is null then 'timestamp is null' end",
    "headers": f"case when exists({_MADE}.headers, header -> header.key is null) then 'a header has no key' end",
}


def placed_column(spark: SparkSession, key: Column, partition: Column, count: Column) -> Column:
    """The partition, an int, of `count` partitions, of a record with `key` that came from `partition`."""
    hashed = murmur2_column(spark, key).bitwiseAND(F.lit(0x7FFFFFFF))
    return F.coalesce(hashed, partition) % count


def changed(rows: DataFrame, change: RecordChange, remote: RemoteNames, again: bool = False) -> DataFrame:
    """The records that `rows` (KAFKA_ROWS_DDL) become, as CHANGED_DDL: one row for each remote topic of each record.

    A record on which an expression fails has a `failure`: the reason. It goes to the dead letter topic as it came, with
    the reason in a header; where there is none, it stands for itself, at no place. `transform` comes first,
    then `where`, then `select`. Raises ConfigError where the change cannot be made as it is written.

    `again`: it was made before of rows with these columns. What Spark's plans come to, and Spark is long in saying, is
    the same then and not looked at.
    """
    taken = transformed(rows, change)
    kept = _kept(taken, change, again)
    parts = outputs(kept, change, again)
    # Columns as they came cannot fail; those of a `transform` may, once Spark has put both together.
    new = [part for part in parts if change.transform is not None or not part.as_it_came]
    return _addressed(_made(kept, change, parts, new), change, remote, [part.name for part in new])


def placing(rows: DataFrame, change: RecordChange) -> Optional[DataFrame]:
    """The columns of `rows` on which it hangs where a record goes; `None` where that is its topic and partition alone.
    Raises ConfigError where the change cannot be made."""
    kept = _kept(transformed(rows, change), change, False)
    names = {REMOTE_TOPIC} if change.partitioner == SOURCE else {REMOTE_TOPIC, "key"}
    chosen = [part.column.alias(part.name) for part in outputs(kept, change, False) if part.name in names]
    return kept.select(*chosen) if chosen else None


def no_rows(spark: SparkSession) -> DataFrame:
    """Rows as Kafka's source gives them, but none: to look at a change before anything is read."""
    columns = (pair.strip().split(" ", 1) for pair in KAFKA_ROWS_DDL.split(", "))
    nothing = [F.lit(None).cast(kind).alias(name) for name, kind in columns]
    return spark.range(0).select(*nothing)


def _kept(rows: DataFrame, change: RecordChange, again: bool) -> DataFrame:
    """The rows that `where` takes, and those on which it fails, which have a FAILURE then."""
    if change.where is None:
        return rows
    where = f"struct(coalesce(cast(({change.where}) as boolean), false) as taken)"
    with explained("where", change.place("where"), rows.columns):
        decided = guarded(rows.sparkSession, F.expr(where), _whole())
        # A row that failed before, or fails here, has no decision.
        taken = rows.where(F.coalesce(decided.getField("taken"), F.lit(True)))
    if not again:
        refuse_other_rows(rows, taken, "where", change.place("where"))
    failed = F.when(_whole() & decided.isNull(), F.lit(f"where cannot be computed: {change.where}"))
    return taken.withColumn(FAILURE, F.coalesce(F.col(FAILURE), failed))


def _made(rows: DataFrame, change: RecordChange, parts: List[Output], new: List[Output]) -> DataFrame:
    """Add the record's parts as one struct, and the reason where some cannot be computed: then none of them counts."""
    if change.select is None or not new:
        return rows.withColumn(_bare(_MADE), F.struct(*(part.column.alias(part.name) for part in parts)))
    spark = rows.sparkSession
    computed = F.struct(*(part.column.alias(part.name) for part in new))
    made = rows.withColumn(_bare(_NEW), guarded(spark, computed, _whole()))
    taken = ((F.col(_NEW).getField(part.name) if part in new else part.column).alias(part.name) for part in parts)
    made = made.withColumn(_bare(_MADE), F.struct(*taken))
    failed = F.when(_whole() & F.col(_NEW).isNull(), _reason(spark, new))
    return made.withColumn(FAILURE, F.coalesce(F.col(FAILURE), failed))


def _reason(spark: SparkSession, parts: List[Output]) -> Column:
    """Which parts cannot be computed: looked at one by one, and only for a row that failed."""
    told = []
    for part in parts:
        alone = guarded(spark, F.struct(part.column.alias("part")), F.col(_NEW).isNull())
        told.append(F.when(alone.isNull(), F.lit(f"{part.name} cannot be computed: {part.text}")))
    return F.concat(F.lit("select: "), F.concat_ws("; ", *told))


def _whole() -> Column:
    return F.col(FAILURE).isNull() & (F.col("offset") >= 0)


def _addressed(rows: DataFrame, change: RecordChange, remote: RemoteNames, new: List[str]) -> DataFrame:
    """Add where each record goes, and why those fail that can go nowhere; the parts `new` were given by the change."""
    chooses = REMOTE_TOPIC in new
    # Spark makes a constant of the map, once for each pass.
    names = f"from_json('{remote.as_json()}', '{_NAMES}')[topic]"
    named = f"filter({names}, name -> name.topic = {_MADE}.{REMOTE_TOPIC})" if chooses else names
    unusable = [why for name, why in _UNUSABLE.items() if name in new]
    faults = [*unusable, f"case when coalesce(size({_NAMED}), 0) < 1 then {_nowhere(chooses)} end"]
    place = f"case when {FAILURE} is null then {_NAMED} else {_dead(change, remote)} end"
    # Most flows have one remote topic for each: then nothing has to be spread out.
    to = f"({place})[0]" if remote.one_each or chooses else f"explode_outer({place})"
    found = rows.withColumn(_bare(_NAMED), F.expr(named))
    found = found.withColumn(FAILURE, F.expr(f"coalesce({FAILURE}, {', '.join(faults)})"))
    return _finished(found.withColumn(_bare(_TO), F.expr(to)), change, remote)


def _nowhere(chooses: bool) -> str:
    if not chooses:
        return "'the topic has no remote topic'"
    given = f"coalesce({_MADE}.{REMOTE_TOPIC}, 'null')"
    return f"concat('remote_topic is ', {given}, ', which rename does not give this topic')"


def _dead(change: RecordChange, remote: RemoteNames) -> str:
    name = change.dead_letter_topic
    topic, count = ("null", 0) if name is None else (f"'{name}'", remote.partitions[name])
    return f"array(struct(cast({topic} as string) as topic, {count} as partitions))"


def _finished(rows: DataFrame, change: RecordChange, remote: RemoteNames) -> DataFrame:
    dead = f"concat(headers, array({_header(ERROR_HEADER, FAILURE)}))"
    by_count = F.expr(f"case when {_TO}.partitions > 0 then partition % {_TO}.partitions end")
    place = F.when(F.col(FAILURE).isNull(), _place(rows.sparkSession, change)).otherwise(by_count)
    return rows.select(
        F.expr("topic as source_topic"),
        F.expr("partition as source_partition"),
        F.expr("offset as source_offset"),
        F.expr(f"{_TO}.topic as remote_topic"),
        place.alias("remote_partition"),
        F.expr(f"unix_millis({_new_or('timestamp')}) as timestamp"),
        F.expr(f"{_new_or('key')} as key"),
        F.expr(f"{_new_or('value')} as value"),
        F.expr(f"case when {FAILURE} is null then {_MADE}.headers else {dead} end as headers"),
        F.col(FAILURE),
    )


def _new_or(name: str) -> str:
    """The record's new part, or the one that it came with."""
    return f"case when {FAILURE} is null then {_MADE}.{name} else {name} end"


def _place(spark: SparkSession, change: RecordChange) -> Column:
    if change.partitioner == SOURCE:
        return F.col("partition")
    count = f"{_TO}.partitions" if change.partitioner == KEY else str(change.partitioner)
    return placed_column(spark, F.col(f"{_MADE}.key"), F.col("partition"), F.expr(count))


def _header(name: str, value: str) -> str:
    return f"struct('{name}' as key, cast(cast({value} as string) as binary) as value)"


def _bare(name: str) -> str:
    return name.strip("`")
