"""What others may name is shown for what it is: no terminal obeys it, and no line of a log is forged."""

from __future__ import annotations

import json
import logging
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_lib.commands.output import print_error, print_json, print_lines, print_progress
from mirror_lib.log_lines import EntryFormatter, name_files, with_files
from mirror_lib.text import aligned, as_json, one_entry, visible

# Clears the screen, names the window, and forges a line; C1's CSI; a right-to-left override; no character at all.
HOSTILE = "evil\x1b[2J\x1b]0;pwned\x07\nWARNING forged \x9b31m \u202egnp.exe \ud800"
SHOWN = "evil\\x1b[2J\\x1b]0;pwned\\x07{}WARNING forged \\x9b31m \\u202egnp.exe \\ud800"


def test_hostile_name_is_shown_and_not_obeyed() -> None:
    assert visible(HOSTILE) == SHOWN.format("\n")
    assert one_entry(HOSTILE) == SHOWN.format("\n    ")
    assert aligned([["GROUP", "LAG"], [HOSTILE, "7"]])[1] == SHOWN.format("\\n") + "  7"


@pytest.mark.parametrize("text", ["orders", "Bestellungen für Köln", "订单", "1\u202f204 records", "a\tb", "naïve 🚚"])
def test_what_people_write_stays_as_it_is(text: str) -> None:
    assert visible(text) == text
    assert json.loads(as_json({"name": text})) == {"name": text}
    assert text in as_json(text) or "\t" in text


@given(st.text())
def test_nothing_hidden_is_left_and_json_says_the_same(text: str) -> None:
    for shown in (visible(text, keep=""), as_json(text)):
        assert not any(unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") for char in shown)
    assert json.loads(as_json([text])) == [text]


def test_printers_and_the_log_show_what_is_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    print_lines([HOSTILE])
    print_json({"group": HOSTILE})
    print_progress(HOSTILE)
    print_error(HOSTILE)
    shown = capsys.readouterr()
    for char in "\x1b\x07\x9b\u202e\ud800":
        assert char not in shown.out + shown.err
    assert not any(line.startswith("WARNING") for line in shown.err.splitlines())
    record = logging.LogRecord("mirror", logging.WARNING, "", 1, "group %s", (HOSTILE,), None)
    _, _, line = EntryFormatter().format(record).partition(" WARNING ")
    assert line.startswith("group " + SHOWN.format("\n    "))
    assert json.loads(EntryFormatter(json_lines=True).format(record))["message"] == f"group {HOSTILE}"
    assert not {"\n", *"\x1b\x07\x9b\u202e\ud800"} & set(EntryFormatter(json_lines=True).format(record))


def test_commands_name_the_files_of_the_user(capsys: pytest.CaptureFixture[str]) -> None:
    hint = "mirror groups rollback CONFIG --run 7 or mirror help CONFIG-1; keep CONFIG"
    assert with_files(hint) == hint
    name_files(["a file.yaml", "b.json"])
    assert with_files("mirror plan CONFIG") == "mirror plan 'a file.yaml' b.json"
    print_lines([hint])
    named = "mirror groups rollback 'a file.yaml' b.json --run 7 or mirror help CONFIG-1; keep CONFIG\n"
    assert capsys.readouterr().out == named
