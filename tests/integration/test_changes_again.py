"""A flow's change over several micro-batches: looked at once, but for what a function of the user's makes."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mirror_lib.config.record_change import RecordChange
from mirror_lib.errors import ConfigError
from mirror_lib.rows.transform import FlowChange, RemoteNames, no_rows

pytestmark = pytest.mark.long

NAMES = RemoteNames({"orders": "A.orders"}, {"A.orders": 4})
RULES = """
stops = []

def stops_later(rows):
    stops.append(1)
    return rows if len(stops) < 3 else rows.limit(3)
"""


def test_later_micro_batches_get_the_same_plan_as_the_first(spark: SparkSession) -> None:
    made = FlowChange(RecordChange(where="key is not null", select="*, upper(cast(value as string)) as value"))
    rows = no_rows(spark)
    plans = [made(rows, NAMES) for _ in range(2)]
    assert plans[0].sameSemantics(plans[1])
    other = FlowChange(RecordChange(where="key is not null"))(rows, NAMES)
    assert not plans[0].sameSemantics(other)


def test_a_function_that_loses_records_only_later_is_refused_then(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "later_rules.py").write_text(RULES, encoding="utf-8")
    places = {"transform": f"{tmp_path / 'mirror.yaml'}:7"}
    made = FlowChange(RecordChange(transform="later_rules:stops_later", places=places))
    for _ in range(2):
        made(no_rows(spark), NAMES)
    with pytest.raises(ConfigError, match="stops after so many rows, which loses records"):
        made(no_rows(spark), NAMES)
