"""Positions in, offsets for a consumer group of the source out, each with a note of where its copy goes on.

Order of effects: the ledger first, then the group. So the group never stands beyond what is copied, and a driver that
has another ledger, or none, finds from the note what was written after it.
"""

from __future__ import annotations

from typing import Dict, Mapping, Optional, Protocol, Sequence

from mirror_lib.facts import CommittedOffset, TopicPartition
from mirror_lib.ledger.records import PartitionKey, Position
from mirror_lib.replication.copied_topics import CopiedPartition
from mirror_lib.replication.planner import Range
from mirror_lib.replication.starts import noted

Offsets = Mapping[TopicPartition, CommittedOffset]


class SourceGroup(Protocol):
    """A consumer group that takes progress."""

    def offer(self, offsets: Offsets) -> None:
        """To be committed in time."""

    def withdraw(self, offsets: Offsets) -> None:
        """Not to be committed any more, as these partitions are not copied now; what was offered since still is."""

    def commit(self, offsets: Offsets) -> None:
        """To be committed before this returns. Raises `ClusterError`."""

    def has_turn(self) -> bool:
        """Whether this process is the one that copies."""


class SourceProgress:
    """Tells a group, if there is one, where partitions stand."""

    def __init__(self, group: Optional[SourceGroup]) -> None:
        self._group = group
        self._told: Dict[PartitionKey, CommittedOffset] = {}

    def begun(self, partitions: Mapping[PartitionKey, CopiedPartition], ranges: Sequence[Range]) -> None:
        """Tell of partitions that this driver begins with, and forget those that it copies no more. Raises
        `ClusterError`.

        A beginning that only this ledger knows is committed before anything is copied: else a driver with another
        ledger would begin there too, behind what is copied by then.
        """
        if self._group is None:
            return
        gone = [key for key in self._told if key not in partitions]
        self._group.withdraw(_by_source({key: self._told.pop(key) for key in gone}))
        new = [each for each in ranges if each.refused is None and each.key not in self._told]
        anchored = _offsets(partitions, {each.key: each.start for each in new if each.anchor})
        if anchored:
            self._group.commit(_by_source(anchored))
        found = _offsets(partitions, {each.key: each.start for each in new if not each.anchor})
        self._group.offer(_by_source(found))
        self._told.update({**anchored, **found})

    def waits_for_ledger(self) -> bool:
        """Whether a group is told of progress, behind the ledger."""
        return self._group is not None

    def has_turn(self) -> bool:
        """False where another process of the group is the one that copies by now."""
        return self._group is None or self._group.has_turn()

    def moved(self, partitions: Mapping[PartitionKey, CopiedPartition], moves: Mapping[PartitionKey, Position]) -> None:
        """Tell of positions that are in the ledger."""
        if self._group is not None:
            found = _offsets(partitions, moves)
            self._group.offer(_by_source(found))
            self._told.update(found)


def _offsets(
    partitions: Mapping[PartitionKey, CopiedPartition], positions: Mapping[PartitionKey, Position]
) -> Dict[PartitionKey, CommittedOffset]:
    return {
        key: noted(partitions[key].remote_topic, key.remote_topic_id, at)
        for key, at in positions.items()
        if key in partitions
    }


def _by_source(offsets: Mapping[PartitionKey, CommittedOffset]) -> Offsets:
    return {(key.source_topic, key.partition): at for key, at in offsets.items()}
