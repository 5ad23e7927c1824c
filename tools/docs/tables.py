"""Writes the intro and the columns of each table into docs/reference/tables.md, from mirror_lib/ledger/tables.py, and
keeps the rest of the page: `python -m tools.docs.tables`."""

from __future__ import annotations

import re
from pathlib import Path

from mirror_lib.ledger import tables
from mirror_lib.ledger.tables import TableSchema

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "tables.md"
SCHEMAS = [each for each in vars(tables).values() if isinstance(each, TableSchema)]
# The page explains these columns once.
COMMON = (tables.FLOW, tables.RUN_ID, tables.BATCH_ID, tables.AT)


def page(text: str) -> str:
    """The page with present tables. Raises ValueError for a table without a section."""
    for schema in SCHEMAS:
        section = re.compile(rf"^## {schema.name}\n.*?^\|column\|.*?\n\n", re.MULTILINE | re.DOTALL)
        text, count = section.subn(_section(schema), text)
        if count != 1:
            raise ValueError(f"{PAGE.name} has no table in a section {schema.name}")
    return text


def _section(schema: TableSchema) -> str:
    own = [f"|`{each.name}`|{each.type}|{each.comment}|" for each in schema.columns if each not in COMMON]
    shared = [f"`{each.name}`" for each in schema.columns if each in COMMON]
    intro = [f"## {schema.name}", "", f"{schema.comment}. Common columns: {', '.join(shared)}.", ""]
    return "\n".join([*intro, "|column|type|meaning|", "|---|---|---|", *own, "", ""])


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
