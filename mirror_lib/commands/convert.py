"""`mirror convert`: configuration files of any dialect as one YAML file. Needs neither clusters nor Spark."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Sequence

from mirror_lib.commands.arguments import CONFIG, Commands, add_plain
from mirror_lib.commands.output import add_json, print_json, print_warning
from mirror_lib.config.yaml_writer import Conversion, convert
from mirror_lib.errors import EXIT_OK, ConfigError

STDOUT = "-"


def add(commands: Commands) -> None:
    """`mirror convert` and its options."""
    convert = add_plain(commands, "convert", "write any configuration as YAML, and print what changed")
    convert.add_argument("config", metavar="CONFIG", nargs="+", help=CONFIG)
    add_json(convert)
    convert.add_argument(
        "-o", "--output", metavar="FILE", default="-", help="the YAML file; - is standard output (default)"
    )
    convert.add_argument("--force", action="store_true", help="replace FILE where it exists")
    convert.set_defaults(command=convert_command)


def convert_command(arguments: argparse.Namespace) -> int:
    """`mirror convert`: write the YAML, and say on standard error what was read otherwise than it was written."""
    conversion = convert(arguments.config)
    for warning in conversion.warnings:
        print_warning(warning)
    write_conversion(conversion, arguments.output, arguments.force, arguments.config)
    if arguments.json:
        said = {"yaml": conversion.text} if arguments.output == STDOUT else {}
        print_json({"from": arguments.config, "to": arguments.output, "warnings": list(conversion.warnings), **said})
    elif arguments.output == STDOUT:
        print(conversion.text, end="", flush=True)
    return EXIT_OK


def write_conversion(conversion: Conversion, output: str, force: bool, made_from: Sequence[str]) -> None:
    """Write the file, readable for no more people than the files it was made from; `-` is left to the caller.

    Raises `ConfigError` where there is a file already, unless `force`, or where it cannot be written.
    """
    if output == STDOUT:
        return
    mode = 0o666
    for path in made_from:
        mode &= Path(path).stat().st_mode
    try:
        if force:
            Path(output).unlink(missing_ok=True)
        handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(handle, "w", encoding="utf-8") as stream:
            stream.write(conversion.text)
    except FileExistsError:
        raise ConfigError(f"{output} is there already", "give another name, or --force to replace it") from None
    except OSError as error:
        raise ConfigError(f"{output} cannot be written: {error.strerror}") from None
