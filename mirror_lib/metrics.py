"""What is measured of a flow while it runs: one frozen value per cycle, from which status lines, JSON and the metrics
of `exporter.py` are computed. Something new to measure is a field here, and a measurement in the engine.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import ClassVar, Dict, Iterable, Mapping, Optional, Sequence, Tuple

from mirror_lib.facts import TopicPartition
from mirror_lib.text import UNPRINTED

# Values of `FlowMetrics.waiting` for a flow that no limit delays: with records to copy, and with none.
COPYING, WAITING = "copying", "waiting for records"
# Of a flow that has failed, while the other flows of its run continue.
ENDED = "ended with an error"
# Followed by the rate.
RATE_LIMITED = "rate-limited to"


@dataclass(frozen=True)
class TopicMetrics:
    """One source topic in a cycle: the records and bytes copied, and the upstream offsets still to copy.
    `worst_partition` has the most of them, `worst_records`. A topic whose partitions have all stopped in the cycle has
    0 `partitions`, and -1 as the worst."""

    topic: str
    partitions: int
    records: int
    bytes: int
    behind_records: int
    worst_partition: int
    worst_records: int


@dataclass(frozen=True)
class FlowMetrics:
    """The metrics of one cycle of a flow.

    `batch_id` is Spark's, -1 outside of a batch. `bytes` were written to the target. `copy_seconds`: time of the
    slowest task. `behind_records`: upstream offsets still to copy. `behind_seconds`: age of the oldest last-copied
    record among the partitions with more to copy; `None` if unknown. `recovered` records were on the target and not in
    the ledger. `stopped` counts partitions, `blocked` topics that cannot be copied. `waiting`: what the flow waits for
    or does. `filtered` records were dropped by `where` or `transform`; `None` if they are not counted. `dead_letters`
    were written to `dead.letter.topic`; `None` without one.
    """

    DERIVED: ClassVar[Sequence[str]] = ("records_per_second",)

    flow: str
    batch_id: int
    records: int
    bytes: int
    seconds: float
    copy_seconds: float
    behind_records: int
    behind_seconds: Optional[float]
    recovered: int
    stopped: int
    waiting: str
    source_throttled_seconds: float = 0.0
    target_throttled_seconds: float = 0.0
    blocked: int = 0
    filtered: Optional[int] = None
    dead_letters: Optional[int] = None
    # In the order of names. A mirror may have thousands of topics, and a cycle every second.
    topics: Tuple[TopicMetrics, ...] = field(default=(), metadata=UNPRINTED)
    # Each source partition with more to copy.
    next_offsets: Mapping[TopicPartition, int] = field(default_factory=dict, metadata=UNPRINTED)

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds if self.seconds > 0 else 0.0


def farthest_back(left: Mapping[TopicPartition, int], times: Mapping[TopicPartition, int]) -> Optional[float]:
    """The age in seconds of the last record copied, in the partition with more to copy where it is oldest; `None` if
    unknown. `left` are the upstream offsets still to copy, `times` the timestamps of the last records copied (ms), both
    by source partition."""
    behind = [times[each] for each, count in left.items() if count and times.get(each, -1) > 0]
    return max(0.0, time.time() - min(behind) / 1000) if behind else None


def by_topic(left: Mapping[TopicPartition, int], copied: Iterable[Tuple[str, int, int]]) -> Tuple[TopicMetrics, ...]:
    """The topics of a cycle by name. `left`: upstream offsets still to copy of each source partition. `copied`: topic,
    records and bytes, one or more entries per source topic."""
    to_go: Dict[str, Dict[int, int]] = {}
    for (topic, partition), count in left.items():
        to_go.setdefault(topic, {})[partition] = count
    done: Dict[str, Tuple[int, int]] = {}
    for topic, records, nbytes in copied:
        before = done.get(topic, (0, 0))
        done[topic] = (before[0] + records, before[1] + nbytes)
    found = []
    # A topic whose partitions have all stopped in this cycle has nothing left to copy, but has copied records.
    for topic in sorted({*to_go, *done}):
        partitions = to_go.get(topic, {})
        worst = max(sorted(partitions), key=partitions.__getitem__, default=-1)
        total = sum(partitions.values())
        own = done.get(topic, (0, 0))
        found.append(TopicMetrics(topic, len(partitions), *own, total, worst, partitions.get(worst, 0)))
    return tuple(found)
