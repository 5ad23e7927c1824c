"""Tables that another release wrote: read and migrated in place where that was older, refused where it was newer."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

import pytest
from pyspark.sql import SparkSession

from mirror_lib.errors import EXIT_REFUSED, RefusedError
from mirror_lib.ledger.delta_table import StateTable
from mirror_lib.ledger.tables import INCIDENTS, OFFSET_SYNCS, RUNS, Column, TableSchema

pytestmark = pytest.mark.long

FIRST = TableSchema("notes", "a note", (Column("flow", "string", "A->B"), Column("at", "timestamp", "")), stamp="at")
SECOND = replace(FIRST, columns=(*FIRST.columns, Column("reason", "string", "why", since=2)))


@pytest.fixture
def state(spark: SparkSession, tmp_path: Path) -> str:
    """A state folder whose table the first release wrote."""
    StateTable(spark, str(tmp_path), FIRST).append([("A->B",)], {})
    return str(tmp_path)


def commits(state: str) -> int:
    return len(list(Path(state, "notes", "_delta_log").glob("*.json")))


def notes(table: StateTable) -> List[Tuple[str, Optional[str]]]:
    rows = table.rows()
    assert rows is not None
    return sorted((row["flow"], row["reason"]) for row in rows.collect())


def given(*notes: Tuple[str, str]) -> Sequence[Tuple[object, ...]]:
    return notes


def test_table_of_an_older_release_is_read_as_it_is(spark: SparkSession, state: str) -> None:
    assert notes(StateTable(spark, state, SECOND)) == [("A->B", None)]
    assert commits(state) == 1


def test_first_write_of_the_newer_release_migrates_it_and_the_older_one_is_refused_from_then_on(
    spark: SparkSession, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    new = StateTable(spark, state, SECOND)
    new.append(given(("B->A", "because")), {})
    assert notes(new) == [("A->B", None), ("B->A", "because")]
    assert notes(StateTable(spark, state, SECOND)) == notes(new)
    assert [each.levelname for each in caplog.records] == ["WARNING"] and "reason" in caplog.text
    written = commits(state)
    older = StateTable(spark, state, FIRST)
    for refused in (older.rows, lambda: older.append([("C->D",)], {}), lambda: older.add_absent([("C->D",)], ["flow"])):
        with pytest.raises(RefusedError, match="version 2"):
            refused()
    assert commits(state) == written


def test_change_in_place_migrates_it_too(spark: SparkSession, state: str) -> None:
    StateTable(spark, state, SECOND).add_absent(given(("A->B", "present"), ("B->A", "absent")), ["flow"])
    assert notes(StateTable(spark, state, SECOND)) == [("A->B", None), ("B->A", "absent")]


def test_two_flows_of_a_driver_that_begin_at_once_migrate_it_once(spark: SparkSession, state: str) -> None:
    tables = [StateTable(spark, state, SECOND) for _ in range(4)]
    assert [notes(table) for table in tables] == [[("A->B", None)]] * 4  # each has seen the older columns
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: tables[number].append(given((f"B{number}->A", "new")), {}), range(4)))
    assert len(notes(tables[0])) == 5 and commits(state) == 1 + 1 + 4


@pytest.mark.parametrize("columns", [FIRST.columns[1:], (*FIRST.columns, Column("mine", "string", "by hand"))])
def test_table_that_no_release_wrote_is_refused_by_the_names_of_its_columns(
    spark: SparkSession, tmp_path: Path, columns: Tuple[Column, ...]
) -> None:
    rows = spark.range(1).selectExpr(*(f"cast(null as {each.type}) as {each.name}" for each in columns))
    rows.write.format("delta").save(str(tmp_path / "notes"))
    with pytest.raises(RefusedError, match="mine" if len(columns) > 2 else "flow") as refused:
        StateTable(spark, str(tmp_path), FIRST).rows()
    assert refused.value.exit_code == EXIT_REFUSED


@pytest.mark.parametrize("schema", [OFFSET_SYNCS, INCIDENTS, RUNS], ids=lambda schema: schema.name)
def test_each_column_of_a_new_table_carries_the_version_that_added_it(
    spark: SparkSession, tmp_path: Path, schema: TableSchema
) -> None:
    StateTable(spark, str(tmp_path), schema).make()
    (first, *_) = sorted((tmp_path / schema.name / "_delta_log").glob("*.json"))
    documents = [json.loads(line) for line in first.read_text().splitlines()]
    (metadata,) = [each["metaData"] for each in documents if "metaData" in each]
    found = {each["name"]: each["metadata"]["mirror.since"] for each in json.loads(metadata["schemaString"])["fields"]}
    assert found == {column.name: column.since for column in schema.columns}
