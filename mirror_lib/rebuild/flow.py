"""Reads both clusters for what a run of a flow would find out without a ledger. Changes nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.errors import ClusterError
from mirror_lib.facts import OffsetRange, TopicPartition
from mirror_lib.kafka.admin import KafkaCluster, clusters_of
from mirror_lib.kafka.admin_client import log_client
from mirror_lib.kafka.connection import Disconnected, LogClient
from mirror_lib.kafka.fetcher import ISOLATION, READ_UNCOMMITTED
from mirror_lib.kafka.log_reader import log_entries
from mirror_lib.kafka.record_batch import Record
from mirror_lib.rebuild.decisions import (
    FlowFacts,
    FlowRebuild,
    Logs,
    PartitionRebuild,
    Refusal,
    flow_refusal,
    rebuilt_batches,
    rebuilt_rows,
)
from mirror_lib.replication.copied_topics import CopiedPartition
from mirror_lib.replication.copy_ranges import Range, Start, Starts, first_range
from mirror_lib.replication.reconcile import Records
from mirror_lib.topics.plan import CopiedTopic
from mirror_lib.topics.remote_topics import compacted, plan_flow

READ_SECONDS = 60.0

Offsets = Mapping[TopicPartition, OffsetRange]


@dataclass(frozen=True)
class Recorded:
    """The rows of a flow in the other tables than the ledger."""

    taken_over: bool
    producers: bool


def flow_rebuild(config: MirrorConfig, flow: ReplicationFlow, recorded: Recorded) -> FlowRebuild:
    """What a run of `flow` would read and find out without a ledger. Raises `ClusterError`, `RefusedError`."""
    with clusters_of(flow) as (source, target):
        plan = plan_flow(flow, source, target, config.flows)
        topics = [each for each in plan.copied if each.remote_topic_id or each.create is None]
        partitions = [copied for each in topics for copied in _partitions(each)]
        remotes = target.offsets(_remotes(topics), "read_uncommitted")
        sources = source.offsets(sorted({each.source for each in partitions}), flow.isolation_level)
        facts = FlowFacts(any(log.end for log in remotes.values()), recorded.taken_over, recorded.producers)
        found = FlowRebuild(flow.name, len(topics), (), flow_refusal(flow, facts))
        if found.refusal is not None:
            # What the logs hold changes nothing then.
            return replace(found, partitions=_unread(remotes))
        cleaned = compacted(source, sorted({each.source.name for each in topics}))
        cleaned |= compacted(target, sorted({each.remote_topic for each in topics}))
        if flow.change is None:
            judged = _batches(flow, source, partitions, sources, remotes, cleaned)
        else:
            judged = _rows(flow, topics, sources, remotes)
    return replace(found, partitions=tuple(judged))


def _partitions(topic: CopiedTopic) -> List[CopiedPartition]:
    source = topic.source
    return [
        CopiedPartition(source.name, topic.remote_topic, number, source.topic_id, topic.remote_topic_id, 0)
        for number in range(topic.partitions)
    ]


def _remotes(topics: Sequence[CopiedTopic]) -> List[TopicPartition]:
    return sorted({(each.remote_topic, number) for each in topics for number in range(each.remote_partitions)})


def _unread(remotes: Offsets) -> Tuple[PartitionRebuild, ...]:
    return tuple(PartitionRebuild(each, "", log.end - log.log_start) for each, log in sorted(remotes.items()))


def _batches(
    flow: ReplicationFlow,
    source: KafkaCluster,
    partitions: Sequence[CopiedPartition],
    sources: Offsets,
    remotes: Offsets,
    cleaned: FrozenSet[str],
) -> List[PartitionRebuild]:
    starts = Starts(flow, source).of(partitions)
    there = [each for each in partitions if each.source in sources and each.remote in remotes]
    ranges = {each: _range(flow, each, sources, remotes, starts.get(each.source)) for each in there}
    asked = [each for each in there if remotes[each.remote].end > ranges[each].start.downstream_offset]
    upstream = {each.source: ranges[each].start.upstream_offset for each in asked}
    downstream = {each.remote: ranges[each].start.downstream_offset for each in asked}
    ours = _firsts(flow, "source", upstream, ISOLATION[flow.isolation_level])
    theirs = _firsts(flow, "target", downstream, READ_UNCOMMITTED)
    found = []
    for each in there:
        begin, (first, stamped) = starts.get(each.source), theirs.get(each.remote, (None, False))
        logs = Logs(
            sources[each.source],
            remotes[each.remote],
            ours.get(each.source, (None, False))[0],
            first,
            stamped,
            bool({each.topic, each.remote_topic} & cleaned),
            begin is not None and begin.downstream_offset is not None,
        )
        judged, refused = rebuilt_batches(flow, each.remote, logs), ranges[each].refused
        if refused is not None and judged.refusal is None:
            judged = replace(judged, refusal=Refusal("start", refused, "set `start.position` to where the copy began"))
        found.append(judged)
    return found


def _range(
    flow: ReplicationFlow, copied: CopiedPartition, sources: Offsets, remotes: Offsets, begin: Optional[Start]
) -> Range:
    """What a run decides that knows nothing of the partition."""
    return first_range(flow, copied.key, {}, sources[copied.source], remotes[copied.remote], begin)


def _rows(
    flow: ReplicationFlow, topics: Sequence[CopiedTopic], sources: Offsets, remotes: Offsets
) -> List[PartitionRebuild]:
    asked = {each: log.log_start for each, log in remotes.items() if log.end > log.log_start}
    firsts = _firsts(flow, "target", asked, READ_UNCOMMITTED)
    held = {name: _held(name, topics, sources) for name, _ in remotes}
    return [
        rebuilt_rows(flow, each, Logs(held[each[0]], log, None, firsts.get(each, (None, False))[0]))
        for each, log in sorted(remotes.items())
    ]


def _held(remote_topic: str, topics: Sequence[CopiedTopic], sources: Offsets) -> OffsetRange:
    """A range that is empty where all source logs of a remote topic are."""
    fed = {each.source.name for each in topics if each.remote_topic == remote_topic}
    return OffsetRange(0, sum(log.end - log.log_start for (name, _), log in sources.items() if name in fed))


def _firsts(
    flow: ReplicationFlow, side: str, positions: Mapping[TopicPartition, int], isolation: int
) -> Dict[TopicPartition, Tuple[Optional[Record], bool]]:
    """The first record of each log from there on, and whether its timestamp is the broker's."""
    if not positions:
        return {}
    config = flow.source if side == "source" else flow.target
    deadline = time.monotonic() + READ_SECONDS
    with log_client(config, "consumer", deadline) as client:
        client.refresh_leaders_of(positions, deadline)
        return {each: _first(client, each, at, isolation) for each, at in positions.items()}


def _first(client: LogClient, partition: TopicPartition, at: int, isolation: int) -> Tuple[Optional[Record], bool]:
    try:
        records = Records(log_entries(client, partition, at, isolation), at)
        return records.record(), records.log_append_time
    except Disconnected as error:
        name = f"{partition[0]}-{partition[1]}"
        raise ClusterError(f"{client.alias}: the first record of {name} cannot be read: {error}", "retry") from error
