"""What damages a Delta table: a table's folder in, and some of its files are cut, lost or overwritten."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Callable, List, Mapping, Tuple

import pytest

Change = Callable[[Path], None]


def commits(table: Path) -> List[Path]:
    """The first is the oldest."""
    return sorted((table / "_delta_log").glob("[0-9]*.json"))


def without_checksum_files(table: Path) -> None:
    """As in an object store, which has none of Hadoop's."""
    for path in [*table.glob(".*.crc"), *(table / "_delta_log").glob(".*.crc")]:
        path.unlink()


def _rewritten(number: int, change: Callable[[str], str]) -> Change:
    def damage(table: Path) -> None:
        path = commits(table)[number]
        path.write_text(change(path.read_text()))

    return damage


def cut(number: int, share: float = 0.5) -> Change:
    return _rewritten(number, lambda text: text[: int(len(text) * share)])


def cut_at_line_end(number: int, left: int) -> Change:
    return _rewritten(number, lambda text: "".join(text.splitlines(keepends=True)[:left]))


def lose(number: int) -> Change:
    """One commit's file; Delta's checksum of that version stays."""
    return lambda table: commits(table)[number].unlink()


def go_back(table: Path) -> None:
    """Lose the two newest commits with all that Delta wrote beside them: the table is as it was before them."""
    for commit in commits(table)[-2:]:
        for path in [*commit.parent.glob(f"{commit.stem}.*"), *commit.parent.glob(f".{commit.stem}.*")]:
            path.unlink()


def _newest_data(table: Path) -> Path:
    return max(table.glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)


def cut_data(table: Path) -> None:
    path = _newest_data(table)
    os.truncate(path, path.stat().st_size // 2)


# What is damaged, and by how many commits the table then reads older. With 0 a read fails, by Delta's own error or by
# the number of files in Delta's checksum.
DAMAGES: Mapping[str, Tuple[Change, int]] = {
    "first commit cut off": (cut(0), 0),
    "first commit cut off, with checksum files": (cut(0), 0),
    "first commit cut at a line end, no columns": (cut_at_line_end(0, 1), 0),
    "first commit cut at a line end, no files": (cut_at_line_end(0, 3), 0),
    "commit in between cut at a line end": (cut_at_line_end(1, 1), 0),
    "newest commit cut at a line end": (cut_at_line_end(-1, 1), 0),
    "newest commit cut at a line end, with checksum files": (cut_at_line_end(-1, 1), 0),
    "newest commit empty": (cut(-1, 0.0), 0),
    "newest commit lost": (lose(-1), 1),
    "newest commits lost with their checksums": (go_back, 2),
    "commit lost in between": (lose(1), 0),
    "first commit lost": (lose(0), 0),
    "commit overwritten": (_rewritten(1, lambda _: "hello\n"), 0),
    "data file lost": (lambda table: _newest_data(table).unlink(), 0),
    "data file cut off": (cut_data, 0),
}


# The others are for `make test-all`.
QUICK = ("newest commit cut at a line end", "newest commits lost with their checksums")


CASES = [pytest.param(each, marks=[] if each in QUICK else pytest.mark.long) for each in DAMAGES]


def damage(table: Path, name: str) -> int:
    """Damages the table, and returns how many of its commits are lost; 0 if a read must fail."""
    change, lost = DAMAGES[name]
    if not name.endswith("with checksum files"):
        without_checksum_files(table)
    change(table)
    return lost
