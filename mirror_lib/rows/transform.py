"""Builds the Spark SQL of a flow's change: Kafka source rows become rows to write, with partition and origin."""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from pyspark.sql import Column, DataFrame, SparkSession, utils
from pyspark.sql import functions as F

from mirror_lib.config.custom_classes import entry_point, said
from mirror_lib.config.document import config_error, nearest
from mirror_lib.config.model import ReplicationFlow
from mirror_lib.config.record_change import KEY, SOURCE, RecordChange
from mirror_lib.errors import ConfigError
from mirror_lib.rows.catalyst import (
    SelectItem,
    guarded,
    has_functions_of_rows,
    murmur2_column,
    plan_nodes,
    replaced,
    select_items,
    shape_fault,
    why_not_repeatable,
)
from mirror_lib.rows.origin import Provenance, origin_sql
from mirror_lib.topics.plan import CopiedTopic


@dataclass(frozen=True)
class RemoteNames:
    """`topics`: the remote topic by source topic; `partitions`: partition counts by remote topic, the dead letter
    topic's among them."""

    topics: Mapping[str, str]
    partitions: Mapping[str, int]

    def as_json(self) -> str:
        """`{source topic: {"topic": …, "partitions": …}, …}`, the lookup table for Spark."""
        return json.dumps({of: {"topic": to, "partitions": self.partitions[to]} for of, to in self.topics.items()})


def names_of(flow: ReplicationFlow, copied: Sequence[CopiedTopic]) -> RemoteNames:
    """The remote topics and partition counts of the flow's topics; its dead letter topic counts as one partition."""
    dead = None if flow.change is None else flow.change.dead_letter_topic
    counts = {topic.remote_topic: topic.remote_partitions for topic in copied}
    names = {topic.source.name: topic.remote_topic for topic in copied}
    return RemoteNames(names, counts if dead is None else {**counts, dead: 1})


_NO_COLUMN = re.compile(r"with name `(?P<new>[^`]+)`(?:\.`[^`]+`)* cannot be resolved|Column '(?P<old>[^']+)' does not")
_CODE = re.compile(r"^\[[A-Z_.]+\] | SQLSTATE: \w+;?")


# Spark 3.3 has these classes only there, and type stubs of later releases omit them.
_SAID = tuple(getattr(utils, name) for name in ("AnalysisException", "ParseException"))
# The internal column with the reason of a failed record. It does not exist in users' expressions.
FAILURE = "failure"


@contextmanager
def explained(key: str, place: str, columns: Sequence[str]) -> Iterator[None]:
    """Turn Spark's error about setting `key` into a ConfigError. For an unknown column it names the nearest of
    `columns`."""
    try:
        yield
    except _SAID as error:
        said = str(error).strip().split("\n")[0]
        missing = _NO_COLUMN.search(said)
        if missing is None:
            raise config_error(f"{key} is no Spark SQL: {_CODE.sub('', said).strip()}", place) from None
        name = missing.group("new") or missing.group("old")
        advice = _advice(name, [column for column in columns if column != FAILURE])
        raise config_error(f"{key} asks for the column {name}, which there is not; {advice}", place) from None


def _advice(name: str, columns: Sequence[str]) -> str:
    like = nearest(name, columns)
    if like:
        return f"did you mean {like}?"
    fields = f"a field of a JSON value is get_json_object(cast(value as string), '$.{name}')"
    return f"there are {', '.join(columns)}; {fields}"


def refuse_other_rows(before: DataFrame, after: DataFrame, what: str, place: str) -> None:
    """Raise ConfigError if `what` does not return the rows of `before` in order, at most one for each."""
    fault = shape_fault(plan_nodes(before), plan_nodes(after))
    if fault is not None:
        raise config_error(f"{what} {fault}", place)


