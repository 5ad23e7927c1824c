"""`mirror help`: the entry of a code that an error, a refusal or an incident names, or the list of all codes."""

from __future__ import annotations

import argparse

from mirror_lib.codes import entry, entry_lines, grouped_entries, nearest
from mirror_lib.commands.arguments import Commands, add_plain
from mirror_lib.commands.output import print_lines
from mirror_lib.errors import EXIT_OK, ConfigError


def add(commands: Commands) -> None:
    parser = add_plain(commands, "help", "explain a code such as MIR-304, or list all codes")
    parser.add_argument(
        "code", metavar="CODE", nargs="?", help="MIR-304, mir-304 or 304; without CODE all codes are listed"
    )
    parser.set_defaults(command=help_command, json=None)


def help_command(arguments: argparse.Namespace) -> int:
    if arguments.code is None:
        for title, entries in grouped_entries():
            print_lines([title, *(f"  {each.code}  {each.title}" for each in entries), ""])
        return EXIT_OK
    found = entry(arguments.code)
    if found is None:
        near = nearest(arguments.code)
        raise ConfigError(f"there is no code {arguments.code}", f"the nearest is {near.code}, {near.title}")
    print_lines(entry_lines(found))
    return EXIT_OK
