"""The `mirror` command: arguments in, printed results and an exit code out. The only place that opens sessions.

Results go to standard output, progress and warnings to standard error.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import threading
from dataclasses import replace
from typing import Any, Callable, Dict, List, Optional, Sequence

from mirror_lib import __version__
from mirror_lib.config.loader import load
from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.errors import EXIT_FAILED, EXIT_OK, EXIT_REFUSED, EXIT_USAGE, ConfigError, MirrorError
from mirror_lib.progress import ProgressSnapshot, snapshot_json, status_line

log = logging.getLogger("mirror")

EXIT_STOPPED = 143
EXIT_CODES = f"""\
exit codes:
  {EXIT_OK}    done: everything is copied, or equal
  {EXIT_FAILED}    failed: something could not be copied, or differs
  {EXIT_USAGE}    bad usage or configuration; nothing was started
  {EXIT_REFUSED}    refused for safety: going on could lose or double records
  {EXIT_STOPPED}  stopped by SIGTERM or Ctrl-C before it was done; the next run goes on from there
"""


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run one command and return its exit code. Errors become one line on standard error."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(message)s")
    arguments = _parser().parse_args(argv)
    try:
        config = load(arguments.config)
        for warning in config.warnings:
            print(f"warning: {warning}", file=sys.stderr)
        command: Callable[[argparse.Namespace, MirrorConfig], int] = arguments.command
        return command(arguments, config)
    except MirrorError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mirror",
        description="Copies Kafka topics from cluster to cluster, exactly once for every reader.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"mirror {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    run = _command(commands, "run", run_command, "copy, once or continuously as `trigger` says")
    run.add_argument("--once", action="store_true", help="one run to the present end, whatever `trigger` says")
    _command(commands, "plan", plan_command, "show what would be copied and created; changes nothing")
    _command(commands, "verify", verify_command, "prove that the remote topics equal their sources")
    return parser


def _command(commands: Any, name: str, command: Callable[..., int], text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text, epilog=EXIT_CODES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", metavar="CONFIG", help="YAML, or a MirrorMaker 2 .properties file as it is")
    parser.add_argument("--flow", metavar="A->B", help="only this flow of the file")
    parser.add_argument("--json", action="store_true", help="results as JSON, one document a line")
    parser.set_defaults(command=command)
    return parser


def run_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    """`mirror run`: copy until caught up (`availableNow`) or until told to stop."""
    from mirror_lib.replicate.job import run_flows
    from mirror_lib.replicate.totals import total_json, total_lines
    from mirror_lib.session import open_session, refuse_settings

    flows = _flows(arguments, config)
    if arguments.once:
        config = replace(config, trigger="availableNow")
    stop = threading.Event()
    spark = open_session(f"mirror {', '.join(flow.name for flow in flows)}")
    try:
        refuse_settings(spark)
        # After the session, which sets a handler for Ctrl-C of its own.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        outcomes = run_flows(config, flows, spark, _watcher(arguments.json), stop)
    finally:
        spark.stop()
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    for error in errors:
        print(f"error: {error}", file=sys.stderr)
    for outcome in outcomes:
        if arguments.json:
            why = None if outcome.error is None else str(outcome.error)
            topics = [total_json(total) for total in outcome.topics]
            _print_json({**vars(outcome), "topics": topics, "error": why})
        elif outcome.topics:
            print("\n".join(total_lines(outcome.flow, outcome.topics)))
    if errors:
        return max(error.exit_code for error in errors)
    return EXIT_STOPPED if stop.is_set() and config.trigger == "availableNow" else EXIT_OK


def plan_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    """`mirror plan`: read both clusters and print; nothing is changed."""
    from mirror_lib.cluster import KafkaCluster
    from mirror_lib.plan import plan_json, plan_lines
    from mirror_lib.remote_topics import plan_flow

    for flow in _flows(arguments, config):
        with KafkaCluster(flow.source) as source, KafkaCluster(flow.target) as target:
            plan = plan_flow(flow, source, target, config.flows)
        if arguments.json:
            _print_json({"flow": flow.name, **plan_json(plan)})
        else:
            print(f"{flow.name}\n{plan_lines(plan)}")
    return EXIT_OK


def verify_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    """`mirror verify`: compare both sides with ordinary consumers, on Spark."""
    from mirror_lib.session import open_session

    flows = _flows(arguments, config)
    spark = open_session("mirror verify")
    try:
        return max(_verify(flow, config, spark, arguments.json) for flow in flows)
    finally:
        spark.stop()


def _verify(flow: ReplicationFlow, config: MirrorConfig, spark: Any, as_json: bool) -> int:
    from mirror_lib.cluster import KafkaCluster
    from mirror_lib.remote_topics import plan_flow
    from mirror_lib.state.offset_syncs import OffsetSyncTable
    from mirror_lib.verify.flow import verify
    from mirror_lib.verify.verdicts import report_json, report_lines

    with KafkaCluster(flow.source) as source, KafkaCluster(flow.target) as target:
        plan = plan_flow(flow, source, target, config.flows)
        copied = [topic for topic in plan.copied if topic.create is None]
        report = verify(spark, flow, OffsetSyncTable(spark, config.state), copied, source, target)
    if as_json:
        _print_json(report_json(report))
    else:
        print("\n".join(report_lines(report)))
    missing = [
        f"{topic.source.name} was never copied: {topic.remote_topic} does not exist"
        for topic in plan.copied
        if topic.create
    ]
    missing += [f"{topic.name} cannot be copied: {topic.reason}" for topic in plan.blocked]
    for sentence in missing:
        print(f"error: {flow.name}: {sentence}", file=sys.stderr)
    return EXIT_OK if report.equal and not missing else EXIT_FAILED


def _flows(arguments: argparse.Namespace, config: MirrorConfig) -> List[ReplicationFlow]:
    flows = [flow for flow in config.flows if arguments.flow in (None, flow.name)]
    if not flows:
        names = ", ".join(flow.name for flow in config.flows) or "none that is enabled"
        raise ConfigError(f"there is no flow {arguments.flow or ''} to run; the file has {names}".replace("  ", " "))
    return flows


def _watcher(as_json: bool) -> Callable[[ProgressSnapshot], None]:
    lock = threading.Lock()

    def watch(snapshot: ProgressSnapshot) -> None:
        with lock:
            if as_json:
                _print_json(snapshot_json(snapshot))
            else:
                print(status_line(snapshot), file=sys.stderr, flush=True)

    return watch


def _print_json(document: Dict[str, Any]) -> None:
    print(json.dumps(document, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    sys.exit(main())
