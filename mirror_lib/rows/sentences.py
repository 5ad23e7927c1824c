"""What Spark says of a user's expression, and the plan that it comes to, in; one sentence with its line out."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import Iterator, Sequence

from pyspark.sql import DataFrame, utils

from mirror_lib.config.refusals import config_error, nearest
from mirror_lib.rows.catalyst import plan_nodes
from mirror_lib.rows.plan_shape import shape_fault

_NO_COLUMN = re.compile(r"with name `(?P<new>[^`]+)`(?:\.`[^`]+`)* cannot be resolved|Column '(?P<old>[^']+)' does not")
_CODE = re.compile(r"^\[[A-Z_.]+\] | SQLSTATE: \w+;?")


# Spark 3.3 has them there only, and later ones no longer say so to type checkers.
_SAID = tuple(getattr(utils, name) for name in ("AnalysisException", "ParseException"))
# The column of our own that says why a record failed. Who writes an expression has no such column.
FAILURE = "failure"


@contextmanager
def explained(key: str, place: str, columns: Sequence[str]) -> Iterator[None]:
    """Turn what Spark says of setting `key` into a ConfigError: an unknown column with the nearest of `columns`."""
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
    """Raise ConfigError where `what` makes rows of `before` that are not these, one for one or none, in order."""
    fault = shape_fault(plan_nodes(before), plan_nodes(after))
    if fault is not None:
        raise config_error(f"{what} {fault}", place)
