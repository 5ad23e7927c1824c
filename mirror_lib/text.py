"""Numbers as an operator reads them: counts in groups of three, sizes and durations with a unit. Pure."""

from __future__ import annotations

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
