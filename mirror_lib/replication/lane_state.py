"""What one lane hands over to its next pass: its producer, and the next sequence in each remote partition."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Mapping, Optional, Sequence

from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.record_batch import Producer
from mirror_lib.replication.messages import EPOCH_KEPT_SECONDS, PartitionReport

# A coordinator forgets a transactional id that it has not heard of for 7 days (transactional.id.expiration.ms); the
# next driver would then get another producer id, which fences nobody. Fencing anew each day keeps it remembered.
FENCE_LASTS_SECONDS = 24 * 3600.0


def fence_holds(now: float, fenced_at: float, confirmed_at: float) -> bool:
    """Whether a driver may go on with the sequences of a lane that it fenced then, and last had confirmed then.

    One that stood still for too long must ask the coordinator: brokers may have forgotten that it was fenced.
    """
    return 0 <= now - fenced_at < FENCE_LASTS_SECONDS and 0 <= now - confirmed_at < EPOCH_KEPT_SECONDS


@dataclass(frozen=True)
class LaneState:
    """`sequences` holds every remote partition that this driver has fenced for the lane.

    `fenced_at` and `confirmed_at` are when the passes began in which the coordinator, or at least a broker that took
    an append, last told that the lane is this driver's. Seconds since 1970: other clocks stand still with the machine.
    """

    producer: Optional[Producer] = None
    sequences: Mapping[TopicPartition, int] = field(default_factory=dict)
    fenced_at: float = 0.0
    confirmed_at: float = 0.0

    def current(self, now: float) -> LaneState:
        """Itself, or without sequences where the fence has become too old to rely on and must be put up again."""
        return self if fence_holds(now, self.fenced_at, self.confirmed_at) else replace(self, sequences={})

    def after(self, producer: Optional[Producer], partitions: Sequence[PartitionReport], began: float) -> LaneState:
        """The state after a pass over `partitions` of this lane that `began` then; no producer, nothing to hand over.

        A new epoch counts sequences from 0 again, also where nothing was copied.
        """
        if producer is None:
            return LaneState()
        fresh = producer != self.producer
        kept = dict.fromkeys(self.sequences, 0) if fresh else dict(self.sequences)
        for part in partitions:
            remote = (part.remote_topic, part.partition)
            if part.refused or part.sequence is None:
                # Nobody knows what lies on its remote log: whoever comes back to it has to look again.
                kept.pop(remote, None)
            else:
                kept[remote] = part.sequence
        return replace(
            self,
            producer=producer,
            sequences=kept,
            fenced_at=began if fresh else self.fenced_at,
            # Behind old records, which confirm nothing, the task has fenced.
            confirmed_at=began if fresh or any(part.records for part in partitions) else self.confirmed_at,
        )
