"""The ledger made small again, on real Spark and Delta: every reader hears what it heard before, at any moment."""

from __future__ import annotations

import contextlib
import random
import threading
import uuid
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mirror_lib.errors import StateError
from mirror_lib.ledger.compaction import Choice, LedgerCompaction
from mirror_lib.ledger.intervals import PartitionMap
from mirror_lib.ledger.offset_syncs import STREAM, OffsetSyncTable
from mirror_lib.ledger.records import LedgerRow, LogPosition, PartitionKey, Position, RangePositions, TopicPair

pytestmark = pytest.mark.usefixtures("compiled_statements")

REPEATS = version("delta-spark").startswith("2.3.")
FLOW = "primary'->\\backup"
OTHER = "other->flow"


class Ledger:
    """One driver's life at the ledger, and what readers hear of it."""

    def __init__(self, spark: SparkSession, state: str) -> None:
        self.spark = spark
        self.table = OffsetSyncTable(spark, state)
        self.compaction = LedgerCompaction(spark, state, FLOW)
        self.run_id = uuid.uuid4().hex

    def append(self, *rows: LedgerRow, flow: str = FLOW) -> None:
        self.table.append(flow, rows, run_id=self.run_id, query_id="q", batch_id=0)

    def append_tens(self, commits: int) -> None:
        """So many commits, each of ten more records of partition 0."""
        for number in range(commits):
            self.append(row(0, 10 * number, 10 * number, 10))

    def choice(self) -> Choice:
        found = self.compaction.due(2)
        assert found is not None
        return found

    def merge(self) -> None:
        self.compaction.merge(self.choice())

    def facts(self) -> Sequence[object]:
        """What a driver is given at its start, and a translator: the runs, or that the rows contradict each other."""
        said: Dict[PartitionKey, object] = {}
        for of, flat in self.table.triples(FLOW).items():
            try:
                said[of] = list(PartitionMap.of_flat(flat))
            except StateError:
                said[of] = "contradiction"
        return self.table.positions(FLOW), said

    def runs(self) -> List[Tuple[int, ...]]:
        return list(PartitionMap.of_flat(self.table.triples(FLOW)[key(0)]))

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


@pytest.mark.long
def test_a_ledger_in_fewer_rows_says_the_same_to_every_reader(ledger: Ledger) -> None:
    for number, rows in enumerate(history(seed=1)):
        again = row(1, 10 * number, 10 * number, 10)
        ledger.append(*rows, again, again, again)
    # The source was truncated and the topic re-created: rows that contradict each other, and the last word counts.
    ledger.append(row(2, 0, 0, 100), row(2, 100, 100, 0), row(3, 0, 0, 9))
    ledger.append(row(2, 80, 100, 0), row(3, 0, 9, 4, source_id="new-id"))
    ledger.append(row(0, 0, 0, 3), row(0, 7, 5, 3), flow=OTHER)
    before, rows_before = ledger.facts(), ledger.rows().count()
    commits = DeltaTable.forPath(ledger.spark, ledger.table.path).history().count()
    ledger.merge()
    assert ledger.facts() == before
    assert DeltaTable.forPath(ledger.spark, ledger.table.path).history().count() == commits + 1
    assert ledger.table.positions(FLOW)[key(2)] == Position(80, 100)
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
        ledger.append(row(0, 30, 30, 10))
        ledger.merge()
        ledger.append(row(0, 40, 40, 10))
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
        ledger.append(row(0, 30, 30, 10))
        ledger.merge()
        with pytest.raises(Exception, match=r"ignoreChanges|skipChangeCommits"):
            query.processAllAvailable()


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

    assert ledger.runs() == [(0, 0, 50)]
    assert ledger.table.positions(FLOW) == {key(0): Position(50, 50), key(1): Position(25, 15)}
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
        ledger.append(*range_rows(number), row(0, 10 * number, 10 * number, 10))
    # Another driver says some of it again, and a partition is added to the remote topic.
    ledger.append(*range_rows(1))
    ledger.append(replace(anchors[0], remote_partition=2))
    found = ledger.table.range_positions(FLOW)
    assert found.sources == {("orders", n): LogPosition("s", 40) for n in (0, 1)}
    assert found.remotes == {("keyed", n): LogPosition("r", at, 7) for n, at in enumerate((51, 51, 7))}
    assert (set(found.pairs), set(found.grown)) == ({TopicPair("orders", "s", "keyed", "r")}, {"keyed"})
    assert ledger.table.positions(FLOW) == {key(0): Position(40, 40)}
    assert list(ledger.table.triples(FLOW)) == [key(0)]
    assert ledger.table.range_positions(OTHER) == RangePositions()
    ranges = ledger.rows().where("upstream_until is not null")
    before = ranges.agg(F.sum("record_count")).collect()
    ledger.merge()
    # Each partition has the row of its start, and one more where it moved.
    ranges = ledger.rows().where("upstream_until is not null")
    assert (ranges.count(), ranges.agg(F.sum("record_count")).collect()) == (9, before)
    assert ledger.table.range_positions(FLOW) == found
    assert ledger.table.positions(FLOW) == {key(0): Position(40, 40)}
    assert ledger.rows().where("upstream_until is null").count() == 1
