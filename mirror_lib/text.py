"""Formats text for people: counts, sizes and durations with units, tables, and escapes in foreign names.

The name of a topic, a group or a principal may have characters that control a terminal. Every line, log entry and JSON
document passes through `visible`.
"""

from __future__ import annotations

import json
import re
import textwrap
import time
import unicodedata
from dataclasses import dataclass, fields
from itertools import zip_longest
from typing import Any, Callable, Collection, Iterable, List, Match, Optional, Sequence, Tuple

MINUTE, HOUR, DAY = 60, 3600, 86400
# Text is not wrapped into fewer columns of the terminal.
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


# The metadata of a dataclass's field that JSON does not have.
UNPRINTED = {"json": False}


def as_json(document: Any) -> str:
    """One line of JSON, the same to a parser as `document`, with no hidden characters for a terminal. Dataclasses are
    objects, as `document_of` has them."""
    return _escaped(json.dumps(document, ensure_ascii=False, default=document_of), lambda char: json.dumps(char)[1:-1])


def document_of(value: Any) -> Any:
    """A dataclass as JSON has it: its fields but the UNPRINTED ones, and the properties that its `DERIVED` names; of a
    class with `PRINTED` that property alone. An error is its sentence."""
    if isinstance(value, Exception):
        return str(value)
    if hasattr(value, "PRINTED"):
        return getattr(value, value.PRINTED)
    names = [each.name for each in fields(value) if each.metadata.get("json", True)]
    return {name: getattr(value, name) for name in (*names, *getattr(value, "DERIVED", ()))}


def _escaped(text: str, escape: Callable[[str], str]) -> str:
    def shown(found: Match[str]) -> str:
        char = found.group()
        return escape(char) if unicodedata.category(char) in _HIDDEN else char

    return text if text.isprintable() else _BEYOND_ASCII.sub(shown, text)


def grouped(number: int) -> str:
    return f"{number:,}"


def counted(number: int, noun: str) -> str:
    """`1 partition`, `1,204 partitions`: a number with its noun, whose plural ends in s."""
    return f"{grouped(number)} {noun}{'' if number == 1 else 's'}"


def some(names: Sequence[str], most: int = 10) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def duration(seconds: float) -> str:
    """Seconds in one or two units: `3.1 s`, `45 s`, `12 min`, `3 h 20 min`, `2 days 4 h`, `12 days`."""
    if seconds < 2 * MINUTE:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    if seconds < 2 * HOUR:
        return f"{seconds / MINUTE:.0f} min"
    if seconds >= 10 * DAY:
        return f"{seconds / DAY:.0f} days"
    units = (DAY, "days", HOUR, "h") if seconds >= 2 * DAY else (HOUR, "h", MINUTE, "min")
    whole, rest = divmod(round(seconds / units[2]), units[0] // units[2])
    return f"{whole} {units[1]}" + (f" {rest} {units[3]}" if rest else "")


def left(seconds: float) -> str:
    """The time until something, which may be over."""
    return duration(seconds) if seconds > 0 else "0 s"


def moment(at: float) -> str:
    """Unix seconds as `2026-11-26 08:10:02`, in the time zone of this machine."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def utc(at: float) -> str:
    """The same in UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at))


def size(nbytes: float) -> str:
    """Bytes with a unit: `512 B`, `12.3 MB`."""
    for unit in ("B", "KB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} TB"


@dataclass(frozen=True)
class Column:
    """A column of a table, for text and for HTML. `get` reads its value of a row and `show` formats it; `None` is shown
    as `-`. `note` explains the column, `mark` gives the state that colours a cell."""

    title: str
    get: Callable[[Any], Any]
    show: Callable[[Any], str] = str
    note: str = ""
    mark: Callable[[Any], str] = lambda row: ""

    @property
    def right(self) -> bool:
        """Numbers are aligned to the right."""
        return self.show not in (str, moment)

    def text(self, row: Any) -> str:
        value = self.get(row)
        return "-" if value is None else self.show(value)


# Shows a number as it is: an offset, a partition.
NUMBER = "{}".format


def table_lines(table: Sequence[Column], rows: Iterable[Any], columns: Optional[int] = None) -> List[str]:
    """The heading and a line for each row, as `aligned` makes them."""
    cells = [[each.title.upper() for each in table], *([each.text(row) for each in table] for row in rows)]
    return aligned(cells, [place for place, each in enumerate(table) if each.right], columns)


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
    return textwrap.wrap(line, columns, subsequent_indent=" " * hang, break_long_words=False, break_on_hyphens=False)


def aligned(
    rows: Sequence[Sequence[str]], right: Collection[int] = (), columns: Optional[int] = None, indent: str = ""
) -> List[str]:
    """One line a row, two blanks between columns; the columns in `right` are aligned to the right.

    If a line would be wider than `columns`, cells are broken between words. If that is not enough, the names of one
    column after another have lines of their own: two topic names seldom fit next to numbers.
    """
    rows = [[visible(cell, keep="") for cell in row] for row in rows]
    cells = list(zip(*rows))
    widths = [max(map(len, column)) for column in cells]
    apart: Collection[int] = ()
    if columns is not None and len(indent) + sum(widths) + 2 * (len(widths) - 1) > columns:
        words = [max((len(word) for cell in column for word in cell.split()), default=0) for column in cells]
        least = [
            min(width, word if i in right else max(word, LEAST_COLUMN))
            for i, (width, word) in enumerate(zip(widths, words))
        ]
        names = [i for i, word in enumerate(words) if word and i not in right]
        apart = _narrow(widths, least, names, columns - len(indent))
    lines = []
    for row in rows:
        kept = [(cell, widths[i], i in right) for i, cell in enumerate(row) if i not in apart]
        own = [row[0], *(f"  {line}" for line in _row(kept))] if 0 in apart else _row(kept)
        below = [f"  {row[i]}" for i in sorted(apart) if i and row[i] not in ("", "-")]
        lines += [indent + line for line in (*own, *below)]
    return lines


def _narrow(widths: List[int], least: Sequence[int], names: Sequence[int], columns: int) -> Collection[int]:
    """Narrow the widest of `widths`, none below its `least` one, until all fit into `columns`. Returns the columns of
    `names` that do not fit."""
    apart: List[int] = []
    while True:
        kept = [i for i in range(len(widths)) if i not in apart]
        room = columns - 2 * (len(kept) - (0 not in apart))
        left = [i for i in names if i not in apart]
        if sum(least[i] for i in kept) <= room or not left or len(kept) == 1:
            break
        apart.append(max(left, key=lambda i: (least[i], i)))
    while sum(widths[i] for i in kept) > room and any(widths[i] > least[i] for i in kept):
        widths[max((i for i in kept if widths[i] > least[i]), key=widths.__getitem__)] -= 1
    return apart


def _row(cells: Sequence[Tuple[str, int, bool]]) -> List[str]:
    """The lines of a row; a cell has its column's width, and whether it is aligned to the right."""
    parts = [
        [cell] if len(cell) <= width else textwrap.wrap(cell, width, break_long_words=False, break_on_hyphens=False)
        for cell, width, _ in cells
    ]
    sides = [str.rjust if right else str.ljust for _, _, right in cells]
    return [
        "  ".join(side(part, width) for part, (_, width, _), side in zip(line, cells, sides)).rstrip()
        for line in zip_longest(*parts, fillvalue="")
    ]
