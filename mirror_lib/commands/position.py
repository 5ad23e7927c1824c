"""`mirror translate-position`: positions kept outside Kafka, in the form they were given, on the other cluster."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mirror_lib.commands.arguments import Commands, add_command
from mirror_lib.commands.output import chosen_flows, print_lines
from mirror_lib.config.model import MirrorConfig
from mirror_lib.errors import EXIT_FAILED, EXIT_OK, ConfigError

if TYPE_CHECKING:
    from mirror_lib.groups.position_formats import PositionInput


def add(commands: Commands) -> None:
    text = "translate offsets that are stored outside Kafka"
    position = add_command(commands, "translate-position", translate_position_command, text)
    position.add_argument("--topic", metavar="TOPIC", help="a source topic; with --reverse a remote topic")
    position.add_argument("--partition", metavar="N", type=int, help="the partition")
    position.add_argument("--offset", metavar="N", type=int, help="the next offset to read")
    position.add_argument(
        "--file", metavar="FILE", help="many offsets: CSV, or the JSON of Spark's Kafka source; - is standard input"
    )
    position.add_argument("--reverse", action="store_true", help="translate from the remote topics back to the source")


def translate_position_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    """1 if one of the positions has no translation."""
    from mirror_lib.groups.position_formats import render
    from mirror_lib.groups.positions import translate_positions
    from mirror_lib.spark.session import running_session

    given = _given(arguments)
    flows = chosen_flows(arguments, config)
    if len(flows) > 1:
        names = ", ".join(flow.name for flow in flows)
        what = "the file has several flows, and positions belong to one flow"
        raise ConfigError(what, f"name one with --flow: {names}")
    with running_session("mirror translate-position") as spark:
        answers = translate_positions(spark, config, flows[0], given.positions, reverse=arguments.reverse)
    print_lines([render(given, answers)])
    return EXIT_OK if all(answer.remote_offset is not None for answer in answers) else EXIT_FAILED


def _given(arguments: argparse.Namespace) -> PositionInput:
    from mirror_lib.groups.position_formats import one_position, read_positions

    single = (arguments.topic, arguments.partition, arguments.offset)
    if arguments.file is not None and single == (None, None, None):
        if arguments.file == "-":
            return read_positions(sys.stdin.read(), "stdin")
        try:
            return read_positions(Path(arguments.file).read_text(encoding="utf-8"), arguments.file)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read {arguments.file}: {error}") from error
    if arguments.file is None and None not in single:
        return one_position(*single)
    raise ConfigError("say which position", "either --topic, --partition and --offset, or --file FILE (- is stdin)")
