"""The Delta tables under `state:` on real Spark and Delta: appends, positions, voiding, runs, compaction."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import subprocess
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence, Tuple, cast

import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mirror_lib.config.client_options import RUNTIME
from mirror_lib.errors import StateError, VanishedError
from mirror_lib.facts import PREFIXED, AclBinding
from mirror_lib.ledger import compaction, delta_table
from mirror_lib.ledger import state_files as folders
from mirror_lib.ledger.compaction import Choice, LedgerCompaction
from mirror_lib.ledger.delta_table import StateTable, own_session
from mirror_lib.ledger.event_tables import TopicAclTable
from mirror_lib.ledger.intervals import PartitionMap
from mirror_lib.ledger.offset_syncs import STREAM, OffsetSyncTable
from mirror_lib.ledger.records import (
    LedgerRow,
    LogPosition,
    MirrorRun,
    PartitionKey,
    Position,
    Progress,
    RangePositions,
    TopicPair,
)
from mirror_lib.ledger.runs import RunTable
from mirror_lib.ledger.state_files import drop_folder, why_not_writable
from mirror_lib.ledger.tables import OFFSET_SYNCS
from mirror_lib.replication import journal as signs
from tests.lab.damage import without_checksum_files
from tests.lab.one_flow import until

pytestmark = pytest.mark.usefixtures("compiled_statements")

REPEATS = version("delta-spark").startswith("2.3.")
FLOW = "primary'->\\backup"
OTHER = "other->flow"
KEY = PartitionKey("source-id", "remote-id", "orders", 0)
RUN = MirrorRun("run-1", FLOW, 4, "exactly-once", "cluster-a", "cluster-b")


def row(upstream: int, downstream: int, count: int, partition: int = 0, source_id: str = "source-id") -> LedgerRow:
    return LedgerRow("orders", "primary.orders", partition, source_id, "remote-id", upstream, downstream, count)


class Ledger:
    """One driver's life at the ledger, and what readers hear of it."""

    def __init__(self, spark: SparkSession, state: str) -> None:
        self.spark = spark
        self.table = OffsetSyncTable(spark, state)
        self.compaction = LedgerCompaction(spark, state, FLOW)
        self.run_id = uuid.uuid4().hex

    def append(self, *rows: LedgerRow, flow: str = FLOW) -> None:
        self.table.append(flow, rows, run_id=self.run_id, query_id="q", batch_id=7)

    def append_tens(self, commits: int) -> None:
        """So many commits, each of ten more records of partition 0."""
        for number in range(commits):
            self.append(row(10 * number, 10 * number, 10))

    def runs(self, key: PartitionKey = KEY) -> List[Tuple[int, ...]]:
        return list(PartitionMap.of_flat(self.table.triples(FLOW)[key]))

    def rows(self) -> DataFrame:
        return self.spark.read.format("delta").load(self.table.path)

    def choice(self) -> Choice:
        found = self.compaction.due(2)
        assert found is not None
        return found

    def merge(self) -> None:
        self.compaction.merge(self.choice())

    def facts(self) -> Sequence[object]:
        """What a driver is given at its start, and a translator: the runs, or that the rows contradict each other."""
        said: Dict[PartitionKey, object] = {}
        for key in self.table.triples(FLOW):
            try:
                said[key] = self.runs(key)
            except StateError:
                said[key] = "contradiction"
        return self.table.positions(FLOW), said


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


@pytest.mark.long
def test_whole_table_is_read(spark: SparkSession, ledger: Ledger, state: str) -> None:
    """A merge, a delete and an update are counted as Delta counts them, and so is a log without Delta's checksums."""
    table = StateTable(spark, state, OFFSET_SYNCS)
    ledger.append_tens(4)
    assert table.version == 3 and StateTable(spark, f"{state}/none", OFFSET_SYNCS).version == -1
    table.change(lambda: table.delta().delete("upstream_offset = 0"))
    table.change(lambda: table.delta().update("upstream_offset = 10", {"batch_id": "8L"}))
    absent = (FLOW, "orders", "A.orders", 0, "source-id", "remote-id", 70, 70, 10, "run", "q", 7, None, None, None)
    table.add_absent([absent], ("upstream_offset",))
    table.drop_replaced_files()
    without_checksum_files(Path(state, "offset_syncs"))
    for _ in range(2):
        found = StateTable(spark, state, OFFSET_SYNCS).rows()
        assert found is not None
        assert sorted(each["upstream_offset"] for each in found.collect()) == [10, 20, 30, 70]
        assert OffsetSyncTable(spark, state).positions(FLOW)[KEY] == Position(80, 80)
        for path in Path(state, "offset_syncs", "_delta_log").glob("*.crc"):
            path.unlink()


