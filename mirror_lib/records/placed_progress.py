"""Passes that place records anew in, offsets for a consumer group of the source out: never ahead of what is whole."""

from __future__ import annotations

from typing import Collection, Dict, Optional, Sequence

from mirror_lib.facts import CommittedOffset, TopicPartition
from mirror_lib.replicate.source_progress import SourceGroup
from mirror_lib.state.row_passes import SOURCE, PassRow, RowPass

NOTE = "mirror: records are placed by their keys"


class PlacedProgress:
    """Tells a group, if there is one, where the source's partitions stand."""

    def __init__(self, group: Optional[SourceGroup]) -> None:
        self._group = group

    def planned(self, new: Sequence[PassRow], planned: RowPass, copied: Collection[TopicPartition]) -> None:
        """A pass is written down, and not done. Where its partitions begin is committed before anything is copied for
        the `new` ones: a driver with another ledger would begin elsewhere. Raises `ClusterError`."""
        if self._group is not None:
            begins = {row.place: CommittedOffset(row.from_offset, NOTE) for row in new if row.place in copied}
            if begins:
                self._group.commit(begins)
            self._group.offer(_offsets(planned, copied, done=False))

    def whole(self, planned: RowPass, copied: Collection[TopicPartition]) -> None:
        """A pass is done: all of it lies on the remote logs."""
        if self._group is not None:
            self._group.offer(_offsets(planned, copied, done=True))

    def has_turn(self) -> bool:
        """False where another process of the group is the one that copies by now."""
        return self._group is None or self._group.has_turn()


def _offsets(planned: RowPass, copied: Collection[TopicPartition], done: bool) -> Dict[TopicPartition, CommittedOffset]:
    # A topic that is not copied any more may be gone, and is nobody's to commit for.
    rows = [row for row in planned.of(SOURCE) if row.place in copied]
    return {row.place: CommittedOffset(row.stands if done else row.from_offset, NOTE) for row in rows}
