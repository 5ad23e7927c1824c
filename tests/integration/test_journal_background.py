"""What a pass came to is written while the next one copies: in order, and never without a word where it fails."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import List

import pytest
from pyspark.sql import SparkSession

from mirror_lib.errors import StateError
from mirror_lib.ledger.offset_syncs import OffsetSyncTable
from mirror_lib.ledger.records import LedgerRow, MirrorRun, PartitionKey, Position, Progress
from mirror_lib.replication.journal import Journal

pytestmark = pytest.mark.usefixtures("compiled_statements")

FLOW = "primary->backup"
KEY = PartitionKey("source-id", "remote-id", "orders", 0)


def row(offset: int, count: int) -> LedgerRow:
    return LedgerRow("orders", "primary.orders", 0, "source-id", "remote-id", offset, offset, count)


def begun(spark: SparkSession, state: Path) -> Journal:
    return Journal(spark, str(state), FLOW, uuid.uuid4().hex, 30)


def test_what_is_appended_beside_is_there_before_anything_else_is_written(spark: SparkSession, tmp_path: Path) -> None:
    journal, ledger = begun(spark, tmp_path / "state"), OffsetSyncTable(spark, str(tmp_path / "state"))
    found: List[int] = []
    for number in range(3):
        journal.append([row(number * 10, 10)], in_background=True)
        journal.append([])  # which waits for nothing
        journal.forget_from(KEY, 10**6)  # which writes behind it
        found.append(ledger.positions(FLOW)[KEY].downstream_offset)
    assert found == [10, 20, 30]
    journal.append([row(30, 5)], in_background=True)
    assert journal.history(KEY, 33) == (Position(0, 0), 33)


@pytest.mark.parametrize("next_call", ["append", "run_ends", "written"])
def test_failure_of_what_is_appended_beside_is_told_by_whatever_comes_next(
    spark: SparkSession, tmp_path: Path, next_call: str
) -> None:
    (tmp_path / "state").write_text("no folder")
    journal = begun(spark, tmp_path / "state")
    journal.append([row(0, 10)], in_background=True)
    run = MirrorRun(journal.run_id, FLOW, 1, "exactly-once", "A", "B", journal.run_id)
    calls = {
        "append": lambda: journal.append([row(10, 10)], in_background=True),
        "run_ends": lambda: journal.run_ends(run, "ok", Progress(0, 0)),
        "written": journal.written,
    }
    with pytest.raises(StateError, match="offset_syncs"):
        calls[next_call]()
    assert not journal.wrote