def test_a_row_without_a_number_is_refused_with_the_tables_path(spark: SparkSession, ledger: Ledger) -> None:
    ledger.append_tens(2)
    spark.sql(f"UPDATE delta.`{ledger.table.path}` SET record_count = NULL WHERE upstream_offset = 10")
    with pytest.raises(StateError, match="offset_syncs"):
        ledger.table.triples(FLOW)


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

    second, new = replace(KEY, partition=1), replace(KEY, source_topic_id="of a re-created topic")
    assert ledger.table.positions(FLOW) == {KEY: Position(20, 14), second: Position(7, 7), new: Position(3, 503)}
    assert ledger.table.positions(odd) == {KEY: Position(99, 99)}
    runs = {key: ledger.runs(key) for key in ledger.table.triples(FLOW)}
    assert runs == {KEY: [(0, 1, 10), (12, 11, 3), (20, 14, 0)], second: [(0, 0, 7)], new: [(0, 500, 3)]}


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


# --- the ledger made small again: every reader hears what it heard before, at any moment --------------------------


def history(seed: int) -> List[List[LedgerRow]]:
    """Commits of a partition with gaps on both sides, positions, and a row that is stated twice."""
    chance = random.Random(seed)
    upstream = downstream = 0
    commits: List[List[LedgerRow]] = []
    for _ in range(6):
        rows: List[LedgerRow] = []
        for _ in range(8):
            upstream += chance.choice((0, 0, 0, 2))
            downstream += chance.choice((0, 0, 0, 1))
            count = chance.choice((0, 1, 5))
            rows.append(row(upstream, downstream, count))
            upstream, downstream = upstream + count, downstream + count
        commits.append(rows)
    commits[3].append(commits[2][-1])
    return commits


@pytest.mark.long
def test_a_ledger_in_fewer_rows_says_the_same_to_every_reader(ledger: Ledger) -> None:
    for number, rows in enumerate(history(seed=1)):
        again = row(10 * number, 10 * number, 10, partition=1)
        ledger.append(*rows, again, again, again)
    # The source was truncated and the topic re-created: rows that contradict each other, and the last word counts.
    ledger.append(row(0, 0, 100, 2), row(100, 100, 0, 2), row(0, 0, 9, 3))
    ledger.append(row(80, 100, 0, 2), row(0, 9, 4, 3, "new-id"))
    ledger.append(row(0, 0, 3), row(7, 5, 3), flow=OTHER)
    before, rows_before = ledger.facts(), ledger.rows().count()
    commits = DeltaTable.forPath(ledger.spark, ledger.table.path).history().count()
    ledger.merge()
    assert ledger.facts() == before
    assert DeltaTable.forPath(ledger.spark, ledger.table.path).history().count() == commits + 1
    assert ledger.table.positions(FLOW)[replace(KEY, partition=2)] == Position(80, 100)
    assert ledger.rows().count() < rows_before - 24
    assert len(ledger.rows().inputFiles()) == 2
    kept: Dict[str, object] = ledger.rows().where("partition = 1").collect()[0].asDict()
    assert (kept["upstream_offset"], kept["record_count"], kept["run_id"]) == (0, 60, ledger.run_id)
    assert ledger.rows().where(f"flow = '{OTHER}'").count() == 2


@contextlib.contextmanager
def listening(ledger: Ledger, folder: Path, heard: List[int]) -> Iterator[Any]:
    """A stream of the ledger, which adds what it hears to `heard`."""
    stream = ledger.table.stream(FLOW)
    assert stream is not None
    writer = stream.writeStream.foreachBatch(
        lambda batch, _: heard.extend(each["upstream_offset"] for each in batch.collect())
    )
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    try:
        query.processAllAvailable()
        yield query
    finally:
        query.stop()


@pytest.mark.long
def test_a_stream_survives_compactions_and_hears_each_row_once(ledger: Ledger, tmp_path: Path) -> None:
    """Delta 2.3 repeats what a compaction rewrote, which says the same: `test_translate_job` has the translation."""
    heard: List[int] = []
    ledger.append_tens(3)
    with listening(ledger, tmp_path, heard) as query:
        ledger.append(row(30, 30, 10))
        ledger.merge()
        ledger.append(row(40, 40, 10))
        query.processAllAvailable()
        ledger.merge()
        query.processAllAvailable()
    assert sorted(heard[:3]) == [0, 10, 20]
    assert heard[3:] == ([30, 0, 40, 0] if REPEATS else [30, 40])
    assert ledger.rows().count() == 1


