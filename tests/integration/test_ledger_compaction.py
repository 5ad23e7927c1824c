"""The ledger made small again, on real Spark and Delta: every reader hears what it heard before, at any moment."""

from __future__ import annotations

import random
import threading
import uuid
from dataclasses import astuple
from importlib.metadata import version
from pathlib import Path
from typing import Any, Dict, Iterable, List, Sequence

import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from mirror_lib.errors import StateError
from mirror_lib.state.compaction import Choice, LedgerCompaction
from mirror_lib.state.ledger_stream import CHANGES, LedgerStream
from mirror_lib.state.offset_syncs import OFFSET_SYNCS, OffsetSyncTable
from mirror_lib.state.pass_thinning import PassThinning
from mirror_lib.state.records import LedgerRow, PartitionKey, Position
from mirror_lib.state.row_passes import ELSEWHERE, REMOTE, ROW_PASSES, SOURCE, PassRow, RowPass, RowPassTable
from mirror_lib.state.tables import KEPT_COMMITS, StateTable
from mirror_lib.translate.placed_history import PassHistory
from tests.lab.crash import driver
from tests.lab.one_flow import until
from tests.unit.test_placed_groups import merged

pytestmark = pytest.mark.usefixtures("compiled_statements")

REPEATS = version("delta-spark").startswith("2.3.")
FLOW = "primary'->\\backup"
OTHER = "other->flow"
# As if the rows were many: a file for each partition, so that there is a middle to die in.
MERGE = """
import sys
from dataclasses import replace
from mirror_lib.session import open_session
from mirror_lib.state.compaction import ROWS_TO_A_FILE, LedgerCompaction
compaction = LedgerCompaction(open_session("merge"), *sys.argv[1:])
compaction.merge(replace(compaction.due(2), rows=200 * ROWS_TO_A_FILE))
"""


class Ledger:
    """One driver's life at the ledger, and what readers hear of it."""

    def __init__(self, spark: SparkSession, state: str) -> None:
        self.spark = spark
        self.table = OffsetSyncTable(spark, state)
        self.compaction = LedgerCompaction(spark, state, FLOW)
        self.run_id = uuid.uuid4().hex
        self.appends = 0

    def append(self, *rows: LedgerRow, flow: str = FLOW) -> None:
        self.table.append(flow, rows, run_id=self.run_id, append_number=self.appends, query_id="q", batch_id=0)
        self.appends += 1

    def choice(self) -> Choice:
        found = self.compaction.due(2)
        assert found is not None
        return found

    def merge(self) -> None:
        self.compaction.merge(self.choice())

    def facts(self) -> Sequence[object]:
        """What a driver hears at its start, and a translator."""
        return self.table.positions(FLOW), self.table.triples(FLOW)

    def rows(self) -> DataFrame:
        return self.spark.read.format("delta").load(self.table.path)


@pytest.fixture
def ledger(spark: SparkSession, tmp_path: Path) -> Ledger:
    return Ledger(spark, str(tmp_path / "state"))


def row(partition: int, upstream: int, downstream: int, count: int, source_id: str = "id") -> LedgerRow:
    return LedgerRow("orders", "primary.orders", partition, source_id, "remote-id", upstream, downstream, count)


def key(partition: int) -> PartitionKey:
    return PartitionKey("id", "remote-id", "orders", partition)


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
            rows.append(row(0, upstream, downstream, count))
            upstream, downstream = upstream + count, downstream + count
        commits.append(rows)
    commits[3].append(commits[2][-1])
    return commits


def test_a_ledger_in_fewer_rows_says_the_same_to_every_reader(ledger: Ledger) -> None:
    for number, rows in enumerate(history(seed=1)):
        again = row(1, 10 * number, 10 * number, 10)
        ledger.append(*rows, again, again, again)
    # The source was truncated and the topic created anew: rows that contradict each other, and the last word counts.
    ledger.append(row(2, 0, 0, 100), row(2, 100, 100, 0), row(3, 0, 0, 9))
    ledger.append(row(2, 80, 100, 0), row(3, 0, 9, 4, source_id="new-id"))
    ledger.append(row(0, 0, 0, 3), row(0, 7, 5, 3), flow=OTHER)
    before, rows_before = ledger.facts(), ledger.rows().count()

    ledger.merge()

    assert ledger.facts() == before
    assert ledger.table.positions(FLOW)[key(2)] == Position(80, 100)
    assert ledger.rows().count() < rows_before - 24
    assert len(ledger.rows().inputFiles()) == 2
    kept: Dict[str, object] = ledger.rows().where("partition = 1").collect()[0].asDict()
    assert (kept["upstream_offset"], kept["record_count"], kept["run_id"]) == (0, 60, ledger.run_id)
    assert ledger.rows().where(f"flow = '{OTHER}'").count() == 2


