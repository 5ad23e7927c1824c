"""Answers without data below a log's end in, whether the offsets up to it hold nothing out.

A compacted log may end in such offsets: the broker then answers with no data for ever. But so it does for a while where
the data lies in tiered storage (KIP-405), which may be slow or held back by a quota: there nothing is taken for a gap.
"""

from __future__ import annotations

import logging
from typing import Callable, Dict, Set, Tuple

from mirror_lib.log.connection import Partition, name_of

log = logging.getLogger(__name__)

EMPTY_ANSWERS = 3


class Gaps:
    """What was answered lately. `local_start` tells the first offset that a partition's leader keeps itself."""

    def __init__(self, local_start: Callable[[Partition], int]) -> None:
        self._local_start = local_start
        self._seen: Dict[Partition, Tuple[int, int]] = {}
        self._stored: Set[Partition] = set()

    def answered(self, partition: Partition, position: int, empty: bool) -> bool:
        """Whether all from `position` up to the end is a gap. `empty`: no data, below the end, for who was asked alone.

        Raises what `local_start` raises.
        """
        at, count = self._seen.pop(partition, (position, 0))
        if not empty:
            self._stored.discard(partition)
            return False
        count = count + 1 if at == position else 1
        if count < EMPTY_ANSWERS:
            self._seen[partition] = (position, count)
            return False
        if position >= self._local_start(partition):
            return True
        if partition not in self._stored:
            log.warning("%s: tiered storage gives nothing at offset %d yet; asking again", name_of(partition), position)
        self._stored.add(partition)
        return False

    def stored(self, partition: Partition) -> bool:
        """Whether its data is waited for from tiered storage: brokers read there as long as the request may wait."""
        return partition in self._stored
