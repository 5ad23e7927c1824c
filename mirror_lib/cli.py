"""The `mirror` command: parses arguments, runs one command and returns its exit code. The commands are
in `mirror_lib.commands`, each with a name in `command_line`.

Results go to standard output, progress and warnings to standard error.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Callable, Mapping, NoReturn, Optional, Sequence

from mirror_lib import __version__
from mirror_lib.codes import entry, grouped_entries
from mirror_lib.commands import arguments as options
from mirror_lib.commands import mm1
from mirror_lib.commands.output import error_columns, print_error, print_lines
from mirror_lib.config.document import nearest
from mirror_lib.errors import EXIT_FAILED, EXIT_OK, EXIT_STOPPED, EXIT_USAGE, ConfigError, MirrorError
from mirror_lib.log_lines import EntryFormatter, name_files, wants_json
from mirror_lib.spark.java import SPARK_LINES

log = logging.getLogger("mirror")

# The environment variable with the log level.
LEVEL = "MIRROR_LOG"
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

# Packages that come with or belong to a Spark installation, and that `pip install .` leaves out.
SPARKS_PACKAGES = ("pyspark", "py4j", "pyarrow", "pandas", "delta")
PACKAGES_HINT = (
    "pip install '.[spark]'; for a Spark that is there already set SPARK_HOME or start by spark-submit.sh, and pip "
    "install '.[platform]', with MIRROR_JARS_DIR also --no-deps delta-spark"
)
# Packages of the extra `report`.
REPORTS_PACKAGES = ("jinja2", "markupsafe", "matplotlib")
REPORT_HINT = "pip install '.[report]'"

# By the words of a command that is gone, what replaces it.
REPLACED: Mapping[str, str] = {
    "convert": "files of any dialect run as they are: `mirror run CONFIG`",
    "explain": "`mirror plan CONFIG --topic TOPIC` or `--group GROUP` names the rule that decides",
    "groups lag": "`mirror status CONFIG` prints the lag of groups, kafka-consumer-groups.sh --describe each partition",
    "retention": "`mirror plan CONFIG` prints the line of kafka-configs.sh that keeps records until they are copied",
    "state": "a run reports a damaged table; move its folder aside, then `mirror run CONFIG --once`: docs/fix/state.md",
}
# By an option that is gone, what to do instead.
REMOVED_OPTIONS: Mapping[str, str] = {
    "--until": "take --once, or end the run by `timeout`: docs/run/start-and-stop.md",
    "--sample": "take --since TIME, which compares the records from that time on",
    "--seed": "take --by-record, which reads every record by Spark's consumer",
    "--fence-source": "stop the producers, or deny Write by kafka-acls.sh --add --deny-principal: docs/run/cut-over.md",
}


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Errors, and a Ctrl-C, become one line on standard error."""
    entries = logging.StreamHandler(sys.stderr)
    entries.setFormatter(EntryFormatter())
    logging.basicConfig(handlers=[entries], level=logging.WARNING)
    # The client logs every attempt to reach a broker; the mirror reports the result in one sentence.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    # New topics are no warning, and yet to be seen.
    logging.getLogger("mirror.events").setLevel(logging.INFO)
    # Py4J's log of a Ctrl-C is a trace by the root logger; this function prints a sentence instead.
    logging.getLogger().addFilter(lambda record: record.module != "java_gateway")
    find_spark(os.environ.get("SPARK_HOME"))
    words = sys.argv[1:] if argv is None else argv
    gone = replaced(words)
    if gone is not None:
        print_error(ConfigError(f"`mirror {gone}` is no command any more", REPLACED[gone]))
        return EXIT_USAGE
    arguments = command_line().parse_args(words)
    try:
        entries.setFormatter(EntryFormatter(wants_json(os.environ), error_columns))
        name_files(getattr(arguments, "config", None) or ())
        _set_level(os.environ.get(LEVEL))
        command: Callable[[argparse.Namespace], int] = arguments.command
        return command(arguments)
    except MirrorError as error:
        print_error(error)
        return error.exit_code
    except ImportError as error:
        package = str(error.name).partition(".")[0]
        if package not in (*SPARKS_PACKAGES, *REPORTS_PACKAGES):
            raise
        print_error(_import_failure(package, error))
        return EXIT_USAGE
    except KeyboardInterrupt:
        print_error("stopped by Ctrl-C")
        return EXIT_STOPPED
    except BrokenPipeError:
        # The reader has closed the pipe, as `| head` does. Python would write the rest of the buffer again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED


