"""docs/reference/cli.md is what the argument parsers make of it."""

from __future__ import annotations

from mirror_lib.cli import command_line
from tests.lab.checkout import ROOT
from tools.docs.cli import commands, page

FILE = ROOT / "docs" / "reference" / "cli.md"


def test_page_of_commands_is_made_of_the_parsers() -> None:
    assert FILE.read_text(encoding="utf-8") == page(), "run: python -m tools.docs.cli > docs/reference/cli.md"


def test_page_has_every_command_and_every_option() -> None:
    text = FILE.read_text(encoding="utf-8")
    parsers = dict(commands(command_line()))
    assert [line[3:] for line in text.splitlines() if line.startswith("## mirror ")] == list(parsers)
    # The page of MirrorMaker's keys has the options of `mirror mm1`.
    others = [parser for name, parser in parsers.items() if name != "mirror mm1"]
    options = {option for parser in others for action in parser._actions for option in action.option_strings}
    assert sorted(option for option in options - {"-h", "--help"} if option not in text) == []


def test_every_help_text_is_one_or_two_short_sentences() -> None:
    parsers = dict(commands(command_line()))
    told = {str(action.help) for parser in parsers.values() for action in parser._actions}
    assert [text for text in told if max(len(part.split()) for part in text.replace(";", ".").split(". ")) > 25] == []
