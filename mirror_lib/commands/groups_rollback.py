"""`mirror groups rollback`: what a run moved goes back to where it stood."""

from __future__ import annotations

import argparse
import uuid
from typing import TYPE_CHECKING, Dict, List, Mapping, Tuple

from mirror_lib.commands.output import named_cluster, print_json, print_lines, print_undo, undo_line
from mirror_lib.config.model import MirrorConfig
from mirror_lib.errors import EXIT_FAILED, EXIT_OK, ConfigError
from mirror_lib.progress import counted

if TYPE_CHECKING:
    from mirror_lib.cluster import KafkaCluster
    from mirror_lib.state.group_offsets import GroupOffsetTable
    from mirror_lib.state.records import GroupOffset


def groups_rollback_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    """`mirror groups rollback`: put back what a run moved; without `--execute` only show it."""
    from mirror_lib.session import running_session
    from mirror_lib.state.group_offsets import GroupOffsetTable

    with running_session("mirror groups rollback") as spark:
        table = GroupOffsetTable(spark, config.state)
        return roll_back(arguments, config, table)


def roll_back(arguments: argparse.Namespace, config: MirrorConfig, table: GroupOffsetTable) -> int:
    """Put back, or show, what run `arguments.run` moved; an exit code. ConfigError where there is no such run."""
    from mirror_lib.cluster import KafkaCluster

    by_side: Dict[Tuple[str, str], List[GroupOffset]] = {}
    for flow_name, move in table.of_run(arguments.run):
        by_side.setdefault((flow_name, move.cluster), []).append(move)
    if not by_side:
        runs = (
            f"{run.run_id} ({run.flow}, {counted(run.moves, 'move')}, {run.last_at:%Y-%m-%d %H:%M}Z)"
            for run in table.runs()[:5]
        )
        known = ", ".join(runs)
        raise ConfigError(f"no run {arguments.run} moved a group; the last that did: {known or 'none'}")
    refused = 0
    for (flow_name, alias), moves in by_side.items():
        with KafkaCluster(named_cluster(config, alias)) as cluster:
            refused += _undo(arguments, flow_name, moves, cluster, table)
    return EXIT_FAILED if refused else EXIT_OK


def _undo(
    arguments: argparse.Namespace,
    flow_name: str,
    moves: List[GroupOffset],
    cluster: KafkaCluster,
    table: GroupOffsetTable,
) -> int:
    from mirror_lib.translate.moves import GroupMover
    from mirror_lib.translate.rollback import UNTOLD, plan_undo, undo_json, undo_lines

    groups = sorted({move.group for move in moves})
    undos = plan_undo(moves, cluster.committed_offsets(groups), cluster.describe_groups(groups))
    going = [undo.move for undo in undos if undo.move is not None]
    outcomes: Mapping[Tuple[str, str, str, int], str] = {move.key: "would be put back" for move in going}
    refused, undo_run = sum(undo.why == UNTOLD for undo in undos), None
    if arguments.execute and going:
        undo_run = uuid.uuid4().hex
        print_undo(arguments, undo_run)
        reasons = GroupMover(table, flow_name, undo_run).move(going, cluster, own_rows=True)
        refused += sum(reason is not None for reason in reasons.values())
        outcomes = {key: "put back" if why is None else f"refused: {why}" for key, why in reasons.items()}
    if arguments.json:
        rows = [undo_json(undo, outcomes) for undo in undos]
        runs = {"run_id": arguments.run, "undo_run_id": undo_run}
        print_json({"flow": flow_name, "cluster": cluster.alias, **runs, "positions": rows})
    else:
        print_lines([f"{flow_name}, groups of {cluster.alias}", *undo_lines(undos, outcomes)])
        if going and not arguments.execute:
            print_lines(["nothing was changed: --execute puts these offsets back"])
        if undo_run is not None:
            print_lines([undo_line(arguments, undo_run)])
    return refused
