"""Writes docs/reference/cli.md from the argument parsers: `python -m tools.docs.cli > docs/reference/cli.md`."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Iterator, List, Tuple

from mirror_lib.cli import command_line
from mirror_lib.commands.arguments import EXIT_CODES
from mirror_lib.config.mm1_reader import OPTIONS

_DEFAULT = re.compile(r" \(default(?: (%\(default\)s|[^)]*))?\)")
COMMON = ("config", "flow", "clusters", "json")
RUN, MM1 = "mirror run", "mirror mm1"
DOCS = Path(__file__).parents[2] / "docs"
# By the first words of a command: the page that explains its options, next to docs/reference.
PAGES = {
    "mirror run": "run/start-and-stop",
    "mirror status": "run/status",
    "mirror report": "run/status",
    "mirror doctor": "run/start-and-stop",
    "mirror plan": "run/plan",
    "mirror verify": "run/verify",
    "mirror translate": "run/consumer-groups",
    "mirror groups": "run/consumer-groups",
    "mirror translate-position": "run/consumer-groups",
    "mirror cutover": "run/cut-over",
    "mirror failover": "run/disaster-recovery",
    "mirror mm1": "migrate/from-mm1",
    "mirror takeover": "migrate/from-mm2",
    "mirror help": "fix/codes",
}

_HEAD = """\
# Commands

<!-- Written by `python -m tools.docs.cli`; change the parsers in mirror_lib/commands/ instead. -->

A command takes `[OPTIONS] CONFIG ...` unless its row shows otherwise. The page behind its name explains its options, as
does `--help`. Results go to standard output; progress, warnings and errors to standard error. [json.md](json.md) has
the documents of `--json`.
"""


def page() -> str:
    """The page as Markdown."""
    parsers = list(commands(command_line()))
    common = [each for each in dict(parsers)[RUN]._actions if each.dest in COMMON]
    lines = ["## Common options", "", *_table(("option", "meaning"), [[_name(o), _meaning(o)] for o in common]), ""]
    lines += ["## Each command", "", *_table(("command", "purpose", "options"), [_row(*each) for each in parsers]), ""]
    return "\n".join([_HEAD, _exit_codes(EXIT_CODES), *lines])


def commands(parser: argparse.ArgumentParser) -> Iterator[Tuple[str, argparse.ArgumentParser]]:
    """Each command that can be run, with its parser, in the order of the help."""
    below = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    if not below:
        yield parser.prog, parser
    for each in below:
        for command in each.choices.values():
            yield from commands(command)


def _exit_codes(text: str) -> str:
    """The lines `  CODE    MEANING` of an epilog as a table, and the sentences after them."""
    rows: List[List[str]] = []
    rest: List[str] = []
    for line in text.splitlines()[1:]:
        row = re.fullmatch(r"  (\d+) +(.*)", line)
        if row is not None:
            rows.append([row[1], row[2]])
        elif line.startswith("  "):
            rows[-1][1] += f" {line.strip()}"
        elif line:
            rest.append(line)
    return "\n".join([*_table(("exit code", "meaning"), rows), "", *([*rest, ""] if rest else [])])


def _row(name: str, parser: argparse.ArgumentParser) -> List[str]:
    """The command with its page, what it is for, and its own options with their defaults. Raises ValueError for an
    option that the page does not name."""
    page = PAGES.get(name) or PAGES[" ".join(name.split()[:2])]
    purpose = " ".join((parser.description or "").split()).partition(". ")[0]
    without = {*COMMON, "help", *(option.name for option in OPTIONS if name == MM1)}
    own = [each for each in parser._actions if each.dest not in without and each.option_strings]
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    unnamed = [_name(each) for each in own if each.option_strings[0] not in text]
    if unnamed:
        raise ValueError(f"{page}.md does not name {', '.join(unnamed)} of {name}")
    words = [each for each in parser._actions if not each.option_strings]
    without_config = "" if words and words[0].dest == "config" else "`[CODE]`" if words else "no `CONFIG`"
    options = [f"{_name(each)}{_default(each)}" for each in own]
    return [f"[{name}](../{page}.md)", purpose, ", ".join(filter(None, [without_config, *options]))]


def _words(action: argparse.Action) -> str:
    """The option as it is typed. A value that may be left out is in brackets."""
    name = ", ".join(action.option_strings)
    value = action.metavar or "|".join(map(str, action.choices or ()))
    if not value:
        return name
    if action.nargs == "?":
        return f"{name}[={value}]"
    return f"{name} {value}{' ...' if action.nargs == '+' else ''}"


def _name(action: argparse.Action) -> str:
    return f"`{_words(action) if action.option_strings else str(action.metavar)}`"


def _default(action: argparse.Action) -> str:
    if action.required:
        return " (required)"
    if action.default is None or action.default is False:
        named = _DEFAULT.search(str(action.help))
        return f" (`{named[1]}`)" if named is not None else ""
    number = isinstance(action.default, float)
    return f" (`{action.default:g}`)" if number else f" (`{action.default}`)"


def _meaning(action: argparse.Action) -> str:
    """The help without the default, which has a column."""
    return _DEFAULT.sub("", str(action.help)).replace("%%", "%")


def _table(head: Tuple[str, ...], rows: List[List[str]]) -> List[str]:
    lines = [list(head), ["---"] * len(head), *rows]
    return [f"|{'|'.join(cell.replace('|', chr(92) + '|') for cell in line)}|" for line in lines]


if __name__ == "__main__":
    print(page(), end="")
