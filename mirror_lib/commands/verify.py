"""`mirror verify`: the proof that remote topics equal their sources."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Optional, Tuple

from mirror_lib.commands.output import chosen_flows, print_error, print_json, print_lines
from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.config.record_change import KEY
from mirror_lib.errors import EXIT_FAILED, EXIT_OK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirror_lib.facts import Cluster
    from mirror_lib.topics.plan import TopicPlan
    from mirror_lib.verify.placed_range import Passes
    from mirror_lib.verify.verdicts import VerifyReport


def verify_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    """`mirror verify`: compare both sides with ordinary consumers, on Spark."""
    from mirror_lib.session import running_session

    flows = chosen_flows(arguments, config)
    with running_session("mirror verify") as spark:
        return max(_verify(flow, config, spark, arguments.json) for flow in flows)


def _verify(flow: ReplicationFlow, config: MirrorConfig, spark: SparkSession, as_json: bool) -> int:
    from mirror_lib.cluster import clusters_of
    from mirror_lib.state.incidents import IncidentTable
    from mirror_lib.verify.left_out import with_left_out
    from mirror_lib.verify.verdicts import report_json, report_lines

    with clusters_of(flow) as clusters:
        plan, report = _compared(flow, config, spark, *clusters)
    report = with_left_out(report, IncidentTable(spark, config.state).left_out(flow.name))
    if as_json:
        print_json(report_json(report))
    elif report.topics:
        print_lines(report_lines(report))
    missing = [
        f"{topic.source.name} was never copied: {topic.remote_topic} does not exist"
        for topic in plan.copied
        if topic.create
    ]
    missing += [f"{topic.name} cannot be copied: {topic.reason}" for topic in plan.blocked]
    for sentence in missing:
        print_error(f"{flow.name}: {sentence}")
    return EXIT_OK if report.equal and not missing else EXIT_FAILED


def _compared(
    flow: ReplicationFlow, config: MirrorConfig, spark: SparkSession, source: Cluster, target: Cluster
) -> Tuple[TopicPlan, VerifyReport]:
    """The flow's topics, and how the copies of those that were copied compare, each in the way that it was begun."""
    from mirror_lib.records.two_ways import ways_of
    from mirror_lib.state.offset_syncs import OffsetSyncTable
    from mirror_lib.state.takeovers import TakeoverTable
    from mirror_lib.topics.remote_topics import plan_flow
    from mirror_lib.verify.flow import verify
    from mirror_lib.verify.verdicts import VerifyReport

    plan = plan_flow(flow, source, target, config.flows)
    ledger = OffsetSyncTable(spark, config.state)
    by_rows = flow.places_anew or flow.counts_differ == KEY
    passes = _passes(spark, config, flow) if by_rows else None
    if flow.counts_differ == KEY:
        plan = ways_of(flow, ledger.positions(flow.name), None if passes is None else passes.last).as_begun(plan)
    copied = [topic for topic in plan.copied if topic.create is None]
    keyed = [] if flow.places_anew else [topic for topic in copied if topic.keyed_over is not None]
    kept = [topic for topic in copied if topic not in keyed]
    incomplete = TakeoverTable(spark, config.state).incomplete(flow.name)
    report = verify(spark, flow, ledger, kept, source, target, incomplete, passes)
    if not keyed:
        return plan, report
    placed = verify(spark, flow.placing(), ledger, keyed, source, target, incomplete, passes)
    return plan, VerifyReport(flow.name, (*report.topics, *placed.topics))


def _passes(spark: SparkSession, config: MirrorConfig, flow: ReplicationFlow) -> Optional[Passes]:
    from mirror_lib.state.row_passes import RowPassTable
    from mirror_lib.verify.placed_range import Passes, growths

    table = RowPassTable(spark, config.state)
    last = table.latest(flow.name)
    if last is None:
        return None
    # The flow may go on meanwhile.
    firsts = tuple((number, row) for number, row in table.firsts(flow.name) if number <= last.number)
    return Passes(firsts, last, table.numbered(flow.name, set(growths(firsts).values())))
