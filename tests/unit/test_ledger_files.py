"""Which files of the ledger are merged: new ones always, large old chunks seldom, and never a part of a chunk."""

from __future__ import annotations

from typing import List, Sequence, Tuple

from mirror_lib.state.commit_log import dispensable
from mirror_lib.state.compaction import FEW_ROWS, LARGE_FILE, Choice, TableFile, chosen
from mirror_lib.state.upkeep import files_to_merge


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


def test_short_life_merges_only_what_is_long_overdue_and_a_long_one_a_few_files_now_and_then() -> None:
    looks = {commits: files_to_merge(commits) for commits in range(1, 301)}

    assert {commits: files for commits, files in looks.items() if files} == {1: 500, 101: 50, 201: 50}


def test_only_commits_that_a_checkpoint_far_behind_the_newest_stands_for_are_dispensable() -> None:
    assert dispensable([]) == dispensable([100, 1000]) == dispensable([1000]) == range(0)
    assert dispensable([100, 1099]) == range(0)
    assert dispensable([100, 200, 1100, 1300]) == range(0, 200)
    assert dispensable([300, 400, 1400]) == range(200, 400)


def test_a_log_that_was_never_shortened_is_shortened_in_turns_until_what_is_kept_is_left() -> None:
    checkpoints = list(range(100, 4001, 100))
    gone: List[int] = []
    for _ in range(5):
        turn = dispensable(checkpoints)
        gone += turn
        checkpoints = [version for version in checkpoints if version not in turn]

    assert sorted(set(gone)) == list(range(3000))
    assert len(gone) - len(set(gone)) <= 400
    assert checkpoints[0] == 3000


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
    """What is left when the choice is merged and none of its rows continue each other, and the rows that it cost."""
    found = chosen(kept)
    assert found is not None
    merged = TableFile(found.rows, found.since, max(file.last_at for file in kept))
    return [*(file for file in kept if file.first_at < found.since), merged], found.rows
