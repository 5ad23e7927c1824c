"""The audit table of group offsets, the SQL of docs/reference/tables.md, and tables of other releases: on real Spark
and Delta."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import pytest
from pyspark.sql import SparkSession

from mirror_lib.errors import EXIT_REFUSED, RefusedError, StateError
from mirror_lib.groups.moves import GroupMover
from mirror_lib.ledger.delta_table import StateTable
from mirror_lib.ledger.event_tables import EventTable
from mirror_lib.ledger.events import EVENT_COLUMNS
from mirror_lib.ledger.group_offsets import GroupOffsetTable, MoveCompaction
from mirror_lib.ledger.intervals import PartitionMap
from mirror_lib.ledger.offset_syncs import OffsetSyncTable
from mirror_lib.ledger.records import GroupOffset, Incident, LedgerRow, MirrorRun, PartitionKey
from mirror_lib.ledger.runs import RunTable
from mirror_lib.ledger.table_reader import TableReader
from mirror_lib.ledger.tables import Column, TableSchema
from tests.lab.checkout import ROOT
from tests.unit.offset_histories import Triple

pytestmark = pytest.mark.usefixtures("compiled_statements")

FLOW = "primary->backup"
KEY = PartitionKey("source-id", "remote-id", "orders", 0)
MOVE = GroupOffset(
    cluster="backup",
    group="billing",
    topic="primary.orders",
    partition=0,
    previous_offset=None,
    previous_metadata="",
    new_offset=90,
    metadata="by hand",
    from_topic="orders",
    from_offset=100,
    verdict="exact",
    action="commit",
)
PLACE = ("backup", "billing", "primary.orders", 0)


def moved(new: int, partition: int = 0) -> GroupOffset:
    return replace(MOVE, new_offset=new, partition=partition)


@pytest.fixture
def table(spark: SparkSession, state: str) -> GroupOffsetTable:
    return GroupOffsetTable(spark, state)


def ledger_rows(triples: Sequence[Triple], key: PartitionKey = KEY) -> List[LedgerRow]:
    topics = (key.source_topic, f"primary.{key.source_topic}", key.partition, key.source_topic_id, key.remote_topic_id)
    return [LedgerRow(*topics, up, down, count) for up, down, count in triples]


def ledger(spark: SparkSession, state: str, *commits: Sequence[LedgerRow], run_id: str = "run-1") -> OffsetSyncTable:
    table = OffsetSyncTable(spark, state)
    for rows in commits:
        table.append(FLOW, rows, run_id=run_id, query_id="", batch_id=-1)
    return table


@pytest.mark.long
def test_files_are_merged_and_old_rows_expire(spark: SparkSession, state: str, table: GroupOffsetTable) -> None:
    for number, move in enumerate([moved(1), moved(2), moved(3), moved(4), moved(7, 1), moved(8, 1)]):
        table.append(FLOW, [move], run_id="run-1", append_number=number)
    for number in range(2):
        table.append("another", [moved(9)], run_id="run-2", append_number=number)
    latest, compaction = table.latest(FLOW), MoveCompaction(spark, state, FLOW, 60)
    assert not compaction.tidy(50) and compaction.tidy(5) and not compaction.tidy(5)
    assert len(spark.read.format("delta").load(table.path).inputFiles()) == 1
    ages = "CASE new_offset WHEN 4 THEN 0 WHEN 7 THEN 50 WHEN 8 THEN 49.5 ELSE 40 - new_offset * 0.1 END"
    spark.sql(f"UPDATE delta.`{table.path}` SET at = at - make_dt_interval(0, 0, 0, 86400 * ({ages}))")
    for days, kept in ((60, [1, 2, 3, 4, 7, 8]), (30, [4, 7, 8])):
        MoveCompaction(spark, state, FLOW, days).expire()
        assert [move.new_offset for _, move in table.of_run("run-1")] == kept
        assert [move.new_offset for _, move in table.of_run("run-2")] == [9, 9]
        assert table.latest(FLOW) == latest


def test_a_move_comes_back_as_it_was_written_also_a_deletion(table: GroupOffsetTable) -> None:
    odd = "b\"y 'hand'\n\u00e9"
    undo = replace(MOVE, previous_offset=90, previous_metadata=odd, new_offset=None, action="rollback")
    table.append(FLOW, [MOVE, undo], run_id="run-1", append_number=0)
    assert table.of_run("run-1") == ((FLOW, MOVE), (FLOW, undo))
    assert table.latest(FLOW) == {PLACE: undo}


def test_last_move_of_a_partition_counts_whatever_the_clock_did_in_a_run(
    table: GroupOffsetTable, spark: SparkSession
) -> None:
    table.append(FLOW, [], run_id="run-z", append_number=0)
    assert (table.latest(FLOW), table.of_run("run-z")) == ({}, ())
    assert not Path(table.path).exists()
    table.append(FLOW, [moved(10), moved(5)], run_id="run-z", append_number=0)
    table.append(FLOW, [moved(7), moved(1, partition=1)], run_id="run-z", append_number=1)
    assert table.latest(FLOW) == {PLACE: moved(7), (*PLACE[:3], 1): moved(1, partition=1)}
    for number, move in enumerate((moved(3), moved(30, 2), moved(20, 2))):
        table.append(FLOW, [move], run_id="run-a", append_number=number)
    table.append("c->backup", [moved(3)], run_id="run-z", append_number=0)
    spark.sql(f"UPDATE delta.`{table.path}` SET at = at - INTERVAL 1 DAY WHERE new_offset = 20")
    others = {(*PLACE[:3], number): moved(offset, number) for number, offset in ((1, 1), (2, 20))}
    assert table.latest(FLOW) == {PLACE: moved(3), **others}
    assert table.latest("backup->primary") == {}
    assert [move.new_offset for _, move in table.of_run("run-a")] == [3, 30, 20]


def test_rows_after_an_append_that_failed_behind_its_commit_are_written_too(
    table: GroupOffsetTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second append had the first one's number and was taken for it: an offset was committed without a row."""
    silent: Any = SimpleNamespace(alias="backup", committed_offsets=lambda groups: {})  # so no offset is committed
    mover = GroupMover(table, FLOW, "run-1", silent)
    append = table.append

    def interrupted(*rows: object, **named: object) -> None:
        append(*rows, **named)  # type: ignore[arg-type]
        raise StateError("no answer")

    with monkeypatch.context() as patched, pytest.raises(StateError):
        patched.setattr(table, "append", interrupted)
        mover.move([moved(10)])
    mover.move([moved(11)])
    assert [move.new_offset for _, move in table.of_run("run-1")] == [10, 11]