def test_merging_is_one_commit_and_rows_that_came_meanwhile_stay(ledger: Ledger) -> None:
    for number in range(3):
        ledger.append(row(0, 10 * number, 10 * number, 10))
    found = ledger.choice()
    ledger.append(row(0, 30, 30, 10))
    ledger.append(row(0, 50, 40, 10))
    ledger.table.void_from(FLOW, key(0), 45)
    commits = DeltaTable.forPath(ledger.spark, ledger.table.path).history().count()

    ledger.compaction.merge(found)

    assert [(sync.upstream_offset, sync.record_count) for sync in ledger.table.runs(FLOW, "orders", 0)] == [
        (0, 40),
        (50, 5),
    ]
    assert DeltaTable.forPath(ledger.spark, ledger.table.path).history().count() == commits + 1


def test_a_stream_survives_compactions_and_hears_each_row_once(
    ledger: Ledger, spark: SparkSession, tmp_path: Path
) -> None:
    """Delta 2.3 repeats what a compaction rewrote, which says the same: `test_translate_job` has the translation."""
    heard: List[int] = []
    for number in range(3):
        ledger.append(row(0, 10 * number, 10 * number, 10))
    stream = LedgerStream(spark, str(tmp_path / "state")).added(FLOW)
    writer = stream.writeStream.foreachBatch(
        lambda batch, _: heard.extend(each["upstream_offset"] for each in batch.collect())
    )
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        ledger.append(row(0, 30, 30, 10))
        ledger.merge()
        ledger.append(row(0, 40, 40, 10))
        query.processAllAvailable()
        ledger.merge()
        query.processAllAvailable()
    finally:
        query.stop()

    assert heard == ([30, 0, 40, 0] if REPEATS else [30, 40])
    assert ledger.rows().count() == 1


def test_a_stream_without_its_options_fails_at_a_compaction(
    ledger: Ledger, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("skipChangeCommits", "ignoreChanges"):
        monkeypatch.delitem(CHANGES, name)
    for number in range(3):
        ledger.append(row(0, 10 * number, 10 * number, 10))
    stream = LedgerStream(spark, str(tmp_path / "state")).added(FLOW)
    writer = stream.writeStream.foreachBatch(lambda batch, _: None)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        ledger.append(row(0, 30, 30, 10))
        ledger.merge()
        with pytest.raises(Exception, match=r"ignoreChanges|skipChangeCommits"):
            query.processAllAvailable()
    finally:
        query.stop()


@pytest.mark.long
def test_a_log_is_shortened_only_where_the_table_has_the_property_and_the_table_stays_the_same(
    ledger: Ledger, spark: SparkSession
) -> None:
    jvm: Any = spark._jvm
    delta_log = jvm.org.apache.spark.sql.delta.DeltaLog
    for number in range(6):
        ledger.append(row(0, 10 * number, 10 * number, 10))
        if number in (2, 4):
            delta_log.forTable(spark._jsparkSession, ledger.table.path).checkpoint()
    before, folder = ledger.facts(), Path(ledger.table.path)
    table = StateTable(spark, str(folder.parent), OFFSET_SYNCS)

    def versions() -> List[int]:
        return sorted({int(path.name[:20]) for path in folder.glob("_delta_log/0*")})

    table.shorten_log()
    assert versions() == [0, 1, 2, 3, 4, 5]
    spark.sql(f"ALTER TABLE delta.`{folder}` SET TBLPROPERTIES ('{KEPT_COMMITS}' = '2')")
    table.shorten_log()
    assert versions() == [2, 3, 4, 5, 6]
    delta_log.clearCache()
    assert ledger.facts() == before
    ledger.append(row(0, 60, 60, 10))
    ledger.merge()
    assert ledger.table.positions(FLOW) == {key(0): Position(70, 70)}

    spark.sql(f"ALTER TABLE delta.`{folder}` UNSET TBLPROPERTIES ('{KEPT_COMMITS}')")
    delta_log.forTable(spark._jsparkSession, ledger.table.path).checkpoint()
    table.shorten_log()
    assert versions()[0] == 2


@pytest.mark.long
def test_cleaning_takes_a_few_tasks_as_a_commit_that_comes_then_waits_for_them(
    ledger: Ledger, spark: SparkSession
) -> None:
    for number in range(3):
        ledger.append(row(0, 10 * number, 10 * number, 10))
    ledger.merge()
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup(None))
    StateTable(spark, str(Path(ledger.table.path).parent), OFFSET_SYNCS).drop_replaced_files()
    jobs = [tracker.getJobInfo(number) for number in set(tracker.getJobIdsForGroup(None)) - before]
    stages = [tracker.getStageInfo(number) for job in jobs if job is not None for number in job.stageIds]
    tasks = [stage.numTasks for stage in stages if stage is not None]
    assert tasks and max(tasks) < 20
    assert ledger.table.positions(FLOW)


