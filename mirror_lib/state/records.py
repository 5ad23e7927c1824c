"""What the Delta tables hold, as frozen values. Pure: the columns are written out in the module of each table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Optional, Tuple


@dataclass(frozen=True)
class OffsetSync:
    """`record_count` records from `upstream_offset` on lie at `downstream_offset` on, with no gap on either side.

    A count of 0 is a position: everything before `upstream_offset` that exists downstream lies before
    `downstream_offset`. `partition` is the same on both sides.
    """

    topic: str
    partition: int
    upstream_offset: int
    downstream_offset: int
    record_count: int

    def ends_at(self, upstream_offset: int, downstream_offset: int) -> bool:
        """Whether a run from these offsets on touches this one on both sides."""
        ends = (self.upstream_offset + self.record_count, self.downstream_offset + self.record_count)
        return ends == (upstream_offset, downstream_offset)


DATA_LOST = "data lost"
OFFSETS_SKIPPED = "offsets skipped"
COPIED_AGAIN = "copied again"
REMOTE_LOG_HEALED = "remote log healed"
TOPIC_RECREATED = "topic recreated"
PARTITION_STOPPED = "partition stopped"
GROUP_LOST_RECORDS = "group lost records"
INCIDENT_KINDS = (
    DATA_LOST,
    OFFSETS_SKIPPED,
    COPIED_AGAIN,
    REMOTE_LOG_HEALED,
    TOPIC_RECREATED,
    PARTITION_STOPPED,
    GROUP_LOST_RECORDS,
)


@dataclass(frozen=True)
class Incident:
    """Something an operator must be able to look up later: data that was lost, skipped, healed or copied again.

    `kind` is one of `INCIDENT_KINDS`. Offsets are upstream, end exclusive; -1 where a bound is not known.
    """

    kind: str
    topic: str
    partition: int
    from_offset: int
    until_offset: int
    reason: str


@dataclass(frozen=True)
class LeftOut:
    """What was skipped of one partition: how many `offsets`, and the first `ranges` of them, ends exclusive."""

    offsets: int
    ranges: Tuple[Tuple[int, int], ...]


@dataclass(frozen=True)
class PartitionKey:
    """One partition of a flow by identity: a topic deleted and created anew has another id, so another key.

    Topic ids are Kafka's printed form, `""` where the brokers know none.
    """

    source_topic_id: str
    remote_topic_id: str
    source_topic: str
    partition: int


@dataclass(frozen=True)
class Position:
    """Where copying goes on: the next upstream offset to read and the downstream offset it is to be written at."""

    upstream_offset: int
    downstream_offset: int


@dataclass(frozen=True)
class LedgerRow:
    """An offset sync with the names and ids of both topics: what one lane reports and the ledger stores."""

    source_topic: str
    remote_topic: str
    partition: int
    source_topic_id: str
    remote_topic_id: str
    upstream_offset: int
    downstream_offset: int
    record_count: int

    @property
    def key(self) -> PartitionKey:
        """The partition it belongs to."""
        return PartitionKey(self.source_topic_id, self.remote_topic_id, self.source_topic, self.partition)


@dataclass(frozen=True)
class TakenOver:
    """A partition that another tool copied and this product goes on with, at `goes_on_at`.

    `taken_from` names where its position was kept, `kept_offset` is the next upstream offset by it (`None`: not kept).
    `tail` records lay behind it on the remote log, `doubled` once more than they should; `older`: the remote log holds
    records before those that were compared.
    """

    key: PartitionKey
    remote_topic: str
    taken_from: str
    kept_offset: Optional[int]
    goes_on_at: Position
    tail: int = 0
    doubled: int = 0
    older: bool = False


@dataclass(frozen=True)
class MirrorRun:
    """One flow in one driver's life, as known at its start. `run_id` is fresh for every life; `checkpoint` names the
    folder of Spark's checkpoint that it used."""

    run_id: str
    flow: str
    tasks_max: int
    delivery: str
    source_cluster_id: str
    target_cluster_id: str
    checkpoint: str = ""


# cluster, group, topic, partition
MoveKey = Tuple[str, str, str, int]


@dataclass(frozen=True)
class GroupOffset:
    """One move of a group's committed offset on one partition, as the audit table holds it.

    `cluster`, `group`, `topic` and `partition` say where it was written. `previous_offset` is what stood there, `None`
    if the group had no offset. `new_offset` is `None` where the offset was deleted, which undoes a first write.
    `from_topic` and `from_offset` are the position on the other cluster that it was translated from. `action` is
    `commit` or `rollback`.
    """

    cluster: str
    group: str
    topic: str
    partition: int
    previous_offset: Optional[int]
    previous_metadata: str
    new_offset: Optional[int]
    metadata: str
    from_topic: str
    from_offset: int
    verdict: str
    action: str

    @property
    def key(self) -> MoveKey:
        """Where it was written."""
        return self.cluster, self.group, self.topic, self.partition


@dataclass(frozen=True)
class GroupOffsetRun:
    """What one run moved in one flow: how many offsets, and when the first and the last were written (UTC)."""

    run_id: str
    flow: str
    first_at: datetime
    last_at: datetime
    moves: int
