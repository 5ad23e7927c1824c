"""The `mirror` command: arguments in, an exit code out. What each command does is in `mirror_lib.commands`.

Results go to standard output, progress and warnings to standard error.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from importlib.util import find_spec
from typing import Any, Callable, NoReturn, Optional, Sequence

from mirror_lib import __version__
from mirror_lib.commands.convert import convert_command
from mirror_lib.commands.explain import explain_command, read_explained
from mirror_lib.commands.groups_lag import groups_lag_command
from mirror_lib.commands.groups_plan import groups_plan_command
from mirror_lib.commands.groups_rollback import groups_rollback_command
from mirror_lib.commands.mm1 import add_mm1
from mirror_lib.commands.output import STDOUT, add_json, json_to, json_words, print_error
from mirror_lib.commands.plan import plan_command
from mirror_lib.commands.position import translate_position_command
from mirror_lib.commands.repair import repair_command
from mirror_lib.commands.run import EXIT_STOPPED, add_run_options, run_command
from mirror_lib.commands.takeover import COMPARE, takeover_command
from mirror_lib.commands.translate import translate_command
from mirror_lib.commands.verify import verify_command
from mirror_lib.config.loader import load
from mirror_lib.config.model import MirrorConfig
from mirror_lib.driver_java import SPARK_LINES
from mirror_lib.errors import EXIT_FAILED, EXIT_OK, EXIT_REFUSED, EXIT_USAGE, ConfigError, MirrorError

log = logging.getLogger("mirror")

# The environment variable that says how much is logged.
LEVEL = "MIRROR_LOG"
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

EXIT_CODES = f"""\
exit codes:
  {EXIT_OK}    done: everything is copied, or equal; a continuous run that was told to stop
  {EXIT_FAILED}    failed: something could not be copied, or differs
  {EXIT_USAGE}    bad usage or configuration; nothing was started
  {EXIT_REFUSED}    refused for safety: going on could lose or double records
  {EXIT_STOPPED}  a run with an end of its own was stopped by SIGTERM or Ctrl-C before it; the next one goes on there
