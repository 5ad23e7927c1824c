"""`mirror groups plan`: where each group would resume; with `--execute` its offsets are committed."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NamedTuple, Optional, Sequence

from mirror_lib.commands.arguments import Commands, add_command
from mirror_lib.commands.output import (
    chosen_flows,
    columns,
    print_error,
    print_json,
    print_lines,
    print_undo,
    undo_line,
)
from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.errors import EXIT_FAILED, EXIT_OK, worst
from mirror_lib.text import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirror_lib.groups.report import PlannedMove


def add(groups: Commands) -> None:
    text = "show the translated offsets of each group; --execute commits them"
    plan = add_command(groups, "plan", groups_plan_command, text)
    plan.add_argument("--reverse", action="store_true", help="translate from the target back to the source (fail-back)")
    plan.add_argument("--execute", action="store_true", help="commit the offsets; without it they are only shown")
    plan.add_argument("--allow-rewind", action="store_true", help="also commit offsets before the present ones")
    plan.add_argument("--group", metavar="GROUP", help="only this group")
    plan.add_argument("--topic", metavar="TOPIC", help="only this topic")


def groups_plan_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    """1 if a group was refused, did not report its position, or should have moved and could not."""
    from mirror_lib.groups.translation import TO_DOWNSTREAM, TO_UPSTREAM
    from mirror_lib.spark.session import running_session

    flows = chosen_flows(arguments, config)
    direction = TO_UPSTREAM if arguments.reverse else TO_DOWNSTREAM
    codes = []
    with running_session("mirror groups plan") as spark:
        for flow in flows:
            planned = _planned(arguments, config, flow, spark, direction)
            left = _not_committed(planned) if arguments.execute else []
            failed = planned.unreadable or left or any(move.action.startswith("refused") for move in planned.moves)
            codes.append(EXIT_FAILED if failed else EXIT_OK)
            _show(arguments, flow, direction, planned, codes[-1])
            _show_not_committed(flow, left)
    return worst(codes)


# Verdicts under which a consumer that starts on the other side has no offset, or an old one.
WITHOUT_OFFSET = ("held", "untranslatable", "repartitioned")


def _not_committed(planned: _Planned) -> Sequence[PlannedMove]:
    return [
        move
        for move in planned.moves
        if move.action == "left alone" and move.decision.translation.verdict.startswith(WITHOUT_OFFSET)
    ]


def _show_not_committed(flow: ReplicationFlow, left: Sequence[PlannedMove]) -> None:
    from mirror_lib.groups.translation import WAYS_OUT

    if left:
        first = left[0].decision
        again = "a consumer that starts there has no such offset: run the mirror until it has caught up, then again"
        print_error(
            f"{flow.name}: {counted(len(left), 'position')} could not be committed, the first of group {first.group} "
            f"on {first.here[0]}-{first.here[1]}: {first.translation.verdict} "
            f"({WAYS_OUT.get(first.translation.verdict, again)})"
        )


class _Planned(NamedTuple):
    """The moves, whose positions are not known, a sentence each, and the run's id if moves were made."""

    moves: Sequence[PlannedMove]
    unreadable: Sequence[str]
    run_id: Optional[str] = None


def _planned(
    arguments: argparse.Namespace, config: MirrorConfig, flow: ReplicationFlow, spark: SparkSession, direction: str
) -> _Planned:
    from mirror_lib.groups.flow import FlowTranslation, Selection
    from mirror_lib.groups.report import PlannedMove, would
    from mirror_lib.groups.translation import TranslationRules
    from mirror_lib.kafka.admin import clusters_of

    rules = TranslationRules(arguments.allow_rewind, flow.groups_simple)
    with clusters_of(flow) as (source, target):
        translation = FlowTranslation(config, flow, spark, source, target, direction)
        found = translation.survey(Selection(arguments.group, arguments.topic))
        decisions, unreadable = translation.decide(found, rules), translation.unreadable(found)
        if not arguments.execute:
            return _Planned([PlannedMove(each, would(each)) for each in decisions], unreadable)
        moving = any(each.translation.commit for each in decisions)
        if moving:
            print_undo(arguments, translation.run_id)
        outcomes = translation.execute(decisions, own_rows=True)
    moves = [PlannedMove(each.decision, each.done) for each in outcomes]
    return _Planned(moves, unreadable, translation.run_id if moving else None)


def _show(
    arguments: argparse.Namespace, flow: ReplicationFlow, direction: str, planned: _Planned, exit_code: int
) -> None:
    from mirror_lib.groups.decisions import not_moved
    from mirror_lib.groups.report import plan_json, plan_lines, summary

    moves, run_id = planned.moves, planned.run_id
    if arguments.json:
        rows = [plan_json(move) for move in moves]
        whose = {"flow": flow.name, "direction": direction, "run_id": run_id}
        print_json({**whose, "positions": rows, "unreadable": planned.unreadable, "exit_code": exit_code})
    else:
        title = f"{flow.name}: group offsets, from {_way(flow, direction)}"
        closing = [summary(moves), *not_moved(move.decision for move in moves)]
        print_lines([title, *(plan_lines(moves, columns()) if moves else []), *closing])
        if run_id is not None:
            print_lines([undo_line(arguments, run_id)])
        elif any(move.decision.translation.commit for move in moves):
            print_lines(["nothing was changed: --execute commits these offsets"])
    for sentence in planned.unreadable:
        print_error(f"{flow.name}: {sentence}")


def _way(flow: ReplicationFlow, direction: str) -> str:
    from mirror_lib.groups.translation import TO_DOWNSTREAM

    source, target = flow.source.alias, flow.target.alias
    return f"{source} to {target}" if direction == TO_DOWNSTREAM else f"{target} back to {source}"
