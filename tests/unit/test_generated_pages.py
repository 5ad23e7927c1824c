"""Pages and pictures are what their generators write."""

from __future__ import annotations

from typing import Callable, Dict
from xml.etree import ElementTree

import pytest

from mirror_lib.cli import command_line
from tests.lab.checkout import ROOT
from tools.docs import cli, json_documents, parity, settings, starts, tables
from tools.docs.pictures import FOLDER, pictures

PAGES: Dict[str, Callable[[], str]] = {
    "reference/cli": cli.page,
    "reference/json": json_documents.page,
    "reference/mirrormaker-keys": parity.page,
    "reference/settings": settings.page,
    "project/starts": starts.page,
}


@pytest.mark.parametrize("name", PAGES)
def test_page_is_up_to_date(name: str) -> None:
    made_by = f"run: python -m {PAGES[name].__module__} > docs/{name}.md"
    assert (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") == PAGES[name](), made_by


def test_page_of_tables_has_their_columns() -> None:
    text = tables.PAGE.read_text(encoding="utf-8")
    assert text == tables.page(text), "run: python -m tools.docs.tables"


def test_pictures_are_what_is_drawn() -> None:
    drawn = pictures()
    assert {name: (FOLDER / name).read_text(encoding="utf-8") for name in drawn} == drawn
    for text in drawn.values():
        ElementTree.fromstring(text)


def test_every_command_with_json_is_on_the_page() -> None:
    text = (ROOT / "docs" / "reference" / "json.md").read_text(encoding="utf-8")
    named = [name for name, parser in cli.commands(command_line()) if "--json" in parser._option_string_actions]
    forms = {name: (f"## {name}", f"`{name}`", f"`{name.partition(' ')[2]}`") for name in named}
    assert [name for name in named if not any(each in text for each in forms[name])] == []
