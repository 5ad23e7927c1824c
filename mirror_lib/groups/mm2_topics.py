"""Writes MirrorMaker 2's checkpoints to its internal topic as it does.

The topic is compacted and is read when a writer starts, so that a restart repeats nothing and never steps back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import AbstractSet, Dict, Iterable, List, Mapping, Tuple

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.facts import CommittedOffset
from mirror_lib.groups.decisions import Decision, SyncedOffset
from mirror_lib.groups.mm2_format import Checkpoint, decode_checkpoint, encode_checkpoint
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.kafka.compacted_topic import InternalTopic, key_and_value, one_header
from mirror_lib.kafka.reencoder import Record
from mirror_lib.topics.policy import checkpoints_topics, policy_for

RECORDS_AT_ONCE = 10_000
# The header of this mirror's checkpoints, which prove nothing about MirrorMaker.
OURS = one_header(b"mirror.checkpoint", b"1")

# group, remote topic, partition
_GroupPartition = Tuple[str, str, int]


@dataclass(frozen=True)
class CheckpointBook:
    """The last checkpoint of each group and remote partition. Never forgets one and never writes a tombstone. Valid
    once its new checkpoints were appended."""

    last: Mapping[_GroupPartition, Checkpoint]

    @classmethod
    def of(cls, records: Mapping[bytes, bytes]) -> CheckpointBook:
        """From the last value of each key in the checkpoints topic. StateError where one cannot be read."""
        checkpoints = [decode_checkpoint(key, value) for key, value in records.items()]
        return cls({_key(checkpoint): checkpoint for checkpoint in checkpoints})

    def emit(self, checkpoints: Iterable[Checkpoint]) -> Tuple[Tuple[Checkpoint, ...], CheckpointBook]:
        """The `checkpoints` that are new, and the book with them.

        MirrorMaker emits the first checkpoint of a group and partition. Later it emits one if the upstream offset went
        back, since the group was reset, or if the downstream offset advanced: its guesses are low, and a lower one may
        be worse. Here a translation is exact. A lower downstream offset means that earlier checkpoints are invalid,
        because the remote topic was re-created or truncated: readers of the old checkpoint would skip records.
        """
        last: Dict[_GroupPartition, Checkpoint] = dict(self.last)
        emitted: List[Checkpoint] = []
        for checkpoint in checkpoints:
            before = last.get(_key(checkpoint))
            if before is None or _says_more(before, checkpoint):
                last[_key(checkpoint)] = checkpoint
                emitted.append(checkpoint)
        return tuple(emitted), CheckpointBook(last)


def _key(checkpoint: Checkpoint) -> _GroupPartition:
    return checkpoint.group, checkpoint.topic, checkpoint.partition


def _says_more(before: Checkpoint, now: Checkpoint) -> bool:
    return now.upstream_offset < before.upstream_offset or now.downstream_offset != before.downstream_offset


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
        self._book = CheckpointBook.of(self._topic.latest())

    def write(self, checkpoints: Iterable[Checkpoint]) -> int:
        """Returns the number of new checkpoints."""
        emitted, book = self._book.emit(checkpoints)
        # The book only after the append: killed in between, the topic is read again.
        for first in range(0, len(emitted), RECORDS_AT_ONCE):
            self._topic.append([encode_checkpoint(each) for each in emitted[first : first + RECORDS_AT_ONCE]], OURS)
        self._book = book
        return len(emitted)

    def close(self) -> None:
        self._topic.close()
