"""Which files of the ledger are merged: new ones always, large old chunks seldom, and never a part of a chunk."""

from __future__ import annotations

import logging
from typing import Any, List, Optional, Sequence, Tuple

import pytest

from mirror_lib.errors import ConflictError, MirrorError, SparkEndedError, StateError
from mirror_lib.ledger.compaction import FEW_ROWS, LARGE_FILE, Choice, TableFile, Upkeep, chosen
from mirror_lib.ledger.delta_table import table_properties


def files(*rows: int) -> List[TableFile]:
    """One after the other, the oldest first, each written in ten microseconds."""
    return [TableFile(count, 10 * number, 10 * number + 9) for number, count in enumerate(rows)]


LARGE = 4 * FEW_ROWS
OVERLAPPING = [TableFile(LARGE, 0, 100), TableFile(LARGE, 50, 150)]


@pytest.mark.parametrize(
    ("found", "choice"),
    [
        pytest.param([], None, id="no files"),
        pytest.param(files(5, 100, 7), Choice(0, 112, 3), id="small files"),
        pytest.param(files(5, 100, 7)[::-1], Choice(0, 112, 3), id="in any order"),
        pytest.param(files(LARGE, 10, 10), Choice(10, 20, 2), id="a large old file waits"),
        pytest.param(files(LARGE, LARGE // 2, LARGE // 4), Choice(0, LARGE * 7 // 4, 3), id="until it is worth it"),
        pytest.param([*OVERLAPPING, TableFile(3 * FEW_ROWS, 200, 210)], Choice(200, 3 * FEW_ROWS, 1), id="one chunk"),
        pytest.param([*OVERLAPPING, TableFile(10, 150, 210)], Choice(0, 2 * LARGE + 10, 3), id="and what overlaps it"),
        pytest.param(files(*[LARGE_FILE] * 100), None, id="large files"),
        pytest.param(files(10, 10, LARGE_FILE, 10, 10), Choice(30, 20, 2), id="files older than a large one stay"),
        pytest.param(files(*[1000] * 100), Choice(0, 100_000, 100), id="many small files"),
    ],
)
def test_new_files_are_merged_and_large_old_ones_seldom(found: List[TableFile], choice: Optional[Choice]) -> None:
    assert chosen(found) == choice


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
