"""The Delta tables under `state:` on real Spark and Delta: appends, positions, voiding, runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Callable, Dict, List, Mapping, Tuple, cast

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from mirror_lib.config.client_options import RUNTIME
from mirror_lib.errors import VanishedError
from mirror_lib.facts import PREFIXED, AclBinding
from mirror_lib.ledger import compaction, delta_table
from mirror_lib.ledger import state_files as folders
from mirror_lib.ledger.delta_table import StateTable, own_session
from mirror_lib.ledger.event_tables import TopicAclTable
from mirror_lib.ledger.intervals import PartitionMap
from mirror_lib.ledger.offset_syncs import OffsetSyncTable
from mirror_lib.ledger.records import LedgerRow, MirrorRun, PartitionKey, Position, Progress
from mirror_lib.ledger.runs import RunTable
from mirror_lib.ledger.state_files import drop_folder, why_not_writable
from mirror_lib.ledger.tables import OFFSET_SYNCS
from mirror_lib.replication import journal as signs
from tests.lab.one_flow import until

pytestmark = pytest.mark.usefixtures("compiled_statements")

FLOW = "primary->backup"
KEY = PartitionKey("source-id", "remote-id", "orders", 0)
RUN = MirrorRun("run-1", FLOW, 4, "exactly-once", "cluster-a", "cluster-b")


def row(upstream: int, downstream: int, count: int, partition: int = 0, source_id: str = "source-id") -> LedgerRow:
    return LedgerRow("orders", "primary.orders", partition, source_id, "remote-id", upstream, downstream, count)


class Ledger:
    """One driver's life at the ledger."""

    def __init__(self, spark: SparkSession, state: str) -> None:
        self.table = OffsetSyncTable(spark, state)
        self.run_id = uuid.uuid4().hex

    def append(self, *rows: LedgerRow, flow: str = FLOW) -> None:
        self.table.append(flow, rows, run_id=self.run_id, query_id="q", batch_id=7)

    def runs(self, key: PartitionKey = KEY) -> List[Tuple[int, ...]]:
        return list(PartitionMap.of_flat(self.table.triples(FLOW)[key]))


@pytest.fixture(autouse=True)
def both_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read without Spark is what Spark reads."""

    def compared(read: Callable[..., object]) -> Callable[..., object]:
        def reading(*arguments: object) -> object:
            found = read(*arguments)
            if threading.current_thread() is not threading.main_thread():
                return found  # another thread may write meanwhile
            with monkeypatch.context() as patched:
                patched.setattr(delta_table, "LARGE_TABLE", -1)
                assert read(*arguments) == found
            return found

        return reading

    for owner, name in ((OffsetSyncTable, "positions"), (RunTable, "latest_with_end"), (RunTable, "open_runs")):
        monkeypatch.setattr(owner, name, compared(getattr(owner, name)))


@pytest.fixture
def state(tmp_path: Path) -> str:
    return str(tmp_path / "state")


@pytest.fixture
def ledger(spark: SparkSession, state: str) -> Ledger:
    return Ledger(spark, state)


def test_table_that_was_made_empty_is_whole_also_where_delta_writes_no_checksums(
    spark: SparkSession, state: str
) -> None:
    """Spark counts a file without rows, which Delta leaves out of the commit. Delta 2.3 has nothing else to go by."""
    StateTable(spark, state, OFFSET_SYNCS).make()
    for path in Path(state, "offset_syncs", "_delta_log").glob("*.crc"):
        path.unlink()
    assert OffsetSyncTable(spark, state).positions(FLOW) == {}


def test_a_ledger_that_was_never_written_is_empty_and_stays_absent(ledger: Ledger) -> None:
    ledger.append()

    assert ledger.table.positions(FLOW) == {}
    assert ledger.table.triples(FLOW) == {}
    assert ledger.table.history(FLOW, KEY, 5) is None
    ledger.table.void_from(FLOW, KEY, 5)
    assert not Path(ledger.table.path).exists()


def test_positions_are_the_ends_of_what_ends_last_downstream_for_each_flow_topic_and_partition(
    spark: SparkSession, ledger: Ledger, state: str
) -> None:
    odd = "a'b\"\\->c\n\u00e9"
    ledger.append(row(0, 1, 10), row(0, 0, 7, partition=1))
    # A new driver appends other rows under the same batch id.
    Ledger(spark, state).append(row(12, 11, 3), row(20, 14, 0), row(0, 500, 3, source_id="of a re-created topic"))
    ledger.append(row(0, 0, 99), flow=odd)

    new = replace(KEY, source_topic_id="of a re-created topic")
    assert ledger.table.positions(FLOW) == {
        KEY: Position(20, 14),
        replace(KEY, partition=1): Position(7, 7),
        new: Position(3, 503),
    }
    assert ledger.table.positions(odd) == {KEY: Position(99, 99)}
    assert ledger.runs(new) == [(0, 500, 3)]


def protocol(folder: Path) -> Dict[str, object]:
    """What a reader and a writer of the table have to know, from the table's first commit."""
    first = folder / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in first.read_text(encoding="utf-8").splitlines()]
    (found,) = [action["protocol"] for action in actions if "protocol" in action]
    return dict(found)


