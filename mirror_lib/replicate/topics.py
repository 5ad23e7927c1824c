"""Which partitions a flow copies now: both clusters in, remote topics made ready, copied partitions out."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Dict, Mapping, Optional, Sequence, Tuple

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.facts import Cluster, TopicDescription
from mirror_lib.state.records import LedgerRow, PartitionKey
from mirror_lib.topics.plan import TopicPlan
from mirror_lib.topics.remote_configs import KAFKA_DEFAULT_MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES
from mirror_lib.topics.remote_topics import apply_plan, plan_flow


@dataclass(frozen=True)
class CopiedPartition:
    """A source partition with its remote partition, which has the same number."""

    topic: str
    remote_topic: str
    partition: int
    source_topic_id: str
    remote_topic_id: str
    max_message_bytes: int

    @property
    def key(self) -> PartitionKey:
        """Its identity in the ledger."""
        return PartitionKey(self.source_topic_id, self.remote_topic_id, self.topic, self.partition)

    @property
    def source(self) -> Tuple[str, int]:
        """(source topic, partition)."""
        return (self.topic, self.partition)

    @property
    def remote(self) -> Tuple[str, int]:
        """(remote topic, partition)."""
        return (self.remote_topic, self.partition)

    def ledger_row(self, upstream_offset: int, downstream_offset: int, record_count: int) -> LedgerRow:
        """An offset sync of this partition, with the names and ids of both topics."""
        return LedgerRow(
            source_topic=self.topic,
            remote_topic=self.remote_topic,
            partition=self.partition,
            source_topic_id=self.source_topic_id,
            remote_topic_id=self.remote_topic_id,
            upstream_offset=upstream_offset,
            downstream_offset=downstream_offset,
            record_count=record_count,
        )


class TopicWatch:
    """Looks for new, grown and recreated topics; creates and grows remote topics before anything is copied to them."""

    def __init__(
        self, flow: ReplicationFlow, flows: Sequence[ReplicationFlow], source: Cluster, target: Cluster
    ) -> None:
        self._flow = flow
        self._flows = flows
        self._source = source
        self._target = target
        self._seen: Tuple[Mapping[str, TopicDescription], Mapping[str, TopicDescription]] = ({}, {})
        self._looked_at: Optional[float] = None
        self.partitions: Mapping[PartitionKey, CopiedPartition] = {}
        self.plan = TopicPlan((), ())

    def refresh(self) -> Mapping[PartitionKey, CopiedPartition]:
        """The partitions to copy. Plans anew when a topic appeared, grew, vanished or changed its id, and every
        `refresh.topics.interval.seconds` for what a listing does not show; never again where refreshing is off."""
        interval, now = self._flow.refresh_topics_interval, time.monotonic()
        if self._looked_at is not None and interval is None:
            return self.partitions
        seen = (self._source.topics(), self._target.topics())
        if self._looked_at is None or seen != self._seen or now - self._looked_at >= (interval or 0):
            self._plan()
            self._looked_at = now
            # Listed again, since making remote topics ready changes the target.
            self._seen = (seen[0], self._target.topics())
        return self.partitions

    def _plan(self) -> None:
        plan = plan_flow(self._flow, self._source, self._target, self._flows)
        self.plan = apply_plan(plan, self._target)
        remotes = [each.remote_topic for each in self.plan.copied]
        configs = self._target.topic_configs(remotes, [MAX_MESSAGE_BYTES])
        partitions: Dict[PartitionKey, CopiedPartition] = {}
        for each in self.plan.copied:
            entry = configs.get(each.remote_topic, {}).get(MAX_MESSAGE_BYTES)
            limit = int(entry.value) if entry is not None and entry.value else KAFKA_DEFAULT_MAX_MESSAGE_BYTES
            for number in range(each.partitions):
                copied = CopiedPartition(
                    each.source.name, each.remote_topic, number, each.source.topic_id, each.remote_topic_id, limit
                )
                partitions[copied.key] = copied
        self.partitions = partitions
