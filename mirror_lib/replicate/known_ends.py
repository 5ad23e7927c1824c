"""Decided ranges and what was reported since in; how far behind each partition of a flow that tails is out. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, Collection, Dict, Iterable

from mirror_lib.facts import TopicPartition
from mirror_lib.replicate.lanes import PartitionReport
from mirror_lib.replicate.ranges import Range
from mirror_lib.state.records import PartitionKey


class KnownEnds:
    """Where the source's logs end, as they were last told: at first by the `ranges` of a batch. A partition on which
    nothing was reported since is as far behind as it was."""

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._ranges = {each.source: each for each in ranges if each.refused is None}

    def left(
        self,
        parts: Iterable[PartitionReport],
        stopped: Collection[PartitionKey],
        ahead: Callable[[Range], Range],
    ) -> Dict[TopicPartition, int]:
        """Upstream offsets to come after these reports, by source partition, of all that have not `stopped`. `ahead`
        gives a range from where its partition stands."""
        for part in parts:
            known = self._ranges.get(part.source)
            if known is not None and part.source_end >= 0:
                end = part.source_end if known.bound is None else min(part.source_end, known.bound)
                self._ranges[part.source] = replace(known, end=end)
        return {source: ahead(each).behind for source, each in self._ranges.items() if each.key not in stopped}
