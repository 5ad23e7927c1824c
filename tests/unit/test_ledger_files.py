"""Which files of the ledger are merged: those after the last large one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, List, Optional

import pytest

from mirror_lib.errors import ConflictError, MirrorError, SparkEndedError, StateError
from mirror_lib.ledger.compaction import LARGE_FILE, Choice, TableFile, Upkeep, chosen
from mirror_lib.ledger.delta_table import table_properties


def files(*rows: int) -> List[TableFile]:
    """One after the other, the oldest first."""
    return [TableFile(count, number) for number, count in enumerate(rows)]


@pytest.mark.parametrize(
    ("found", "choice"),
    [
        pytest.param([], None, id="no files"),
        pytest.param(files(5, 100, 7), Choice(0, 112, 3), id="small files"),
        pytest.param(files(5, 100, 7)[::-1], Choice(0, 112, 3), id="in any order"),
        pytest.param(files(*[LARGE_FILE] * 100), None, id="large files"),
        pytest.param(files(10, 10, LARGE_FILE, 10, 10), Choice(3, 20, 2), id="files older than a large one stay"),
        pytest.param([*files(LARGE_FILE), TableFile(9, 0)], None, id="a file of the same moment"),
        pytest.param(files(*[1000] * 100), Choice(0, 100_000, 100), id="many small files"),
    ],
)
def test_what_was_written_after_the_last_large_file_is_merged(
    found: List[TableFile], choice: Optional[Choice]
) -> None:
    assert chosen(found) == choice


class Failing(Upkeep):
    """The upkeep of a table, which raises `error`."""

    def __init__(self, error: MirrorError) -> None:
        table: Any = SimpleNamespace(path="/state/offset_syncs", version=None)
        super().__init__(table, "A->B")
        self.error = error

    def tidy(self, enough: int) -> bool:
        raise self.error


@pytest.mark.parametrize(
    ("error", "warnings"),
    [(StateError("no credential"), 1), (ConflictError("changed by another"), 0), (SparkEndedError("gone"), 0)],
)
def test_upkeep_that_fails_is_one_warning_unless_another_process_or_the_end_prevents_it(
    caplog: pytest.LogCaptureFixture, error: MirrorError, warnings: int
) -> None:
    upkeep = Failing(error)
    for _ in range(201):
        upkeep.committed()
        upkeep.wait(10)
    assert [record.levelname for record in caplog.records if record.levelname == "WARNING"] == ["WARNING"] * warnings


@pytest.mark.parametrize(
    ("spark", "policy"), [("3.3.1", None), ("3.4.2", None), ("3.5.7", "classic"), ("4.0.0", "classic")]
)
def test_a_property_that_an_older_delta_refuses_is_not_given_to_it(spark: str, policy: Optional[str]) -> None:
    assert table_properties(spark).get("delta.checkpointPolicy") == policy


@pytest.mark.parametrize("rows", [10, 1000, 5000])
def test_a_check_rewrites_few_rows_however_many_commits_come(rows: int) -> None:
    """Where no row continues another one."""
    kept: List[TableFile] = []
    for commit in range(20_000):
        kept.append(TableFile(rows, commit))
        found = chosen(kept) if commit % 100 == 99 else None
        if found is not None:
            assert found.rows < LARGE_FILE + 100 * rows
            merged = TableFile(found.rows, max(file.last_at for file in kept))
            kept = [*(file for file in kept if file.last_at < found.since), merged]
    assert len(kept) <= rows * 20_000 / LARGE_FILE + 1
    assert sum(file.rows for file in kept) == rows * 20_000
