"""`mirror run`: copies, and translates the groups of flows that ask for it, until caught up or stopped."""

from __future__ import annotations

import argparse
import logging
import math
import os
import signal
import threading
import time
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Collection, ContextManager, Dict, Iterator, List, Mapping, Optional, Sequence

from mirror_lib.commands.arguments import EXIT, REFUSE, WAIT
from mirror_lib.commands.output import (
    ProgressWatcher,
    chosen_flows,
    columns,
    error_json,
    print_end,
    print_json,
    print_lines,
    print_progress,
    wants_screen,
    watcher,
)
from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.config.values import AVAILABLE_NOW
from mirror_lib.control.heartbeats import copied_elsewhere, is_audible
from mirror_lib.errors import EXIT_OK, EXIT_REFUSED, ClusterError, MirrorError, RefusedError, exit_code_of, worst
from mirror_lib.exporter import Exporter
from mirror_lib.ledger.table_reader import local_folder, local_refusal
from mirror_lib.metrics import FlowMetrics
from mirror_lib.plan.idle import Work, idle_outcomes, may_do_without_spark
from mirror_lib.plan.preview import terms
from mirror_lib.progress import Outage
from mirror_lib.replication.totals import FlowOutcome, not_copied, total_lines
from mirror_lib.run_lock import copied_by, run_lock
from mirror_lib.status.read import seconds_to_retention
from mirror_lib.text import counted, document_of
from mirror_lib.threads import BackgroundCall, Stop

if TYPE_CHECKING:

    from mirror_lib.ledger.runs import OpenRun, RunTable
    from mirror_lib.screen import Screen

log = logging.getLogger(__name__)

USE_TAKE_OVER = (
    "let that run end, or give --if-running wait, which copies then, or --take-over, which fences it and copies from "
    "where it ended"
)
WAITS = "this run waits for its end (--if-running wait)"
# After such a silence a run whose heartbeats were heard has died. It is longer than a leader election takes.
SILENT_SECONDS = 10.0
# How often the table `runs` is read while no heartbeat can be awaited.
AGAIN_SECONDS = 5.0
PLAN_SHOWS = "mirror plan CONFIG shows which topics the flow copies"
GROUP_SHOWS = "kafka-consumer-groups.sh --describe --group GROUP shows on the source what the group has read"


def run_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    flows = chosen_flows(arguments, config)
    copied = [flow for flow in flows if flow.copied]
    if arguments.once:
        config = replace(config, trigger=AVAILABLE_NOW)
    unwritable = local_refusal(config.state, os.environ)
    if unwritable is not None:
        raise unwritable
    waits = arguments.if_running == WAIT
    with ExitStack() as locks:
        # Sorted, so two processes with several flows do not wait for each other.
        for flow in sorted(copied, key=lambda each: each.name):
            lock = partial(run_lock, config.state, flow.name, arguments.take_over)
            holder = locks.enter_context(lock(0.0 if waits else None))
            if holder is not None and waits:
                with _ended_by_signals():
                    print_progress(f"{copied_by(holder, flow.name)}; {WAITS}")
                    holder = locks.enter_context(lock(math.inf))
            if holder is not None:
                _leave_to(holder, flow, arguments)
                flows = [each for each in flows if each.name != flow.name]
        left, copied = len(copied), [flow for flow in flows if flow.copied]
        if len(copied) < left and not _goes_on(config, copied):
            return EXIT_OK
        idle = () if arguments.take_over else _without_spark(config, flows)
        if idle:
            _show(idle, {flow.name: [] for flow in flows}, arguments, stopped=False, interrupted=False)
            return EXIT_OK
        return _run(arguments, config, flows, copied)


def _without_spark(config: MirrorConfig, flows: Sequence[ReplicationFlow]) -> Sequence[FlowOutcome]:
    """How a bounded run ends that has nothing to do; empty where it needs Spark."""
    if config.trigger != AVAILABLE_NOW or not may_do_without_spark(config, os.environ):
        return ()
    try:
        with _ended_by_signals():
            outcomes = idle_outcomes(config, flows)
    except Work as work:
        log.info("Spark is started: %s", work)
        return ()
    with Exporter(config, flows, print_progress) as exporter:
        exporter.end([flow.name for flow in flows])
    return outcomes


def _goes_on(config: MirrorConfig, free: Sequence[ReplicationFlow]) -> bool:
    """Whether a run that leaves flows to others copies the `free` ones. A continuous run would never take up what it
    left, and hold its lock."""
    return bool(free) and config.trigger == AVAILABLE_NOW


def _leave_to(process: int, flow: ReplicationFlow, arguments: argparse.Namespace) -> None:
    words = f"{copied_by(process, flow.name)}; this run copies nothing of it"
    if arguments.if_running == REFUSE:
        raise RefusedError(words, USE_TAKE_OVER, code="MIR-301")
    print_progress(f"{words} (--if-running exit)")
    if arguments.json:
        print_json({"flow": flow.name, "process": process, "already_running": True})


