"""Pages, help, messages and log lines use the field's words. docs/start/concepts.md has the glossary."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path
from typing import Iterator, Set, Tuple

import pytest

from tests.lab.checkout import ROOT

# Words without a component as their subject, and words that mean several things.
BANNED = re.compile(
    r"\b(nobody|somebody|whoever|told|untold|tells|anew|beside|stands (?:at|where)|lies (?:at|there|in)|goes on|go on"
    r"|a life|in the way|those of|left over|mends?|mended)\b",
    re.IGNORECASE,
)
# Names that are no sentences: a JSON key, a column of SQL, the metadata of an offset.
NAMES = re.compile(r"untold|told|mirror: goes on at offset .*|.*rlike.*|.*split.*")
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "conf").rglob("*.md")]


def in_prose(text: str) -> Iterator[Tuple[int, str]]:
    """Line numbers with their banned words, without what stands in backticks."""
    for number, line in enumerate(text.splitlines(), start=1):
        for found in BANNED.finditer(re.sub(r"`[^`]*`", "", line)):
            yield number, found.group()


def in_strings(source: str) -> Iterator[Tuple[int, str]]:
    """The same of every string of a module that is no docstring, without NAMES."""
    tree = ast.parse(source)
    docs: Set[int] = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    for each in ast.walk(tree):
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and id(each) not in docs:
            found = BANNED.search(each.value)
            if found and not NAMES.fullmatch(each.value):
                yield each.lineno, found.group()


def in_names(source: str) -> Iterator[Tuple[int, str]]:
    """Line numbers with names of which a part between capitals or underscores is a banned word."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", token.string.replace("_", " "))
            if BANNED.search(words):
                yield token.start[0], token.string


@pytest.mark.parametrize("page", sorted(PAGES), ids=lambda page: str(page.relative_to(ROOT)))
def test_page(page: Path) -> None:
    assert list(in_prose(page.read_text(encoding="utf-8"))) == []


def test_help_messages_and_log_lines() -> None:
    modules = sorted((ROOT / "mirror_lib").rglob("*.py"))
    found = [(path.relative_to(ROOT), *each) for path in modules for each in in_strings(path.read_text("utf-8"))]
    assert found == []


def test_names() -> None:
    modules = sorted((ROOT / "mirror_lib").rglob("*.py"))
    found = [(path.relative_to(ROOT), *each) for path in modules for each in in_names(path.read_text("utf-8"))]
    assert found == []
