"""What was acknowledged of a partition in, its offset syncs out, joined where they touch."""

from __future__ import annotations

from array import array
from typing import Iterable, Iterator, Tuple

from mirror_lib.facts import TopicPartition
from mirror_lib.state.records import OffsetSync, OffsetSyncs

# Of a task, in one report: some six megabytes on their way to the driver. A log full of gaps, or a filter, comes to so
# many in seconds, and the pass ends then.
MOST_SYNCS = 250_000
# Of all tasks of a stage, which reach the driver at once.
MOST_SYNCS_OF_STAGE = 2_000_000


class SyncRuns:
    """Of one source partition."""

    def __init__(self, source: TopicPartition) -> None:
        self._source = source
        self._flat = array("q")

    def __len__(self) -> int:
        return len(self._flat) // 3

    def __iter__(self) -> Iterator[OffsetSync]:
        return iter(self.now())

    def add(self, upstream_offset: int, downstream_offset: int, count: int) -> None:
        """`count` records lie on both sides from these offsets on: one run with those before, if it touches them."""
        flat = self._flat
        if flat and flat[-3] + flat[-1] == upstream_offset and flat[-2] + flat[-1] == downstream_offset:
            flat[-1] += count
        else:
            flat.extend((upstream_offset, downstream_offset, count))

    def clear(self) -> None:
        """Begin anew."""
        self._flat = array("q")

    def back_to(self, before: OffsetSyncs) -> None:
        """Take back what was added since it was so."""
        self._flat = array("q", before.flat)

    def now(self) -> OffsetSyncs:
        """What was added until now."""
        return OffsetSyncs(*self._source, self._flat.tobytes())


def gathered(runs: Iterable[SyncRuns]) -> Tuple[OffsetSyncs, ...]:
    """Of those partitions that have any."""
    return tuple(each.now() for each in runs if len(each))


def most_syncs(tasks: int) -> int:
    """Of each of so many tasks: a pass that has come to more is to end, for the driver to write them down."""
    return min(MOST_SYNCS, MOST_SYNCS_OF_STAGE // max(1, tasks))
