"""Collects what groups committed on one cluster and the state of the other one. Changes nothing.

`TO_DOWNSTREAM` reads from the source to the remote topics, `TO_UPSTREAM` the other way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Collection, Dict, List, Mapping, Optional, Sequence

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.facts import CommittedOffset, ConsumerGroup, OffsetRange, TopicDescription, TopicPartition
from mirror_lib.groups.translation import REPARTITIONED, TO_DOWNSTREAM
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.ledger.records import NO_PARTITION, PartitionKey
from mirror_lib.topics.filters import group_filter_for
from mirror_lib.topics.plan import select_topics

Committed = Mapping[str, Mapping[TopicPartition, CommittedOffset]]


@dataclass(frozen=True)
class Pair:
    """One partition of a flow. Positions are read at `here` and translated to `there`. `missing` is a phrase with the
    reason if there is no target partition, or REPARTITIONED, if records of `here` are in any partition there."""

    here: TopicPartition
    there: TopicPartition
    key: PartitionKey
    missing: Optional[str] = None


@dataclass(frozen=True)
class Survey:
    """Positions on partitions of the flow, by group, and the facts of the other side.

    `logs` lacks partitions without a leader. `present` and `groups` lack what does not exist there. `unreadable` are
    groups with unknown positions, since their coordinators gave no answer. `own_logs` are this side's logs.
    """

    pairs: Mapping[TopicPartition, Pair]
    positions: Committed
    present: Committed
    groups: Mapping[str, ConsumerGroup]
    logs: Mapping[TopicPartition, OffsetRange]
    unreadable: Sequence[str] = ()
    own_logs: Mapping[TopicPartition, OffsetRange] = field(default_factory=dict)


def pairs_of(
    flow: ReplicationFlow,
    flows: Sequence[ReplicationFlow],
    source_topics: Mapping[str, TopicDescription],
    target_topics: Mapping[str, TopicDescription],
    direction: str,
) -> Mapping[TopicPartition, Pair]:
    selected, _ = select_topics(flow, source_topics, flows)
    pairs: Dict[TopicPartition, Pair] = {}
    for name, remote_name in selected.items():
        source, remote = source_topics[name], target_topics.get(remote_name)
        if flow.repartitions:
            topics = ((name, source), (remote_name, remote))
            (of, read), (to, _) = topics if direction == TO_DOWNSTREAM else topics[::-1]
            for number in range(0 if read is None else read.partitions):
                key = PartitionKey("", "", name, number)
                pairs[(of, number)] = Pair((of, number), (to, NO_PARTITION), key, REPARTITIONED)
            continue
        for number in range(source.partitions):
            missing = None if remote and number < remote.partitions else f"{remote_name}-{number} does not exist yet"
            key = PartitionKey(source.topic_id, remote.topic_id if remote else "", name, number)
            ends = ((name, number), (remote_name, number))
            here, there = ends if direction == TO_DOWNSTREAM else ends[::-1]
            pairs[here] = Pair(here, there, key, missing)
    return pairs


def of_topic(pairs: Mapping[TopicPartition, Pair], topic: Optional[str]) -> Mapping[TopicPartition, Pair]:
    """The entries of `topic`, a name on either side; all entries if none is given."""
    return {here: pair for here, pair in pairs.items() if topic in (None, here[0], pair.there[0])}


def group_names(flow: ReplicationFlow, here: KafkaCluster, wanted: Optional[str] = None) -> List[str]:
    """The groups of `here` that `flow` translates, sorted; only `wanted` if it is given."""
    chosen = group_filter_for(flow)
    return [name for name in here.group_names() if wanted in (None, name) and chosen.why_not(name) is None]


def left_out_groups(flow: ReplicationFlow, topics: Collection[str], here: KafkaCluster) -> List[str]:
    """The groups with offsets on `topics` of `here` that the file leaves out of the translation, sorted."""
    chosen = group_filter_for(flow)
    names = [name for name in here.group_names() if chosen.why_not(name) is not None]
    committed = here.committed_offsets(names).items()
    return sorted(name for name, own in committed if any(topic in topics for topic, _ in own))


def survey(
    pairs: Mapping[TopicPartition, Pair], groups: Sequence[str], here: KafkaCluster, there: KafkaCluster
) -> Survey:
    committed = here.committed_offsets(groups)
    positions = {
        group: {at: position for at, position in offsets.items() if at in pairs} for group, offsets in committed.items()
    }
    positions = {group: offsets for group, offsets in positions.items() if offsets}
    read = sorted({at for offsets in positions.values() for at in offsets if not pairs[at].missing})
    # After the positions: what their metadata describes lies before these ends.
    own_logs = here.offsets(read, "read_uncommitted")
    # The ends first: what a group reads there in the meantime lies beyond them at most.
    logs = there.offsets(sorted({pairs[at].there for at in read}), "read_uncommitted")
    found = there.describe_groups(list(positions))
    unreadable = [group for group in groups if group not in committed]
    return Survey(pairs, positions, there.committed_offsets(list(positions)), found, logs, unreadable, own_logs)
