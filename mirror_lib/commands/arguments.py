"""How a command stands on the command line. The module of each has `add`, which calls `add_command` with its options.

What a parsed command line runs is `arguments.command(arguments)`, whatever the command is; it returns the exit code.
"""

from __future__ import annotations

import argparse
import re
from functools import partial
from typing import Any, Callable, List, Sequence

from mirror_lib.commands.output import add_json, print_warning
from mirror_lib.config.loader import load
from mirror_lib.config.model import MirrorConfig
from mirror_lib.errors import EXIT_FAILED, EXIT_OK, EXIT_REFUSED, EXIT_STOPPED, EXIT_USAGE
from mirror_lib.text import counted

EXIT_CODES = f"""\
exit codes:
  {EXIT_OK}    done: everything is copied, or equal; a continuous run that was stopped
  {EXIT_FAILED}    failed: something could not be copied, or differs
  {EXIT_USAGE}    bad usage or configuration; nothing was started
  {EXIT_REFUSED}    refused for safety: to continue could lose or double records
  {EXIT_STOPPED}  a bounded run (`--once`, `availableNow`) was interrupted; run it again to resume
Where flows end with different codes, the exit code is the first of 2, 3, 1, 143, 0 that a flow has.
"""
CONFIG = "a YAML file, a MirrorMaker 2 .properties file, or JSON files of Kafka Connect's Mirror… connectors"

# What argparse calls the parsers of the commands, which has no public type.
Commands = Any
Run = Callable[[argparse.Namespace, MirrorConfig], int]
Read = Callable[[argparse.Namespace], MirrorConfig]


def add_command(commands: Commands, name: str, run: Run, text: str, *, flow: bool = True) -> argparse.ArgumentParser:
    """A command that takes files, with `--flow` and `--clusters` where `flow` says so.

    The warnings of the files are printed before `run` is called.
    """
    parser = add_plain(commands, name, text)
    parser.add_argument("config", metavar="CONFIG", nargs="+", help=CONFIG)
    if flow:
        parser.add_argument("--flow", metavar="A->B", help="only this flow; quote it, because the shell reads >")
        parser.add_argument("--clusters", metavar="ALIAS", nargs="+", help="only flows into these clusters")
    add_json(parser)
    configured(parser, run, lambda arguments: load(arguments.config))
    return parser


def add_plain(commands: Commands, name: str, text: str, **options: Any) -> argparse.ArgumentParser:
    """`options` are argparse's."""
    given = {"description": text, "epilog": EXIT_CODES, "formatter_class": argparse.RawDescriptionHelpFormatter}
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, **{**given, **options})
    return parser


def configured(parser: argparse.ArgumentParser, run: Run, read: Read) -> None:
    parser.set_defaults(command=partial(_run, run, read))


def _run(run: Run, read: Read, arguments: argparse.Namespace) -> int:
    config = read(arguments)
    files = getattr(arguments, "config", ())
    # No other command reads the files of MirrorMaker 1, so `mirror mm1` prints the list itself.
    whole = getattr(arguments, "all", False) or not files
    for warning in config.warnings if whole else brief(config, f"mirror plan {' '.join(files)} --all"):
        print_warning(warning)
    return run(arguments, config)


def brief(config: MirrorConfig, lists: str) -> List[str]:
    """The warnings of a file. Those about its keys are one line: their number, misspelt ones, the command `lists`."""
    found = [(_places(config.idle), "without effect here"), (_places(config.corrected), "read otherwise than written")]
    words = " and ".join(f"{counted(count, 'key')} {what}" for count, what in found if count)
    of_keys = {*config.idle, *config.corrected}
    others = [warning for warning in config.warnings if warning not in of_keys]
    misspelt = [found.group(1) for found in map(_MISSPELT.match, config.idle) if found]
    if misspelt:
        words += f", perhaps misspelt: {', '.join(misspelt)}"
    return [*others, *([f"{words}; `{lists}` lists them"] if words else [])]


_MISSPELT = re.compile(r"([^:\s]+):.*\bdid you mean ")


def _places(sentences: Sequence[str]) -> int:
    """How many lines of files they are about; each ends in its place."""
    return len({sentence.rpartition(" (")[2] for sentence in sentences})
