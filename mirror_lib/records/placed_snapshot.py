"""A pass that places records anew and what is left of its flow in; what is shown of it out. Pure but for the clock."""

from __future__ import annotations

from typing import Mapping, Optional

from mirror_lib.facts import TopicPartition
from mirror_lib.progress import ProgressSnapshot, farthest_back
from mirror_lib.records.mixed_pass import Done

NOTHING_DONE = Done({}, (), 0, 0, {})


def placed_snapshot(
    flow: str, batch_id: int, done: Done, left: Mapping[TopicPartition, int], seconds: float, held: Optional[str]
) -> ProgressSnapshot:
    """As `snapshot_of` shows other passes: `left` upstream offsets are to come of each source partition, and `held`
    says what held the pass back. None of its partitions has stopped: that ends such a flow."""
    to_come = sum(left.values())
    return ProgressSnapshot(
        flow=flow,
        batch_id=batch_id,
        records=sum(part.records for part in done.parts),
        bytes=sum(part.bytes for part in done.parts),
        seconds=seconds,
        copy_seconds=seconds,
        behind_records=to_come,
        behind_seconds=farthest_back(left, done.newest),
        recovered=done.recovered,
        stopped=0,
        waiting=held or ("copying" if to_come else "waiting for records"),
    )
