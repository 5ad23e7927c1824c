"""Rows of text in, lines with aligned columns out: every table that is printed looks the same."""

from __future__ import annotations

from typing import Collection, List, Sequence


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> List[str]:
    """One line a row, two blanks between columns; the columns in `right` are aligned to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows)]
    return [
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width) for i, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]