def test_every_reader_can_read_a_table_that_a_session_with_other_defaults_made(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The session has the defaults of a platform whose new tables older readers refuse."""
    session = spark.newSession()
    defaults = {"columnMapping.mode": "name", "minReaderVersion": "2", "minWriterVersion": "5"}
    if spark.version >= "3.5":  # older ones write no deletion vectors
        defaults = {"enableDeletionVectors": "true", "checkpointPolicy": "v2", "feature.deletionVectors": "supported"}
    for name, value in defaults.items():
        session.conf.set(f"spark.databricks.delta.properties.defaults.{name}", value)
    session.range(1).write.format("delta").save(str(tmp_path / "plain"))
    assert protocol(tmp_path / "plain")["minReaderVersion"] == (3 if spark.version >= "3.5" else 2)

    ledger = Ledger(session, str(tmp_path / "state"))
    ledger.append(row(0, 0, 5), row(5, 5, 5))
    assert protocol(Path(ledger.table.path)) == {"minReaderVersion": 1, "minWriterVersion": 2}
    # An append is one file, and columns have comments.
    table = spark.read.format("delta").load(ledger.table.path)
    assert len(table.inputFiles()) == 1 and all(field.metadata["comment"] for field in table.schema.fields)
    assert table.where("committed_at > current_timestamp() - interval 1 hour").count() == 2
    ledger.append(row(10, 10, 5))
    assert ledger.table.positions(FLOW)[KEY] == Position(15, 15)


def test_folder_that_cannot_be_deleted_is_a_warning_and_databricks_folders_need_no_file_system_of_hadoop(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where Unity Catalog gives Hadoop's FileSystem no credentials. A stand-in takes the place of `dbutils`, which
    only a Databricks cluster has."""
    (tmp_path / "there" / "inner").mkdir(parents=True)
    for name in ("there", "absent"):
        drop_folder(spark, str(tmp_path / name))
    assert not (tmp_path / "there").exists() and not caplog.records
    drop_folder(spark, "nosuchscheme://here/checkpoints/1")
    (warned,) = caplog.records
    assert warned.levelname == "WARNING" and "nosuchscheme://here/checkpoints/1" in warned.getMessage()
    caplog.clear()

    class DBUtils:
        def __init__(self, session: SparkSession) -> None:
            self.fs = SimpleNamespace(rm=lambda path, recurse: shutil.rmtree(path) if recurse else None)

    def forbidden(*_: object) -> Any:
        raise RuntimeError("Invalid configuration value detected for fs.azure.account.key")

    monkeypatch.setattr(folders, "hadoop_folder", forbidden)
    assert why_not_writable(spark, str(tmp_path)) is None
    assert [path.name for path in tmp_path.iterdir()] and len(caplog.records) == 1  # elsewhere it is needed
    shutil.rmtree(tmp_path)
    monkeypatch.setenv(RUNTIME, "16.4")
    monkeypatch.setitem(sys.modules, "pyspark.dbutils", cast(ModuleType, SimpleNamespace(DBUtils=DBUtils)))
    assert why_not_writable(spark, str(tmp_path)) is None
    assert not list(tmp_path.iterdir()) and len(caplog.records) == 1


def test_a_table_is_seen_that_was_looked_for_before_its_first_commit(spark: SparkSession, tmp_path: Path) -> None:
    """Another driver makes it: for a moment it is a folder with an empty log."""
    Ledger(spark, str(tmp_path / "other")).append(row(0, 0, 10))
    state = tmp_path / "state"
    (state / "offset_syncs" / "_delta_log").mkdir(parents=True)
    assert OffsetSyncTable(spark, str(state)).positions(FLOW) == {}
    shutil.copytree(tmp_path / "other" / "offset_syncs", state / "offset_syncs", dirs_exist_ok=True)
    assert OffsetSyncTable(spark, str(state)).positions(FLOW) == {KEY: Position(10, 10)}


def test_runs_come_merged_and_in_order_and_a_lost_tail_starts_at_the_first_record_that_is_gone(ledger: Ledger) -> None:
    ledger.append(row(15, 12, 2), row(0, 1, 5))
    ledger.append(row(17, 14, 3), row(5, 6, 5))

    assert ledger.runs() == [(0, 1, 10), (15, 12, 5)]
    found = [ledger.table.history(FLOW, KEY, offset) for offset in (0, 1, 4, 10, 11, 12, 14, 17, 99)]
    assert found == [(Position(0, 1), upstream) for upstream in (0, 0, 3, 9, 15, 15, 17, 20, 20)]


def test_voiding_cuts_the_run_it_meets_and_forgets_what_lies_beyond_in_one_commit(
    ledger: Ledger, spark: SparkSession
) -> None:
    other, skipping = row(0, 0, 100, partition=1), "spark.databricks.delta.stats.skipping"
    ledger.append(row(0, 0, 10), row(12, 10, 10), row(30, 20, 5), row(40, 25, 0), other)
    # Settings for the tables reach no other query.
    assert (own_session(spark).conf.get(skipping), spark.conf.get(skipping, "true")) == ("false", "true")
    assert own_session(spark) is own_session(spark)

    ledger.table.void_from(FLOW, KEY, 14)

    assert DeltaTable.forPath(spark, ledger.table.path).history().count() == 1 + 1
    assert ledger.runs() == [(0, 0, 10), (12, 10, 4)]
    assert ledger.table.positions(FLOW)[KEY] == Position(16, 14)
    assert ledger.table.positions(FLOW)[other.key] == Position(100, 100)


def test_two_drivers_that_begin_with_a_partition_begin_at_one_place(spark: SparkSession, state: str) -> None:
    ledgers = {number: Ledger(spark, state) for number in (100, 150)}
    other = row(0, 0, 5, partition=9)
    ledgers[100].append(other)
    begun: Dict[int, Mapping[PartitionKey, Position]] = {}

    def begin(upstream: int) -> None:
        rows = [row(upstream, 0, 0), row(7, 3, 0, partition=upstream)]
        begun[upstream] = ledgers[upstream].table.begin(FLOW, rows, run_id="run", query_id="", batch_id=-1)

    with ThreadPoolExecutor() as drivers:
        list(drivers.map(begin, ledgers))

    assert begun[100][KEY] == begun[150][KEY] in (Position(100, 0), Position(150, 0))
    standing = ledgers[100].table.positions(FLOW)
    assert standing[KEY] == begun[100][KEY]
    assert [standing[row(0, 0, 0, partition).key] for partition in ledgers] == [Position(7, 3)] * 2
    assert standing[other.key] == Position(5, 5)


def test_a_run_is_a_row_at_its_start_and_one_at_its_end_and_files_of_many_runs_are_merged(
    spark: SparkSession, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def files() -> int:
        return len(spark.read.format("delta").load(f"{state}/runs").inputFiles())

    table = RunTable(spark, state)
    assert table.latest(FLOW) is None and table.latest_with_end(FLOW) == (None, False)
    first, second = RUN, replace(RUN, run_id="run-2")

    table.started(first)
    assert table.latest_with_end(FLOW) == (first, False)
    table.ended(first, "ok", Progress(10, 1000))
    assert table.latest_with_end(FLOW) == (first, True)
    table.started(second)

    assert table.latest(FLOW) == second
    assert table.latest_with_end(FLOW) == (second, False)
    rows = spark.read.format("delta").load(f"{state}/runs").orderBy("at").collect()
    assert [(r.run_id, r.kind, r.outcome, r.records) for r in rows] == [
        ("run-1", "started", None, None),
        ("run-1", "ended", "ok", 10),
        ("run-2", "started", None, None),
    ]
    table.ended(second, "a partition stopped", Progress(0, 0))
    table.merge_files()
    assert files() == 4
    monkeypatch.setattr(compaction, "FILES_TO_MERGE", 3)
    table.merge_files()
    assert files() == 1
    assert table.latest_with_end(FLOW) == (second, False)
    assert table.latest_with_end("another->flow") == (None, False)


@pytest.mark.long
def test_run_is_under_way_while_it_gives_signs_of_life(
    spark: SparkSession, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = RunTable(spark, state)
    run = RUN
    of_other = replace(run, flow="another->flow")
    assert table.open_runs([FLOW]) == []
    for each in (run, of_other):
        table.started(each)
        table.alive(each, Progress(5, 50))
    delta = DeltaTable.forPath(spark, f"{state}/runs")
    delta.update(set={"at": F.expr("date_trunc('hour', at) - interval 2 hours + interval 30 minutes")})
    assert table.open_runs([FLOW]) == []

    monkeypatch.setattr(signs, "SIGN_SECONDS", 0.1)
    journal = signs.Journal(spark, state, FLOW, run.run_id, 30)
    journal.run_begins(run, True, lambda: Progress(7, 70, 3, 1.5))
    until(lambda: delta.toDF().where("kind = 'alive' and records = 7").count() > 0)
    journal.stalled()
    (found,) = table.open_runs([FLOW, "another->flow"])
    assert (found.flow, found.run_id) == (FLOW, "run-1") and found.last_sign - found.started > 5000

    table.drop_old_signs(FLOW, 30)
    rows = {(row.flow, row.kind) for row in delta.toDF().where("at < current_timestamp() - interval 1 hour").collect()}
    assert rows == {(FLOW, "started"), ("another->flow", "started"), ("another->flow", "alive")}
    assert table.open_runs([FLOW]) and table.latest_with_end(FLOW) == (run, False)
    table.ended(run, "ok", Progress(0, 0))
    assert table.open_runs([FLOW]) == []


def test_table_that_was_used_and_is_gone_is_not_created_again(
    spark: SparkSession, state: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = signs.Journal(spark, state, FLOW, RUN.run_id, 30)
    ledger.append(row(0, 0, 5))
    kept = Path(state).rename(f"{state}.kept")
    for use in (lambda: ledger.append(row(5, 5, 5)), lambda: ledger.table.positions(FLOW)):
        with pytest.raises(VanishedError):
            use()
    assert not Path(state).exists()
    kept.rename(state)
    ledger.append(row(5, 5, 5))
    assert ledger.runs() == [(0, 0, 10)]
    # A run without a record to copy finds out by its next sign of life. Until then it is none of its errors.
    monkeypatch.setattr(signs, "SIGN_SECONDS", 2.0)
    journal.run_begins(RUN, True, lambda: Progress(0, 0))
    journal.check()
    Path(state).rename(kept)

    def vanished() -> bool:
        try:
            journal.check()
        except VanishedError:
            return True
        return False

    until(vanished)
    assert not Path(state).exists()


def test_flow_knows_the_acls_that_it_created_and_did_not_give_up(spark: SparkSession, state: str) -> None:
    table = TopicAclTable(spark, state)
    kept, given_up, back = (AclBinding(name, PREFIXED, "User:a", "*", "READ", "ALLOW") for name in ("A.", "A.b", "A.c"))
    assert table.made(FLOW) == frozenset()

    table.created(FLOW, [kept, given_up, back])
    table.given_up(FLOW, [given_up, back])
    table.created(FLOW, [back])
    table.created("backup->primary", [given_up])

    assert table.made(FLOW) == {kept, back}


SIDE_BY_SIDE = """
import os, sys, threading
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from mirror_lib.ledger.reductions import last_rows

rows = pa.table({"place": [n % 50 for n in range(3000)], "at": list(range(3000)), "end": list(range(3000))})
for first in range(0, 1000, 100):
    write_deltalake(sys.argv[1], rows.slice(first, 100), mode="append")
over = threading.Event()

def read():
    while not over.is_set():
        DeltaTable(sys.argv[1]).to_pyarrow_table()

reader = threading.Thread(target=read)
reader.start()
for _ in range(300):
    assert last_rows(rows, ["place"], "at", "end").num_rows == 50
over.set()
reader.join()
os._exit(0)  # threads of the table's writer may abort the interpreter as it ends
"""


def test_positions_are_reduced_beside_a_read_of_another_table(tmp_path: Path) -> None:
    """pyarrow 11 stood still here for ever, with the lock of Python's interpreter."""
    command = [sys.executable, "-c", SIDE_BY_SIDE, str(tmp_path / "table")]
    assert subprocess.run(command, timeout=120, check=False).returncode == 0
