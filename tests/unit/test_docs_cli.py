"""docs/reference/cli.md is what the argument parsers make of it."""

from __future__ import annotations

from tests.lab.checkout import ROOT
from tools.docs.cli import page

FILE = ROOT / "docs" / "reference" / "cli.md"


def test_page_of_commands_is_made_of_the_parsers() -> None:
    assert FILE.read_text(encoding="utf-8") == page(), "run: python -m tools.docs.cli > docs/reference/cli.md"
