"""The pictures of the pages are what their script draws."""

from __future__ import annotations

from xml.etree import ElementTree

from tools.docs.pictures import FOLDER, pictures, readme_rows


def test_files_are_what_is_drawn() -> None:
    drawn = pictures()
    assert {name: (FOLDER / name).read_text(encoding="utf-8") for name in drawn} == drawn
    for text in drawn.values():
        ElementTree.fromstring(text)


def test_bars_are_those_of_the_readme() -> None:
    rows = readme_rows()
    assert len(rows) >= 5 and all(ours > 100_000 and theirs > 100_000 for _, ours, theirs, _ in rows)
