"""The pictures of the pages are what their script draws."""

from __future__ import annotations

from xml.etree import ElementTree

from tools.docs.pictures import FOLDER, pictures


def test_files_are_what_is_drawn() -> None:
    drawn = pictures()
    assert {name: (FOLDER / name).read_text(encoding="utf-8") for name in drawn} == drawn
    for text in drawn.values():
        ElementTree.fromstring(text)