HEADERS_TYPE = "array<struct<key:string,value:binary>>"
# The parts of a record, and the types that a select may give them.
PARTS: Mapping[str, Tuple[str, ...]] = {
    "key": ("binary", "string", "void"),
    "value": ("binary", "string", "void"),
    "headers": (HEADERS_TYPE, "array<struct<key:string,value:string>>", "array<void>", "void"),
    "timestamp": ("timestamp",),
}
# A column that would spread a topic's records over several remote topics.
REMOTE_TOPIC = "remote_topic"
_ONE_REMOTE_TOPIC = (
    f"gives {REMOTE_TOPIC}, and a topic has one remote topic; copy its parts by several flows, each with a where and a "
    "rename of its own"
)
# Columns that a select cannot set, since they identify the source record.
ORIGIN = ("topic", "partition", "offset", "timestampType")
_TYPE_HINTS = {
    "key": "make it text or bytes, e.g. with to_json() or cast(... as string)",
    "headers": "it is an array of struct(key, value), with a text and bytes",
    "timestamp": "it is a timestamp",
}


def outputs(rows: DataFrame, change: RecordChange, again: bool = False) -> List[SelectItem]:
    """The parts of the record that `change.select` makes of `rows`, or all their columns without a select. The columns
    are in the parts' own types.

    Raises ConfigError if the text is no select list, lacks a part, or sets a column that no record has; `again`, as of
    `changed`.
    """
    # Without a select, rows that do not make a record are the transform's fault.
    key = "select" if change.select else "transform"
    place = change.place(key)

    def refused(sentence: str) -> ConfigError:
        return config_error(f"{key} {sentence}", place)

    with explained(key, place, rows.columns):
        items = select_items(rows.sparkSession, change.select or "*")
    if not items:
        raise refused("must be a select list alone, without FROM and what follows it")
    chosen = _by_name(items, rows.columns, refused)
    lost = [name for name in PARTS if name not in chosen]
    if lost:
        advice = "begin it with * to keep what it does not name" if change.select else "keep its columns"
        raise refused(f"loses {' and '.join(lost)}; {advice}")
    with explained(key, place, rows.columns):
        made = rows.select(*(each.column.alias(name) for name, each in chosen.items()))
    if not again:
        refuse_other_rows(rows, made, key, place)
    types = dict(made.dtypes)
    return [SelectItem(name, _typed(name, each, types[name], refused), each.text) for name, each in chosen.items()]


def _by_name(
    items: Sequence[SelectItem], columns: Sequence[str], refused: Callable[[str], ConfigError]
) -> Dict[str, SelectItem]:
    """The last item of each name; `*` are all columns, but only a record's own parts are kept."""
    chosen: Dict[str, SelectItem] = {}
    for item in items:
        if item.name == "*":
            chosen.update({name: SelectItem(name, F.col(name), name) for name in columns if name in PARTS})
        elif item.name in PARTS:
            chosen[item.name] = item
        elif item.name not in ORIGIN or item.text.strip("`") != item.name:
            raise refused(_not_a_part(item))
    return chosen


def _not_a_part(item: SelectItem) -> str:
    if not item.name:
        return f"gives {item.text}, which needs a name: write {item.text} as value, or another part of a record"
    if item.name == REMOTE_TOPIC:
        return _ONE_REMOTE_TOPIC
    if item.name in ORIGIN:
        return f"gives a new {item.name}, which says where a record came from"
    like = nearest(item.name, PARTS)
    advice = f"did you mean {like}?" if like else f"a record has {', '.join(PARTS)}"
    return f"gives {item.name}, which no record has; {advice}"


def _typed(name: str, item: SelectItem, found: str, refused: Callable[[str], ConfigError]) -> Column:
    if found not in PARTS[name]:
        raise refused(f"gives {name} as {found}; {_TYPE_HINTS.get(name, _TYPE_HINTS['key'])}")
    if name == "headers":
        return F.coalesce(item.column.cast(HEADERS_TYPE), F.expr(f"cast(array() as {HEADERS_TYPE})"))
    return item.column if name == "timestamp" else item.column.cast("binary")


_POSITION = ("topic", "partition", "offset")