def _run(
    arguments: argparse.Namespace,
    config: MirrorConfig,
    flows: Sequence[ReplicationFlow],
    copied: Sequence[ReplicationFlow],
) -> int:
    from mirror_lib.control.service import background_control, control_line
    from mirror_lib.copy_job import run_flows, writer_check
    from mirror_lib.groups.flow import cycle_line
    from mirror_lib.groups.job import BackgroundTranslation
    from mirror_lib.ledger.event_tables import TopicAclTable
    from mirror_lib.ledger.runs import RunTable
    from mirror_lib.outages import outages_watched
    from mirror_lib.preflight.executors import check_executors
    from mirror_lib.replication.stage import task_slots
    from mirror_lib.rows.transform import check_change
    from mirror_lib.spark.session import refuse_logins, refuse_settings, running_session

    with screen_of(arguments, copied) as screen, running_session(f"mirror {', '.join(f.name for f in flows)}") as spark:
        refuse_settings(spark)
        refuse_logins(spark.version, flows)
        runs = RunTable(spark, config.state)
        others = _other_runs(runs, copied, arguments)
        flows, copied = ([each for each in some if each.name not in others] for some in (flows, copied))
        if others and not _goes_on(config, copied):
            return EXIT_OK
        for flow in copied:
            check_change(spark, flow)
        refused = check_executors(spark, copied, config.state, print_progress) if copied else ()
        if refused:
            for refusal in refused:
                print_end(refusal)
            return EXIT_REFUSED
        folder = local_folder(config.state, os.environ)
        if folder is not None and not config.state.startswith(("/", "file:")):
            print_progress(f"state: {folder}")
        for flow in flows:
            print_progress(f"{flow.name}: {terms(flow, task_slots(spark))}")
        stop = stop_on_signals()
        writers = {flow.name: writer_check(spark, config, flow, arguments.take_over) for flow in copied}
        refuse = {name: check.refuse for name, check in writers.items()}
        shown_cycles = watcher(arguments.json, cycle_line)
        translation = BackgroundTranslation(config, flows, spark, shown_cycles, stop, refuse)
        tables = TopicAclTable(spark, config.state), runs.latest
        shown = ProgressWatcher(arguments.json, screen)
        exporter = Exporter(config, copied, print_progress, seconds_to_retention)

        def progress(snapshot: FlowMetrics) -> None:
            shown.cycle(snapshot)
            exporter.show(snapshot)

        def outage(found: Outage) -> None:
            shown.outage(found)
            exporter.outage(found)

        watch = watcher(arguments.json, control_line)
        drawn: ContextManager[None] = nullcontext() if screen is None else screen.drawn(stop)
        # A bounded run ends with an error where a cluster does not answer.
        outages = outages_watched(copied if config.trigger != AVAILABLE_NOW else [], outage)
        control = background_control(config, flows, *tables, watch, stop, writers)
        errors: Dict[str, List[MirrorError]] = {flow.name: [] for flow in flows}
        with drawn, exporter:
            with outages, control, translation:
                outcomes = run_flows(config, copied, spark, progress, stop, writers) if copied else translation.alone()
            for outcome in outcomes:
                errors[outcome.flow] += [] if outcome.error is None else [outcome.error]
            for name, error in translation.errors.items():
                errors[name].append(error)
            interrupted = stop.is_set() and config.trigger == AVAILABLE_NOW
            exporter.end([outcome.flow for outcome in outcomes if not (errors[outcome.flow] or interrupted)])
    _show(outcomes, errors, arguments, stop.is_set(), interrupted)
    return worst(exit_code_of(each, interrupted) for each in errors.values())


def screen_of(arguments: argparse.Namespace, flows: Sequence[ReplicationFlow]) -> ContextManager[Optional[Screen]]:
    if not (flows and wants_screen(arguments, os.environ)):
        return nullcontext()
    from mirror_lib.screen import screen_on_terminal  # late: rich is optional

    return screen_on_terminal([flow.name for flow in flows])


def _other_runs(table: RunTable, flows: Sequence[ReplicationFlow], arguments: argparse.Namespace) -> Collection[str]:
    """The flows that are left to other runs."""
    if arguments.if_running == EXIT:
        found = table.other_runs([flow.name for flow in flows])
        for run in found:
            print_progress(f"{run.under_way()}. This run copies nothing of it (--if-running exit).")
            if arguments.json:
                print_json({**vars(run), "already_running": True})
        return [run.flow for run in found]
    if arguments.if_running == WAIT:
        with _ended_by_signals():
            # In a thread: a signal amid a call to Java breaks the connections to it.
            BackgroundCall("other runs", partial(_await_other_runs, table, flows)).result()
    elif not arguments.take_over:
        refuse_other_runs(table, flows)
    return ()


