"""Finds out whether a bounded run of a flow would change nothing, and does what such a run still owes: heartbeats and
checkpoints. Reads the tables and both clusters, and starts no Spark."""

from __future__ import annotations

import os
import sys
import time
from contextlib import closing
from functools import partial
from typing import Mapping, Sequence, Tuple

from mirror_lib.config.client_options import on_databricks
from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.control.heartbeats import HeartbeatWriter, beating_pairs
from mirror_lib.errors import MirrorError
from mirror_lib.groups.decisions import Decision
from mirror_lib.groups.mm2_topics import CheckpointWriter, checkpoints_of
from mirror_lib.kafka.admin import KafkaCluster, clusters_of
from mirror_lib.ledger.records import same_clusters
from mirror_lib.ledger.table_reader import TableReader, local_folder
from mirror_lib.plan.preview import NOT_KNOWN, FlowPreview, preview
from mirror_lib.plan.read import ranges_of
from mirror_lib.replication.copy_ranges import Range
from mirror_lib.replication.totals import FlowOutcome
from mirror_lib.status.groups import group_decisions
from mirror_lib.status.read import Ledger, last_run, ledger_of, moves_of
from mirror_lib.topics.matchless import selected_in_vain
from mirror_lib.topics.old_brokers import settled
from mirror_lib.topics.remote_topics import plan_flow
from mirror_lib.transactions import open_transactions

# A container of YARN: there an application without a Spark context has failed.
YARN_CONTAINER = "CONTAINER_ID"


class Work(Exception):
    """What a run would do, or why that is not certain: a phrase."""


def may_do_without_spark(config: MirrorConfig, environ: Mapping[str, str]) -> bool:
    """Whether a run may end without a session: not where the platform has one already, or counts a run without one as
    failed; and only where the state folder is a folder of this machine."""
    loaded = sys.modules.get("pyspark.sql")
    has_session = loaded is not None and loaded.SparkSession.getActiveSession() is not None
    if config.spark_when_idle or has_session or on_databricks(environ) or YARN_CONTAINER in environ:
        return False
    # Where Hadoop's settings make the path another store's, this folder is missing, or its rows are true as well.
    folder = local_folder(config.state, {})
    return folder is not None and os.path.isdir(f"{folder}/runs")


def idle_outcomes(config: MirrorConfig, flows: Sequence[ReplicationFlow]) -> Sequence[FlowOutcome]:
    """How a run of `flows` ends that has nothing to copy, to create, to change or to commit; with the heartbeats and
    the checkpoints that it owes. Raises `Work` where a run has something to do, or where that is not certain."""
    try:
        found = [_idle(config, flow) for flow in flows]
        for flow, (_, decisions) in zip(flows, found):
            if flow.emit_checkpoints_interval is not None and decisions:
                target = KafkaCluster(flow.target, flow.admin_timeout)
                with target, closing(CheckpointWriter(flow, target)) as writer:
                    writer.write(checkpoints_of(decisions))
        for flow in flows:
            if flow.emit_heartbeats_interval is not None:
                _beat(flow, copies=True)
        for pair in beating_pairs(config, flows):
            _beat(pair, copies=False)
    except MirrorError as error:
        raise Work(str(error)) from error
    return [outcome for outcome, _ in found]


def _beat(pair: ReplicationFlow, copies: bool) -> None:
    with closing(HeartbeatWriter(pair, lambda target: None, copies)) as heartbeats:
        heartbeats.beat()


def _idle(config: MirrorConfig, flow: ReplicationFlow) -> Tuple[FlowOutcome, Sequence[Decision]]:
    reader = TableReader(config.state)
    run = last_run(reader, flow)
    if run is None or run.outcome != "ok":
        raise Work("the last run did not end well")
    if flow.change is not None or not flow.copied or flow.shared_remote_topics:
        raise Work("the flow changes records, shares its remote topics or copies nothing")
    if flow.commit_source_group:  # its offsets would expire, or stay where they were reset to
        raise Work("the flow commits its progress to a group of the source")
    reader.arrow("events", ("kind",), flow.name)  # refuses a folder of before this table
    with clusters_of(flow) as (source, target):
        same_clusters(flow.name, (source.cluster_id(), target.cluster_id()), reader.last_clusters(flow.name))
        # The ledger before the groups: their positions then lie within it, or are not moved. Records first: most often
        # they are why a run needs Spark, and all the rest is read for nothing then.
        ledger = ledger_of(reader, flow)
        if not all_copied(config, flow, source, target, ledger):
            raise Work("records have to be copied")
        found = preview(flow, source, target, config, partial(reader.acls_made, flow.name))
        change = change_of(found)
        if change or settled(flow, target.missing_for_fence()).refusal is not None:
            raise Work(change or "the target refuses the flow")
        decisions = _unmoved(config, flow, source, target, reader, ledger)
        note = "; ".join(each.sentence for each in selected_in_vain(flow, source))
        waiting = open_transactions(flow, source, found.topics.sources())
    sentences = tuple(each.sentence(time.time()) for each in waiting)
    return FlowOutcome(flow.name, 0, 0, (), None, note, 0, sentences), decisions


def change_of(found: FlowPreview) -> str:
    """A phrase for what a run would do besides copying and committing, or for why that is not known; empty if it would
    do nothing. Pure."""
    topics = found.topics
    if topics.blocked or topics.leaderless():
        return "topics cannot be copied now"
    # Only the last record shows whether such a topic was created again meanwhile.
    if not all(each.source.topic_id and (each.remote_topic_id or each.create) for each in topics.copied):
        return "the brokers give topics no ids"
    if found.acls is not None and found.acls.failed:
        return "ACLs cannot be translated"
    if any(each.exists is None for each in found.internal or ()):
        return "a cluster was not asked for its heartbeats topic"
    unknown = [said for said in found.silent.values() if said.startswith(NOT_KNOWN)]
    return ", ".join([*found.changes, *unknown])


def all_copied(
    config: MirrorConfig, flow: ReplicationFlow, source: KafkaCluster, target: KafkaCluster, ledger: Ledger
) -> bool:
    """Records of topics that are not `counted` may wait: the next run that has others copies them."""
    topics = [each for each in plan_flow(flow, source, target, config.flows).copied if each.counted]
    ranges = ranges_of(flow, topics, source, target, ledger, config.state)
    return len(ranges) == sum(each.partitions for each in topics) and not any(map(is_work, ranges))


def is_work(each: Range) -> bool:
    """Whether a run would copy from this range, or write down anything of it. Pure."""
    unsure = each.refused is not None or each.incident is not None or each.void_from is not None
    return each.behind > 0 or each.anchor or bool(each.unrecorded) or unsure


def _unmoved(
    config: MirrorConfig,
    flow: ReplicationFlow,
    source: KafkaCluster,
    target: KafkaCluster,
    reader: TableReader,
    ledger: Ledger,
) -> Sequence[Decision]:
    """The decisions about the flow's groups, none of which moves a group."""
    if not flow.translates_in_run:
        return ()
    found, decisions = group_decisions(config, flow, source, target, reader, ledger.table, moves_of(reader, flow))
    if found.unreadable or source.unlisted_brokers():
        raise Work("groups cannot be read")
    if flow.sync_group_offsets_interval is not None and any(each.translation.commit for each in decisions):
        raise Work("groups have to be moved")
    return decisions