def transformed(rows: DataFrame, change: RecordChange) -> DataFrame:
    """`rows` after `change.transform`, with a column FAILURE: the reason, if the function gives one.

    Rows have headers: an empty list if the record has none. `where` and `select` may use new columns of the function.
    Key, value, headers and timestamp must keep types of a record. Raises ConfigError if the function cannot be found,
    raises, or does not return a DataFrame of these records.
    """
    taken = rows.withColumn("headers", F.coalesce("headers", F.expr(f"cast(array() as {HEADERS_TYPE})")))
    if change.transform is None:
        return taken.withColumn(FAILURE, F.lit(None).cast("string"))
    made = _called(taken, change.transform, change.place("transform"))
    for part in outputs(made, replace(change, select=None)):
        made = made.withColumn(part.name, part.column)
    reason = F.col(FAILURE).cast("string") if FAILURE in made.columns else F.lit(None).cast("string")
    return made.withColumn(FAILURE, reason)


def _called(rows: DataFrame, name: str, place: str) -> DataFrame:
    function = entry_point(name, "transform", place, "function")
    try:
        made = function(rows)
    except Exception as error:
        # An error of the user's code is reported with its line, not as a trace.
        raise config_error(f"transform: {name} failed: {said(error)}", place) from error
    if not isinstance(made, DataFrame):
        raise config_error(f"transform: {name} returned {type(made).__name__}; it must return a DataFrame", place)
    refuse_other_rows(rows, made, f"transform: {name}", place)
    if REMOTE_TOPIC in made.columns:
        raise config_error(f"transform: {name} {_ONE_REMOTE_TOPIC}", place)
    lost = [column for column in _POSITION if column not in made.columns]
    # After a function over whole rows Spark reports all columns as new.
    new = [] if has_functions_of_rows(plan_nodes(made)) else replaced(rows, made, _POSITION)
    if lost or new:
        sentence = f"loses {' and '.join(lost)}" if lost else f"changes {' and '.join(new)}"
        raise config_error(f"transform: {name} {sentence}, which says where a record came from", place)
    return made


CHANGED_DDL = (
    "source_topic string, source_partition int, source_offset bigint, remote_topic string, remote_partition int, "
    f"timestamp bigint, key binary, value binary, headers {HEADERS_TYPE}, failure string"
)
KAFKA_ROWS_DDL = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    f"headers {HEADERS_TYPE}"
)
# The header with the reason of a dead-letter record.
ERROR_HEADER = "mirror.error"

_NAMES = "map<string, struct<topic: string, partitions: int>>"
# Internal columns. No column of Kafka's or of a user's is likely to have such a name.
_NEW, _MADE, _TO = "__mirror_new", "__mirror_made", "__mirror_to"
# Why no record can be made of new parts, if so. Kafka's own parts always can, and Spark evaluates the expressions after
# `exists` row by row.
_UNUSABLE = {
    "timestamp": f"case when {_MADE}.timestamp is null then 'timestamp is null' end",
    "headers": f"case when exists({_MADE}.headers, header -> header.key is null) then 'a header has no key' end",
}


def changed(rows: DataFrame, change: RecordChange, remote: RemoteNames, again: bool = False) -> DataFrame:
    """The records that `rows` (KAFKA_ROWS_DDL) become, as CHANGED_DDL.

    A record on which an expression fails has a `failure`: the reason. It goes to the dead letter topic unchanged, with
    the reason in a header. Without a dead letter topic the row has no remote partition. `transform` comes first, then
    `where`, then `select`. Raises ConfigError if the change is invalid.

    `again`: the change was made before, for rows with these columns. The results of Spark's slow plan analysis are then
    the same, except for those of a `transform`, and not checked again. `rows` may also be the result of `filtered`.
    """
    again = again and change.transform is None
    kept = rows if FAILURE in rows.columns else filtered(rows, change, again)
    parts = outputs(kept, change, again)
    # Unchanged columns cannot fail. Columns of a `transform` may, once Spark has merged both projections.
    new = [part for part in parts if change.transform is not None or part.text != part.name]
    return _addressed(_made(kept, change, parts, new), change, remote, [part.name for part in new])


