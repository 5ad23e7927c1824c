"""A flow's change over several micro-batches: looked at once, but for what a function of the user's makes."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mirror_lib.config.record_change import RecordChange
from mirror_lib.errors import ConfigError
from mirror_lib.rows.transform import RemoteNames, changed, no_rows

pytestmark = pytest.mark.long

NAMES = RemoteNames({"orders": "A.orders"}, {"A.orders": 4})
RULES = """
stops = []

def stops_later(rows):
    stops.append(1)
    return rows if len(stops) < 3 else rows.limit(3)
"""


def test_later_micro_batches_get_the_same_plan_as_the_first(spark: SparkSession) -> None:
    rows = no_rows(spark)
    change = RecordChange(where="key is not null", select="*, upper(cast(value as string)) as value")
    plans = [changed(rows, change, NAMES, again) for again in (False, True)]
    assert plans[0].sameSemantics(plans[1])
    other = changed(rows, RecordChange(where="key is not null"), NAMES)
    assert not plans[0].sameSemantics(other)


def test_a_function_that_loses_records_only_later_is_refused_then(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "later_rules.py").write_text(RULES, encoding="utf-8")
    places = {"transform": f"{tmp_path / 'mirror.yaml'}:7"}
    change = RecordChange(transform="later_rules:stops_later", places=places)
    for again in (False, True):
        changed(no_rows(spark), change, NAMES, again)
    with pytest.raises(ConfigError, match="stops after so many rows, which loses records"):
        changed(no_rows(spark), change, NAMES, again=True)
