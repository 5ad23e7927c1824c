"""`mirror state check`: says of each table of the state folder whether it is whole, and what a rebuild would read."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence

from mirror_lib.commands.arguments import Commands, add_command
from mirror_lib.commands.output import print_error, print_json, print_lines
from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.errors import EXIT_FAILED, EXIT_OK, MirrorError
from mirror_lib.text import aligned, counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirror_lib.ledger.state_check import TableState
    from mirror_lib.rebuild.decisions import FlowRebuild, Refusal

# How many refusals of a flow are shown in lines.
REFUSALS_SHOWN = 5


def add(commands: Commands) -> None:
    """`mirror state check` and its options."""
    text = "check the tables of the state folder, and show what a rebuild of the ledger would read"
    add_command(commands, "check", state_check_command, text, flow=False)


def state_check_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    """`mirror state check`: changes nothing. 1 where a table is damaged, of a newer version or foreign, or where the
    ledger of flows that ran is missing."""
    from mirror_lib.ledger.state_check import state_of
    from mirror_lib.spark.session import running_session

    with running_session("mirror state check") as spark:
        states = state_of(spark, config.state)
        show_tables(arguments, config, states)
        found = check_flows(arguments, config, spark, states)
    bad = any(not each.is_usable for each in states if is_table(each)) or ledger_is_lost(states)
    return EXIT_FAILED if bad or found is None else EXIT_OK


def is_table(state: TableState) -> bool:
    """Whether it is one of the mirror's tables, and no other folder."""
    from mirror_lib.ledger.state_check import STATE_TABLES

    return state.name in STATE_TABLES


def ledger_is_lost(states: Sequence[TableState]) -> bool:
    """Whether the ledger is missing although flows ran."""
    from mirror_lib.ledger.offset_syncs import OFFSET_SYNCS
    from mirror_lib.ledger.runs import RUNS
    from mirror_lib.ledger.state_check import MISSING

    by_name = {each.name: each for each in states}
    return by_name[OFFSET_SYNCS.name].status == MISSING and bool(by_name[RUNS.name].rows)


def show_tables(arguments: argparse.Namespace, config: MirrorConfig, states: Sequence[TableState]) -> None:
    """Print each table's status."""
    from mirror_lib.ledger.state_check import DAMAGED, MISSING, STATE_TABLES, UNREAD

    if arguments.json:
        print_json({"state": config.state, "tables": [_document(each) for each in states]})
        return
    rows = [["TABLE", "STATUS", "WHAT"]]
    for each in states:
        rows_of = "" if each.rows is None else counted(each.rows, "row")
        what = "; ".join(filter(None, (rows_of, each.detail)))
        faults = [str(fault) for fault in each.faults] or [what or "no process has written it"]
        rows += [[each.name, each.status, faults[0]], *(["", "", text] for text in faults[1:])]
    lines = [config.state, *aligned(rows)]
    lost = [each for each in states if each.status == DAMAGED and is_table(each)]
    lines += [f"{each.name}: no record on the target is lost. {STATE_TABLES[each.name].lost}" for each in lost]
    for name in (each.name for each in states if each.status == UNREAD):
        lines.append(
            f"{name}: no damaged file was found. Check the storage, Spark's memory and rights. If a file is damaged "
            f"within, `mirror state rebuild CONFIG --table {name}` moves the table aside"
        )
    if ledger_is_lost(states):
        lines.append(f"offset_syncs: {MISSING} although flows ran. {STATE_TABLES['offset_syncs'].lost}")
    print_lines(lines)


def _document(state: TableState) -> Dict[str, Any]:
    from mirror_lib.ledger.state_check import STATE_TABLES

    schema = STATE_TABLES.get(state.name)
    return {
        "table": state.name,
        "status": state.status,
        "rows": state.rows,
        "faults": [vars(fault) for fault in state.faults],
        "detail": state.detail,
        "if_lost": "" if schema is None else schema.lost,
    }


def check_flows(
    arguments: argparse.Namespace, config: MirrorConfig, spark: SparkSession, states: Sequence[TableState]
) -> Optional[List[FlowRebuild]]:
    """Print for each flow what a rebuild of the ledger would read, and why it is refused. `None` where clusters of
    a flow could not be read."""
    from mirror_lib.rebuild.flow import flow_rebuild

    found: List[FlowRebuild] = []
    failed = False
    for flow in (each for each in config.flows if each.copied):
        try:
            rebuild = flow_rebuild(config, flow, _recorded(config, flow, spark, states))
        except MirrorError as error:
            failed = True
            print_error(error)
            continue
        found.append(rebuild)
        if arguments.json:
            print_json(_flow_document(rebuild))
        else:
            print_lines(flow_lines(rebuild))
    return None if failed else found


def _recorded(config: MirrorConfig, flow: ReplicationFlow, spark: SparkSession, states: Sequence[TableState]) -> Any:
    """What whole tables have of the flow. For a table that was lost, now or before, the worse
    case is assumed."""
    from mirror_lib.ledger.delta_table import names_flow
    from mirror_lib.rebuild.flow import Recorded

    whole, lost = {each.name for each in states if each.rows}, {each.table for each in states if each.is_lost}
    taken, producers = (
        name in whole and names_flow(spark, config.state, name, flow.name) for name in ("takeovers", "lane_producers")
    )
    return Recorded(taken or "takeovers" in lost, producers and "lane_producers" not in lost)


def flow_lines(found: FlowRebuild) -> List[str]:
    """What is said of a flow, a line for what is read and one for each refusal."""
    topics, partitions = counted(found.topics, "topic"), counted(len(found.partitions), "partition")
    reads = f"{found.flow}: a rebuild of the ledger reads {counted(found.records, 'record')} of {topics}, {partitions}"
    refusals = found.refusals
    lines = [reads if not refusals else f"{found.flow}: the ledger cannot be rebuilt"]
    lines += [f"  refused: {each.reason}. Way out: {each.way_out}" for each in refusals[:REFUSALS_SHOWN]]
    more = len(refusals) - REFUSALS_SHOWN
    return [*lines, *([f"  and {counted(more, 'refusal')} more (--json has all)"] if more > 0 else [])]


def _flow_document(found: FlowRebuild) -> Dict[str, Any]:
    return {
        "flow": found.flow,
        "topics": found.topics,
        "records": found.records,
        "can_be_rebuilt": not found.refusals,
        "refusal": _refusal(found.refusal),
        "partitions": [
            {
                "remote_topic": each.remote[0],
                "partition": each.remote[1],
                "how": each.how,
                "records": each.records,
                "refusal": _refusal(each.refusal),
            }
            for each in found.partitions
        ],
    }


def _refusal(refusal: Optional[Refusal]) -> Optional[Dict[str, str]]:
    return None if refusal is None else dict(vars(refusal))
