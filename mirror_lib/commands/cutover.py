"""`mirror cutover plan|run|back`: applications of a flow move to its target, and back. `mirror failover`: what the
target holds if the source is lost."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import Mapping

from mirror_lib.commands.output import columns, copied_flows, print_json, print_lines, print_progress, print_result
from mirror_lib.commands.run import stop_on_signals
from mirror_lib.config.model import MirrorConfig
from mirror_lib.cutover.failover import failover, failover_lines
from mirror_lib.cutover.gates import readiness
from mirror_lib.cutover.steps import STEPS, STEPS_BACK, budget_line
from mirror_lib.doctor.checks import BLOCKING, check_lines
from mirror_lib.errors import EXIT_FAILED, EXIT_OK, ConfigError
from mirror_lib.kafka.admin import clusters_of
from mirror_lib.run_lock import STOP_OR_END, STOP_RUN, alone

NEXT = (
    "the target has every record and {}: start consumers and producers there. "
    "mirror cutover back CONFIG --execute undoes it"
)


def plan_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    """The gates of each flow. 1 where one does not hold."""
    closed = False
    for flow in copied_flows(arguments, config):
        found = readiness(config, flow)
        closed = closed or any(each.level == BLOCKING for each in found.gates)
        lines = [line for each in found.gates for line in check_lines(each)]
        print_result(arguments, found, [*lines, budget_line(found.lag, found.rate, 10.0, found.records)])
    return EXIT_FAILED if closed else EXIT_OK


def run_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    return _execute(arguments, config, over=True) if arguments.execute else _listed("a cut-over", STEPS)


def back_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    return _execute(arguments, config, over=False) if arguments.execute else _listed("the way back", STEPS_BACK)


def _listed(what: str, steps: Mapping[str, str]) -> int:
    lines = (f"{step:<8} {words}" for step, words in steps.items())
    print_lines([f"{what} makes these steps, in this order (--execute makes them):", *lines])
    return EXIT_OK


def _execute(arguments: argparse.Namespace, config: MirrorConfig, over: bool) -> int:
    from mirror_lib.cutover.flow import Cutover, Options
    from mirror_lib.spark.session import running_session

    flows = copied_flows(arguments, config)
    if len(flows) != 1:
        names = ", ".join(flow.name for flow in flows)
        raise ConfigError(f"a cut-over is of one flow, and {names} are chosen", "name one with --flow")
    if arguments.wait_seconds < arguments.quiet_seconds:
        raise ConfigError("--wait-seconds is less than --quiet-seconds, so no source would be silent in time")
    waits = (arguments.quiet_seconds, arguments.wait_seconds)
    options = Options(*waits, arguments.leave_groups, arguments.take_over)
    with ExitStack() as held:
        remedy = STOP_OR_END if over else STOP_RUN
        held.enter_context(alone(config.state, flows[0].name, remedy, options.take_over))
        spark = held.enter_context(running_session("mirror cutover"))
        stop = stop_on_signals()
        with clusters_of(flows[0]) as clusters:
            cutover = Cutover(config, flows[0], spark, clusters, options, print_progress, stop)
            for step in cutover.over() if over else cutover.back():
                if arguments.json:
                    print_json(step)
    moved = "the offsets that the step groups committed" if options.leave_groups else "the groups' offsets"
    last = f"{flows[0].name}: {NEXT.format(moved) if over else 'the source may be used again'}"
    print_progress(last) if arguments.json else print_lines([last])
    return EXIT_OK


def failover_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    unread = False
    for number, flow in enumerate(copied_flows(arguments, config)):
        found = failover(config, flow)
        unread = unread or bool(found.unread)
        print_result(arguments, found, [*([""] if number else []), *failover_lines(found, columns())])
    return EXIT_FAILED if unread else EXIT_OK
