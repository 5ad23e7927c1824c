"""The commands with their options. The module with the function of a command is imported once the command is chosen.

What a parsed command line runs is `arguments.command(arguments)`, whatever the command is; it returns the exit code.
"""

from __future__ import annotations

import argparse
import re
from functools import partial
from importlib import import_module
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

STATUS_CODES = """\
exit codes:
  0    every flow is healthy
  1    a flow is degraded; the lines that begin with ! name the reasons
  2    unknown: a cluster or the state folder is unreadable, a flow never ran, or the configuration is wrong
"""
REPORT_CODES = """\
exit codes:
  0    every flow is healthy
  1    a flow is degraded; the page has the reasons and the remedies
  2    unknown: a cluster or the state folder is unreadable (the page is written and names it), a flow never ran, the
       configuration is wrong, or the page could not be written
"""
EXIT, REFUSE, WAIT = "exit", "refuse", "wait"
IF_RUNNING_HELP = (
    "if another process copies a flow: refuse ends with code 3 (default), exit ends with code 0, wait copies when that "
    "process has ended. With exit and wait, a killed run can count as running for up to 10 minutes"
)
# Records before a kept position that are compared: 20,000 take about 0.2 s.
COMPARE = 20_000

# What argparse calls the parsers of the commands, which has no public type.
Commands = Any
Read = Callable[[argparse.Namespace], MirrorConfig]


