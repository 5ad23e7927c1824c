"""`mirror translate` and `mirror groups plan|rollback`: offsets of groups are translated, committed and put back.
`mirror translate-position`: offsets kept outside Kafka, in the form they were given, on the other cluster."""

from __future__ import annotations

import argparse
import sys
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

from pyspark.sql import SparkSession

from mirror_lib.commands.output import (
    chosen_flows,
    columns,
    error_json,
    named_cluster,
    print_end,
    print_error,
    print_json,
    print_lines,
    print_result,
    print_undo,
    print_warning,
    undo_line,
    watcher,
)
from mirror_lib.commands.run import stop_on_signals
from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.config.values import AVAILABLE_NOW
from mirror_lib.errors import EXIT_FAILED, EXIT_OK, ConfigError, exit_code_of, worst
from mirror_lib.groups.decisions import Outcome, not_moved
from mirror_lib.groups.flow import FlowTranslation, cycle_line
from mirror_lib.groups.job import run_translations
from mirror_lib.groups.moves import PUT_BACK, GroupMover, plan_undo
from mirror_lib.groups.position_formats import PositionInput, one_position, read_positions, render
from mirror_lib.groups.positions import translate_positions
from mirror_lib.groups.report import UNDONE, plan_lines, planned_offset, summary, would
from mirror_lib.groups.translation import ACTIVE, BACKWARDS, TO_DOWNSTREAM, TO_UPSTREAM, WAYS_OUT
from mirror_lib.kafka.admin import KafkaCluster, clusters_of
from mirror_lib.ledger.group_offsets import GroupOffsetTable
from mirror_lib.ledger.records import GroupOffset
from mirror_lib.ledger.runs import RunTable
from mirror_lib.spark.session import running_session
from mirror_lib.text import counted, table_lines

# Verdicts under which a consumer that starts on the other side has no offset, or an old one.
WITHOUT_OFFSET = ("held", "untranslatable", "repartitioned")
# Of a group that is named by --group, in addition to `WAYS_OUT`.
BY_VERDICT = {ACTIVE: "stop its consumers there, then again", BACKWARDS: "--allow-rewind moves it back"}


def translate_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    flows = chosen_flows(arguments, config)
    if arguments.once:
        config = replace(config, trigger=AVAILABLE_NOW)
    with running_session(f"mirror translate {', '.join(flow.name for flow in flows)}") as spark:
        watch = watcher(arguments.json, cycle_line)
        stop = stop_on_signals()
        errors = run_translations(config, flows, spark, watch, stop)
    for flow, error in errors.items():
        print_end(error)
        if arguments.json:
            print_json({"flow": flow, **error_json([error])})
    return exit_code_of(errors.values(), stop.is_set() and config.trigger == AVAILABLE_NOW)


def groups_plan_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    """1 if a group was refused, did not report its position, or should have moved and could not: a group that is named
    for any reason, others for one that leaves a consumer without its offset."""
    flows = chosen_flows(arguments, config)
    with running_session("mirror groups plan") as spark:
        return worst([_plan(arguments, config, flow, spark, len(flows) == 1) for flow in flows])


def _plan(
    arguments: argparse.Namespace, config: MirrorConfig, flow: ReplicationFlow, spark: SparkSession, alone: bool
) -> int:
    direction = TO_UPSTREAM if arguments.reverse else TO_DOWNSTREAM
    run_id: Optional[str] = None
    with clusters_of(flow) as (source, target):
        translation = FlowTranslation(config, flow, spark, source, target, direction)
        found = translation.survey(arguments.group, arguments.topic)
        decisions, unreadable = translation.decide(found, arguments.allow_rewind), translation.unreadable(found)
        moves: Sequence[Outcome] = [Outcome(each, would(each)) for each in decisions]
        if arguments.execute:
            if any(each.translation.commit for each in decisions):
                run_id = translation.run_id
                print_undo(arguments, run_id)
            moves = translation.execute(decisions, own_rows=True)
    left = [each for each in moves if arguments.execute and each.done == "left alone"
            and (arguments.group or each.decision.translation.verdict.startswith(WITHOUT_OFFSET))]  # fmt: skip
    named = arguments.group or arguments.topic
    unfound = bool(alone and named and not moves and not unreadable)
    failed = unfound or unreadable or left or any(each.done.startswith("refused") for each in moves)
    code = EXIT_FAILED if failed else EXIT_OK
    rows = [planned_offset(each) for each in moves]
    whose = {"flow": flow.name, "direction": direction, "run_id": run_id}
    here, there = flow.source.alias, flow.target.alias
    way = f"{here} to {there}" if direction == TO_DOWNSTREAM else f"{there} back to {here}"
    table = [*(plan_lines(rows, columns()) if moves else []), summary(moves)]
    table += not_moved(each.decision for each in moves)
    changing = any(each.decision.translation.commit for each in moves)
    end = ["nothing was changed: --execute commits these offsets"] if changing else []
    end = end if run_id is None else [undo_line(arguments, run_id)]
    document = {**whose, "positions": rows, "unreadable": unreadable, "exit_code": code}
    print_result(arguments, document, [f"{flow.name}: group offsets, from {way}", *table, *end])
    for sentence in unreadable:
        print_error(f"{flow.name}: {sentence}")
    if left:
        first, verdict = left[0].decision, left[0].decision.translation.verdict
        again = "a consumer that starts there has no such offset: run the mirror until it has caught up, then again"
        again = BY_VERDICT.get(verdict, again)
        print_error(
            f"{flow.name}: {counted(len(left), 'position')} could not be committed, the first of group {first.group} "
            f"on {first.here[0]}-{first.here[1]}: {verdict} ({WAYS_OUT.get(verdict, again)})"
        )
    if unfound:
        print_error(f"{flow.name}: {named} has no such offset; check the name, and groups and groups.exclude")
    return code


