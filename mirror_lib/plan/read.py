"""Reads both clusters and the tables for the plan of a flow, with where a run would start each partition, or stop it.
Changes nothing, and starts no Spark."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Dict, List, Sequence

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.errors import ConfigError, MirrorError, RefusedError, StateError, cause_of
from mirror_lib.event_lines import event_words, events
from mirror_lib.facts import OffsetRange
from mirror_lib.kafka.admin import KafkaCluster, answering
from mirror_lib.ledger.records import STARTED_LATER, PartitionKey, Position, TopicPair, same_clusters
from mirror_lib.ledger.table_reader import TableReader, named_folder
from mirror_lib.plan.preview import FlowPreview, preview
from mirror_lib.replication.copy_ranges import Found, Range, first_range, moved_on, refuse_other_mode, starts_of
from mirror_lib.replication.messages import CopiedPartition
from mirror_lib.status.facts import FlowStatus, Problem, of_the_data, unsized
from mirror_lib.status.read import Ledger, ledger_of, partitions_of
from mirror_lib.takeover.signs import OtherWriter, other_writer_by_tables
from mirror_lib.text import counted
from mirror_lib.topics.old_brokers import settled
from mirror_lib.topics.plan import CopiedTopic
from mirror_lib.transactions import open_transactions

log = logging.getLogger(__name__)


def flow_preview(config: MirrorConfig, flow: ReplicationFlow) -> FlowPreview:
    """An unexpected error of a library is raised as a MirrorError."""
    try:
        patience = flow.admin_timeout
        with answering(flow.source, patience) as source, answering(flow.target, patience) as target:
            delivery = settled(flow, target.missing_for_fence())
            found = preview(
                delivery.flow, source, target, config, lambda: TableReader(config.state).acls_made(flow.name)
            )
            waiting = open_transactions(flow, source, found.topics.sources())
            sentences = tuple(each.sentence(time.time()) for each in waiting)
            found = replace(found, warning=delivery.warning, refusal=delivery.refusal, waiting=sentences)
            return _with_tables(config, found, source, target)
    except MirrorError:
        raise
    except Exception as error:
        log.debug("%s: plan failed", flow.name, exc_info=error)
        what = f"{flow.name}: the plan failed: {type(error).__name__}: {cause_of(error)}"
        raise MirrorError(what, "nothing was changed; set MIRROR_LOG=debug to get the trace") from error


def _with_tables(config: MirrorConfig, found: FlowPreview, source: KafkaCluster, target: KafkaCluster) -> FlowPreview:
    """The plan with what the tables show: problems, the starts of its topics, and why a run would be refused: another
    cluster, another partitioning mode, another tool that still writes, or a partition whose start is not proven.
    A warning where the tables cannot be read without Spark."""
    flow = found.flow
    try:
        reader = TableReader(config.state)
        state, ledger = FlowStatus(flow.name, time.time(), True), ledger_of(reader, flow)
        partitions = partitions_of(flow, found.topics, source, ledger, state.at)
        unknown, remedy = unsized(partitions), f"grant Describe on the cluster {source.alias}"
        problems = of_the_data(replace(state, partitions=partitions))
        problems += [Problem("retention", unknown, remedy)] if unknown else []
        found = replace(found, problems=tuple(problems))
        other = other_writer_by_tables(config, flow, source, target) if flow.copied else OtherWriter()
        clusters = (source.cluster_id(), target.cluster_id())
        same_clusters(flow.name, clusters, reader.last_clusters(flow.name))
        pairs = [
            TopicPair(each.source.name, each.source.topic_id, each.remote_topic, each.remote_topic_id)
            for each in found.topics.copied
            if each.create is None
        ]
        refuse_other_mode(flow, pairs, *reader.copied(flow.name))
        still_writes = other.refusal(flow.name)
        if still_writes is not None:
            raise still_writes
        if not flow.repartitions:
            found = _with_starts(config, found, source, target, ledger)
    except RefusedError as error:
        return replace(found, refusal=found.refusal or error)
    except (ConfigError, StateError) as error:
        unread = f"it is not known whether a run would be refused for what the tables have: {error}"
        return replace(found, warning="; ".join(filter(None, [found.warning, unread])))
    warning = "" if found.refusal else other.warning(flow.name)
    return replace(found, warning="; ".join(filter(None, [found.warning, warning])))


def _with_starts(
    config: MirrorConfig, found: FlowPreview, source: KafkaCluster, target: KafkaCluster, ledger: Ledger
) -> FlowPreview:
    """The plan, with a note of each topic where a run would start the copy after offsets that the source holds now.
    Raises `RefusedError` if a run would stop a partition at its start. Both are by the rules of `first_range`.

    What a comparison of both logs shows is known to the run alone. Raises `ClusterError`.
    """
    ranges = ranges_of(found.flow, found.topics.copied, source, target, ledger, config.state)
    refused = [each for each in ranges if each.refused is not None]
    incidents = [each.incident for each in ranges if each.incident is not None]
    if refused:
        others = f" ({counted(len(refused) - 1, 'more partition')})" if len(refused) > 1 else ""
        raise RefusedError(f"{found.flow.name}: {refused[0].refused}{others}", code=refused[0].code)
    notes = {rows[0].topic: event_words(rows) for rows in events(incidents) if rows[0].kind == STARTED_LATER}
    copied = tuple(
        replace(each, notes=(*each.notes, notes[each.source.name])) if each.source.name in notes else each
        for each in found.topics.copied
    )
    return replace(found, topics=replace(found.topics, copied=copied))


def ranges_of(
    flow: ReplicationFlow,
    topics: Sequence[CopiedTopic],
    source: KafkaCluster,
    target: KafkaCluster,
    ledger: Ledger,
    state: str,
) -> List[Range]:
    """What a run would first decide about each partition of `topics`, without those that have no leader. Raises
    `ClusterError`."""
    there = target.topics()
    partitions = [
        CopiedPartition(each.source.name, each.remote_topic, number, each.source.topic_id, each.remote_topic_id, 0)
        for each in topics
        for number in range(each.partitions)
    ]
    known: Dict[str, Dict[PartitionKey, Position]] = {}
    for key, (upstream, downstream, _) in ledger.positions.items():
        known.setdefault(key.source_topic, {})[key] = Position(upstream, downstream)
    unknown = [each for each in partitions if each.key not in known.get(each.topic, {})]
    starts = starts_of(flow, source, unknown)
    kept = {each.source: known[each.topic][each.key] for each in partitions if each.key in known.get(each.topic, {})}
    moved = moved_on(flow, source, kept)
    sources = source.offsets([each.source for each in partitions], flow.isolation_level)
    remotes = {(name, number) for name, topic in there.items() for number in range(topic.partitions)}
    targets = target.offsets([each.remote for each in partitions if each.remote in remotes], "read_uncommitted")
    found: List[Range] = []
    for each in partitions:
        log = targets.get(each.remote) if each.remote in remotes else OffsetRange(0, 0)
        if each.source in sources and log is not None:
            logs = sources[each.source], log, starts.get(each.source)
            here = Found(
                each.key, each.remote_topic, known.get(each.topic, {}), *logs, moved_on=moved.get(each.source)
            )
            found.append(first_range(flow, here, named_folder(state)))
    return found
