"""State tables whose files are damaged, on real Delta: which file is named, and that no damage is taken for whole."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import List, Optional

import pytest
from pyspark.sql import SparkSession

from mirror_lib.errors import EXIT_REFUSED, DamagedError, NewerTableError, StateError
from mirror_lib.ledger.delta_table import StateTable
from mirror_lib.ledger.offset_syncs import OFFSET_SYNCS, OffsetSyncTable
from mirror_lib.ledger.records import LedgerRow
from mirror_lib.ledger.state_check import UNREAD, state_of
from mirror_lib.ledger.state_files import FileFacts, ends_with, listed, names_in
from mirror_lib.ledger.table_check import examined
from tests.lab.damage import DAMAGES, commits, damaged, protocol_of_later, without_checksum_files

FLOW = "A->B"
QUICK = ("first commit cut off", "newest commit cut at a line end", "data file lost")


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
        FLOW, [row], run_id="run", append_number=number, query_id="q", batch_id=number
    )


def offsets(spark: SparkSession, state: Path) -> Optional[List[int]]:
    table = StateTable(spark, str(state), OFFSET_SYNCS)
    with table.explained("read"):
        rows = table.rows()
        return None if rows is None else sorted(row["upstream_offset"] for row in rows.collect())


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[] if each in QUICK else pytest.mark.long) for each in DAMAGES]
)
def test_read_of_a_damaged_table_names_the_file(spark: SparkSession, state: Path, name: str) -> None:
    table = state / "offset_syncs"
    file = damaged(table, name)
    with pytest.raises(DamagedError) as refused:
        offsets(spark, state)
    assert refused.value.exit_code == EXIT_REFUSED and file in refused.value.message
    faults = examined(spark, str(table), data=True).faults
    assert [each.kind for each in faults] == list(DAMAGES[name].kinds) and {each.file for each in faults} == {file}
    if not DAMAGES[name].reported:
        # The negative control: Delta takes the rest for the whole table.
        left = spark.read.format("delta").load(str(table)).count()
        assert left < 4


def test_whole_table_has_no_faults(spark: SparkSession, state: Path) -> None:
    table = state / "offset_syncs"
    assert offsets(spark, state) == [0, 10, 20, 30]
    without_checksum_files(table)
    found = examined(spark, str(table), data=True)
    assert (found.faults, found.failed, found.protocol, found.needs_newer_delta) == ((), "", (1, 2), False)


def test_file_that_the_storage_does_not_give_is_no_damage(spark: SparkSession, state: Path) -> None:
    without_checksum_files(state / "offset_syncs")
    newest = commits(state / "offset_syncs")[-1]
    newest.unlink()
    newest.mkdir()  # reading it fails, as it does without the right to
    found = examined(spark, str(state / "offset_syncs"), data=True)
    assert found.faults == () and found.failed
    with pytest.raises(StateError) as failed:
        offsets(spark, state)
    assert not isinstance(failed.value, DamagedError)
    (ledger,) = (each for each in state_of(spark, str(state)) if each.name == "offset_syncs")
    assert ledger.status == UNREAD and not ledger.is_usable


@pytest.mark.long
def test_checkpoint_stands_for_older_commits_and_is_examined_itself(spark: SparkSession, state: Path) -> None:
    table = state / "offset_syncs"
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.checkpointInterval' = '2')")
    for number in range(4, 7):
        append(spark, state, number)
    (*_, checkpoint) = sorted((table / "_delta_log").glob("*.checkpoint.parquet"))
    without_checksum_files(table)
    commits(table)[1].unlink()
    assert examined(spark, str(table), data=False).faults == ()
    assert examined(spark, str(table), data=True).faults == ()
    checkpoint.write_bytes(checkpoint.read_bytes()[:-10])
    with pytest.raises(DamagedError, match=checkpoint.name):
        offsets(spark, state)


def test_changes_in_place_are_whole_by_their_own_counts(spark: SparkSession, state: Path) -> None:
    """A merge, a delete and an update: none of them may be taken for a commit that lost lines."""
    table = StateTable(spark, str(state), OFFSET_SYNCS)
    table.change(lambda: table.delta().delete("upstream_offset = 0"))
    table.change(lambda: table.delta().update("upstream_offset = 10", {"batch_id": "7L"}))
    table.add_absent([values()], ("upstream_offset",))
    table.drop_replaced_files()
    without_checksum_files(state / "offset_syncs")
    for path in (state / "offset_syncs" / "_delta_log").glob("*.crc"):
        path.unlink()
    assert examined(spark, str(state / "offset_syncs"), data=True).faults == ()
    assert offsets(spark, state) == [10, 20, 30, 70]


def values() -> tuple[object, ...]:
    return (FLOW, "orders", "A.orders", 0, "s", "r", 70, 70, 10, "run", "q", 7, None, None, None)


def test_table_of_a_later_delta_is_not_called_damaged(spark: SparkSession, state: Path) -> None:
    protocol_of_later(state / "offset_syncs")
    with pytest.raises(NewerTableError):
        offsets(spark, state)


def test_damage_that_is_gone_at_the_second_examination_is_none(
    spark: SparkSession, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing made while another process commits may lack that commit and have its checksum."""
    newest = commits(state / "offset_syncs")[-1]
    text = newest.read_text()
    without_checksum_files(state / "offset_syncs")
    newest.unlink()
    waits = SimpleNamespace(sleep=lambda seconds: newest.write_text(text))
    monkeypatch.setattr("mirror_lib.ledger.table_check.time", waits)
    assert examined(spark, str(state / "offset_syncs"), data=False).faults == ()


def test_files_are_listed_and_read_at_their_end(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "a"
    (folder / "inner").mkdir(parents=True)
    (folder / "file").write_bytes(b"12345")
    found = listed(spark, str(folder))
    assert found is not None and set(found) == {"inner", "file"} and found["inner"] is None
    assert found["file"] == FileFacts(5, pytest.approx((folder / "file").stat().st_mtime, abs=1))  # type: ignore[arg-type]
    assert listed(spark, str(tmp_path / "absent")) is None
    assert names_in(spark, str(tmp_path / "absent")) == []
    assert sorted(names_in(spark, str(folder))) == ["file", "inner"] and names_in(spark, str(folder / "inner")) == []
    assert ends_with(spark, str(folder / "file"), b"45") and not ends_with(spark, str(folder / "file"), b"4")
    assert not ends_with(spark, str(folder / "file"), b"012345")
