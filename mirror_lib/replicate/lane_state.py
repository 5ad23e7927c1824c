"""What one lane hands over to its next pass: its producer, and the next sequence in each remote partition."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Mapping, Optional, Sequence

from mirror_lib.log.producer import Producer
from mirror_lib.replicate.lanes import PartitionReport, RemotePartition

# A coordinator forgets a transactional id that it has not heard of for 7 days (transactional.id.expiration.ms); the
# next driver would then get another producer id, which fences nobody. Fencing anew each day keeps it remembered.
FENCE_LASTS_SECONDS = 24 * 3600.0


@dataclass(frozen=True)
class LaneState:
    """`sequences` holds every remote partition that this driver has fenced for the lane."""

    producer: Optional[Producer] = None
    sequences: Mapping[RemotePartition, int] = field(default_factory=dict)
    fenced_at: float = 0.0

    def current(self, now: Optional[float] = None) -> LaneState:
        """Itself, or without sequences where the fence has become too old to rely on and must be put up again."""
        age = (time.monotonic() if now is None else now) - self.fenced_at
        return self if age < FENCE_LASTS_SECONDS else replace(self, sequences={})

    def after(self, producer: Optional[Producer], partitions: Sequence[PartitionReport]) -> LaneState:
        """The state after a pass over `partitions` of this lane; no producer, nothing to hand over.

        A new epoch counts sequences from 0 again, also where nothing was copied.
        """
        if producer is None:
            return LaneState()
        fresh = producer != self.producer
        kept = dict.fromkeys(self.sequences, 0) if fresh else dict(self.sequences)
        kept.update({(part.remote_topic, part.partition): part.sequence for part in partitions})
        for part in partitions:
            if part.refused:
                # Nobody knows what lies on its remote log: whoever comes back to it has to look again.
                del kept[(part.remote_topic, part.partition)]
        return replace(
            self,
            producer=producer,
            sequences=kept,
            fenced_at=time.monotonic() if fresh else self.fenced_at,
        )