def random_rows(seed: int) -> List[Triple]:
    """The rows of a true ledger: runs, gaps on both sides, positions, repeats and overlaps, in any order."""
    choose = random.Random(seed)
    rows, up, down = [], choose.randrange(5), choose.randrange(5)
    for _ in range(60):
        count = choose.choice([0, 1, 3, 8])
        rows.append((up, down, count))
        if count > 1 and choose.random() < 0.3:
            rows.append((up + 1, down + 1, choose.randrange(count)))
        up, down = up + count + choose.choice([0, 0, 2]), down + count + choose.choice([0, 0, 1])
    rows += choose.sample(rows, 10)
    choose.shuffle(rows)
    return rows


def sql_of_the_docs(state: str) -> List[str]:
    page = (ROOT / "docs" / "reference" / "tables.md").read_text(encoding="utf-8")
    return [block.replace("/mirror-state/", f"{state}/") for block in re.findall(r"```sql\n(.*?)```", page, re.S)]


def test_queries_of_the_docs_run_and_answer_for_each_remote_topic_also_of_a_truncated_source(
    spark: SparkSession, state: str, table: GroupOffsetTable
) -> None:
    """As where `rename` was changed: the ledger has rows of both for one source topic."""
    few = [replace(row, remote_topic="vip", remote_topic_id="vip-id") for row in ledger_rows([(0, 0, 1), (99, 1, 1)])]
    syncs = ledger(spark, state, ledger_rows([(0, 0, 100)]), few, ledger_rows([(80, 100, 0)]))
    RunTable(spark, state).started(MirrorRun("run-1", FLOW, 4, "exactly-once", "cluster-a", "cluster-b"))
    lost = [Incident("data lost", "orders", 0, 1, 2, "expired")]
    EventTable(spark, state).add_incidents(FLOW, lost, run_id="run-1", batch_id=0)
    table.append(FLOW, [moved(1), moved(2, partition=1)], run_id="0b54b8d0a1c44b6d9a3cf5d1c7c0d6e2", append_number=0)
    queries = sql_of_the_docs(state)
    assert len(queries) == 5
    assert all(spark.sql(query).count() > 0 for query in queries)
    (stands,), (join,) = ([query for query in queries if word in query] for word in ("AS next", "VALUES"))

    found = {row["remote_topic"]: row["next"] for row in spark.sql(stands).collect()}
    places = spark.sql(re.sub(r"VALUES .*? AS", "VALUES ('orders', 0, 50) AS", join)).collect()

    position = syncs.positions(FLOW)[KEY]
    assert (position.upstream_offset, position.downstream_offset) == (80, 100)
    ends = {name: (each["upstream"], each["downstream"]) for name, each in found.items()}
    assert ends == {"primary.orders": (80, 100), "vip": (100, 2)}
    assert {row["remote_topic"]: row["remote_offset"] for row in places} == {"primary.orders": 50, "vip": 1}
    assert len(places) == 2