"""
# What comes with a Spark or belongs beside it, and `pip install .` leaves out.
SPARKS_PACKAGES = ("pyspark", "pyarrow", "pandas", "delta")
PACKAGES_HINT = (
    "pip install '.[spark]'; for a Spark that is there already start by spark-submit.sh, and pip install "
    "'.[platform]', with MIRROR_JARS_DIR also --no-deps delta-spark"
)
_CONFIG = "YAML, a MirrorMaker 2 .properties file as it is, or the JSON files of Kafka Connect's Mirror… connectors"


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run one command and return its exit code. Errors, and a Ctrl-C, become one line on standard error."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    # Every attempt to reach a broker is a line of the client's; what came of them is told in one sentence.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_not_py4j)
    arguments = _parser().parse_args(json_words(sys.argv[1:] if argv is None else argv))
    try:
        _set_level(os.environ.get(LEVEL))
        with json_to(arguments.json or STDOUT):
            return _run(arguments)
    except MirrorError as error:
        print_error(error)
        return error.exit_code
    except ImportError as error:
        package = str(error.name).partition(".")[0]
        if package not in SPARKS_PACKAGES:
            raise
        print_error(_import_failure(package, error))
        return EXIT_USAGE
    except KeyboardInterrupt:
        print_error("stopped by Ctrl-C")
        return EXIT_STOPPED
    except BrokenPipeError:
        # Who was reading has seen enough, as in `| head`. Python would write what is left once more as it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED


def _set_level(name: Optional[str]) -> None:
    """What we log, not what libraries do, which would tell of passwords. Raises ConfigError for what is no level."""
    if not name:
        return
    level = LEVELS.get(name.strip().lower())
    if level is None:
        raise ConfigError(f"{LEVEL}={name} is no level: take one of {', '.join(LEVELS)}")
    for logger in ("mirror", "mirror_lib"):
        logging.getLogger(logger).setLevel(level)


def _import_failure(package: str, error: ImportError) -> ConfigError:
    """Whether `package` is missing, or is there and lacks the module or the name that `error` is about."""
    if find_spec(package) is None:
        return ConfigError(f"the Python package {package} is missing", PACKAGES_HINT)
    version = getattr(sys.modules.get(package), "__version__", "of this environment")
    lines = f"use one of Spark {SPARK_LINES}, with the Python packages of that version"
    return ConfigError(f"the Python package {package} {version} is installed, but lacks what is needed: {error}", lines)


def _not_py4j(record: logging.LogRecord) -> bool:
    """Py4J tells of a Ctrl-C with a trace, by the logger of all; a sentence tells of it here."""
    return record.module != "java_gateway"


def _run(arguments: argparse.Namespace) -> int:
    if "without_config" in arguments:
        own: Callable[[argparse.Namespace], int] = arguments.without_config
        return own(arguments)
    config = arguments.read(arguments)
    for warning in config.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    command: Callable[[argparse.Namespace, MirrorConfig], int] = arguments.command
    return command(arguments, config)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """As argparse's; `--clusters`, MirrorMaker's own, takes every word behind it for a cluster."""
        missing = "required: CONFIG" in message and "--clusters" in self.format_usage()
        super().error(f"{message}; it has to stand before --clusters" if missing else message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="mirror",
        description="Copies Kafka topics from cluster to cluster, exactly once for every reader.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"mirror {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    run = _command(commands, "run", run_command, "copy, once or continuously as `trigger` says")
    add_run_options(run, "one run to the present end, whatever `trigger` says")
    plan = _command(commands, "plan", plan_command, "show as a diff what a run would change; changes nothing itself")
    plan.add_argument("--all", action="store_true", help="list also what stays as it is, and every skip by its name")
    _explain(commands)
    _command(commands, "verify", verify_command, "prove that the remote topics equal their sources")
    repair = _command(commands, "repair", repair_command, "show positions of the ledger that pass records not copied")
    repair.add_argument("--execute", action="store_true", help="remove them; stop the flow first")
    translate = _command(commands, "translate", translate_command, "keep consumer groups on the target where they are")
    translate.add_argument("--once", action="store_true", help="one full pass, whatever `trigger` says")
    _groups(commands)
    _position(commands)
    _convert(commands)
    add_mm1(commands, EXIT_CODES)
    _takeover(commands)
    return parser


def _explain(commands: Any) -> None:
    explain = _command(commands, "explain", explain_command, "say which rule decides about a topic or a group")
    explain.usage = "mirror explain [OPTION ...] CONFIG [CONFIG ...] (TOPIC | --group GROUP)"
    explain.epilog = f"TOPIC is the last word: a topic of the source, which need not exist.\n\n{EXIT_CODES}"
    explain.add_argument("--group", metavar="GROUP", help="a consumer group instead of a topic of the source")
    explain.set_defaults(read=read_explained)


def _groups(commands: Any) -> None:
    text = "consumer groups: plan and make their move, undo it, see their lag"
    group = commands.add_parser("groups", help=text, description=text)
    groups = group.add_subparsers(metavar="COMMAND", required=True)
    plan = _command(groups, "plan", groups_plan_command, "show where each group would go on; moves it with --execute")
    plan.add_argument("--reverse", action="store_true", help="from the remote topics back to the source: fail-back")
    plan.add_argument("--execute", action="store_true", help="commit these offsets")
    plan.add_argument("--allow-rewind", action="store_true", help="also move groups backwards")
    plan.add_argument("--group", metavar="GROUP", help="only this group")
    plan.add_argument("--topic", metavar="TOPIC", help="only this topic")
    rollback = _command(groups, "rollback", groups_rollback_command, "put back what a run moved", flow=False)
    rollback.add_argument("--run", metavar="ID", required=True, help="the run, as `groups plan --execute` printed it")
    rollback.add_argument("--execute", action="store_true", help="do it; without it, only show")
    lag = _command(groups, "lag", groups_lag_command, "how far each group is, in records and seconds", flow=False)
    lag.add_argument("--cluster", metavar="ALIAS", help="only this cluster of the file")
    lag.add_argument("--group", metavar="GROUP", help="only this group")
    lag.add_argument("--topic", metavar="TOPIC", help="only this topic")


def _position(commands: Any) -> None:
    position = _command(
        commands, "translate-position", translate_position_command, "translate positions that are kept outside Kafka"
    )
    position.add_argument("--topic", metavar="TOPIC", help="of the source; of the target with --reverse")
    position.add_argument("--partition", metavar="N", type=int, help="its partition")
    position.add_argument("--offset", metavar="N", type=int, help="the next offset to be read")
    position.add_argument("--file", metavar="FILE", help="many: JSON, CSV, or a Spark checkpoint's offsets; - is stdin")
    position.add_argument("--reverse", action="store_true", help="from the remote topics back to the source")


def _convert(commands: Any) -> None:
    convert = _command(commands, "convert", main, "write any configuration as YAML, and say what changed", flow=False)
    convert.add_argument("-o", "--output", metavar="FILE", default="-", help="- is standard output, the default")
    convert.add_argument("--force", action="store_true", help="replace FILE where it exists")
    convert.set_defaults(without_config=convert_command)


def _takeover(commands: Any) -> None:
    text = "go on where a stopped MirrorMaker ended; shows where, takes over with --execute"
    takeover = _command(commands, "takeover", takeover_command, text)
    takeover.add_argument(
        "--from",
        dest="origin",
        metavar="WHERE",
        default="mm2",
        help="mm2 (default), connect-topic=NAME of a Connect worker's offsets, group=NAME of a MirrorMaker 1",
    )
    takeover.add_argument("--connector", metavar="NAME", help="the MirrorSourceConnector's name, if it has its own")
    takeover.add_argument("--worker-group", metavar="NAME", help="the Connect worker's group.id, if it has its own")
    takeover.add_argument(
        "--compare",
        metavar="N",
        type=int,
        default=COMPARE,
        help=f"records before a kept position to compare too (default {COMPARE}); groups further back are not moved",
    )
    takeover.add_argument("--execute", action="store_true", help="write the ledger; stop the other tool first")


def _command(
    commands: Any, name: str, command: Callable[..., int], text: str, flow: bool = True
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text, epilog=EXIT_CODES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", metavar="CONFIG", nargs="+", help=_CONFIG)
    if flow:
        parser.add_argument("--flow", metavar="A->B", help="only this flow of the file; quote it, > is the shell's too")
        parser.add_argument("--clusters", metavar="ALIAS", nargs="+", help="only flows into these clusters")
    add_json(parser)
    parser.set_defaults(command=command, read=lambda arguments: load(arguments.config))
    return parser


if __name__ == "__main__":
    sys.exit(main())
