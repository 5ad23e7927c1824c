"""Tables of the ledger: what was skipped counts once, an earlier release is refused, and which files are merged."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Tuple
from unittest.mock import Mock

import pytest

from mirror_lib.errors import ConflictError, MirrorError, SparkEndedError, StateError
from mirror_lib.ledger import events
from mirror_lib.ledger.compaction import LARGE_FILE, Choice, Upkeep, chosen
from mirror_lib.ledger.records import OFFSETS_SKIPPED, TOPIC_RECREATED, Incident, LeftOut
from mirror_lib.ledger.tables import EVENTS

FLOW = "A->B"


def rows(*made: events.Values) -> List[Dict[str, Any]]:
    """As read from the table, one second apart."""
    names = [name for name, _ in EVENTS.given()]
    return [{**dict(zip(names, values)), "at": float(second)} for second, values in enumerate(made)]


def test_skipped_offsets_count_once_and_since_the_topic_was_created_again() -> None:
    def skipped(topic: str, start: int, until: int) -> events.Values:
        return events.incident_row(FLOW, "run", 5, Incident(OFFSETS_SKIPPED, topic, 0, start, until, "too large"))

    recreated = events.incident_row(FLOW, "run", 5, Incident(TOPIC_RECREATED, "orders", -1, -1, -1, "re-created"))
    read = rows(skipped("orders", 1, 2), skipped("other", 9, 12), skipped("other", 5, 6), recreated)
    assert events.left_out(read) == {("other", 0): LeftOut(4, ((5, 6), (9, 12)))}
    read += rows(*[skipped("other", 5, 6)] * 5, skipped("orders", 3, 5))[4:]
    assert events.left_out(read[::-1])[("other", 0)] == LeftOut(4, ((5, 6), (9, 12)))
    assert events.left_out(read)[("orders", 0)] == LeftOut(2, ((3, 5),))


def files(*rows: int) -> List[Tuple[int, int]]:
    """One after the other, the oldest first."""
    return [(count, number) for number, count in enumerate(rows)]


@pytest.mark.parametrize(
    ("found", "choice"),
    [
        pytest.param([], None, id="no files"),
        pytest.param(files(5, 100, 7), Choice(0, 112, 3), id="small files"),
        pytest.param(files(5, 100, 7)[::-1], Choice(0, 112, 3), id="in any order"),
        pytest.param(files(*[LARGE_FILE] * 100), None, id="large files"),
        pytest.param(files(10, 10, LARGE_FILE, 10, 10), Choice(3, 20, 2), id="files older than a large one stay"),
        pytest.param([*files(LARGE_FILE), (9, 0)], None, id="a file of the same moment"),
        pytest.param(files(*[1000] * 100), Choice(0, 100_000, 100), id="many small files"),
    ],
)
def test_what_was_written_after_the_last_large_file_is_merged(
    found: List[Tuple[int, int]], choice: Optional[Choice]
) -> None:
    assert chosen(found) == choice


@pytest.mark.parametrize(
    ("error", "warnings"),
    [(StateError("no credential"), 1), (ConflictError("changed by another"), 0), (SparkEndedError("gone"), 0)],
)
def test_upkeep_that_fails_is_one_warning_unless_another_process_or_the_end_prevents_it(
    caplog: pytest.LogCaptureFixture, error: MirrorError, warnings: int
) -> None:
    table: Any = SimpleNamespace(path="/state/offset_syncs", version=None)
    upkeep: Any = Upkeep(table, "A->B")
    upkeep.tidy = Mock(side_effect=error)
    for _ in range(201):
        upkeep.committed()
        upkeep.wait(10)
    assert [record.levelname for record in caplog.records if record.levelname == "WARNING"] == ["WARNING"] * warnings


@pytest.mark.parametrize("rows", [10, 1000, 5000])
def test_a_check_rewrites_few_rows_however_many_commits_come(rows: int) -> None:
    """Where no row continues another one."""
    kept: List[Tuple[int, int]] = []
    for commit in range(20_000):
        kept.append((rows, commit))
        found = chosen(kept) if commit % 100 == 99 else None
        if found is not None:
            assert found.rows < LARGE_FILE + 100 * rows
            merged = (found.rows, max(last_at for _, last_at in kept))
            kept = [*(file for file in kept if file[1] < found.since), merged]
    assert len(kept) <= rows * 20_000 / LARGE_FILE + 1
    assert sum(count for count, _ in kept) == rows * 20_000
