"""`mirror mm1`: MirrorMaker 1's own arguments in; its configuration and what `mirror run` needs out."""

from __future__ import annotations

import argparse
import os
import textwrap
from typing import Any, Dict, List, Mapping, Tuple

from mirror_lib.commands.arguments import Commands, add_plain, configured
from mirror_lib.commands.convert import STDOUT, write_conversion
from mirror_lib.commands.groups_lag import groups_lag_command
from mirror_lib.commands.output import add_json
from mirror_lib.commands.run import add_run_options, run_command
from mirror_lib.config.document import Document
from mirror_lib.config.loader import checked
from mirror_lib.config.mm1_reader import OPTIONS, Given, Option, help_of, read_mm1
from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.config.yaml_writer import convert_document
from mirror_lib.errors import EXIT_OK

TEXT = "copy with MirrorMaker 1's options and client files"
ABOUT = (
    f"{TEXT}. Topics keep their names, and records their partitions. A topic is not copied if the target topic has "
    "another partition count. Progress is committed to the consumer group. One process of a group copies, with "
    "--num.streams tasks; the others stand by"
)


def add(commands: Commands) -> None:
    """`mirror mm1` with every option that MirrorMaker 1 had, and a few of ours."""
    parser = add_plain(commands, "mm1", TEXT, description=textwrap.fill(ABOUT, 79), allow_abbrev=False)
    for option in (each for each in OPTIONS if each.name != "help"):
        _add(parser, option)
    parser.add_argument("--state", metavar="DIR", help="the state folder (default ./mirror-state)")
    add_run_options(parser, "copy to the present end of the logs and stop")
    parser.add_argument(
        "--convert", metavar="FILE", help="copy nothing; write the configuration as YAML to FILE, - is standard output"
    )
    lag = "copy nothing; show the lag of the consumer group of each file, on TOPIC or on all topics"
    parser.add_argument("--lag", metavar="TOPIC", nargs="?", const="", help=lag)
    add_json(parser)
    parser.set_defaults(flow=None, stray=())
    _take_stray_words(parser)
    configured(parser, mm1_command, mm1_config)


def mm1_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    """`mirror mm1`: copy until stopped, show the lag with `--lag`, or write the YAML of `--convert`."""
    if arguments.lag is not None:
        return max(_lag(arguments, config, flow) for flow in config.flows)
    if arguments.convert is None:
        return run_command(arguments, config)
    conversion = convert_document(_document(arguments))
    files = [*vars(arguments)["consumer.config"], *vars(arguments)["producer.config"]]
    write_conversion(conversion, arguments.convert, False, files)
    if arguments.convert == STDOUT:
        print(conversion.text, end="", flush=True)
    return EXIT_OK


def _lag(arguments: argparse.Namespace, config: MirrorConfig, flow: ReplicationFlow) -> int:
    asked = {"cluster": flow.source.alias, "group": flow.commit_source_group, "topic": arguments.lag or None}
    return groups_lag_command(argparse.Namespace(**asked, json=arguments.json), config)


def mm1_config(arguments: argparse.Namespace) -> MirrorConfig:
    """The configuration that the arguments come to. Raises `ConfigError`."""
    return checked(_document(arguments), os.environ)


def _document(arguments: argparse.Namespace) -> Document:
    values: Mapping[str, Any] = vars(arguments)
    given: Given = {option.name: values[option.name] or () for option in OPTIONS if option.name in values}
    return read_mm1(given, arguments.state, arguments.stray)


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
    text = help_of(option)
    if not option.metavar:
        parser.add_argument(*names, dest=option.name, action="append_const", const="true", help=text)
        return
    optional: Dict[str, Any] = {"nargs": "?", "const": option.implied} if option.implied else {}
    parser.add_argument(*names, dest=option.name, action="append", metavar=option.metavar, help=text, **optional)
