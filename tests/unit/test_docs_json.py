"""docs/reference/json.md has the keys, and the types, of the documents that the code prints; tables.md the columns."""

from __future__ import annotations

from typing import Tuple

from mirror_lib.cli import command_line
from tests.lab.checkout import ROOT
from tools.docs.cli import commands
from tools.docs.json_documents import page

FILE = ROOT / "docs" / "reference" / "json.md"


def test_page_of_documents_is_what_the_code_prints() -> None:
    pages = "run: python -m tools.docs.json_documents > docs/reference/json.md"
    assert FILE.read_text(encoding="utf-8") == page(), pages


def test_page_of_tables_has_their_columns() -> None:
    text = tables.PAGE.read_text(encoding="utf-8")
    assert text == tables.page(text), "run: python -m tools.docs.tables"


def test_every_command_with_json_is_on_the_page() -> None:
    text = FILE.read_text(encoding="utf-8")
    named = [name for name, parser in commands(command_line()) if "--json" in parser._option_string_actions]
    assert [name for name in named if not any(each in text for each in _mentions(name))] == []


def _mentions(name: str) -> Tuple[str, ...]:
    """The heading of a command, or its name in a sentence."""
    return f"## {name}", f"`{name}`", f"`{name.partition(' ')[2]}`"
