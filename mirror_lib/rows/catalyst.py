"""The door to Spark's expressions on the Java side: what neither SQL nor PySpark can say. Columns in, columns out.

Written for Spark 3.3 to 4.2, which differ in how a column and its expression become each other.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Sequence

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

# Kafka's own class, and what Databricks calls it.
_KAFKA_UTILS = "org.apache.kafka.common.utils.Utils"
_SHADED_KAFKA_UTILS = f"kafkashaded.{_KAFKA_UTILS}"
_STATIC_INVOKE = "org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke"

# A node of a plan or an expression, as Spark's JSON of a plan has it: `class` is its Scala class.
Node = Dict[str, Any]


@dataclass(frozen=True)
class SelectItem:
    """One item of a select list: `*` under the name `*`, a column under its own or its alias, `""` without a name."""

    name: str
    column: Column
    text: str


def guarded(spark: SparkSession, column: Column, condition: Column) -> Column:
    """`column`, or null where evaluating it raises (Spark's `TryEval`) and where `condition` is not true.

    `condition` must not be a constant. What stands in a CASE is not evaluated ahead of it as a common subexpression,
    which would be outside of the guard.
    """
    jvm: Any = spark._jvm
    expression = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(_expression(spark, column))
    return F.when(condition, _column(spark, expression))


def murmur2_column(spark: SparkSession, key: Column) -> Column:
    """Kafka's own `Utils.murmur2(key)`, an int; null where the key is."""
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
    """The items of a select list; empty where `text` is more or less than one. Spark's ParseException as it is."""
    session: Any = spark
    plan = session._jsparkSession.sessionState().sqlParser().parsePlan(f"SELECT {text}")
    if (_simple(plan), _simple(plan.children().head()) if plan.children().nonEmpty() else "") != (
        "Project",
        "OneRowRelation",
    ):
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
    """Those of `names` that are no longer the same column in `after` as in `before`."""
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
    """Whether a column is no more than its expression: before Spark 4."""
    return int(spark.version.partition(".")[0]) < 4


def _any(value: object) -> Any:
    return value
