"""The partitions of a flow that cannot go on, and why: told when they stop, and again when the next batch begins."""

from __future__ import annotations

import logging
import time
from typing import Callable, Dict, Sequence

from mirror_lib.replicate.lanes import PartitionReport
from mirror_lib.replicate.not_begun import not_begun
from mirror_lib.replicate.positions import Partitions
from mirror_lib.replicate.ranges import Range
from mirror_lib.replicate.tailing import LEFT_OUT_SECONDS, LOOK_SECONDS
from mirror_lib.state.records import PartitionKey

log = logging.getLogger(__name__)


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