def test_two_that_merge_and_one_that_writes_and_cuts_do_no_harm(ledger: Ledger) -> None:
    for number in range(4):
        ledger.append(row(0, 10 * number, 10 * number, 10), row(1, 20 * number, 10 * number, 10))
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
    ledger.append(row(0, 40, 40, 10))
    ledger.table.void_from(FLOW, key(1), 15)
    for thread in threads:
        thread.join()

    assert [(sync.upstream_offset, sync.record_count) for sync in ledger.table.runs(FLOW, "orders", 0)] == [(0, 50)]
    assert ledger.table.positions(FLOW) == {key(0): Position(50, 50), key(1): Position(25, 15)}
    assert all("oncurrent" in str(error) for error in refused)


def test_killed_in_the_middle_of_merging_the_old_rows_are_there_and_the_next_merges(ledger: Ledger) -> None:
    for number in range(2):
        ledger.append(*(row(each, 10 * number, 10 * number, 10) for each in range(200)))
    before, files = ledger.facts(), set(ledger.rows().inputFiles())
    folder = Path(ledger.table.path)

    with driver(["-c", MERGE, str(folder.parent), FLOW]) as merging:
        until(lambda: len(list(folder.glob("*.parquet"))) > len(files) or merging.process.poll() is not None, 180)
        merging.end()

    assert len(list(folder.glob("*.parquet"))) > len(files) == 2
    assert set(ledger.rows().inputFiles()) == files
    assert ledger.facts() == before
    ledger.merge()
    assert ledger.facts() == before
    assert ledger.rows().count() == 200


# With this pass the remote topic has a partition more.
GROWN = 11


def pass_over(number: int) -> RowPass:
    """Pass 7 + n copies n records of one partition or the other, into the remote ones, three later on."""
    at = [sum(each for each in range(number) if each % 2 == n) for n in (0, 1)]
    grown = [at[n] + (number if number % 2 == n else 0) for n in (0, 1)]
    sources = [PassRow(SOURCE, "orders", "s", n, at[n], grown[n]) for n in (0, 1)]
    remotes = [PassRow(REMOTE, "all", "r", n, sum(at) // 2 + n) for n in (0, 1)]
    if number >= GROWN:
        remotes.append(PassRow(REMOTE, "all", "r", 2, number - GROWN))
    others = [PassRow(ELSEWHERE, "", "", 0, 20)] if number == 30 else []
    return RowPass(7 + number, (*sources, *remotes, *others))


def history_of(passes: Iterable[RowPass]) -> List[object]:
    """All that a translation hears of them."""
    history = PassHistory()
    assert all(history.add(each) for each in passes)
    ends = {("orders", n): history.end(("orders", n)) for n in (0, 1)}
    heard: List[object] = [history.last, history.complete, history.remotes, ends]
    heard += [history.read(at, offset) for at, end in ends.items() for offset in range(0, end, 5)]
    heard += [history.read_remote(at, offset) for at in history.remotes for offset in range(0, 900, 5)]
    return [*heard, *(history.stood(at, number) for at in history.remotes for number in range(0, history.last, 3))]


@pytest.mark.long
def test_old_passes_become_few_beside_a_driver_that_goes_on_and_translations_hear_no_less(
    spark: SparkSession, tmp_path: Path
) -> None:
    state, passes = str(tmp_path / "state"), [pass_over(number) for number in range(41)]
    table, stored = RowPassTable(spark, state), StateTable(spark, state, ROW_PASSES)
    for some in (passes[:20], passes[20:39], [passes[39]]):
        rows = [(each.number, row) for each in some for row in each.rows]
        stored.append([(FLOW, number, *astuple(row), "run") for number, row in rows], {})
    table.add(OTHER, passes[3], run_id="other")
    assert history_of(table.since(FLOW, -1)) == history_of(passes[:40])
    thinning, tidied = PassThinning(spark, state, FLOW, whole=8, share=2), []
    beside = threading.Thread(target=lambda: tidied.append(thinning.tidy(2)))
    beside.start()
    table.add(FLOW, passes[40], run_id="mine")
    beside.join(60)
    assert tidied == [True]

    # Some of what was known is one by now: less is told apart of what is old, and no more than by these rules.
    left = merged(passes[:40], 8, 2)
    assert len(left) < 25
    assert history_of(table.since(FLOW, -1)) == history_of([*left, passes[40]]) != history_of(passes)
    # Where a remote topic grew is told as exactly as before.
    at = next(number for number, row in table.firsts(FLOW) if row.place == ("all", 2))
    grown = table.numbered(FLOW, [at])[at]
    assert {(row.place, row.from_offset) for row in grown.rows if row.side == REMOTE} == {
        (row.place, row.from_offset) for row in passes[GROWN].rows if row.side == REMOTE
    }
    assert [each.number for each in table.since(FLOW, 45)] == [46, 47]
    latest, theirs = table.latest(FLOW), table.latest(OTHER)
    assert latest is not None and theirs is not None
    assert (sorted(map(astuple, latest.rows)), theirs.number) == (sorted(map(astuple, passes[40].rows)), 10)
