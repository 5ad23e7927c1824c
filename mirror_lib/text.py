"""Formats numbers and tables for people: grouped counts, sizes and durations with units, aligned columns."""

from __future__ import annotations

from typing import Collection, List, Sequence

HOUR, DAY = 3600, 86400


def grouped(number: int) -> str:
    """Digits in groups of three, with a thin gap that terminals and log collectors both keep."""
    return f"{number:,}".replace(",", " ")


def counted(number: int, noun: str) -> str:
    """`1 partition`, `1 204 partitions`: a number with its noun, whose plural ends in s."""
    return f"{grouped(number)} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Seconds with a unit: `3.1 s`, from some hours on `5.2 h`, from some days on `12.5 days`."""
    if seconds < 2 * HOUR:
        return f"{seconds:.1f} s"
    return f"{seconds / HOUR:.1f} h" if seconds < 2 * DAY else f"{seconds / DAY:.1f} days"


def size(nbytes: float) -> str:
    """Bytes with a unit: `512 B`, `12.3 MB`."""
    for unit in ("B", "KB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} TB"


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> List[str]:
    """One line a row, two blanks between columns; the columns in `right` are aligned to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows)]
    return [
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width) for i, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]