def groups_rollback_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    """Put back, or show, what run `arguments.run` moved. ConfigError where there is no such run, RefusedError where the
    cluster is not the one whose groups it moved."""
    failed = 0
    with running_session("mirror groups rollback") as spark:
        table, runs = GroupOffsetTable(spark, config.state), RunTable(spark, config.state)
        by_side: Dict[Tuple[str, str], List[GroupOffset]] = {}
        for flow_name, move in table.of_run(arguments.run):
            by_side.setdefault((flow_name, move.cluster), []).append(move)
        if not by_side:
            hint = "docs/reference/tables.md has the query for the runs that did, at group_offsets"
            raise ConfigError(f"run {arguments.run} committed no offset of a group", hint)
        for (flow_name, alias), moves in by_side.items():
            with KafkaCluster(named_cluster(config, alias)) as cluster:
                runs.same_cluster(flow_name, alias, cluster.cluster_id())
                failed += _roll_back(arguments, flow_name, moves, cluster, table)
    return EXIT_FAILED if failed else EXIT_OK


def _roll_back(
    arguments: argparse.Namespace,
    flow_name: str,
    moves: Sequence[GroupOffset],
    cluster: KafkaCluster,
    table: GroupOffsetTable,
) -> int:
    """Put back, or show, the offsets of one cluster; the number of those that were refused."""
    groups = sorted({move.group for move in moves})
    found = plan_undo(moves, cluster.committed_offsets(groups), cluster.describe_groups(groups))
    going = [undo.move for undo in found if undo.move is not None]
    run_id = uuid.uuid4().hex if arguments.execute and going else None
    if run_id is None:
        outcomes = {move.key: "put back by --execute" for move in going}
        end = ["nothing was changed", undo_line(arguments, arguments.run, "to put these offsets back")] if going else []
    else:
        print_undo(arguments, run_id)
        reasons = GroupMover(table, flow_name, run_id, cluster).move(going, own_rows=True)
        outcomes = {key: PUT_BACK if why is None else f"refused: {why}" for key, why in reasons.items()}
        end = [undo_line(arguments, run_id)]
    rows = [each if each.move is None else replace(each, action=outcomes[each.move.key]) for each in found]
    runs = {"run_id": arguments.run, "undo_run_id": run_id}
    document = {"flow": flow_name, "cluster": cluster.alias, **runs, "positions": rows}
    lines = [f"{flow_name}, groups of {cluster.alias}", *table_lines(UNDONE, rows, columns()), *end]
    print_result(arguments, document, lines)
    return sum(row.action.startswith("refused") for row in rows)


def translate_position_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    """1 if one of the positions has no translation, or skips records that the other cluster no longer has."""
    form, positions = _given(arguments)
    flows = chosen_flows(arguments, config)
    if len(flows) > 1:
        names = ", ".join(flow.name for flow in flows)
        what = "the file has several flows, and positions belong to one flow"
        raise ConfigError(what, f"name one with --flow: {names}")
    with running_session("mirror translate-position") as spark:
        answers = translate_positions(spark, config, flows[0], positions, reverse=arguments.reverse)
    print_lines([render(form, answers)])
    later = not flows[0].starts_at_earliest
    for warning in (answer.warning for answer in answers if answer.lost or later):
        if warning:
            print_warning(warning)
    found = all(answer.remote_offset is not None and not answer.lost for answer in answers)
    return EXIT_OK if found else EXIT_FAILED


def _given(arguments: argparse.Namespace) -> PositionInput:
    single = (arguments.topic, arguments.partition, arguments.offset)
    if arguments.file is not None and single == (None, None, None):
        if arguments.file == "-":
            return read_positions(sys.stdin.read(), "stdin")
        try:
            return read_positions(Path(arguments.file).read_text(encoding="utf-8"), arguments.file)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read {arguments.file}: {error}") from error
    if arguments.file is None and None not in single:
        return one_position(*single)
    raise ConfigError("say which position", "either --topic, --partition and --offset, or --file FILE (- is stdin)")
