"""What damages a Delta table: a table's folder in, and one of its files is cut, lost or overwritten."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Callable, Dict, List, Mapping, NamedTuple, Sequence

from mirror_lib.ledger.delta_log import (
    CUT,
    CUT_DATA,
    LOST_LINES,
    MISSING_COMMIT,
    MISSING_DATA,
    NO_METADATA,
    NOT_A_COMMIT,
    UNREADABLE,
)


def commits(table: Path) -> List[Path]:
    """The first is the oldest."""
    return sorted((table / "_delta_log").glob("[0-9]*.json"))


def without_checksum_files(table: Path) -> None:
    """As in an object store, which has none of Hadoop's."""
    for path in [*table.glob(".*.crc"), *(table / "_delta_log").glob(".*.crc")]:
        path.unlink()


def cut(number: int, share: float = 0.5) -> Callable[[Path], Path]:
    def damage(table: Path) -> Path:
        path = commits(table)[number]
        os.truncate(path, int(path.stat().st_size * share))
        return path

    return damage


def cut_at_line_end(number: int, left: int) -> Callable[[Path], Path]:
    def damage(table: Path) -> Path:
        path = commits(table)[number]
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:left]))
        return path

    return damage


def lose(number: int) -> Callable[[Path], Path]:
    def damage(table: Path) -> Path:
        path = commits(table)[number]
        path.unlink()
        return path

    return damage


def overwrite(number: int, text: str) -> Callable[[Path], Path]:
    def damage(table: Path) -> Path:
        path = commits(table)[number]
        path.write_text(text)
        return path

    return damage


def _newest_data(table: Path) -> Path:
    return max(table.glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)


def lose_data(table: Path) -> Path:
    path = _newest_data(table)
    path.unlink()
    return path


def cut_data(table: Path) -> Path:
    path = _newest_data(table)
    os.truncate(path, path.stat().st_size // 2)
    return path


class Damage(NamedTuple):
    """`kinds` are the faults that a check finds; `reported` whether Delta itself fails on it without checksum files."""

    make: Callable[[Path], Path]
    kinds: Sequence[str]
    reported: bool = True
    checksum_files: bool = False


DAMAGES: Mapping[str, Damage] = {
    "first commit cut off": Damage(cut(0), [CUT]),
    "first commit cut off, with checksum files": Damage(cut(0), [CUT], checksum_files=True),
    "first commit cut at a line end, no columns": Damage(cut_at_line_end(0, 1), [LOST_LINES, NO_METADATA]),
    "first commit cut at a line end, no files": Damage(cut_at_line_end(0, 3), [LOST_LINES], reported=False),
    "newest commit cut at a line end": Damage(cut_at_line_end(-1, 1), [LOST_LINES], reported=False),
    "newest commit cut at a line end, with checksum files": Damage(
        cut_at_line_end(-1, 1), [UNREADABLE], checksum_files=True
    ),
    "newest commit empty": Damage(cut(-1, 0.0), [CUT], reported=False),
    "newest commit lost": Damage(lose(-1), [MISSING_COMMIT], reported=False),
    "commit lost in between": Damage(lose(1), [MISSING_COMMIT]),
    "first commit lost": Damage(lose(0), [MISSING_COMMIT]),
    "commit overwritten": Damage(overwrite(1, "hello\n"), [NOT_A_COMMIT]),
    "data file lost": Damage(lose_data, [MISSING_DATA]),
    "data file cut off": Damage(cut_data, [CUT_DATA]),
}


def damaged(table: Path, name: str) -> str:
    """Damages the table, and returns the file that is damaged, as the mirror names it."""
    damage = DAMAGES[name]
    if not damage.checksum_files:
        without_checksum_files(table)
    return damage.make(table).relative_to(table).as_posix()


def protocol_of_later(table: Path) -> None:
    """As a later Delta leaves a table that a client has given a feature."""
    without_checksum_files(table)
    path = commits(table)[-1]
    features: Dict[str, object] = {"readerFeatures": ["ofLater"], "writerFeatures": ["ofLater"]}
    words = ", ".join(f'"{name}": ["ofLater"]' for name in features)
    path.write_text(path.read_text() + f'{{"protocol":{{"minReaderVersion":3,"minWriterVersion":7,{words}}}}}\n')
