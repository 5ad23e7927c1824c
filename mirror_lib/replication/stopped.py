"""The partitions of a flow that cannot go on, and why: told when they stop, and again when the next batch begins."""

from __future__ import annotations

import logging
import time
from typing import Callable, Dict, Sequence

from mirror_lib.ledger.records import PartitionKey
from mirror_lib.replication.copied_topics import CopiedPartition
from mirror_lib.replication.messages import PartitionReport
from mirror_lib.replication.planner import Range
from mirror_lib.replication.positions import Partitions
from mirror_lib.replication.tail import LEFT_OUT_SECONDS, LOOK_SECONDS

log = logging.getLogger(__name__)

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


def refusal_of(copied: CopiedPartition, reason: str) -> PartitionReport:
    """The report of a partition that is not to go on before somebody has looked."""
    return _report(copied, reason, refused=True)


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


class StoppedPartitions:
    """One flow's in one driver's life. `parts` are the reports with which they stopped."""

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self.parts: Dict[PartitionKey, PartitionReport] = {}

    def begin(self, partitions: Partitions, ranges: Sequence[Range]) -> None:
        """All are tried again. But refused is refused until somebody looked and started again: trying on would fence
        its lane in every batch."""
        refused = {key: part for key, part in self.parts.items() if part.refused and key in partitions}
        self.parts = {**not_begun(partitions, ranges), **refused}
        for part in self.parts.values():
            log.error("%s: %s", self._flow, part.stopped)

    def stop(self, key: PartitionKey, part: PartitionReport) -> None:
        """It does not go on in this batch."""
        self.parts[key] = part
        log.error("%s: %s", self._flow, part.stopped)

    def some_may_go_on(self) -> bool:
        """Whether it is worth looking at them again later."""
        return any(not part.refused for part in self.parts.values())

    def wait(self, ended: Callable[[], bool]) -> None:
        """Return when another look is worth it, or the batch has `ended`."""
        until = time.monotonic() + LEFT_OUT_SECONDS
        while not ended() and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
