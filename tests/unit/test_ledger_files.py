"""Which files of the ledger are merged: new ones always, large old chunks seldom, and never a part of a chunk."""

from __future__ import annotations

import logging
from typing import Any, List, Optional, Sequence, Tuple

import pytest

from mirror_lib.errors import ConflictError, MirrorError, SparkEndedError, StateError
from mirror_lib.ledger.compaction import FEW_ROWS, LARGE_FILE, Choice, TableFile, Upkeep, chosen, is_due
from mirror_lib.ledger.delta_table import table_properties


def files(*rows: int) -> List[TableFile]:
    """One after the other, the oldest first, each written in ten microseconds."""
    return [TableFile(count, 10 * number, 10 * number + 9) for number, count in enumerate(rows)]


def test_small_files_are_merged_together_whatever_their_order() -> None:
    assert chosen(files(5, 100, 7)) == chosen(files(5, 100, 7)[::-1]) == Choice(since=0, rows=112, files=3)
    assert chosen([]) is None


def test_large_old_chunk_waits_until_what_is_newer_is_worth_it() -> None:
    large = 4 * FEW_ROWS

    assert chosen(files(large, 10, 10)) == Choice(since=10, rows=20, files=2)
    assert chosen(files(large, large // 2, large // 4)) == Choice(since=0, rows=large * 7 // 4, files=3)


def test_files_written_at_the_same_time_are_one_chunk() -> None:
    large = [TableFile(4 * FEW_ROWS, 0, 100), TableFile(4 * FEW_ROWS, 50, 150)]
    new = TableFile(3 * FEW_ROWS, 200, 210)

    assert chosen([*large, new]) == Choice(since=200, rows=3 * FEW_ROWS, files=1)
    assert chosen([*large, TableFile(10, 150, 210)]) == Choice(since=0, rows=8 * FEW_ROWS + 10, files=3)


def test_files_of_many_rows_each_stay_as_they_are_and_so_does_what_is_older() -> None:
    assert chosen(files(*[LARGE_FILE] * 100)) is None
    assert chosen(files(10, 10, LARGE_FILE, 10, 10)) == Choice(since=30, rows=20, files=2)
    assert chosen(files(*[1000] * 100)) == Choice(since=0, rows=100_000, files=100)


def test_files_are_looked_through_at_every_hundredth_commit_of_the_table_however_short_its_runs_are() -> None:
    of_long_run = [commits for commits in range(1, 301) if is_due(-1, commits)]
    of_short_runs = [version for version in range(-1, 300) if is_due(version, 1)]

    assert of_long_run == [51, 151, 251]
    assert of_short_runs == [49, 149, 249]
    assert [commits for commits in range(1, 301) if is_due(None, commits)] == [1, 101, 201]


class Table:
    """A table whose upkeep raises `error`."""

    path, version = "/state/offset_syncs", None

    def __init__(self, error: Optional[MirrorError]) -> None:
        self.error = error

    @property
    def table(self) -> Any:
        return self

    def tidy(self, enough: int) -> bool:
        if self.error is not None:
            raise self.error
        return False


def levels(caplog: pytest.LogCaptureFixture, table: Any, commits: int) -> List[str]:
    upkeep = Upkeep("A->B", table)
    with caplog.at_level(logging.INFO, "mirror_lib.ledger.compaction"):
        for _ in range(commits):
            upkeep.committed()
            upkeep.wait(10)
    return [record.levelname for record in caplog.records]


def test_upkeep_that_fails_is_a_warning_once_and_names_flow_table_and_reason(caplog: pytest.LogCaptureFixture) -> None:
    assert levels(caplog, Table(StateError("no credential")), 201) == ["WARNING", "INFO", "INFO"]
    warned = caplog.records[0].getMessage()
    assert "A->B" in warned and Table.path in warned and "no credential" in warned


@pytest.mark.parametrize("error", [ConflictError("changed by another"), SparkEndedError("gone"), None])
def test_upkeep_that_another_process_or_the_end_prevents_is_no_warning(
    caplog: pytest.LogCaptureFixture, error: Optional[MirrorError]
) -> None:
    assert "WARNING" not in levels(caplog, Table(error), 201)


@pytest.mark.parametrize(
    ("spark", "policy"), [("3.3.1", None), ("3.4.2", None), ("3.5.7", "classic"), ("4.0.0", "classic")]
)
def test_a_property_that_an_older_delta_refuses_is_not_given_to_it(spark: str, policy: Optional[str]) -> None:
    assert table_properties(spark).get("delta.checkpointPolicy") == policy


def test_no_row_is_rewritten_often_however_many_commits_come() -> None:
    rewritten = 0
    kept: List[TableFile] = []
    for commit in range(20_000):
        kept.append(TableFile(1000, commit, commit))
        if commit % 100 == 99:
            kept, cost = after(kept)
            rewritten += cost

    assert len(kept) < 90
    assert sum(file.rows for file in kept) == 20_000_000
    assert rewritten < 12 * 20_000_000


def after(kept: Sequence[TableFile]) -> Tuple[List[TableFile], int]:
    """What remains when the choice is merged and none of its rows continue each other, and the rows that it cost."""
    found = chosen(kept)
    assert found is not None
    merged = TableFile(found.rows, found.since, max(file.last_at for file in kept))
    return [*(file for file in kept if file.first_at < found.since), merged], found.rows
