"""The user's function `module:function` and the rows of a pass in; the rows that it makes of them out, or a refusal."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mirror_lib.config.custom_classes import entry_point, said
from mirror_lib.config.record_change import RecordChange
from mirror_lib.config.refusals import config_error
from mirror_lib.rows.catalyst import plan_nodes, replaced
from mirror_lib.rows.plan_shape import has_functions_of_rows
from mirror_lib.rows.select_list import HEADERS_TYPE, outputs
from mirror_lib.rows.sentences import FAILURE, refuse_other_rows

_POSITION = ("topic", "partition", "offset")


def transformed(rows: DataFrame, change: RecordChange) -> DataFrame:
    """`rows` behind `change.transform`, with a column FAILURE: the reason, where the function gives one.

    Rows have headers: an empty list where the record has none. New columns of the function may be used by `where` and
    `select`; key, value, headers and timestamp stay what a record may have. ConfigError where the function cannot be
    found, raises, or returns what is no DataFrame of these records.
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
        # Whatever the user's code raises is told with its line, not as a trace.
        raise config_error(f"transform: {name} failed: {said(error)}", place) from error
    if not isinstance(made, DataFrame):
        raise config_error(f"transform: {name} returned {type(made).__name__}; it must return a DataFrame", place)
    refuse_other_rows(rows, made, f"transform: {name}", place)
    lost = [column for column in _POSITION if column not in made.columns]
    # Behind a function over whole rows Spark knows all columns as new ones.
    new = [] if has_functions_of_rows(plan_nodes(made)) else replaced(rows, made, _POSITION)
    if lost or new:
        sentence = f"loses {' and '.join(lost)}" if lost else f"changes {' and '.join(new)}"
        raise config_error(f"transform: {name} {sentence}, which says where a record came from", place)
    return made
