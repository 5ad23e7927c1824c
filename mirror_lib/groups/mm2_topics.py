"""Writes MirrorMaker 2's checkpoints and offset syncs to its internal topics as it does.

The topics are compacted and are read when a writer starts, so that a restart repeats nothing and never steps back.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, islice
from typing import AbstractSet, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.facts import CommittedOffset, TopicPartition
from mirror_lib.groups.decisions import SyncedOffset
from mirror_lib.groups.mm2_format import (
    Checkpoint,
    PointSync,
    decode_checkpoint,
    decode_offset_sync,
    encode_checkpoint,
    encode_offset_sync,
)
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.kafka.compacted_topic import InternalTopic, key_and_value, one_header
from mirror_lib.kafka.reencoder import Record
from mirror_lib.ledger.intervals import BEFORE, INSIDE, PartitionMap
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


@dataclass(frozen=True)
class OffsetSyncBook:
    """The last offset sync of each source partition, kept as a `CheckpointBook` is."""

    last: Mapping[TopicPartition, PointSync]

    @classmethod
    def of(cls, records: Mapping[bytes, bytes]) -> OffsetSyncBook:
        """From the last value of each key in the offset syncs topic. StateError where one cannot be read."""
        syncs = [decode_offset_sync(key, value) for key, value in records.items()]
        return cls({(sync.topic, sync.partition): sync for sync in syncs})

    def emit(self, maps: Mapping[TopicPartition, PartitionMap]) -> Tuple[Iterator[PointSync], OffsetSyncBook]:
        """Syncs that `maps`, by source partition, add to the book, and the book with them.

        The first and the last record of each run, so that MirrorMaker's translation (the sync itself, or one past the
        nearest before) never passes a record. Upstream offsets rise within a partition, because its store forgets all
        syncs at one that falls. Only where the last sync is no longer true, since the remote topic was re-created or
        lost its tail, all are given again behind the newest: the fall makes it forget. The syncs are made as they are
        taken, for there may be two for every run of a ledger.
        """
        ends = {partition: _last_sync(partition, a_map) for partition, a_map in maps.items()}
        known = {partition: sync for partition, sync in ends.items() if sync is not None}
        syncs = chain.from_iterable(_new_syncs(p, maps[p], self.last.get(p), end) for p, end in known.items())
        return syncs, OffsetSyncBook({**self.last, **known})


def _new_syncs(
    partition: TopicPartition, a_map: PartitionMap, reported: Optional[PointSync], newest: PointSync
) -> Iterator[PointSync]:
    if reported is not None and _still_true(reported, a_map):
        yield from _syncs(partition, a_map, reported.upstream_offset + 1)
        return
    if reported is not None:
        yield newest
    yield from _syncs(partition, a_map, 0)


def _still_true(sync: PointSync, a_map: PartitionMap) -> bool:
    place = a_map.to_downstream(sync.upstream_offset)
    if place.kind == BEFORE:
        # Not in the ledger, and not against it either.
        return sync.downstream_offset < place.offset
    return place.kind == INSIDE and place.offset == sync.downstream_offset


def _syncs(partition: TopicPartition, a_map: PartitionMap, start: int) -> Iterator[PointSync]:
    for upstream, downstream, count in a_map.runs_from(start):
        if upstream >= start:
            yield PointSync(*partition, upstream, downstream)
        if count > 1:
            yield PointSync(*partition, upstream + count - 1, downstream + count - 1)


def _last_sync(partition: TopicPartition, a_map: PartitionMap) -> Optional[PointSync]:
    run = a_map.last_run
    return None if run is None else PointSync(*partition, run.upstream_end - 1, run.downstream_end - 1)


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


class CheckpointWriter:
    """Writes `A.checkpoints.internal` on the target, and creates it if absent. Raises `ClusterError`, `StateError`."""

    def __init__(self, flow: ReplicationFlow, target: KafkaCluster) -> None:
        name = policy_for(flow).checkpoints_topic(flow.naming_alias)
        self._topic = InternalTopic(flow.target, name, flow.checkpoints_topic_replication_factor)
        self._topic.ensure(target)
        self._book = CheckpointBook.of(self._topic.latest())

    def write(self, checkpoints: Iterable[Checkpoint]) -> int:
        """Append the checkpoints that are new. Returns their number."""
        emitted, book = self._book.emit(checkpoints)
        # The book only after the append: killed in between, the topic is read again.
        _append(self._topic, [encode_checkpoint(each) for each in emitted], OURS)
        self._book = book
        return len(emitted)

    def close(self) -> None:
        """Drop the connections."""
        self._topic.close()


class OffsetSyncWriter:
    """Writes MirrorMaker's offset-syncs topic, on the source or the target as the flow is configured."""

    def __init__(self, flow: ReplicationFlow, source: KafkaCluster, target: KafkaCluster) -> None:
        at_source = flow.offset_syncs_topic_location == "source"
        here, other = (flow.source, flow.target) if at_source else (flow.target, flow.source)
        name = policy_for(flow).offset_syncs_topic(other.alias)
        self._topic = InternalTopic(here, name, flow.offset_syncs_topic_replication_factor)
        self._topic.ensure(source if at_source else target)
        self._book = OffsetSyncBook.of(self._topic.latest())

    def write(self, maps: Mapping[TopicPartition, PartitionMap]) -> int:
        """Append the offset syncs of `maps`, by source partition, after the last one written. Returns the number of
        records."""
        syncs, book = self._book.emit(maps)
        count = 0
        while True:
            some = [encode_offset_sync(sync) for sync in islice(syncs, RECORDS_AT_ONCE)]
            if not some:
                break
            self._topic.append(some)
            count += len(some)
        self._book = book
        return count

    def close(self) -> None:
        """Drop the connections."""
        self._topic.close()


def _append(topic: InternalTopic, records: List[Tuple[bytes, bytes]], headers: bytes) -> None:
    for first in range(0, len(records), RECORDS_AT_ONCE):
        topic.append(records[first : first + RECORDS_AT_ONCE], headers)