@pytest.mark.long
def test_a_stream_without_its_options_fails_at_a_compaction(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("skipChangeCommits", "ignoreChanges"):
        monkeypatch.delitem(STREAM, name)
    ledger.append_tens(3)
    with listening(ledger, tmp_path, []) as query:
        ledger.append(row(30, 30, 10))
        ledger.merge()
        with pytest.raises(Exception, match=r"ignoreChanges|skipChangeCommits"):
            query.processAllAvailable()


@pytest.mark.long
def test_two_that_merge_and_one_that_writes_and_cuts_do_no_harm(ledger: Ledger) -> None:
    second = replace(KEY, partition=1)
    for number in range(4):
        ledger.append(row(10 * number, 10 * number, 10), row(20 * number, 10 * number, 10, partition=1))
    found = ledger.choice()
    refused: List[StateError] = []

    def merge() -> None:
        try:
            ledger.compaction.merge(found)
        except StateError as error:
            refused.append(error)

    threads = [threading.Thread(target=merge) for _ in range(2)]
    for thread in threads:
        thread.start()
    ledger.append(row(40, 40, 10))
    ledger.table.void_from(FLOW, second, 15)
    for thread in threads:
        thread.join()

    assert ledger.runs() == [(0, 0, 50)]
    assert ledger.table.positions(FLOW) == {KEY: Position(50, 50), second: Position(25, 15)}
    assert all("oncurrent" in str(error) for error in refused)


def range_rows(number: int) -> List[LedgerRow]:
    """What micro-batch n of a flow that repartitions records writes down: ten more records of each of two source
    partitions, which came into two remote partitions, with a marker behind them."""
    none, here, there = LedgerRow("orders", "keyed", -1, "s", "r", 0, 0, 0, -1, 0, 0), 10 * number, 11 * number + 7
    sources = [replace(none, partition=n, upstream_offset=here, upstream_until=here + 10) for n in (0, 1)]
    remote = replace(none, record_count=10, downstream_offset=there, downstream_until=there + 11)
    return [*sources, *(replace(remote, remote_partition=n) for n in (0, 1))]


@pytest.mark.long
def test_ranges_are_kept_beside_exact_runs_and_become_few(ledger: Ledger) -> None:
    begun = LedgerRow("orders", "keyed", 0, "s", "r", 0, 0, 0, -1, 0, 0)
    anchor = replace(begun, partition=-1, downstream_offset=7, downstream_until=7)
    anchors = [replace(anchor, remote_partition=n) for n in (0, 1)]
    assert ledger.table.range_positions(FLOW) == RangePositions()
    ledger.append(begun, replace(begun, partition=1), *anchors)
    first = ledger.table.range_positions(FLOW)
    assert first.sources == {("orders", n): LogPosition("s", 0) for n in (0, 1)}
    assert first.remotes == {("keyed", n): LogPosition("r", 7, 7) for n in (0, 1)}
    for number in range(4):
        ledger.append(*range_rows(number), row(10 * number, 10 * number, 10))
    # Another driver says some of it again, and a partition is added to the remote topic.
    ledger.append(*range_rows(1))
    ledger.append(replace(anchors[0], remote_partition=2))
    found = ledger.table.range_positions(FLOW)
    assert found.sources == {("orders", n): LogPosition("s", 40) for n in (0, 1)}
    assert found.remotes == {("keyed", n): LogPosition("r", at, 7) for n, at in enumerate((51, 51, 7))}
    assert (set(found.pairs), set(found.grown)) == ({TopicPair("orders", "s", "keyed", "r")}, {"keyed"})
    assert ledger.table.positions(FLOW) == {KEY: Position(40, 40)}
    assert list(ledger.table.triples(FLOW)) == [KEY]
    assert ledger.table.range_positions(OTHER) == RangePositions()
    ranges = ledger.rows().where("upstream_until is not null")
    before = ranges.agg(F.sum("record_count")).collect()
    ledger.merge()
    # Each partition has the row of its start, and one more where it moved.
    ranges = ledger.rows().where("upstream_until is not null")
    assert (ranges.count(), ranges.agg(F.sum("record_count")).collect()) == (9, before)
    assert ledger.table.range_positions(FLOW) == found
    assert ledger.table.positions(FLOW) == {KEY: Position(40, 40)}
    assert ledger.rows().where("upstream_until is null").count() == 1


# --- what is appended while the next cycle copies ----------------------------------------------------------------


def test_what_is_appended_beside_is_there_before_anything_else_is_written(
    spark: SparkSession, state: str, ledger: Ledger
) -> None:
    journal = signs.Journal(spark, state, FLOW, RUN.run_id, 30)
    found: List[int] = []
    for number in range(3):
        journal.append([row(number * 10, number * 10, 10)], in_background=True)
        journal.append([])  # which waits for nothing
        journal.forget_from(KEY, 10**6)  # which writes behind it
        found.append(ledger.table.positions(FLOW)[KEY].downstream_offset)
    assert found == [10, 20, 30]
    journal.append([row(30, 30, 5)], in_background=True)
    assert journal.history(KEY, 33) == (Position(0, 0), 33)


@pytest.mark.parametrize("next_call", ["append", "run_ends", "written"])
def test_failure_of_what_is_appended_beside_is_told_by_whatever_comes_next(
    spark: SparkSession, state: str, next_call: str
) -> None:
    Path(state).write_text("no folder")
    journal = signs.Journal(spark, state, FLOW, RUN.run_id, 30)
    journal.append([row(0, 0, 10)], in_background=True)
    calls = {
        "append": lambda: journal.append([row(10, 10, 10)], in_background=True),
        "run_ends": lambda: journal.run_ends(RUN, "ok", Progress(0, 0)),
        "written": journal.written,
    }
    with pytest.raises(StateError, match="offset_syncs"):
        calls[next_call]()
    assert not journal.wrote


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
