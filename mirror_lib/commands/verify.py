"""`mirror verify`: the proof that remote topics equal their sources."""

from __future__ import annotations

import argparse
import random
import time
from dataclasses import replace
from functools import partial
from typing import Tuple

from pyspark.sql import SparkSession

from mirror_lib.commands.output import chosen_flows, columns, print_error, print_json, print_lines, print_progress
from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.config.values import moment
from mirror_lib.errors import EXIT_FAILED, EXIT_OK, ConfigError, MirrorError, worst
from mirror_lib.kafka.admin import clusters_of
from mirror_lib.ledger.event_tables import EventTable
from mirror_lib.ledger.offset_syncs import OffsetSyncTable
from mirror_lib.spark.jobs import WorkDone
from mirror_lib.spark.session import running_session
from mirror_lib.text import counted, document_of, grouped, some
from mirror_lib.threads import repeated
from mirror_lib.topics.remote_topics import plan_flow
from mirror_lib.transactions import open_transactions
from mirror_lib.verify.flow import DELETED, FILTERED, unlisted, verify_planned, with_left_out, with_unlisted
from mirror_lib.verify.ranges import Scope
from mirror_lib.verify.verdicts import report_lines, summary


def scope_of(arguments: argparse.Namespace) -> Scope:
    try:
        since = None if arguments.since is None else moment(arguments.since)
    except ValueError as error:
        raise ConfigError(f"--since {error}") from None
    return Scope(since, arguments.by_record, seed=random.randrange(1_000_000))


def verify_command(arguments: argparse.Namespace, config: MirrorConfig) -> int:
    """1 where a flow's copies are not equal, or no flow has anything to compare."""
    flows, scope = chosen_flows(arguments, config), scope_of(arguments)
    with running_session("mirror verify") as spark, repeated(
        PROGRESS_SECONDS, "progress", partial(progress, WorkDone(spark))
    ):
        done = [_verify(flow, config, spark, arguments, scope) for flow in flows]
    # One of two directions may have nothing to copy yet. All of them is more likely a filter that names nothing.
    nothing = EXIT_OK if any(compared for compared, _ in done) else EXIT_FAILED
    return worst([*(code for _, code in done), nothing])


PROGRESS_SECONDS = 10.0


def progress(work: WorkDone) -> None:
    """Print how much of Spark's work is done. More stages may follow, so there is no share of a whole."""
    counts = work.counts()
    if counts is not None:
        print_progress(f"comparing: {counted(counts[0], 'task')} done, {grouped(counts[1])} left of this step")


def _verify(
    flow: ReplicationFlow, config: MirrorConfig, spark: SparkSession, arguments: argparse.Namespace, scope: Scope
) -> Tuple[bool, int]:
    """Whether the flow has anything to compare, and its exit code: 1 where it is not all equal."""
    with clusters_of(flow) as (source, target):
        plan = plan_flow(flow, source, target, config.flows)
        ledger = OffsetSyncTable(spark, config.state)
        known = {(key.source_topic, key.partition) for key in ledger.positions(flow.name)}
        known |= set(ledger.range_positions(flow.name).sources)
        missed = unlisted(flow, plan, known, source.topics(), target.topics())
        if flow.change is None and not scope.by_record:
            text = "where batches are equal, Spark's consumer reads a hundredth of the records, chosen at random"
            print_progress(f"{flow.name}: {text}")
        report = verify_planned(spark, config, flow, plan, source, target, scope)
        waiting = open_transactions(flow, source, plan.sources())
    report = replace(report, waiting=tuple(each.sentence(time.time()) for each in waiting))
    for reason, why in (("left out by the flow now", FILTERED), ("deleted on both clusters", DELETED)):
        topics = [name for name, (reported, _) in missed.items() if reported == why]
        if topics and report.topics:
            print_progress(f"{flow.name}: {reason}, and not compared: {some(topics)}")
    report = with_unlisted(flow, report, missed)
    events = EventTable(spark, config.state)
    report = with_left_out(report, events.left_out(flow.name))
    if report.topics:
        try:
            events.add_verification(summary(report, scope))
        except MirrorError as error:  # a user who may only read the state folder can verify all the same
            print_progress(f"{flow.name}: the outcome was not recorded for mirror status: {error}")
    missing = [
        f"{topic.source.name} was never copied: {topic.remote_topic} does not exist"
        for topic in plan.copied
        if topic.create and topic.counted
    ]
    missing += [f"{topic.name} cannot be copied: {topic.reason}" for topic in plan.blocked]
    lacking = arguments.complete and not report.complete
    code = EXIT_FAILED if missing or lacking or not report.equal else EXIT_OK
    if arguments.json:
        print_json({**document_of(report), "exit_code": code})
    elif report.topics:
        print_lines([flow.name, *report_lines(report, columns())])
    if not (report.topics or missing):
        print_progress(f"{flow.name}: nothing was compared: the flow copies no topic that is on the source")
    if lacking and report.equal:
        missing.append("--complete: not all records are known to be copied, or some wait for an open transaction")
    for sentence in missing:
        print_error(f"{flow.name}: {sentence}")
    return bool(report.topics), code
