"""Tables of the report: the first rows as HTML, and all rows as data for the script of the page. Pure.

The script sorts, filters, and makes elements of further rows on demand, so a page of 10,000 partitions opens quickly.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Tuple

from mirror_lib.report.markup import Markup, shown, tag
from mirror_lib.text import counted

TEXT, WORD, NUMBER, TIME = "text", "word", "number", "time"


@dataclass(frozen=True)
class Column:
    """A column of TEXT, WORD (not broken into lines), NUMBER (aligned to the right) or TIME. The last two sort by
    `Cell.sort`. `note` explains the column."""

    title: str
    kind: str = TEXT
    note: str = ""


@dataclass(frozen=True)
class Cell:
    """What is shown, what it sorts by (`None` comes last), and a CSS class."""

    text: str
    sort: Optional[float] = None
    mark: str = ""


@dataclass(frozen=True)
class Row:
    """One row. With `inner` rows it opens to them."""

    cells: Tuple[Cell, ...]
    inner: Tuple[Row, ...] = ()


@dataclass(frozen=True)
class Table:
    """`key` is unique in the page. `noun`: what a row is, for counting. `shown`: rows that are there at once."""

    key: str
    noun: str
    columns: Tuple[Column, ...]
    rows: Tuple[Row, ...]
    inner_columns: Tuple[Column, ...] = ()
    inner_noun: str = ""
    shown: int = 50


def table(given: Table) -> Markup:
    first = given.rows[: given.shown]
    head = tag("tr", *(_heading(column) for column in given.columns))
    body = [tag("tr", *_cells(given, number, row), data_row=number) for number, row in enumerate(first)]
    note = counted(len(given.rows), given.noun)
    if len(first) < len(given.rows):
        note = f"{len(first)} of {note}"
    grid = tag("table", tag("thead", head), tag("tbody", *body))
    return tag("div", tag("div", grid, cls="scroll"), tag("p", note, cls="count"), cls="grid", data_table=given.key)


def _heading(column: Column) -> Markup:
    button = tag("button", column.title, type="button", title=column.note or None)
    return tag("th", button, scope="col", cls=column.kind, aria_sort="none")


def _cells(given: Table, number: int, row: Row) -> List[Markup]:
    found = []
    for place, (column, cell) in enumerate(zip(given.columns, row.cells)):
        opener = bool(row.inner) and not place
        inside = tag("button", cell.text, type="button", cls="open", aria_expanded="false") if opener else cell.text
        # `.` as a decimal mark, whatever the size.
        sort = None if cell.sort is None else repr(cell.sort)
        found.append(tag("td", inside, cls=f"{column.kind} {cell.mark}".strip(), data_sort=sort))
    return found


def tables_json(tables: Sequence[Table]) -> Markup:
    """All tables for the element `script` of type `application/json`. Nothing in it ends the element, and no text in it
    holds a character that is invisible."""
    text = json.dumps({each.key: _data(each) for each in tables}, ensure_ascii=True, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _data(given: Table) -> Dict[str, object]:
    return {
        "noun": given.noun,
        "shown": given.shown,
        "columns": _columns(given.columns),
        "rows": [_row(row) for row in given.rows],
        "inner": {"noun": given.inner_noun, "columns": _columns(given.inner_columns)},
    }


def _columns(columns: Sequence[Column]) -> List[List[str]]:
    return [[column.title, column.kind, column.note] for column in columns]


def _row(row: Row) -> List[object]:
    """Texts, sort values, classes, and the inner rows."""
    return [
        [shown(cell.text) for cell in row.cells],
        [cell.sort for cell in row.cells],
        [cell.mark for cell in row.cells],
        [_row(each) for each in row.inner],
    ]
