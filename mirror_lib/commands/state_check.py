"""`mirror state check`: prints for each table of the state folder whether it is whole."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Dict, Sequence

from mirror_lib.commands.arguments import Commands, add_command
from mirror_lib.commands.output import columns, print_json, print_lines
from mirror_lib.config.model import MirrorConfig
from mirror_lib.errors import EXIT_FAILED, EXIT_OK
from mirror_lib.text import aligned, counted

if TYPE_CHECKING:
    from mirror_lib.ledger.state_check import TableState


def add(commands: Commands) -> None:
    """`mirror state check` and its options."""
    add_command(commands, "check", state_check_command, "check the tables of the state folder", flow=False)


def state_check_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    """`mirror state check`: changes nothing. 1 where a table is damaged, of a newer version or foreign, or where the
    ledger of flows that ran is missing."""
    from mirror_lib.ledger.state_check import state_of
    from mirror_lib.spark.session import running_session

    with running_session("mirror state check") as spark:
        states = state_of(spark, config.state)
    show_tables(arguments, config, states)
    bad = any(not each.is_usable for each in states if is_table(each)) or ledger_is_lost(states)
    return EXIT_FAILED if bad else EXIT_OK


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
    from mirror_lib.ledger.delta_table import STEPS
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
    lines = [config.state, *aligned(rows, columns=columns())]
    lost = [each for each in states if each.status == DAMAGED and is_table(each)]
    lines += [f"{each.name}: no record on the target is lost. {STATE_TABLES[each.name].lost}" for each in lost]
    for name in (each.name for each in states if each.status == UNREAD):
        lines.append(
            f"{name}: no damaged file was found. Check the storage, Spark's memory and rights. If a file is damaged "
            f"within, follow the steps of {STEPS}"
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
