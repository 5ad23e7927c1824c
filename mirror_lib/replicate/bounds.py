"""What `--until` says and the source's answers in; the offset out at which each partition's copy ends, exclusive."""

from __future__ import annotations

import time
from typing import Dict, List, Mapping, Optional, Sequence

from mirror_lib.config.offset_choice import OffsetChoice
from mirror_lib.facts import Cluster, TopicPartition

NONE_YET = -1


class Bounds:
    """Answers for one run of one flow. Without a choice there is no bound, and nothing is ever reached."""

    def __init__(self, until: Optional[OffsetChoice], source: Cluster, isolation_level: str) -> None:
        self._timestamp = until.timestamp if until is not None else None
        self._named = dict(until.offsets) if until is not None else {}
        self._until = until
        self._source = source
        self._isolation_level = isolation_level
        # Kept once found: retention may remove the record that told it.
        self._found: Dict[TopicPartition, int] = {}

    def passed(self) -> bool:
        """Whether the time of `--until` is past, so that what has no later record by now needs none."""
        return self._timestamp is not None and time.time() * 1000 >= self._timestamp

    def of(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The bound of each partition that has one by now. Raises `ClusterError`."""
        if self._timestamp is None:
            return self._named
        open_ones = [each for each in partitions if each not in self._found]
        at = self._source.offsets_at(open_ones, self._timestamp, self._isolation_level)
        self._found.update({each: offset for each, offset in at.items() if offset != NONE_YET})
        return self._found

    def reached(self, positions: Mapping[TopicPartition, int], passed: bool) -> bool:
        """Whether nothing is left to wait for. `positions` are upstream, of partitions that can go on and are copied
        to their present end or their bound; `passed` is what `passed()` said before that end was looked up."""
        if self._until is None:
            return False
        if self._timestamp is not None:
            return passed or all(each in self._found for each in positions)
        return all(positions[each] >= bound for each, bound in self._named.items() if each in positions)

    def unknown(self, partitions: Sequence[TopicPartition]) -> List[TopicPartition]:
        """What `--until` names and the flow does not copy."""
        return sorted(set(self._named) - set(partitions))
