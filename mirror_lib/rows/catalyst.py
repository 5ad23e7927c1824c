"""Accesses Spark's expressions and plans in the JVM: murmur2 partitioning, and checks impossible in SQL and PySpark.

`plan_shape` decides whether a change could reorder, drop or add records, and whether it is deterministic. Names
are Spark's class names. Written for Spark 3.3 to 4.2, which convert between columns and expressions differently.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

# Kafka's own class, and Databricks' name for it.
_KAFKA_UTILS = "org.apache.kafka.common.utils.Utils"
_SHADED_KAFKA_UTILS = f"kafkashaded.{_KAFKA_UTILS}"
_STATIC_INVOKE = "org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke"

# A node of a plan or an expression in Spark's JSON of a plan: `class` is its Scala class.
Node = Dict[str, Any]


@dataclass(frozen=True)
class SelectItem:
    """One item of a select list: `*` under the name `*`, a column under its own or its alias, `""` without a name."""

    name: str
    column: Column
    text: str


def guarded(spark: SparkSession, column: Column, condition: Column) -> Column:
    """`column`, or null if evaluating it raises (Spark's `TryEval`) or if `condition` is not true.

    `condition` must not be a constant. Spark does not evaluate a CASE branch early as a common subexpression, which
    would be outside of the guard.
    """
    jvm: Any = spark._jvm
    expression = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(_expression(spark, column))
    return F.when(condition, _column(spark, expression))


def murmur2_column(spark: SparkSession, key: Column) -> Column:
    """Kafka's own `Utils.murmur2(key)`, an int; null for a null key."""
    jvm: Any = spark._jvm
    objects = jvm.org.apache.spark.sql.catalyst.expressions.objects
    parameters = jvm.java.lang.Class.forName(_STATIC_INVOKE).getConstructors()[0].getParameterCount()
    arguments = jvm.java.util.Collections.singletonList(_expression(spark, key))
    scala_list = jvm.scala.collection.JavaConverters.asScalaBuffer(arguments).toList()
    int_type = jvm.org.apache.spark.sql.types.DataTypes.IntegerType
    # Later versions have more parameters, all with defaults, which Scala keeps in the companion object.
    companion = getattr(getattr(objects, "StaticInvoke$"), "MODULE$")
    defaults = [getattr(companion, f"apply$default${n}")() for n in range(5, parameters + 1)]
    return _column(spark, objects.StaticInvoke(_kafka_utils(jvm), int_type, "murmur2", scala_list, *defaults))


def select_items(spark: SparkSession, text: str) -> List[SelectItem]:
    """The items of a select list; empty unless `text` is exactly one. Spark's ParseException is not converted."""
    session: Any = spark
    plan = session._jsparkSession.sessionState().sqlParser().parsePlan(f"SELECT {text}")
    if _simple(plan) != "Project" or _simple(plan.child()) != "OneRowRelation":
        return []
    items = plan.projectList()
    return [_item(spark, items.apply(n)) for n in range(items.size())]


def _item(spark: SparkSession, expression: Any) -> SelectItem:
    kind, text = _simple(expression), str(expression.sql())
    if kind == "UnresolvedStar" and expression.target().isEmpty():
        return SelectItem("*", F.col("*"), "*")
    if kind == "Alias":
        return SelectItem(str(expression.name()), _column(spark, expression.child()), text)
    if kind == "UnresolvedAttribute":
        return SelectItem(str(expression.name()).rpartition(".")[2], _column(spark, expression), text)
    unnamed = expression.child().sql() if kind == "UnresolvedAlias" else text
    return SelectItem("", F.lit(None), str(unnamed))


def plan_nodes(frame: DataFrame) -> List[Node]:
    """The nodes of the frame's analyzed plan, without the plans of its subqueries."""
    nodes: List[Node] = json.loads(_any(frame._jdf).queryExecution().analyzed().toJSON())
    return nodes


def replaced(before: DataFrame, after: DataFrame, names: Sequence[str]) -> List[str]:
    """The `names` that are no longer the same column in `after` as in `before`."""
    old, new = _column_ids(before), _column_ids(after)
    return [name for name in names if old.get(name) != new.get(name)]


def _column_ids(frame: DataFrame) -> Mapping[str, int]:
    output = _any(frame._jdf).queryExecution().analyzed().output()
    columns = [output.apply(n) for n in range(output.size())]
    return {str(column.name()): int(column.exprId().id()) for column in columns}


def _simple(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _kafka_utils(jvm: Any) -> Any:
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        return jvm.java.lang.Class.forName(_KAFKA_UTILS, True, loader)
    except Py4JJavaError:
        return jvm.java.lang.Class.forName(_SHADED_KAFKA_UTILS, True, loader)


def _expression(spark: SparkSession, column: Column) -> Any:
    jvm, java = _any(spark._jvm), _any(column._jc)
    return java.expr() if _is_old(spark) else jvm.org.apache.spark.sql.classic.ExpressionUtils.expression(java)


def _column(spark: SparkSession, expression: Any) -> Column:
    jvm = _any(spark._jvm)
    if _is_old(spark):
        return Column(jvm.org.apache.spark.sql.Column(expression))
    return Column(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression))


def _is_old(spark: SparkSession) -> bool:
    """Whether a column is only a wrapper of its expression: before Spark 4."""
    return int(spark.version.partition(".")[0]) < 4


def _any(value: object) -> Any:
    return value


_FUNCTIONS_OF_ROWS = ("MapInPandas", "MapInArrow", "PythonMapInArrow")
# Nodes that take one row at a time, in order, and return at most one for each.
_NARROW = ("Project", "Filter", "SubqueryAlias", "View", *_FUNCTIONS_OF_ROWS)

_WHY_NOT: Mapping[str, str] = {
    "Aggregate": "groups records, which loses them and their order",
    "Deduplicate": "drops duplicates, but finds only those within one micro-batch",
    "Distinct": "drops duplicates, but finds only those within one micro-batch",
    "EventTimeWatermark": "has a watermark, which only a query of Spark's own over a stream has",
    "Expand": "makes several records of one",
    "Generate": "makes several records of one",
    "Join": "joins, which loses the order of records and may multiply them",
    "Sort": "sorts, which is another order than the source's",
    "Union": "adds rows of another source",
    "Window": "uses other rows of the same micro-batch",
    **dict.fromkeys(
        ("GlobalLimit", "LocalLimit", "Limit", "Offset", "Tail", "LimitAndOffset"),
        "stops after so many rows, which loses records",
    ),
    **dict.fromkeys(
        ("Repartition", "RepartitionByExpression", "RebalancePartitions"),
        "repartitions, which loses the order of records",
    ),
}

_OTHER_VALUE = "gives another value each time it is asked; use a hash of the key, as in pmod(xxhash64(key), 10) = 0"
# Expressions whose value depends on more than the record, by the SQL names that users write.
_UNLIKE: Mapping[str, str] = {
    "Rand": f"rand() {_OTHER_VALUE}",
    "Randn": f"randn() {_OTHER_VALUE}",
    "RandStr": f"randstr() {_OTHER_VALUE}",
    "Uniform": f"uniform() {_OTHER_VALUE}",
    "Uuid": "uuid() gives another value each time it is asked",
    "Shuffle": "shuffle() gives another order each time it is asked",
    "MonotonicallyIncreasingID": "monotonically_increasing_id() counts rows of a pass",
    "SparkPartitionID": "spark_partition_id() is the task's number, which another pass has otherwise",
    "InputFileName": "input_file_name() says nothing of a record",
    "CurrentTimestamp": "current_timestamp() is another time each time it is asked",
    "CurrentBatchTimestamp": "current_timestamp() is another time each time it is asked",
    "Now": "now() is another time each time it is asked",
    "LocalTimestamp": "localtimestamp() is another time each time it is asked",
    "CurrentDate": "current_date() is another day tomorrow",
    "CurrentTime": "current_time() is another time each time it is asked",
    "CurrentUser": "current_user() is the user that runs the flow",
    "Sample": "sample() takes other rows each time it is asked",
}


def shape_fault(base: Sequence[Node], nodes: Sequence[Node]) -> Optional[str]:
    """Why rows of `nodes` may not be the rows of `base` in order, at most one for each; `None` if they are."""
    before, after = Counter(map(_name, base)), Counter(map(_name, nodes))
    for name in (after - before).elements():
        if name not in (*_NARROW, "Sample"):
            return _WHY_NOT.get(name, f"uses {name}, which may change the order or the number of records")
    if before - after:
        return "does not read the records that it is given"
    if any(_name(each).endswith(("Subquery", "ListQuery")) for each in _expressions(nodes)):
        return "asks another table, whose rows may change"
    return None


def has_functions_of_rows(nodes: Sequence[Node]) -> bool:
    """Whether a Python function takes whole rows, so that Spark sees only its types."""
    return any(_name(each) in _FUNCTIONS_OF_ROWS for each in nodes)


def why_not_repeatable(nodes: Sequence[Node]) -> Optional[str]:
    """Why the same records may be changed differently the next time, in one sentence; `None` if they cannot.

    Spark cannot inspect a Python function, so the function's own declaration (non-deterministic or not) counts.
    """
    for each in [*nodes, *_expressions(nodes)]:
        name = _name(each)
        if name in _UNLIKE:
            return _UNLIKE[name]
        if each.get("udfDeterministic") is False:
            return f"the function {each.get('name', '')} is declared non-deterministic".replace("  ", " ")
    return None


def _name(node: Node) -> str:
    return str(node["class"]).rpartition(".")[2].rstrip("$")


def _expressions(nodes: Sequence[Node]) -> Iterator[Node]:
    """Every expression of the nodes: their fields have lists, and lists of lists, of nodes."""
    waiting: List[object] = [value for node in nodes for value in node.values()]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            if "class" in value:
                yield value
            waiting += value.values()