def test_the_sql_join_of_the_docs_translates_as_the_mirror_does(spark: SparkSession, state: str) -> None:
    """Every offset of random ledgers, and one position on a topic that was re-created."""
    keys = {replace(KEY, partition=n): random_rows(n) for n in range(5)}
    old = replace(KEY, source_topic_id="old-id")
    ledger(spark, state, ledger_rows([(0, 900, 1000)], old))
    ledger(spark, state, [r for key, rows in keys.items() for r in ledger_rows(rows, key)], run_id="run-2")
    maps: Dict[int, PartitionMap] = {key.partition: PartitionMap.of(rows) for key, rows in keys.items()}
    wanted = [(n, offset) for n, one in maps.items() for offset in range(one.upstream_end + 3)]
    (query,) = [query for query in sql_of_the_docs(state) if "VALUES" in query]
    values = ", ".join(f"('orders', {n}, {offset})" for n, offset in wanted)

    found = spark.sql(re.sub(r"VALUES .*? AS", f"VALUES {values} AS", query)).collect()

    assert len(found) == len(wanted)
    for row in found:
        place = maps[row["partition"]].to_downstream(row["offset"])
        if place.kind == "beyond":
            assert row["remote_offset"] is None
        else:
            assert place.earliest <= row["remote_offset"] <= place.latest, (row, place)
        assert row["remote_topic"] == "primary.orders"


# --- tables that another release wrote: migrated in place where that was older, refused where it was newer -----------

FIRST = TableSchema("notes", "a note", (Column("flow", "string", "A->B"), Column("at", "timestamp", "")), stamp="at")
SECOND = replace(FIRST, columns=(*FIRST.columns, Column("reason", "string", "why", since=2)))


@pytest.fixture
def first(spark: SparkSession, tmp_path: Path) -> str:
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


@pytest.mark.long
@pytest.mark.parametrize("in_place", [False, True])
def test_older_table_is_read_as_it_is_and_migrated_by_the_first_write_which_refuses_the_older_release(
    spark: SparkSession, first: str, caplog: pytest.LogCaptureFixture, in_place: bool
) -> None:
    new = StateTable(spark, first, SECOND)
    assert notes(new) == [("A->B", None)] and commits(first) == 1
    if in_place:
        new.add_absent(given(("A->B", "present"), ("B->A", "because")), ["flow"])
    else:
        new.append(given(("B->A", "because")))
    assert notes(new) == [("A->B", None), ("B->A", "because")]
    assert notes(StateTable(spark, first, SECOND)) == notes(new)
    assert [each.levelname for each in caplog.records] == ["WARNING"] and "reason" in caplog.text
    written = commits(first)
    older = StateTable(spark, first, FIRST)
    for refused in (older.rows, lambda: older.append([("C->D",)]), lambda: older.add_absent([("C->D",)], ["flow"])):
        with pytest.raises(RefusedError, match="version 2"):
            refused()
    assert commits(first) == written


@pytest.mark.long
@pytest.mark.parametrize("columns", [FIRST.columns[1:], (*FIRST.columns, Column("mine", "string", "by hand"))])
def test_table_that_no_release_wrote_is_refused_by_the_names_of_its_columns(
    spark: SparkSession, tmp_path: Path, columns: Tuple[Column, ...]
) -> None:
    rows = spark.range(1).selectExpr(*(f"cast(null as {each.type}) as {each.name}" for each in columns))
    rows.write.format("delta").save(str(tmp_path / "notes"))
    with pytest.raises(RefusedError, match="mine" if len(columns) > 2 else "flow") as refused:
        StateTable(spark, str(tmp_path), FIRST).rows()
    assert refused.value.exit_code == EXIT_REFUSED


@pytest.mark.long
def test_folder_with_events_of_before_the_table_is_refused_by_what_writes_and_what_reads(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its take-overs and producer ids would be taken for none."""
    state = str(tmp_path)
    spark.sql("select 'A->B' flow, current_timestamp() at").write.format("delta").save(f"{state}/takeovers")
    reads: Sequence[Callable[[], object]] = (
        lambda: EventTable(spark, state).exists(),
        lambda: EventTable(spark, state).producer_ids("A->B"),
        lambda: EventTable(spark, state).add_producers("A->B", [(0, 1)], run_id="run"),
        lambda: TableReader(state).rows("events", EVENT_COLUMNS, "A->B"),
    )
    for read in reads:
        with pytest.raises(RefusedError) as refused:
            read()
        assert refused.value.code == "MIR-321"
