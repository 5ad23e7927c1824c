"""MirrorMaker 2's internal topics, kept as it keeps them: translations and maps in, records appended.

Both are compacted, and their content is what was told last: it is read when a writer is made, so that a restart tells
nothing twice and never goes back.
"""

from __future__ import annotations

from itertools import islice
from typing import Iterable, List, Mapping, Tuple

from mirror_lib.cluster import KafkaCluster
from mirror_lib.cluster.internal_topic import InternalTopic
from mirror_lib.config.model import ReplicationFlow
from mirror_lib.facts import TopicPartition
from mirror_lib.topics.policy import policy_for
from mirror_lib.translate.checkpoints import CheckpointBook, OffsetSyncBook
from mirror_lib.translate.mm2_format import Checkpoint, encode_checkpoint, encode_offset_sync
from mirror_lib.translate.partition_map import PartitionMap

RECORDS_AT_ONCE = 10_000


class CheckpointWriter:
    """Keeps `A.checkpoints.internal` on the target. Creates it where it is absent. Raises ClusterError, StateError."""

    def __init__(self, flow: ReplicationFlow, target: KafkaCluster) -> None:
        name = policy_for(flow).checkpoints_topic(flow.source.alias)
        self._topic = InternalTopic(flow.target, name, flow.checkpoints_topic_replication_factor)
        self._topic.ensure(target)
        self._book = CheckpointBook.of(self._topic.latest())

    def write(self, checkpoints: Iterable[Checkpoint]) -> int:
        """Append those that say something new; how many these were."""
        emitted, book = self._book.emit(checkpoints)
        # The book only after the append: killed in between, the topic is read again.
        _append(self._topic, [encode_checkpoint(each) for each in emitted])
        self._book = book
        return len(emitted)

    def close(self) -> None:
        """Drop the connections."""
        self._topic.close()


class OffsetSyncWriter:
    """Keeps MirrorMaker's offset-syncs topic, on the source or the target as the flow says."""

    def __init__(self, flow: ReplicationFlow, source: KafkaCluster, target: KafkaCluster) -> None:
        at_source = flow.offset_syncs_topic_location == "source"
        here, other = (flow.source, flow.target) if at_source else (flow.target, flow.source)
        name = policy_for(flow).offset_syncs_topic(other.alias)
        self._topic = InternalTopic(here, name, flow.offset_syncs_topic_replication_factor)
        self._topic.ensure(source if at_source else target)
        self._book = OffsetSyncBook.of(self._topic.latest())

    def write(self, maps: Mapping[TopicPartition, PartitionMap]) -> int:
        """Append what `maps`, by source partition, say beyond what was told; how many records these were."""
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


def _append(topic: InternalTopic, records: List[Tuple[bytes, bytes]]) -> None:
    for first in range(0, len(records), RECORDS_AT_ONCE):
        topic.append(records[first : first + RECORDS_AT_ONCE])
