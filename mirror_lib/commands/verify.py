"""`mirror verify`: the proof that remote topics equal their sources."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from mirror_lib.commands.output import chosen_flows, print_error, print_json, print_lines
from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.config.record_change import KEY
from mirror_lib.errors import EXIT_FAILED, EXIT_OK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def verify_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    """`mirror verify`: compare both sides with ordinary consumers, on Spark."""
    from mirror_lib.session import running_session

    flows = chosen_flows(arguments, config)
    with running_session("mirror verify") as spark:
        return max(_verify(flow, config, spark, arguments.json) for flow in flows)


def _verify(flow: ReplicationFlow, config: MirrorConfig, spark: SparkSession, as_json: bool) -> int:
    from mirror_lib.cluster import clusters_of
    from mirror_lib.records.two_ways import ways_of
    from mirror_lib.state.incidents import IncidentTable
    from mirror_lib.state.offset_syncs import OffsetSyncTable
    from mirror_lib.state.row_passes import RowPassTable
    from mirror_lib.state.takeovers import TakeoverTable
    from mirror_lib.topics.remote_topics import plan_flow
    from mirror_lib.verify.flow import verify
    from mirror_lib.verify.left_out import with_left_out
    from mirror_lib.verify.verdicts import report_json, report_lines

    with clusters_of(flow) as (source, target):
        plan = plan_flow(flow, source, target, config.flows)
        ledger = OffsetSyncTable(spark, config.state)
        by_rows = flow.change is not None or flow.counts_differ == KEY
        last = RowPassTable(spark, config.state).latest(flow.name) if by_rows else None
        if flow.counts_differ == KEY:
            plan = ways_of(flow, ledger.positions(flow.name), last).as_begun(plan)
        keyed = [topic.source.name for topic in plan.copied if topic.keyed_over is not None and not flow.places_anew]
        copied = [topic for topic in plan.copied if topic.create is None and topic.source.name not in keyed]
        incomplete = TakeoverTable(spark, config.state).incomplete(flow.name)
        report = verify(spark, flow, ledger, copied, source, target, incomplete, last)
        report = with_left_out(report, IncidentTable(spark, config.state).left_out(flow.name))
    if as_json:
        print_json(report_json(report))
    else:
        print_lines(report_lines(report))
    missing = [
        f"{topic.source.name} was never copied: {topic.remote_topic} does not exist"
        for topic in plan.copied
        if topic.create
    ]
    missing += [f"{name} is not compared: its records go by their keys, as partition counts differ" for name in keyed]
    missing += [f"{topic.name} cannot be copied: {topic.reason}" for topic in plan.blocked]
    for sentence in missing:
        print_error(f"{flow.name}: {sentence}")
    return EXIT_OK if report.equal and not missing else EXIT_FAILED