def filtered(rows: DataFrame, change: RecordChange, again: bool = False) -> DataFrame:
    """`rows` (KAFKA_ROWS_DDL) after `transform`, without those that `where` does not accept: the first half of
    `changed`. Rows on which `where` fails have a FAILURE."""
    rows = transformed(rows, change)
    if change.where is None:
        return rows
    where = f"struct(coalesce(cast(({change.where}) as boolean), false) as taken)"
    with explained("where", change.place("where"), rows.columns):
        decided = guarded(rows.sparkSession, F.expr(where), _whole())
        # A row that failed before, or fails here, has no result.
        taken = rows.where(F.coalesce(decided.getField("taken"), F.lit(True)))
    if not again:
        refuse_other_rows(rows, taken, "where", change.place("where"))
    failed = F.when(_whole() & decided.isNull(), F.lit(f"where cannot be computed: {change.where}"))
    return taken.withColumn(FAILURE, F.coalesce(F.col(FAILURE), failed))


def no_rows(spark: SparkSession) -> DataFrame:
    """An empty DataFrame with the columns of Kafka's source: to check a change before anything is read."""
    columns = (pair.strip().split(" ", 1) for pair in KAFKA_ROWS_DDL.split(", "))
    nothing = [F.lit(None).cast(kind).alias(name) for name, kind in columns]
    return spark.range(0).select(*nothing)


def _made(rows: DataFrame, change: RecordChange, parts: List[SelectItem], new: List[SelectItem]) -> DataFrame:
    """Add the record's parts as one struct, and the reason if some cannot be computed: then no part counts."""
    if change.select is None or not new:
        return rows.withColumn(_MADE, F.struct(*(part.column.alias(part.name) for part in parts)))
    spark = rows.sparkSession
    computed = F.struct(*(part.column.alias(part.name) for part in new))
    made = rows.withColumn(_NEW, guarded(spark, computed, _whole()))
    taken = ((F.col(_NEW).getField(part.name) if part in new else part.column).alias(part.name) for part in parts)
    made = made.withColumn(_MADE, F.struct(*taken))
    failed = F.when(_whole() & F.col(_NEW).isNull(), _reason(spark, new))
    return made.withColumn(FAILURE, F.coalesce(F.col(FAILURE), failed))


def _reason(spark: SparkSession, parts: List[SelectItem]) -> Column:
    """The parts that cannot be computed. They are checked one by one, only for a row that failed."""
    reported = []
    for part in parts:
        alone = guarded(spark, F.struct(part.column.alias("part")), F.col(_NEW).isNull())
        reported.append(F.when(alone.isNull(), F.lit(f"{part.name} cannot be computed: {part.text}")))
    return F.concat(F.lit("select: "), F.concat_ws("; ", *reported))


def _whole() -> Column:
    return F.col(FAILURE).isNull() & (F.col("offset") >= 0)


def _addressed(rows: DataFrame, change: RecordChange, remote: RemoteNames, new: List[str]) -> DataFrame:
    """The records as CHANGED_DDL: each with its remote partition, and the reason if it has none. The change gave the
    parts `new`."""
    name = change.dead_letter_topic
    topic, count = ("null", 0) if name is None else (f"'{name}'", remote.partitions[name])
    dead = f"cast({topic} as string) as topic, {count} as partitions"
    # Spark makes a constant of the map, once in each execution.
    named = f"from_json('{remote.as_json()}', '{_NAMES}')[topic]"
    unusable = [why for name, why in _UNUSABLE.items() if name in new]
    faults = [*unusable, f"case when {named} is null then 'the topic has no remote topic' end"]
    found = rows.withColumn(FAILURE, F.expr(f"coalesce({FAILURE}, {', '.join(faults)})"))
    place = f"case when {FAILURE} is null then {named} else struct({dead}) end"
    by_count = F.expr(f"case when {_TO}.partitions > 0 then partition % {_TO}.partitions end")
    number = F.when(F.col(FAILURE).isNull(), _place(rows.sparkSession, change)).otherwise(by_count)
    dead_headers = f"concat(headers, array(struct('{ERROR_HEADER}' as key, cast({FAILURE} as binary) as value)))"
    return found.withColumn(_TO, F.expr(place)).select(
        F.expr("topic as source_topic"),
        F.expr("partition as source_partition"),
        F.expr("offset as source_offset"),
        F.expr(f"{_TO}.topic as remote_topic"),
        number.alias("remote_partition"),
        F.expr(f"unix_millis({_new_or('timestamp')}) as timestamp"),
        F.expr(f"{_new_or('key')} as key"),
        F.expr(f"{_new_or('value')} as value"),
        F.expr(f"case when {FAILURE} is null then {_MADE}.headers else {dead_headers} end as headers"),
        F.col(FAILURE),
    )


