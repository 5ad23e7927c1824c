"""`mirror groups plan`: where each group would go on; with `--execute` it does."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, List, Optional, Tuple

from mirror_lib.commands.output import chosen_flows, print_json, print_lines, undo_line
from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.errors import EXIT_FAILED, EXIT_OK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirror_lib.translate.report import PlannedMove


def groups_plan_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    """`mirror groups plan`: show where each group would go on; with `--execute` move them. 1 if one was refused."""
    from mirror_lib.session import running_session
    from mirror_lib.translate.report import plan_json, plan_lines, summary
    from mirror_lib.translate.verdicts import TO_DOWNSTREAM, TO_UPSTREAM

    flows = chosen_flows(arguments, config)
    direction = TO_UPSTREAM if arguments.reverse else TO_DOWNSTREAM
    refused = 0
    with running_session("mirror groups plan") as spark:
        for flow in flows:
            run_id, moves = _planned(arguments, config, flow, spark, direction)
            refused += sum(move.action.startswith("refused") for move in moves)
            if arguments.json:
                rows = [plan_json(move) for move in moves]
                print_json({"flow": flow.name, "direction": direction, "run_id": run_id, "positions": rows})
                continue
            print_lines(
                [
                    f"{flow.name}: group offsets, from {_way(flow, direction)}",
                    *(plan_lines(moves) if moves else []),
                    summary(moves),
                ]
            )
            if run_id is not None:
                print_lines([undo_line(arguments, run_id)])
            elif any(move.decision.translation.commit for move in moves):
                print_lines(["nothing was changed: --execute commits these offsets"])
    return EXIT_FAILED if refused else EXIT_OK


def _planned(
    arguments: argparse.Namespace, config: MirrorConfig, flow: ReplicationFlow, spark: SparkSession, direction: str
) -> Tuple[Optional[str], List[PlannedMove]]:
    """The moves, and the run's id if they were made."""
    from mirror_lib.cluster import clusters_of
    from mirror_lib.translate.flow import FlowTranslation, Selection
    from mirror_lib.translate.report import PlannedMove, would
    from mirror_lib.translate.verdicts import TranslationRules

    rules = TranslationRules(arguments.allow_rewind, flow.groups_simple)
    with clusters_of(flow) as (source, target):
        translation = FlowTranslation(config, flow, spark, source, target, direction)
        decisions = translation.decide(translation.look(Selection(arguments.group, arguments.topic)), rules)
        if not arguments.execute:
            return None, [PlannedMove(each, would(each)) for each in decisions]
        outcomes = translation.execute(decisions, own_rows=True)
    moved = any(outcome.decision.translation.commit for outcome in outcomes)
    return translation.run_id if moved else None, [PlannedMove(each.decision, each.done) for each in outcomes]


def _way(flow: ReplicationFlow, direction: str) -> str:
    from mirror_lib.translate.verdicts import TO_DOWNSTREAM

    source, target = flow.source.alias, flow.target.alias
    return f"{source} to {target}" if direction == TO_DOWNSTREAM else f"{target} back to {source}"
