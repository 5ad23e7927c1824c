"""Tables that another release wrote: read and migrated in place where that was older, refused where it was newer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

import pytest
from pyspark.sql import SparkSession

from mirror_lib.errors import EXIT_REFUSED, RefusedError, StateError
from mirror_lib.facts import TopicPartition
from mirror_lib.ledger import delta_table
from mirror_lib.ledger.delta_table import StateTable
from mirror_lib.ledger.event_tables import EventTable
from mirror_lib.ledger.events import EVENT_COLUMNS, facts_of, incidents
from mirror_lib.ledger.records import VERIFIED, CutoverStep, LeftOut, PartitionKey
from mirror_lib.ledger.table_reader import TableReader
from mirror_lib.ledger.tables import Column, TableSchema

pytestmark = pytest.mark.long

FIRST = TableSchema("notes", "a note", (Column("flow", "string", "A->B"), Column("at", "timestamp", "")), stamp="at")
SECOND = replace(FIRST, columns=(*FIRST.columns, Column("reason", "string", "why", since=2)))


@pytest.fixture
def state(spark: SparkSession, tmp_path: Path) -> str:
    """A state folder whose table the first release wrote."""
    StateTable(spark, str(tmp_path), FIRST).append([("A->B",)])
    return str(tmp_path)


def commits(state: str) -> int:
    return len(list(Path(state, "notes", "_delta_log").glob("*.json")))


def notes(table: StateTable) -> List[Tuple[str, Optional[str]]]:
    rows = table.rows()
    assert rows is not None
    return sorted((row["flow"], row["reason"]) for row in rows.collect())


def given(*notes: Tuple[str, str]) -> Sequence[Tuple[object, ...]]:
    return notes


@pytest.mark.parametrize("in_place", [False, True])
def test_older_table_is_read_as_it_is_and_migrated_by_the_first_write_which_refuses_the_older_release(
    spark: SparkSession, state: str, caplog: pytest.LogCaptureFixture, in_place: bool
) -> None:
    new = StateTable(spark, state, SECOND)
    assert notes(new) == [("A->B", None)] and commits(state) == 1
    if in_place:
        new.add_absent(given(("A->B", "present"), ("B->A", "because")), ["flow"])
    else:
        new.append(given(("B->A", "because")))
    assert notes(new) == [("A->B", None), ("B->A", "because")]
    assert notes(StateTable(spark, state, SECOND)) == notes(new)
    assert [each.levelname for each in caplog.records] == ["WARNING"] and "reason" in caplog.text
    written = commits(state)
    older = StateTable(spark, state, FIRST)
    for refused in (older.rows, lambda: older.append([("C->D",)]), lambda: older.add_absent([("C->D",)], ["flow"])):
        with pytest.raises(RefusedError, match="version 2"):
            refused()
    assert commits(state) == written


@pytest.mark.parametrize("columns", [FIRST.columns[1:], (*FIRST.columns, Column("mine", "string", "by hand"))])
def test_table_that_no_release_wrote_is_refused_by_the_names_of_its_columns(
    spark: SparkSession, tmp_path: Path, columns: Tuple[Column, ...]
) -> None:
    rows = spark.range(1).selectExpr(*(f"cast(null as {each.type}) as {each.name}" for each in columns))
    rows.write.format("delta").save(str(tmp_path / "notes"))
    with pytest.raises(RefusedError, match="mine" if len(columns) > 2 else "flow") as refused:
        StateTable(spark, str(tmp_path), FIRST).rows()
    assert refused.value.exit_code == EXIT_REFUSED


FLOW = "A->B"
# The tables that `events` replaced, as the release before it made them, with a row of each.
EARLIER: Dict[str, Tuple[str, Tuple[object, ...]]] = {
    "incidents": (
        "flow string, run_id string, batch_id bigint, kind string, topic string, partition int, from_offset bigint, "
        "until_offset bigint, reason string",
        (FLOW, "run", 5, "offsets skipped", "orders", 1, 7, 9, "refused"),
    ),
    "takeovers": (
        "flow string, source_topic string, remote_topic string, partition int, source_topic_id string, "
        "remote_topic_id string, taken_from string, kept_offset bigint, upstream_offset bigint, "
        "downstream_offset bigint, tail_records bigint, doubled_records bigint, older_records boolean, run_id string",
        (FLOW, "orders", "A.orders", 3, "source-id", "remote-id", "group mm1", -1, 40, 27, 7, 1, True, "run"),
    ),
    "lane_producers": ("flow string, lane int, producer_id bigint, run_id string", (FLOW, 2, 1234, "run")),
    "verifications": (
        "flow string, verdict string, topics int, records bigint, differing int, first_difference string, scope string",
        (FLOW, "equal", 1, 100, 0, None, "whole"),
    ),
    "cutovers": (
        "flow string, cutover_id string, direction string, step string, status string, detail string, facts string",
        (FLOW, "one", "over", "fence", "done", "fenced", '[["orders"]]'),
    ),
}


def earlier(name: str) -> TableSchema:
    columns = (each.split() for each in f"{EARLIER[name][0]}, at timestamp".split(", "))
    return TableSchema(name, "as it was", tuple(Column(own, kind, "as it was") for own, kind in columns))


@pytest.fixture
def before(spark: SparkSession, tmp_path: Path) -> str:
    """A state folder of the release before `events`."""
    for name, (_, row) in EARLIER.items():
        StateTable(spark, str(tmp_path), earlier(name)).append([row])
    return str(tmp_path)


def assert_migrated(spark: SparkSession, state: str) -> None:
    table = EventTable(spark, state)
    assert table.incomplete(FLOW) == {PartitionKey("source-id", "remote-id", "orders", 3)}
    assert table.producer_ids(FLOW) == {2: frozenset([1234])}
    assert table.cutover_steps(FLOW) == [CutoverStep(FLOW, "one", "over", "fence", "done", "fenced", '[["orders"]]')]
    skipped: TopicPartition = ("orders", 1)
    assert table.left_out(FLOW) == {skipped: LeftOut(2, ((7, 9),))}
    rows = TableReader(state).rows("events", EVENT_COLUMNS, FLOW)
    assert len(rows) == len(EARLIER)
    assert [row["reason"] for row in incidents(rows)] == ["refused"]
    assert [(row["verdict"], row["records"]) for row in facts_of(rows, VERIFIED)] == [("equal", 100)]


def test_events_have_the_rows_of_the_tables_that_they_replaced_also_after_a_migration_that_died(
    spark: SparkSession, before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(StateTable, "_described", lambda *_: 1 / 0)
        with pytest.raises(StateError):
            EventTable(spark, before).migrate()
    EventTable(spark, before).migrate()
    assert_migrated(spark, before)
    for name in EARLIER:
        with pytest.raises(RefusedError, match="version 2"):
            StateTable(spark, before, earlier(name)).rows()


def test_two_drivers_that_begin_at_once_migrate_once(
    spark: SparkSession, before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = []
    for _ in range(4):  # each with locks of its own
        monkeypatch.setattr(delta_table, "_CREATION", {})
        tables.append(EventTable(spark, before))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: tables[number].add_producers("B->A", [(0, number)], run_id="run"), range(4)))
    assert_migrated(spark, before)
    assert EventTable(spark, before).producer_ids("B->A") == {0: frozenset(range(4))}
