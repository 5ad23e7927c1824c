"""Partitions and what was decided about them in; reports of those that a batch does not even begin with out. Pure."""

from __future__ import annotations

from typing import Dict, Sequence

from mirror_lib.replicate.lanes import PartitionReport
from mirror_lib.replicate.positions import Partitions
from mirror_lib.replicate.ranges import Range
from mirror_lib.replicate.topics import CopiedPartition
from mirror_lib.state.records import PartitionKey

UNLISTED = "one of its clusters tells no offsets of it; has it lost its leader?"


def not_begun(partitions: Partitions, ranges: Sequence[Range]) -> Dict[PartitionKey, PartitionReport]:
    """Partitions that are refused, and those whose offsets nobody told: not copied, so not to be called caught up."""
    decided = {each.key for each in ranges}
    stopped = {key: of_unlisted(copied) for key, copied in partitions.items() if key not in decided}
    stopped.update(
        {each.key: _report(partitions[each.key], each.refused, refused=True) for each in ranges if each.refused}
    )
    return stopped


def of_unlisted(copied: CopiedPartition) -> PartitionReport:
    """The report of a partition whose offsets nobody told."""
    return _report(copied, f"{copied.topic}-{copied.partition}: {UNLISTED}")


def _report(copied: CopiedPartition, reason: str, refused: bool = False) -> PartitionReport:
    return PartitionReport(
        topic=copied.topic,
        remote_topic=copied.remote_topic,
        partition=copied.partition,
        position=-1,
        downstream_offset=-1,
        sequence=0,
        last_timestamp=-1,
        stopped=reason,
        refused=refused,
    )
