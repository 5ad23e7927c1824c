"""A flow's change over several passes of one life: looked at once, but for what a function of the user's makes."""

from __future__ import annotations

from pathlib import Path

import pytest
from mirror_lib.records.flow_change import FlowChange
from pyspark.sql import SparkSession

from mirror_lib.config.record_change import RecordChange
from mirror_lib.errors import ConfigError
from mirror_lib.replicate.lanes import PartitionTask
from mirror_lib.rows.changed import no_rows

TASKS = [PartitionTask("orders", "A.orders", 0, 0, 0, 10, None, 1_000_000)]
RULES = """
stops, randoms = [], []

def stops_later(rows):
    stops.append(1)
    return rows if len(stops) < 3 else rows.limit(3)

def random_later(rows):
    from pyspark.sql import functions as F

    randoms.append(1)
    return rows if len(randoms) < 3 else rows.where(F.rand() < 0.5)
"""


def flow_change(change: RecordChange) -> FlowChange:
    return FlowChange(change, "A", lambda topic: 4)


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    (tmp_path / "later_rules.py").write_text(RULES, encoding="utf-8")
    return tmp_path / "mirror.yaml"


@pytest.mark.parametrize("change", [RecordChange(where="rand() < 0.5"), RecordChange(select="*, uuid() as key")])
def test_each_pass_of_what_cannot_be_repeated_is_at_least_once(spark: SparkSession, change: RecordChange) -> None:
    made = flow_change(change)
    first, *later = [made(no_rows(spark), TASKS) for _ in range(3)]
    assert not first.repeatable and first.reason
    assert [(each.repeatable, each.reason) for each in later] == [(False, first.reason)] * 2
    with_other_counts = made.with_counts({"A.orders": 7})(no_rows(spark), TASKS)
    assert not with_other_counts.repeatable


def test_later_passes_get_the_same_plan_as_the_first(spark: SparkSession) -> None:
    made = flow_change(RecordChange(where="key is not null", select="*, upper(cast(value as string)) as value"))
    rows = no_rows(spark)
    plans = [made(rows, TASKS).rows for _ in range(2)]
    assert plans[0].sameSemantics(plans[1])
    other = flow_change(RecordChange(where="key is not null"))(rows, TASKS).rows
    assert not plans[0].sameSemantics(other)


def test_a_function_that_loses_records_only_later_is_refused_then(spark: SparkSession, rules: Path) -> None:
    made = flow_change(RecordChange(transform="later_rules:stops_later", places={"transform": f"{rules}:7"}))
    for _ in range(2):
        made(no_rows(spark), TASKS)
    with pytest.raises(ConfigError, match="stops after so many rows, which loses records"):
        made(no_rows(spark), TASKS)


def test_a_function_that_cannot_be_repeated_only_later_is_at_least_once_then(spark: SparkSession, rules: Path) -> None:
    made = flow_change(RecordChange(transform="later_rules:random_later", places={"transform": f"{rules}:7"}))
    assert [made(no_rows(spark), TASKS).repeatable for _ in range(3)] == [True, True, False]