def _new_or(name: str) -> str:
    """The record's new part, or the unchanged one."""
    return f"case when {FAILURE} is null then {_MADE}.{name} else {name} end"


def _place(spark: SparkSession, change: RecordChange) -> Column:
    """The partition of a record, an int."""
    if change.partitioner == SOURCE:
        return F.col("partition")
    count = f"{_TO}.partitions" if change.partitioner == KEY else str(change.partitioner)
    hashed = murmur2_column(spark, F.col(f"{_MADE}.key")).bitwiseAND(F.lit(0x7FFFFFFF))
    return F.coalesce(hashed, F.col("partition")) % F.expr(count)


def needless(change: RecordChange, names: RemoteNames) -> Tuple[str, ...]:
    """Columns of changed rows that tasks do not need; each costs time from Spark to Python. REMOTE is not needed if
    each source partition has one remote partition, the topic if there is only one, the failure if nothing can fail."""
    found: List[str] = []
    if change.dead_letter_topic is None and not change.repartitions:
        found += ("remote_topic", "remote_partition")
    # A user's function may change topics, which is then refused.
    if change.transform is None and len(names.topics) == 1:
        found.append("source_topic")
    if change.transform is None and change.where is None and change.select in (None, "*"):
        found.append("failure")
    return tuple(found)


def check_change(spark: SparkSession, flow: ReplicationFlow) -> Optional[str]:
    """Why the flow may change the same records in another way each time, as far as Spark can tell: the copied records
    can then not be computed again for a comparison. `None` if it does not.

    Raises ConfigError, with the line, if its change is invalid.
    """
    if flow.change is None:
        return None
    return why_not_repeatable(plan_nodes(changed(no_rows(spark), flow.change, names_of(flow, ()))))


def placement_fault(spark: SparkSession, flow: ReplicationFlow) -> Optional[str]:
    """Why a record might go to different remote partitions at different times, one sentence; `None` if it cannot.
    Raises ConfigError as `check_change` does.

    A record of an interrupted attempt is searched only in the partition to which the record belongs.
    """
    change = flow.change
    if change is None:
        return None
    kept = filtered(no_rows(spark), change)
    (key,) = (part.column.alias(part.name) for part in outputs(kept, change) if part.name == "key")
    if not change.repartitions:
        return None
    nodes = plan_nodes(kept.select(key))
    # After a user's function everything that it does may matter; otherwise only the select list does.
    reason = why_not_repeatable(nodes if change.transform is not None else nodes[:1])
    return None if reason is None else f"its partitioner is not deterministic: {reason}"


def placement(spark: SparkSession, change: RecordChange) -> str:
    """Identifies how a record gets its partition: by the partitioner, the function's name and the key's expression."""
    items = select_items(spark, change.select or "*")
    key = next((item.text for item in reversed(items) if item.name in ("*", "key")), "")
    what = repr((change.partitioner, change.transform, key))
    return f".{hashlib.sha256(what.encode()).hexdigest()[:8]}"


def expected(
    rows: DataFrame, change: RecordChange, remote: RemoteNames, provenance: Provenance, there: bool
) -> DataFrame:
    """`topic, partition, offset, key, value, headers, timestamp` as Kafka's source has them; dead-letter records
    excluded. `provenance` is the common part of their origins.

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
        made = made.withColumn("headers", F.expr(f"concat(headers, array({origin_sql(provenance.cluster)}))"))
    origin = ("source_topic", "source_partition")
    return made.selectExpr(*origin, *position, "key", "value", "headers", "timestamp_millis(timestamp) as timestamp")
