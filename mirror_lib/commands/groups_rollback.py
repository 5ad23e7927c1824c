"""`mirror groups rollback`: what a run moved goes back to where it stood."""

from __future__ import annotations

import argparse
import uuid
from typing import TYPE_CHECKING, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from mirror_lib.commands.arguments import Commands, add_command
from mirror_lib.commands.output import columns, named_cluster, print_json, print_lines, print_undo, undo_line
from mirror_lib.config.model import MirrorConfig
from mirror_lib.errors import EXIT_FAILED, EXIT_OK, ConfigError
from mirror_lib.text import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirror_lib.groups.moves import Undo
    from mirror_lib.kafka.admin import KafkaCluster
    from mirror_lib.ledger.group_offsets import GroupOffsetTable
    from mirror_lib.ledger.records import GroupOffset, MoveKey


def add(groups: Commands) -> None:
    rollback = add_command(
        groups, "rollback", groups_rollback_command, "restore the group offsets that a run changed", flow=False
    )
    rollback.add_argument("--run", metavar="ID", required=True, help="the run id that `groups plan --execute` printed")
    rollback.add_argument("--execute", action="store_true", help="commit the offsets; without it they are only shown")


def groups_rollback_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    from mirror_lib.spark.session import running_session

    with running_session("mirror groups rollback") as spark:
        return roll_back(arguments, config, spark)


def roll_back(arguments: argparse.Namespace, config: MirrorConfig, spark: SparkSession) -> int:
    """Put back, or show, what run `arguments.run` moved; an exit code. ConfigError where there is no such run,
    RefusedError where the cluster is not the one whose groups it moved."""
    from mirror_lib.kafka.admin import KafkaCluster
    from mirror_lib.ledger.group_offsets import GroupOffsetTable
    from mirror_lib.ledger.runs import RunTable

    table, runs = GroupOffsetTable(spark, config.state), RunTable(spark, config.state)
    by_side: Dict[Tuple[str, str], List[GroupOffset]] = {}
    for flow_name, move in table.of_run(arguments.run):
        by_side.setdefault((flow_name, move.cluster), []).append(move)
    if not by_side:
        listed = (
            f"{run.run_id} ({run.flow}, {counted(run.moves, 'move')}, {run.last_at:%Y-%m-%d %H:%M}Z)"
            for run in table.runs()[:5]
        )
        known = ", ".join(listed)
        raise ConfigError(
            f"run {arguments.run} committed no offset of a group; the last runs that did: {known or 'none'}"
        )
    failed = 0
    for (flow_name, alias), moves in by_side.items():
        with KafkaCluster(named_cluster(config, alias)) as cluster:
            runs.same_cluster(flow_name, alias, cluster.cluster_id())
            undone = _undone(arguments, flow_name, moves, cluster, table)
        _show(arguments, flow_name, alias, undone)
        failed += undone.failed
    return EXIT_FAILED if failed else EXIT_OK


class _Undone(NamedTuple):
    """What was found, what became of the moves that undo it, how many failed, and their run if they were made."""

    found: Sequence[Undo]
    outcomes: Mapping[MoveKey, str]
    failed: int
    run_id: Optional[str] = None


def _undone(
    arguments: argparse.Namespace,
    flow_name: str,
    moves: Sequence[GroupOffset],
    cluster: KafkaCluster,
    table: GroupOffsetTable,
) -> _Undone:
    from mirror_lib.groups.moves import REFUSED, GroupMover, plan_undo

    groups = sorted({move.group for move in moves})
    found = plan_undo(moves, cluster.committed_offsets(groups), cluster.describe_groups(groups))
    going = [undo.move for undo in found if undo.move is not None]
    without_answer = sum(undo.why == REFUSED for undo in found)
    if not (arguments.execute and going):
        return _Undone(found, {move.key: "would be put back" for move in going}, without_answer)
    run_id = uuid.uuid4().hex
    print_undo(arguments, run_id)
    reasons = GroupMover(table, flow_name, run_id).move(going, cluster, own_rows=True)
    outcomes = {key: "put back" if why is None else f"refused: {why}" for key, why in reasons.items()}
    return _Undone(found, outcomes, without_answer + sum(why is not None for why in reasons.values()), run_id)


def _show(arguments: argparse.Namespace, flow_name: str, alias: str, undone: _Undone) -> None:
    from mirror_lib.groups.moves import undo_json, undo_lines

    if arguments.json:
        rows = [undo_json(undo, undone.outcomes) for undo in undone.found]
        runs = {"run_id": arguments.run, "undo_run_id": undone.run_id}
        print_json({"flow": flow_name, "cluster": alias, **runs, "positions": rows})
        return
    print_lines([f"{flow_name}, groups of {alias}", *undo_lines(undone.found, undone.outcomes, columns())])
    if undone.run_id is not None:
        print_lines([undo_line(arguments, undone.run_id)])
    elif undone.outcomes:
        print_lines(["nothing was changed: --execute puts these offsets back"])