def add_command(commands: Commands, name: str, run: str, text: str, *, flow: bool = True) -> argparse.ArgumentParser:
    """A command that takes files, with `--flow` and `--clusters` where `flow` says so. `run`: module and function.

    The warnings of the files are printed before the function is called.
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


def configured(parser: argparse.ArgumentParser, run: str, read: Read) -> None:
    parser.set_defaults(command=partial(_run, run, read))


def _run(run: str, read: Read, arguments: argparse.Namespace) -> int:
    config = read(arguments)
    files = getattr(arguments, "config", ())
    # No other command reads the files of MirrorMaker 1, so `mirror mm1` prints the list itself.
    whole = getattr(arguments, "all", False) or not files
    for warning in config.warnings if whole else brief(config, f"mirror plan {' '.join(files)} --all"):
        print_warning(warning)
    module, _, name = run.partition(":")
    command: Callable[[argparse.Namespace, MirrorConfig], int]
    command = getattr(import_module(f"mirror_lib.commands.{module}"), name)
    return command(arguments, config)


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


def add_run(commands: Commands) -> None:
    text = "copy the topics of each flow; the key `trigger` decides between once and continuously"
    run = add_command(commands, "run", "run:run_command", text)
    add_run_options(run, "copy to the present end of the logs and stop, whatever `trigger` is")


def add_run_options(parser: argparse.ArgumentParser, once: str) -> None:
    parser.add_argument("--once", action="store_true", help=once)
    among = parser.add_mutually_exclusive_group()
    among.add_argument("--if-running", choices=(EXIT, REFUSE, WAIT), default=REFUSE, help=IF_RUNNING_HELP)
    text = "fence the process that copies a flow, and resume where it ended"
    among.add_argument("--take-over", action="store_true", help=text)
    plain = "print status lines instead of the live table"
    parser.add_argument("--plain", action="store_true", help=plain)


def add_status(commands: Commands) -> None:
    text = "print run, lag and problems of every flow, without Spark"
    parser = add_command(commands, "status", "status:status_command", text)
    parser.epilog = STATUS_CODES
    parser.add_argument("--all", action="store_true", help="list every topic, not only topics with the greatest lag")
    parser.add_argument("--partitions", action="store_true", help="list partitions instead of topics")
    often = "repeat every SECONDS, without a value every 5 s"
    parser.add_argument("--watch", nargs="?", const=5.0, type=float, metavar="SECONDS", help=often)


def add_report(commands: Commands) -> None:
    text = "write state, history and configuration of every flow into one HTML page, without Spark"
    parser = add_command(commands, "report", "report:report_command", text)
    parser.epilog = REPORT_CODES
    where = "the page; an older file is replaced (default %(default)s)"
    parser.add_argument("-o", "--output", metavar="FILE", default="mirror-report.html", help=where)


def add_doctor(commands: Commands) -> None:
    text = "check clusters, permissions, settings, Spark and the state folder before a run"
    parser = add_command(commands, "doctor", "doctor:doctor_command", text)
    parser.add_argument("--no-spark", action="store_true", help="skip Spark, its executors and the state folder")


def add_plan(commands: Commands) -> None:
    text = "show as a diff what a run would change, and change nothing"
    plan = add_command(commands, "plan", "plan:plan_command", text)
    text = "also list what stays as it is, every skipped topic, and keys without effect"
    plan.add_argument("--all", action="store_true", help=text)
    one = plan.add_mutually_exclusive_group()
    one.add_argument("--topic", metavar="TOPIC", help="print only which rule decides about this topic of the source")
    one.add_argument("--group", metavar="GROUP", help="print only which rule decides about this consumer group")


def add_verify(commands: Commands) -> None:
    text = "prove that the remote topics equal their sources"
    parser = add_command(commands, "verify", "verify:verify_command", text)
    parser.add_argument("--since", metavar="TIME", help="compare only records from that time on (2026-01-01T00:00:00Z)")
    text = "compare each record as Spark's consumer reads it, not whole record batches"
    parser.add_argument("--by-record", action="store_true", help=text)
    parser.add_argument("--complete", action="store_true", help="end with code 1 also where a record is not copied yet")


def add_groups(commands: Commands) -> None:
    text = "continuously translate consumer-group offsets to the target"
    translate = add_command(commands, "translate", "groups:translate_command", text)
    translate.add_argument("--once", action="store_true", help="make one full cycle and stop, whatever `trigger` is")
    text = "plan, commit and undo group migrations"
    own = commands.add_parser("groups", help=text, description=text).add_subparsers(metavar="COMMAND", required=True)
    text = "show the translated offsets of each group; --execute commits them"
    plan = add_command(own, "plan", "groups:groups_plan_command", text)
    plan.add_argument("--reverse", action="store_true", help="translate from the target back to the source (fail-back)")
    plan.add_argument("--execute", action="store_true", help="commit the offsets; without it they are only shown")
    plan.add_argument("--allow-rewind", action="store_true", help="also commit offsets before the present ones")
    plan.add_argument("--group", metavar="GROUP", help="only this group")
    plan.add_argument("--topic", metavar="TOPIC", help="only this topic")
    text = "restore the group offsets that a run changed"
    rollback = add_command(own, "rollback", "groups:groups_rollback_command", text, flow=False)
    rollback.add_argument("--run", metavar="ID", required=True, help="the run id that `groups plan --execute` printed")
    rollback.add_argument("--execute", action="store_true", help="commit the offsets; without it they are only shown")
    text = "translate offsets that are stored outside Kafka"
    position = add_command(commands, "translate-position", "groups:translate_position_command", text)
    position.add_argument("--topic", metavar="TOPIC", help="a source topic; with --reverse a remote topic")
    position.add_argument("--partition", metavar="N", type=int, help="the partition")
    position.add_argument("--offset", metavar="N", type=int, help="the next offset to read")
    text = "many offsets: CSV, or the JSON of Spark's Kafka source; - is standard input"
    position.add_argument("--file", metavar="FILE", help=text)
    position.add_argument("--reverse", action="store_true", help="translate from the remote topics back to the source")


def add_cutover(commands: Commands) -> None:
    text = "move producers and consumers to the target, step by step, and back"
    own = commands.add_parser("cutover", help=text, description=text).add_subparsers(metavar="COMMAND", required=True)
    text = "check the conditions of a cut-over, estimate its time, and change nothing"
    add_command(own, "plan", "cutover:plan_command", text)
    text = "move producers and consumers to the target; resumes an interrupted cut-over"
    run = add_command(own, "run", "cutover:run_command", text)
    text = "how long the source must be without new records (default 10)"
    run.add_argument("--quiet-seconds", type=float, default=10.0, metavar="S", help=text)
    text = "how long to wait for that silence (default 600)"
    run.add_argument("--wait-seconds", type=float, default=600.0, metavar="S", help=text)
    run.add_argument("--take-over", action="store_true", help="end a running process of the flow")
    text = "undo a cut-over: restore the group offsets of the source"
    back = add_command(own, "back", "cutover:back_command", text)
    back.set_defaults(quiet_seconds=0.0, wait_seconds=0.0, take_over=False)
    for each in (run, back):
        each.add_argument("--execute", action="store_true", help="make the steps; without it they are only listed")
        text = "continue although some group offsets are not committed"
        each.add_argument("--leave-groups", action="store_true", help=text)
    text = "show what the target has when the source is lost, and change nothing"
    add_command(commands, "failover", "cutover:failover_command", text)


def add_takeover(commands: Commands) -> None:
    text = "show where a stopped MirrorMaker ended; --execute makes the mirror resume there"
    takeover = add_command(commands, "takeover", "takeover:takeover_command", text)
    text = "mm2 (default), connect-topic=NAME for a Connect offsets topic, group=NAME for MirrorMaker 1"
    takeover.add_argument("--from", dest="origin", metavar="WHERE", default="mm2", help=text)
    text = "the name of the MirrorSourceConnector, if it is not the usual one"
    takeover.add_argument("--connector", metavar="NAME", help=text)
    text = "the group.id of the Connect worker, if it is not the usual one"
    takeover.add_argument("--worker-group", metavar="NAME", help=text)
    text = "records to compare before each stored offset (default %(default)s); earlier groups are not moved"
    takeover.add_argument("--compare", metavar="N", type=int, default=COMPARE, help=text)
    takeover.add_argument("--execute", action="store_true", help="write the ledger; stop MirrorMaker first")
