"""Formats text for people: counts, sizes and durations with units, aligned columns, and escapes in foreign names.

The name of a topic, a group or a principal may have characters that control a terminal. Every line, log entry and JSON
document passes through `visible`.
"""

from __future__ import annotations

import json
import re
import textwrap
import unicodedata
from typing import Any, Callable, Collection, List, Match, Optional, Sequence

HOUR, DAY = 3600, 86400
# The last column of a table is not wrapped into fewer columns of the terminal.
LEAST_COLUMN = 16

# Control characters, characters that change the text direction, other invisible ones, and separators of lines and
# paragraphs. Spaces of any width are not among them.
_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
_BEYOND_ASCII = re.compile(r"[^\x20-\x7e]")


def visible(text: str, keep: str = "\n\t") -> str:
    """`text` with each control or invisible character replaced by its escape, such as `\\x1b`; the ones of `keep`
    stay."""
    return _escaped(text, lambda char: char if char in keep else char.encode("unicode_escape").decode("ascii"))


# `s3a://KEY:SECRET@bucket`, an old form. The container of `abfss://CONTAINER@account` is no secret.
_LOGIN = re.compile(r"(?<=://)[^@\s]*:[^@\s]*@")
# The query of an address, such as the signature of a shared access URL.
_QUERY = re.compile(r"(://[^\s?]*)\?[^\s)'\"]*")


def without_logins(text: str) -> str:
    """`text` with `***` in place of a login and of a query in each address."""
    return _QUERY.sub(r"\1?***", _LOGIN.sub("***@", text)) if "://" in text else text


def one_entry(text: str) -> str:
    """`visible`, with every line after the first indented, so that none looks like a separate entry."""
    return visible(text).replace("\n", "\n    ")


def as_json(document: Any) -> str:
    """One line of JSON, the same to a parser as `document`, with no hidden characters for a terminal."""
    return _escaped(json.dumps(document, ensure_ascii=False), lambda char: json.dumps(char)[1:-1])


def _escaped(text: str, escape: Callable[[str], str]) -> str:
    """`text` with each hidden character replaced by its `escape`."""

    def shown(found: Match[str]) -> str:
        char = found.group()
        return escape(char) if unicodedata.category(char) in _HIDDEN else char

    return text if text.isprintable() else _BEYOND_ASCII.sub(shown, text)


def grouped(number: int) -> str:
    """Digits in groups of three, separated by commas."""
    return f"{number:,}"


def counted(number: int, noun: str) -> str:
    """`1 partition`, `1,204 partitions`: a number with its noun, whose plural ends in s."""
    return f"{grouped(number)} {noun}{'' if number == 1 else 's'}"


def some(names: Sequence[str], most: int = 10) -> str:
    """The first `most` names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def duration(seconds: float) -> str:
    """Seconds with a unit: `3.1 s`, from ten minutes on `45 min`, then `5.2 h` and `12.5 days`."""
    if seconds < 600:
        return f"{seconds:.1f} s"
    if seconds < 2 * HOUR:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / HOUR:.1f} h" if seconds < 2 * DAY else f"{seconds / DAY:.1f} days"


def size(nbytes: float) -> str:
    """Bytes with a unit: `512 B`, `12.3 MB`."""
    for unit in ("B", "KB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} TB"


def fitted(rows: Sequence[Sequence[str]], right: Collection[int], columns: Optional[int]) -> List[str]:
    """As `aligned`. If a line would be wider than `columns`, the second cell of each row gets its own indented line:
    two topic names seldom fit next to numbers."""
    lines = aligned(rows, right)
    if columns is None or max(map(len, lines)) <= columns:
        return lines
    rest = aligned([[row[0], *row[2:]] for row in rows], {column - 1 for column in right if column})
    return [line for row, others in zip(rows, rest) for line in (others, f"  {visible(row[1], keep='')}")]


# What is to be copied into a shell, whole.
_COMMAND = re.compile(r"kafka-[a-z-]+\.sh |mirror .* --execute")


def wrapped(line: str, columns: Optional[int]) -> List[str]:
    """`line` in lines of at most `columns` columns, broken between words. The rest stands under the last column of a
    table, or is indented further. A line with a command to copy stays whole."""
    if columns is None or len(line) <= columns or _COMMAND.search(line):
        return [line]
    indent = len(line) - len(line.lstrip())
    last = max((found.end() for found in re.finditer(r"(?<=\S) {2,}", line)), default=0)
    hang = last if last and last + LEAST_COLUMN <= columns else indent + 4
    return textwrap.wrap(
        line, columns, subsequent_indent=" " * hang, break_long_words=False, break_on_hyphens=False
    )


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> List[str]:
    """One line a row, two blanks between columns; the columns in `right` are aligned to the right."""
    rows = [[visible(cell, keep="") for cell in row] for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(*rows)]
    return [
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width) for i, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]