def _await_other_runs(table: RunTable, flows: Sequence[ReplicationFlow]) -> None:
    """Return when no other process copies `flows`: each open run in `table` has ended or died."""
    heard: Dict[str, float] = {}
    printed: List[str] = []
    while True:
        runs = table.other_runs([flow.name for flow in flows])
        beating = {run.flow for run in runs if run.run_id in heard}
        audible = [flow for flow in flows if is_audible(flow) and flow.name in {run.flow for run in runs}]
        try:
            beating = set(copied_elsewhere(audible))
        except ClusterError as error:  # of an unreachable target no silence is heard
            log.debug("whether another process copies is not known: %s", error)
        runs = not_silent(runs, beating, heard, time.monotonic())
        if not runs:
            return
        for run in (run for run in runs if run.run_id not in printed):
            printed.append(run.run_id)
            print_progress(f"{run.under_way()}; {WAITS}")
        time.sleep(0.0 if audible else AGAIN_SECONDS)


def not_silent(runs: Sequence[OpenRun], beating: Collection[str], heard: Dict[str, float], now: float) -> List[OpenRun]:
    """The `runs` that may be alive: a run died if its heartbeats have stopped for `SILENT_SECONDS`. A bounded run
    writes none, so a run that was never heard may be alive.

    `beating`: the flows with heartbeats at the time `now`. `heard` has the time of the last ones by run; updated.
    """
    heard.update({run.run_id: now for run in runs if run.flow in beating})
    return [run for run in runs if now - heard.get(run.run_id, now) < SILENT_SECONDS]


def refuse_other_runs(table: RunTable, flows: Sequence[ReplicationFlow]) -> None:
    """Raise `RefusedError` where a process on another machine copies one of `flows`: `table` has no end of its run, and
    its heartbeats arrive. A run that was killed writes none."""
    audible = [flow for flow in flows if is_audible(flow)]
    if not audible:
        return  # a start waits while the table is read
    found = {run.flow: run for run in table.other_runs([flow.name for flow in audible])}
    try:
        others = copied_elsewhere([flow for flow in audible if flow.name in found])
    except ClusterError as error:
        # Read on the topic `heartbeats` is no condition for a copy, and the fence keeps the copy exact.
        log.debug("whether another process copies is not known: %s", error)
        return
    if others:
        raise RefusedError(
            f"{others[0]}: run {found[others[0]].run_id} copies it, and its heartbeats arrive on the target; this run "
            "copied nothing",
            USE_TAKE_OVER,
            code="MIR-301",
        )


def stop_on_signals() -> Stop:
    """Set by SIGTERM and Ctrl-C. To be called when the session is there, which sets a handler for Ctrl-C of its own.

    Python hands signals to the main thread alone: a platform that runs the command in another one stops it by its own
    means.
    """
    stop = Stop()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
    return stop


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and Ctrl-C end the process at once with exit code 0 in the block: nothing is copied yet."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        raise SystemExit(EXIT_OK)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(
    outcomes: Sequence[FlowOutcome],
    errors: Mapping[str, Sequence[MirrorError]],
    arguments: argparse.Namespace,
    stopped: bool,
    interrupted: bool,
) -> None:
    """`errors` are those of the copy and of the translation, by flow."""
    as_json = arguments.json
    # `mirror mm1` has no file that `mirror plan` could read.
    advice = PLAN_SHOWS if hasattr(arguments, "config") else GROUP_SHOWS
    for error in (each for found in errors.values() for each in found):
        print_end(error)
    for outcome in outcomes:
        if as_json:
            print_json({**document_of(outcome), **error_json(errors[outcome.flow], interrupted)})
        elif outcome.topics:
            print_lines(total_lines(outcome, columns()))
        elif outcome.error is None:
            print_progress(f"{outcome.flow}: {_of_nothing(outcome, stopped, advice)}")
        remarks = [outcome.note] if outcome.note and outcome.topics else []
        for sentence in () if as_json else (*remarks, *outcome.waiting):
            print_progress(f"{outcome.flow}: {sentence}")
    copied = {outcome.flow for outcome in outcomes}
    for name, found in errors.items():
        if as_json and found and name not in copied:
            print_json({"flow": name, **error_json(found, interrupted)})


def _of_nothing(outcome: FlowOutcome, stopped: bool, advice: str) -> str:
    if stopped:
        return "stopped before it had copied anything new"
    if outcome.recovered:
        return f"nothing was left to copy; {counted(outcome.recovered, 'record')} found on the target"
    if outcome.filtered or outcome.dead_letters:
        return f"nothing was copied: {', '.join(not_copied(outcome))}"
    note = f"{outcome.note}; " if outcome.note else ""
    if outcome.waiting:
        return f"nothing was copied; {note}the next lines name what waits"
    return f"no new records; {note}{advice}"
