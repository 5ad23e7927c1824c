"""`mirror state rebuild`: moves damaged tables aside, so that the next run makes them again; shows it first."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Sequence

from mirror_lib.commands.arguments import Commands, add_command
from mirror_lib.commands.output import print_error, print_json, print_lines
from mirror_lib.commands.state_check import check_flows, is_table, show_tables
from mirror_lib.config.model import MirrorConfig
from mirror_lib.errors import EXIT_FAILED, EXIT_OK, EXIT_REFUSED, ConfigError, MirrorError, RefusedError
from mirror_lib.text import duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirror_lib.ledger.state_check import TableState
    from mirror_lib.rebuild.decisions import FlowRebuild

NEXT_RUN = (
    "The next run of each flow rebuilds the ledger from the remote topics: run `mirror run`, then `mirror verify`."
)


def add(commands: Commands) -> None:
    """`mirror state rebuild` and its options."""
    text = "show how damaged tables are re-created; --execute moves them aside"
    rebuild = add_command(commands, "rebuild", state_rebuild_command, text, flow=False)
    rebuild.add_argument(
        "--execute", action="store_true", help="move the tables aside; without it they are only listed"
    )
    rebuild.add_argument("--table", metavar="NAME", help="also move this table aside, even where its files are whole")


def state_rebuild_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    """`mirror state rebuild`: 3 where a run is under way or a flow's ledger cannot be rebuilt; nothing is changed then.
    Tables of a newer release are never moved."""
    from mirror_lib.ledger.state_check import state_of
    from mirror_lib.spark.session import running_session

    _check_name(arguments.table)
    with running_session("mirror state rebuild") as spark:
        states = state_of(spark, config.state)
        show_tables(arguments, config, states)
        _refuse_newer(states)
        chosen = _chosen(states, arguments.table)
        flows: Optional[List[FlowRebuild]] = []
        if _needs_logs(chosen):
            _refuse_for_others(config, spark)
            flows = check_flows(arguments, config, spark, states)
        if flows is None:
            return EXIT_FAILED
        if any(each.refusals for each in flows) or not _producers_go(config, spark, chosen):
            return EXIT_REFUSED
        return _move(arguments, config, spark, chosen)


def _check_name(table: Optional[str]) -> None:
    from mirror_lib.ledger.state_check import STATE_TABLES

    if table is not None and table not in STATE_TABLES:
        raise ConfigError(f"--table={table} is no table of the state folder", f"name one of {', '.join(STATE_TABLES)}")


def _refuse_newer(states: Sequence[TableState]) -> None:
    from mirror_lib.ledger.state_check import FOREIGN, NEWER

    for each in states:
        if is_table(each) and each.status in (NEWER, FOREIGN):
            raise RefusedError(f"{each.detail}. The table is not damaged, so it is not moved aside", code="MIR-323")


def _chosen(states: Sequence[TableState], named: Optional[str]) -> List[str]:
    from mirror_lib.ledger.state_check import DAMAGED, MISSING

    there = [each for each in states if is_table(each) and each.status != MISSING]
    return [each.name for each in there if each.status == DAMAGED or each.name == named]


def _needs_logs(chosen: Sequence[str]) -> bool:
    from mirror_lib.ledger.offset_syncs import OFFSET_SYNCS

    return OFFSET_SYNCS.name in chosen


def _refuse_for_others(config: MirrorConfig, spark: SparkSession) -> None:
    """Raise `RefusedError` where the ledger has rows of flows that this configuration does not copy: the check whether
    a ledger can be rebuilt would leave them out."""
    from mirror_lib.ledger.runs import RunTable

    try:
        others = set(RunTable(spark, config.state).flows()) - {each.name for each in config.flows if each.copied}
    except MirrorError:
        return  # without `runs` they are unknown
    if others:
        raise RefusedError(
            f"{', '.join(sorted(others))}: ran with this state folder, and the configuration does not copy it. Its "
            "rows are in the same ledger. Nothing was changed",
            "repeat the command with a configuration that has every flow of this state folder; if such a flow was "
            "removed for good, stop all runs and rename the folder offset_syncs by hand",
            code="MIR-323",
        )


def _producers_go(config: MirrorConfig, spark: SparkSession, chosen: Sequence[str]) -> bool:
    """Whether the table of producer ids may be lost: it is needed for what a killed run wrote to a shared topic."""
    from mirror_lib.ledger.lane_producers import LANE_PRODUCERS
    from mirror_lib.ledger.runs import RunTable

    if LANE_PRODUCERS.name not in chosen:
        return True
    runs, goes = RunTable(spark, config.state), True
    for flow in (each for each in config.flows if each.copied and each.shared_remote_topics and each.change is None):
        try:
            ended = runs.latest_with_end(flow.name)[1]
        except MirrorError:
            ended = False
        if not ended:
            goes = False
            print_error(
                RefusedError(
                    f"{flow.name}: the table runs does not show that its last run ended with nothing to recover, so "
                    "only the table lane_producers shows what it wrote last",
                    "restore lane_producers from a backup, or give the flow empty remote topics",
                    code="MIR-323",
                )
            )
    return goes


def _refuse_during_a_run(config: MirrorConfig, spark: SparkSession) -> None:
    """Raise `RefusedError` where a run of any flow is under way. A run that was killed counts for some minutes."""
    from mirror_lib.ledger.records import DEAD_SECONDS
    from mirror_lib.ledger.runs import RunTable
    from mirror_lib.ledger.state_check import last_written

    try:
        found = RunTable(spark, config.state).open_runs(None, DEAD_SECONDS)
    except MirrorError:
        # Without `runs`, only the tables' files show that a process is at work.
        written = last_written(spark, config.state)
        ago = None if written is None else max(0.0, time.time() - written)
        if ago is not None and ago < DEAD_SECONDS:
            raise RefusedError(
                f"a run may be under way: the table runs cannot be read, and a table was written {duration(ago)} ago. "
                "Nothing was changed",
                f"stop all runs on this state folder, and repeat the command {DEAD_SECONDS / 60:.0f} minutes after the "
                "last write",
                code="MIR-301",
            ) from None
        return
    for run in found:
        ago = max(0.0, time.time() - run.last_sign)
        raise RefusedError(
            f"{run.flow}: run {run.run_id} is under way, its last sign of life {duration(ago)} ago. Nothing was "
            "changed",
            f"stop it; a killed run counts as under way for {DEAD_SECONDS / 60:.0f} minutes after its last sign",
            code="MIR-301",
        )


def _move(arguments: argparse.Namespace, config: MirrorConfig, spark: SparkSession, chosen: Sequence[str]) -> int:
    from mirror_lib.ledger.state_check import move_aside

    moved: Dict[str, str] = {}
    if arguments.execute and chosen:
        _refuse_during_a_run(config, spark)
        moved = {name: move_aside(spark, config.state, name) for name in chosen}
    if arguments.json:
        print_json(document(arguments.execute, chosen, moved))
        return EXIT_OK
    if not chosen:
        print_lines(["no table is damaged: nothing to do"])
    for name in chosen:
        print_lines([f"{name}: moved aside to {moved[name]}" if moved else f"{name}: would be moved aside"])
    if _needs_logs(chosen):
        print_lines([NEXT_RUN])
    if chosen and not moved:
        print_lines(["nothing was changed: --execute moves the tables aside"])
    return EXIT_OK


def document(executed: bool, chosen: Sequence[str], moved: Mapping[str, str]) -> Dict[str, object]:
    """The JSON document of the chosen tables; `moved` has the new names of those that were moved."""
    return {"executed": executed, "moved": [{"table": name, "moved_to": moved.get(name)} for name in chosen]}
