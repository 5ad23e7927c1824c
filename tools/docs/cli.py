"""Writes docs/reference/cli.md from the argument parsers: `python -m tools.docs.cli > docs/reference/cli.md`."""

from __future__ import annotations

import argparse
import re
from typing import Dict, Iterator, List, Mapping, Tuple

from mirror_lib.cli import command_line
from mirror_lib.commands.arguments import EXIT_CODES
from mirror_lib.config.mm1_reader import OPTIONS

# Their names, values and help.
Same = Tuple[Tuple[str, ...], object, object]
_DEFAULT = re.compile(r" \(default(?: (%\(default\)s|[^)]*))?\)")
COMMON = ("config", "flow", "clusters", "json")
RUN, MM1 = "mirror run", "mirror mm1"

_HEAD = """\
# Commands

<!-- Written by `python -m tools.docs.cli`; change the parsers in mirror_lib/commands/ instead. -->

A command takes `[OPTIONS] CONFIG ...` unless its section shows otherwise; its `--help` prints the same. Results go to
standard output; progress, warnings and errors to standard error. [json.md](json.md) has the documents of `--json`.
"""
_MM1_OPTIONS = (
    "[mirrormaker-keys.md](mirrormaker-keys.md#mirrormaker-1-options) has the options of MirrorMaker 1, which replace "
    "CONFIG."
)
_STATUS = "[status.md](../run/status.md) has the exit codes."


def page() -> str:
    """The page as Markdown."""
    parsers = dict(commands(command_line()))
    common = [each for each in parsers[RUN]._actions if each.dest in COMMON]
    # The command that has an option's row: the first one with it.
    rows: Dict[Same, str] = {_same(each): "" for each in common}
    parts = [_HEAD, _exit_codes(EXIT_CODES), _common(common, parsers)]
    for name, parser in parsers.items():
        for each in parser._actions:
            rows.setdefault(_same(each), name)
        parts.append(_section(name, parser, rows))
    return "\n".join(parts)


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


def _common(common: List[argparse.Action], parsers: Dict[str, argparse.ArgumentParser]) -> str:
    lacking: Dict[str, List[str]] = {}
    for each in common:
        without = [name for name, parser in parsers.items() if _same(each) not in map(_same, parser._actions)]
        lacking.setdefault(", ".join(name.partition(" ")[2] for name in without), []).append(_name(each))
    lines = ["## Common options", "", *_table(("option", "meaning"), [[_name(o), _meaning(o)] for o in common]), ""]
    lines += [f"- Not in {commands}: {', '.join(names)}." for commands, names in lacking.items() if commands]
    return "\n".join([*lines, ""])


def _section(name: str, parser: argparse.ArgumentParser, rows: Mapping[Same, str]) -> str:
    purpose = " ".join((parser.description or "").split()).partition(". ")[0]
    own = [each for each in parser._actions if rows[_same(each)] and each.dest != "help" and each.option_strings]
    if name == MM1:
        own = [each for each in own if each.dest not in {option.name for option in OPTIONS}]
    lines = [f"## {name}", "", f"{purpose[0].upper()}{purpose[1:]}.", ""]
    if _usage(name, parser) != f"{name} [OPTIONS] CONFIG ...":
        lines += [f"    {_usage(name, parser)}", ""]
    new = [[_name(each), _default(each), _meaning(each)] for each in own if rows[_same(each)] == name]
    if new:
        lines += [*_table(("option", "default", "meaning"), new), ""]
    for other in dict.fromkeys(rows[_same(each)] for each in own):
        as_there = [_name(each) for each in own if rows[_same(each)] == other != name]
        lines += [f"As for {other}: {', '.join(as_there)}.", ""] if as_there else []
    if name == MM1:
        lines += [_MM1_OPTIONS, ""]
    extra = (parser.epilog or "").replace(EXIT_CODES, "").strip()
    if extra.startswith("exit codes:"):
        lines += [_STATUS, ""]
    elif extra:
        lines += [extra, ""]
    return "\n".join(lines)


def _usage(name: str, parser: argparse.ArgumentParser) -> str:
    if parser.usage:
        return parser.usage
    required = [f" {_words(each)}" for each in parser._actions if each.option_strings and each.required]
    words = []
    for each in (action for action in parser._actions if not action.option_strings):
        words.append(f" [{each.metavar}]" if each.nargs == "?" else f" {each.metavar} ...")
    options = " [OPTIONS]" if any(each.option_strings and each.dest != "help" for each in parser._actions) else ""
    return f"{name}{options}{''.join([*required, *words])}"


def _same(action: argparse.Action) -> Same:
    return tuple(action.option_strings), action.metavar, action.help


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
        return "required"
    if action.default is None or action.default is False:
        named = _DEFAULT.search(str(action.help))
        return f"`{named[1]}`" if named is not None else ""
    number = isinstance(action.default, float)
    return f"`{action.default:g}`" if number else f"`{action.default}`"


def _meaning(action: argparse.Action) -> str:
    """The help without the default, which has a column."""
    return _DEFAULT.sub("", str(action.help)).replace("%%", "%")


def _table(head: Tuple[str, ...], rows: List[List[str]]) -> List[str]:
    lines = [list(head), ["---"] * len(head), *rows]
    return [f"|{'|'.join(cell.replace('|', chr(92) + '|') for cell in line)}|" for line in lines]


if __name__ == "__main__":
    print(page(), end="")
