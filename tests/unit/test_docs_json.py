"""docs/reference/json.md has the keys, and the types, of the documents that the code prints; tables.md the columns."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import pytest

from mirror_lib.cli import command_line
from tests.lab.checkout import ROOT
from tests.unit.documents import documents
from tools.docs import json_documents, tables
from tools.docs.cli import commands
from tools.docs.json_documents import keys_of, page, typed

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


def test_keys_have_all_types_of_their_values_and_a_mark_where_one_lacks_them() -> None:
    found = keys_of([{"a": 1, "b": [{"c": None}]}, {"a": 1.5, "b": [{"c": "x", "d": True}]}])
    assert {path: typed(kinds) for path, kinds in found.items()} == {
        "a": "number",
        "b": "array",
        "b[].c": "string/null",
        "b[].d": "boolean?",
    }


@pytest.mark.parametrize(
    ("change", "error"),
    [({"new": 1}, KeyError), ({"outage": {"side": "source", "since": 1.5}}, ValueError)],
)
def test_a_key_that_is_new_or_gone_is_seen(change: Dict[str, Any], error: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    title = "mirror run: an outage"
    changed = [{**each, **change} for each in documents()[title]]
    monkeypatch.setattr(json_documents, "documents", lambda: {**documents(), title: changed})
    with pytest.raises(error, match=title):
        page()
