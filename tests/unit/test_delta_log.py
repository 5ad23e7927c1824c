"""What a Delta log's files say of it: gaps, commits that were cut off, that lost lines, or that Delta did not write."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional

import pytest

from mirror_lib.errors import messages_of
from mirror_lib.ledger.delta_log import (
    CUT,
    CUT_DATA,
    LOST_LINES,
    MISSING_COMMIT,
    MISSING_DATA,
    NO_METADATA,
    NOT_A_COMMIT,
    Checksum,
    Commit,
    DataFile,
    checksum_file,
    commit_file,
    data_faults,
    in_doubt,
    live_files,
    log_files,
    lost_lines,
    parsed_checksum,
    parsed_commit,
    without_metadata,
)
from mirror_lib.ledger.delta_table import damaged
from mirror_lib.ledger.state_check import STATE_TABLES


def names(*versions: int, checksums: bool = True, extra: List[str] = []) -> List[str]:  # noqa: B006
    found = [f"{version:020d}.json" for version in versions]
    return [*found, *(f"{version:020d}.crc" for version in versions if checksums), "_last_checkpoint", *extra]


def action(kind: str, **fields: Any) -> Dict[str, Any]:
    return {kind: fields}


def add(name: str, size: int = 10) -> Dict[str, Any]:
    return action("add", path=name, size=size)


def info(operation: str = "WRITE", **metrics: str) -> Dict[str, Any]:
    return action("commitInfo", operation=operation, operationMetrics=metrics)


def text(*actions: Dict[str, Any]) -> str:
    return "".join(json.dumps(each) + "\n" for each in actions)


def commit(version: int, *actions: Dict[str, Any]) -> Commit:
    found, fault = parsed_commit(version, text(*actions))
    assert fault is None and found is not None
    return found


def kind_of(content: str) -> Optional[str]:
    found, fault = parsed_commit(3, content)
    assert (found is None) == (fault is not None)
    return None if fault is None else fault.kind


def test_commits_after_the_newest_checkpoint_are_read_and_none_may_be_missing_there() -> None:
    checkpoint = "00000000000000000002.checkpoint.parquet"
    found = log_files(names(0, 1, 2, 3, 4, extra=[checkpoint]))
    assert (found.base, found.commits, found.last, found.faults) == (2, (3, 4), 4, ())
    assert found.checkpoint == (f"_delta_log/{checkpoint}",)
    # Before the checkpoint a gap is no gap.
    assert log_files(names(0, 2, 3, extra=[checkpoint])).faults == ()


@pytest.mark.parametrize(
    ("there", "missing"),
    [
        (names(0, 2, 3), 1),
        (names(1, 2), 0),
        (names(0, 1, extra=["00000000000000000002.crc"]), 2),
        (names(4, 5, extra=["00000000000000000002.checkpoint.parquet"]), 3),
    ],
    ids=["within", "first", "newest", "after a checkpoint"],
)
def test_commit_that_is_missing_is_named(there: List[str], missing: int) -> None:
    assert [(each.file, each.kind) for each in log_files(there).faults] == [(commit_file(missing), MISSING_COMMIT)]


def test_checkpoint_of_several_parts_counts_only_when_all_are_there() -> None:
    parts = [f"00000000000000000002.checkpoint.{part:010d}.0000000002.parquet" for part in (1, 2)]
    assert log_files(names(0, 1, 2, 3, extra=parts[:1])).base == -1
    assert log_files(names(0, 1, 2, 3, extra=parts)).checkpoint == tuple(f"_delta_log/{each}" for each in parts)


def test_other_files_of_a_log_say_nothing() -> None:
    assert log_files(["_last_checkpoint", ".00000000000000000001.json.crc", "_staged_commits", "x.json"]).last == -1


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("", CUT),
        ("\n", CUT),
        (text(info(), add("a"))[:-20], CUT),
        ('{"commitInfo":{"operation', CUT),
        (text(info())[:-1], None),
        ("hello\n", NOT_A_COMMIT),
        ("[1]\n", NOT_A_COMMIT),
        ('{"add":{"path":"a"}}\n', NOT_A_COMMIT),
        ('{"add":7}\n', NOT_A_COMMIT),
        ('{"add":{}\n{"commitInfo":{}}\n', NOT_A_COMMIT),
        (text(info(), action("actionOfLater")), None),
        (text(add("a")), None),
    ],
)
def test_commit_that_is_cut_off_or_is_not_deltas_is_told_from_a_whole_one(content: str, kind: Optional[str]) -> None:
    assert kind_of(content) == kind


@pytest.mark.parametrize("operation", ["MERGE", "DELETE", "UPDATE", "WRITE"])
def test_commit_that_lost_lines_is_seen_by_its_own_count(operation: str) -> None:
    metrics = {
        "WRITE": {"numFiles": "1"},
        "MERGE": {"numTargetFilesAdded": "1", "numTargetFilesRemoved": "1"},
    }.get(operation, {"numAddedFiles": "1", "numRemovedFiles": "1"})
    lines = [info(operation, **metrics), add("a"), *([] if operation == "WRITE" else [action("remove", path="b")])]
    assert in_doubt([commit(3, *lines)]) == [] and lost_lines([commit(3, *lines)], {}) == []
    cut = commit(3, *lines[:-1])
    assert in_doubt([cut]) == [3]
    assert [(each.file, each.kind) for each in lost_lines([cut], {})] == [(commit_file(3), LOST_LINES)]


def test_checksums_decide_where_a_commit_counts_nothing_or_wrongly() -> None:
    uncounted = commit(3, info("OTHER"), add("a"), add("b"), action("remove", path="c"))
    miscounted = commit(3, info(numFiles="3"), add("a"))
    enclosed = {2: Checksum(4), 3: Checksum(5)}
    assert in_doubt([uncounted, miscounted]) == [3, 3]
    assert lost_lines([uncounted, miscounted], enclosed) == []
    assert [each.kind for each in lost_lines([uncounted], {2: Checksum(4), 3: Checksum(6)})] == [LOST_LINES]
    # Without checksums only a commit's own count speaks against it.
    assert lost_lines([uncounted], {3: Checksum(6)}) == []
    assert lost_lines([commit(0, info("OTHER"), add("a"))], {0: Checksum(1)}) == []


def test_write_of_no_rows_is_whole_though_it_counts_a_file() -> None:
    """Spark writes a file without rows and counts it. Delta leaves it out, and before 3.0 writes no checksum."""
    empty = commit(0, info(numFiles="1", numOutputRows="0"))
    assert in_doubt([empty]) == [] and lost_lines([empty], {}) == []
    assert lost_lines([commit(0, info(numFiles="1", numOutputRows="5"))], {}) != []


def test_loss_that_leaves_the_number_of_files_as_it_was_is_seen_by_the_commits_own_count() -> None:
    cut = commit(3, info("MERGE", numTargetFilesAdded="1", numTargetFilesRemoved="1"))
    assert [each.kind for each in lost_lines([cut], {2: Checksum(4), 3: Checksum(4)})] == [LOST_LINES]


def test_overwrite_that_is_cut_behind_its_first_line_lost_lines() -> None:
    cut = commit(3, info(numFiles="1", numOutputRows="9"))
    assert [each.kind for each in lost_lines([cut], {2: Checksum(13), 3: Checksum(2)})] == [LOST_LINES]


def test_commit_that_states_files_anew_is_no_damage() -> None:
    again = commit(3, info("COMPUTE STATS"), add("a"), add("b"))
    assert lost_lines([again], {2: Checksum(4), 3: Checksum(4)}) == []


def test_log_of_which_only_a_checksum_is_left_lost_its_commits() -> None:
    assert [each.kind for each in log_files([f"{0:020d}.crc"]).faults] == [MISSING_COMMIT]


def test_first_commit_without_columns_or_protocol_lost_lines() -> None:
    protocol = action("protocol", minReaderVersion=1, minWriterVersion=2)
    metadata = action("metaData", id="x")
    log = log_files(names(0))
    assert without_metadata(log, [commit(0, info(), metadata, protocol)]) is None
    for actions in ([info()], [info(), metadata], [info(), protocol]):
        fault = without_metadata(log, [commit(0, *actions)])
        assert fault is not None and fault.kind == NO_METADATA
    assert commit(0, protocol).protocol == (1, 2)


def test_checksum_that_cannot_be_read_is_none() -> None:
    assert parsed_checksum('{"numFiles":4,"tableSizeBytes":40}') == Checksum(4)
    for broken in ("", "[]", '{"tableSizeBytes":40}', '{"numFiles":4,"tableSize'):
        assert parsed_checksum(broken) is None
    assert checksum_file(7) == "_delta_log/00000000000000000007.crc"


def test_files_with_rows_are_those_of_the_checkpoint_and_of_later_commits() -> None:
    later = [commit(3, info(), add("b", 20), action("remove", path="a")), commit(4, info(), add("c", 30))]
    live = live_files([DataFile("a", 10), DataFile("z", 5)], later)
    assert live == {"z": 5, "b": 20, "c": 30}
    assert data_faults(live, dict(live, other=1)) == []
    found = data_faults(live, {"z": 5, "b": 19})
    assert [(each.file, each.kind) for each in found] == [("b", CUT_DATA), ("c", MISSING_DATA)]


@pytest.mark.parametrize("table", sorted(STATE_TABLES))
def test_each_table_says_what_follows_where_it_is_lost_and_how_it_is_fixed(table: str) -> None:
    faults = log_files(names(0, 9)).faults
    error = damaged(f"/state/{table}", STATE_TABLES[table], faults)
    assert error.exit_code == 3 and STATE_TABLES[table].lost in error.message
    assert faults[0].file in error.message and faults[7].file not in error.message
    assert error.hint is not None and "mirror run CONFIG --once" in error.hint


def test_messages_have_no_lines_of_a_trace() -> None:
    """Java's own package `java.util.concurrent` in a trace once made any failed read an edit by another process."""
    said = "Job aborted: Lost task\n\tat java.base/java.util.concurrent.Pool.run(Pool.java:1)\n\nDriver stacktrace:"
    assert messages_of(RuntimeError(said)) == ["Job aborted: Lost task\n\n\nDriver stacktrace:"]
