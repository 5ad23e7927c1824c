"""`mirror mm1`: MirrorMaker 1's own arguments in; its configuration and what `mirror run` needs out."""

from __future__ import annotations

import argparse
import os
import textwrap
from typing import Any, Dict, List, Mapping, Tuple

from mirror_lib.commands.arguments import Commands, add_plain, add_run_options, configured
from mirror_lib.commands.output import add_json
from mirror_lib.config.loader import checked
from mirror_lib.config.mm1_reader import IGNORED, OPTIONS, REFUSED, Given, Option, read_mm1
from mirror_lib.config.model import MirrorConfig

TEXT = "copy with MirrorMaker 1's options and client files"
ABOUT = (
    f"{TEXT}. Topics keep their names, and records their partitions. A topic is not copied if the target topic has "
    "another partition count. Progress is committed to the consumer group. One process copies, with "
    "--num.streams tasks; with --if-running wait another one stands by"
)


def add(commands: Commands) -> None:
    parser = add_plain(commands, "mm1", TEXT, description=textwrap.fill(ABOUT, 79), allow_abbrev=False)
    for option in (each for each in OPTIONS if each.name != "help"):
        _add(parser, option)
    parser.add_argument("--state", metavar="DIR", help="the state folder (default ./mirror-state)")
    add_run_options(parser, "copy to the present end of the logs and stop")
    add_json(parser)
    parser.set_defaults(flow=None, stray=())
    _take_stray_words(parser)
    configured(parser, "run:run_command", mm1_config)


def mm1_config(arguments: argparse.Namespace) -> MirrorConfig:
    values: Mapping[str, Any] = vars(arguments)
    given: Given = {option.name: values[option.name] or () for option in OPTIONS if option.name in values}
    return checked(read_mm1(given, arguments.state, arguments.stray), os.environ)


def _take_stray_words(parser: argparse.ArgumentParser) -> None:
    """Take words that belong to no option, as MirrorMaker 1 does: they are named, and count for nothing."""
    parse = parser.parse_known_args

    def with_stray(args: Any = None, namespace: Any = None) -> Tuple[argparse.Namespace, List[str]]:
        found, rest = parse(args, namespace)
        found.stray = [word for word in rest if not word.startswith("-")]
        return found, [word for word in rest if word.startswith("-")]

    parser.parse_known_args = with_stray  # type: ignore[method-assign, assignment]


def _add(parser: argparse.ArgumentParser, option: Option) -> None:
    names = [f"--{name}" for name in (option.name, *option.other_names)]
    text = option.meaning if option.status not in (IGNORED, REFUSED) else f"{option.meaning}: {option.reason}"
    if not option.metavar:
        parser.add_argument(*names, dest=option.name, action="append_const", const="true", help=text)
        return
    optional: Dict[str, Any] = {"nargs": "?", "const": option.implied} if option.implied else {}
    parser.add_argument(*names, dest=option.name, action="append", metavar=option.metavar, help=text, **optional)