def replaced(words: Sequence[str]) -> Optional[str]:
    """The key of REPLACED that the words begin with."""
    return next((each for each in (" ".join(words[:2]), *words[:1]) if each in REPLACED), None)


def find_spark(home: Optional[str]) -> None:
    """Make the PySpark and Py4J of the Spark in the folder `home` importable, as spark-submit does, where no other
    PySpark is installed."""
    if home and find_spec("pyspark") is None:
        sys.path += [str(Path(home, "python")), *map(str, Path(home, "python", "lib").glob("py4j-*-src.zip"))]


def _set_level(name: Optional[str]) -> None:
    """Set the level of the mirror's own logs. Libraries keep theirs: their logs would contain passwords. Raises
    ConfigError for an invalid level."""
    if not name:
        return
    level = LEVELS.get(name.strip().lower())
    if level is None:
        raise ConfigError(f"{LEVEL}={name} is no level: take one of {', '.join(LEVELS)}")
    for logger in ("mirror", "mirror_lib"):
        logging.getLogger(logger).setLevel(level)


def _import_failure(package: str, error: ImportError) -> ConfigError:
    if package in REPORTS_PACKAGES:
        return ConfigError(f"the page needs the Python package {package}: {error}. No page was written", REPORT_HINT)
    if find_spec(package) is None:
        return ConfigError(f"the Python package {package} is missing", PACKAGES_HINT)
    version = getattr(sys.modules.get(package), "__version__", "of this environment")
    lines = f"use one of Spark {SPARK_LINES}, with the Python packages of that version"
    return ConfigError(f"the Python package {package} {version} is installed, but lacks what is needed: {error}", lines)


class _Parser(argparse.ArgumentParser):
    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's, but the parser that has the options refuses unknown ones, and names the nearest one."""
        found, rest = super().parse_known_args(args, namespace)
        unknown = [word for word in rest if word.startswith("-")]
        if unknown:
            name = unknown[0].partition("=")[0]
            like = nearest(name, self._option_string_actions)
            advice = REMOVED_OPTIONS.get(name) or (f"did you mean {like}?" if like else "")
            self.error(f"unrecognized arguments: {' '.join(unknown)}{advice and '; ' + advice}")
        return found, rest

    def error(self, message: str) -> NoReturn:
        """As argparse's. MirrorMaker's own `--clusters` takes every following word for a cluster."""
        if "required: CONFIG" in message and "--clusters" in self.format_usage():
            message += "; it has to stand before --clusters"
        if "--json: ignored" in message:  # a file name
            message += "; redirect standard output instead"
        super().error(message)


def command_line() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="mirror",
        description="Copies Kafka topics from cluster to cluster, exactly once for every reader.",
        epilog=options.EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"mirror {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    own = (options.add_run, options.add_status, options.add_report, options.add_doctor, options.add_plan)
    for add in (*own, options.add_verify, options.add_groups, options.add_cutover, mm1.add, options.add_takeover):
        add(commands)
    explain = options.add_plain(commands, "help", "explain a code such as MIR-304, or list all codes")
    explain.add_argument(
        "code", metavar="CODE", nargs="?", help="MIR-304, mir-304 or 304; without CODE all codes are listed"
    )
    explain.set_defaults(command=help_command)
    return parser


def help_command(arguments: argparse.Namespace) -> int:
    if arguments.code is None:
        for title, own in grouped_entries().items():
            print_lines([title, *(f"  {each.code}  {each.title}" for each in own), ""])
        return EXIT_OK
    found = entry(arguments.code)
    if found is None:
        raise ConfigError(f"there is no code {arguments.code}", "mirror help lists all of them")
    parts = (("Cause", found.cause), ("Data", found.data), ("Remedy", found.remedy))
    texts = (line for name, text in parts if text for line in ("", f"{name}: {text}"))
    print_lines([f"{found.code}  {found.title}", *texts])
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
