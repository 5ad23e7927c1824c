"""The pictures of the pages are what their script draws."""

from __future__ import annotations

import json
from html import escape
from xml.etree import ElementTree

from tests.lab.checkout import ROOT
from tools.docs.pictures import FOLDER, pictures, readme_rows


def test_files_are_what_is_drawn() -> None:
    drawn = pictures()
    assert {name: (FOLDER / name).read_text(encoding="utf-8") for name in drawn} == drawn
    for text in drawn.values():
        ElementTree.fromstring(text)


def test_picture_of_the_dashboard_has_each_of_its_panels() -> None:
    panels = json.loads((ROOT / "conf/monitoring/dashboard.json").read_text(encoding="utf-8"))["panels"]
    drawn = (FOLDER / "dashboard.svg").read_text(encoding="utf-8")
    assert [each["title"] for each in panels if f">{escape(each['title'])}<" not in drawn] == []
    ElementTree.fromstring(drawn)


def test_bars_are_those_of_the_readme() -> None:
    rows = readme_rows()
    assert len(rows) >= 5 and all(ours > 100_000 and theirs > 100_000 for _, ours, theirs, _ in rows)
