"""Writes MirrorMaker 2's checkpoints to its internal topic as it does.

The topic is compacted and is read when a writer starts, so that a restart repeats nothing and never steps back.
"""

from __future__ import annotations

from typing import AbstractSet, Dict, Iterable, List, Mapping

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.facts import CommittedOffset
from mirror_lib.groups.decisions import Decision, GroupPartition, SyncedOffset
from mirror_lib.groups.mm2_format import Checkpoint, decode_checkpoint, encode_checkpoint
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.kafka.compacted_topic import InternalTopic, key_and_value, one_header
from mirror_lib.kafka.connection import chunks
from mirror_lib.kafka.record_batch import Record
from mirror_lib.topics.policy import checkpoints_topics, policy_for

RECORDS_AT_ONCE = 10_000
# The header of this mirror's checkpoints, which prove nothing about MirrorMaker.
OURS = one_header(b"mirror.checkpoint", b"1")


def last_checkpoints(records: Mapping[bytes, bytes]) -> Dict[GroupPartition, Checkpoint]:
    """By group and remote partition, from the last value of each key in the checkpoints topic. StateError where one
    cannot be read."""
    return {_key(each): each for each in (decode_checkpoint(key, value) for key, value in records.items())}


def new_checkpoints(
    last: Mapping[GroupPartition, Checkpoint], checkpoints: Iterable[Checkpoint]
) -> Dict[GroupPartition, Checkpoint]:
    """The `checkpoints` that say more than the `last` ones, one for each group and remote partition.

    MirrorMaker emits the first checkpoint of a group and partition. Later it emits one if the upstream offset went
    back, since the group was reset, or if the downstream offset advanced: its guesses are low, and a lower one may
    be worse. Here a translation is exact. A lower downstream offset means that earlier checkpoints are invalid,
    because the remote topic was re-created or truncated: readers of the old checkpoint would skip records.
    """
    pairs = ((last.get(_key(now)), now) for now in checkpoints)
    return {
        _key(now): now
        for before, now in pairs
        if before is None
        or now.upstream_offset < before.upstream_offset
        or now.downstream_offset != before.downstream_offset
    }


def _key(checkpoint: Checkpoint) -> GroupPartition:
    return checkpoint.group, checkpoint.topic, checkpoint.partition


def synced_offsets(flow: ReplicationFlow) -> AbstractSet[SyncedOffset]:
    """What MirrorMaker's group sync may have committed on the target: it commits the offsets of its checkpoints.

    Read from all checkpoints that the topic still has, without this mirror's own. Raises `ClusterError`, `StateError`,
    `BatchError`."""
    found: AbstractSet[SyncedOffset] = frozenset()
    for name in checkpoints_topics(flow):
        found = found | InternalTopic(flow.target, name, 1).reduced(synced_by)
    return found


def synced_by(records: Iterable[Record]) -> AbstractSet[SyncedOffset]:
    """The same from the records of one checkpoints topic."""
    found = set()
    for record in records:
        key, value = key_and_value(record)
        if key is not None and value is not None and not record.body.endswith(OURS):
            each = decode_checkpoint(key, value)
            found.add((each.group, each.topic, each.partition, CommittedOffset(each.downstream_offset, each.metadata)))
    return found


def checkpoints_of(decisions: Iterable[Decision]) -> List[Checkpoint]:
    """Of the positions that have an offset on the target."""
    return [
        Checkpoint(
            *(each.group, *each.there, each.position.offset, each.translation.new_offset), each.translation.metadata
        )
        for each in decisions
        if each.translation.new_offset is not None
    ]


class CheckpointWriter:
    """Writes `A.checkpoints.internal` on the target, and creates it if absent. Raises `ClusterError`, `StateError`."""

    def __init__(self, flow: ReplicationFlow, target: KafkaCluster) -> None:
        name = policy_for(flow).checkpoints_topic(flow.naming_alias)
        self._topic = InternalTopic(flow.target, name, flow.checkpoints_topic_replication_factor)
        self._topic.ensure(target)
        # Never forgets one, and no tombstone is written.
        self._last = last_checkpoints(self._topic.latest())

    def write(self, checkpoints: Iterable[Checkpoint]) -> int:
        """Returns the number of new checkpoints."""
        new = new_checkpoints(self._last, checkpoints)
        for share in chunks(list(new.values()), RECORDS_AT_ONCE):
            self._topic.append(list(map(encode_checkpoint, share)), OURS)
        # Only after the append: what was not appended is new again.
        self._last.update(new)
        return len(new)

    def close(self) -> None:
        self._topic.close()
