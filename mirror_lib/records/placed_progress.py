"""Passes that place records anew in, offsets for a consumer group of the source out, each with a note of its pass.

Order of effects: the group knows where a pass begins before anything of it is appended, and that it is done when all of
it is. So a driver that has another ledger finds what was left half done, and the group is never ahead of the copy.
"""

from __future__ import annotations

from typing import Collection, Dict, Mapping, Optional

from mirror_lib.facts import CommittedOffset, TopicPartition
from mirror_lib.records.pass_notes import notes_of
from mirror_lib.replicate.source_progress import SourceGroup
from mirror_lib.state.row_passes import RowPass

# The remote topics of each source partition that is copied now: for others nobody commits, they may be gone.
RemoteTopics = Mapping[TopicPartition, Collection[str]]


class PlacedProgress:
    """Tells a group, if there is one, where the source's partitions stand."""

    def __init__(self, group: Optional[SourceGroup]) -> None:
        self._group = group
        self._told: Dict[TopicPartition, CommittedOffset] = {}

    def planned(self, planned: RowPass, copied: RemoteTopics) -> None:
        """A pass is written down, and not begun. Raises `ClusterError`."""
        if self._group is not None:
            self._group.commit(self._noted(self._group, planned, copied))

    def whole(self, planned: RowPass, copied: RemoteTopics, at: Mapping[TopicPartition, int]) -> None:
        """A pass is done: all of it lies on the remote logs, whose partitions stand `at`."""
        if self._group is not None:
            self._group.offer(self._noted(self._group, planned, copied, at))

    def has_turn(self) -> bool:
        """False where another process of the group is the one that copies by now."""
        return self._group is None or self._group.has_turn()

    def _noted(
        self,
        group: SourceGroup,
        planned: RowPass,
        copied: RemoteTopics,
        at: Optional[Mapping[TopicPartition, int]] = None,
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """What to tell of a pass. What was told of partitions that are not copied any more is taken back."""
        gone = [place for place in self._told if place not in copied]
        group.withdraw({place: self._told.pop(place) for place in gone})
        notes = notes_of(planned, copied, at)
        self._told.update(notes)
        return notes
