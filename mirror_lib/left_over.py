"""A mirror that has ended well in; what it left over, as the error that its flow ends with, out."""

from __future__ import annotations

from typing import Optional, Sequence

from mirror_lib.errors import MirrorError, RefusedError
from mirror_lib.progress import counted
from mirror_lib.records.mirrors import Mirror
from mirror_lib.replicate.lanes import PartitionReport


def left_over(mirror: Mirror) -> Optional[MirrorError]:
    """Why the flow is not whole; `None` if every partition is caught up."""
    reason = _unfinished(mirror)
    if reason is None:
        return None
    if any(part.refused for part in mirror.stopped()):
        return RefusedError(reason)
    return MirrorError(reason, way_out(mirror.stopped()))


def way_out(stopped: Sequence[PartitionReport]) -> Optional[str]:
    """What to do where partitions stopped at records that the flow's change fails on; `None` where none did."""
    if not any(part.fails for part in stopped):
        return None
    return "name a dead.letter.topic for records that cannot be changed, or leave them out by on.error: skip"


def _unfinished(mirror: Mirror) -> Optional[str]:
    stopped, blocked = mirror.stopped(), mirror.blocked()
    not_copied = mirror.not_copied()
    if not_copied:
        return f"{mirror.flow.name}: --until names {not_copied[0]}, which this flow does not copy"
    if stopped:
        return f"{mirror.flow.name}: {counted(len(stopped), 'partition')} stopped; the first: {stopped[0].stopped}"
    if blocked:
        return f"{mirror.flow.name}: {counted(len(blocked), 'topic')} cannot be copied; the first: {blocked[0]}"
    return None
