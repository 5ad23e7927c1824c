"""State tables whose files are damaged, on real Delta: a read fails, or gives the rows of an earlier version."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import List, Optional

import pytest
from pyspark.sql import SparkSession

from mirror_lib.errors import StateError
from mirror_lib.ledger.delta_table import StateTable
from mirror_lib.ledger.offset_syncs import OffsetSyncTable
from mirror_lib.ledger.records import LedgerRow, PartitionKey, Position
from mirror_lib.ledger.table_reader import TableReader
from mirror_lib.ledger.tables import OFFSET_SYNCS
from tests.lab.damage import CASES, damage, without_checksum_files

FLOW = "A->B"
KEY = PartitionKey("s", "r", "orders", 0)


@pytest.fixture(scope="module")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder with a ledger of four commits."""
    state = tmp_path_factory.mktemp("whole") / "state"
    for number in range(4):
        append(spark, state, number)
    return state


@pytest.fixture
def state(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "state"))


def append(spark: SparkSession, state: Path, number: int) -> None:
    row = LedgerRow("orders", "A.orders", 0, "s", "r", number * 10, number * 10, 10)
    OffsetSyncTable(spark, str(state)).append(
        FLOW, [row], run_id="run", query_id="q", batch_id=number
    )


def offsets(spark: SparkSession, state: Path) -> Optional[List[int]]:
    table = StateTable(spark, str(state), OFFSET_SYNCS)
    with table.explained("read"):
        rows = table.rows()
        return None if rows is None else sorted(row["upstream_offset"] for row in rows.collect())


def position(spark: SparkSession, state: Path) -> Position:
    """As a run reads it at its start, without Spark where that can read it."""
    return OffsetSyncTable(spark, str(state)).positions(FLOW)[KEY]


@pytest.mark.parametrize("name", CASES)
def test_damaged_table_is_refused_or_reads_as_it_was_before(spark: SparkSession, state: Path, name: str) -> None:
    lost = damage(state / "offset_syncs", name)
    if lost:
        end = 10 * (4 - lost)
        assert offsets(spark, state) == list(range(0, end, 10)) and position(spark, state) == Position(end, end)
        return
    for read in (offsets, position):
        with pytest.raises(StateError) as failed:
            read(spark, state)
        assert failed.value.code == "MIR-401" and "docs/fix/state.md" in str(failed.value)
    with pytest.raises(StateError, match=r"docs/fix/state\.md"):
        TableReader(str(state)).rows("offset_syncs", ("flow", "upstream_offset"), FLOW)


def test_whole_table_is_read(spark: SparkSession, state: Path) -> None:
    """A merge, a delete and an update are counted as Delta counts them, and so is a log without Delta's checksums."""
    table = StateTable(spark, str(state), OFFSET_SYNCS)
    assert table.version == 3 and StateTable(spark, str(state / "none"), OFFSET_SYNCS).version == -1
    table.change(lambda: table.delta().delete("upstream_offset = 0"))
    table.change(lambda: table.delta().update("upstream_offset = 10", {"batch_id": "7L"}))
    absent = (FLOW, "orders", "A.orders", 0, "s", "r", 70, 70, 10, "run", "q", 7, None, None, None)
    table.add_absent([absent], ("upstream_offset",))
    table.drop_replaced_files()
    without_checksum_files(state / "offset_syncs")
    assert offsets(spark, state) == [10, 20, 30, 70] and position(spark, state) == Position(80, 80)
    for path in (state / "offset_syncs" / "_delta_log").glob("*.crc"):
        path.unlink()
    assert offsets(spark, state) == [10, 20, 30, 70] and position(spark, state) == Position(80, 80)
