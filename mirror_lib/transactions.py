"""Open transactions on the source, and the offsets that they keep from a flow that reads `read_committed`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional, Sequence, Tuple

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.facts import TopicPartition, held_back
from mirror_lib.text import counted, duration

if TYPE_CHECKING:
    from mirror_lib.kafka.admin import KafkaCluster


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction of `producer` that keeps `held` offsets of a source partition from the flow, aborted records and
    markers included.

    `since` is its first offset, `at` the timestamp of its last record, `started` its begin by the coordinator; `None`
    if brokers do not say.
    """

    topic: str
    partition: int
    producer: str
    since: int
    at: Optional[float]
    held: int
    started: Optional[float] = None

    def sentence(self, now: float) -> str:
        age = "" if self.started is None else f", {duration(max(0.0, now - self.started))} old"
        what = f"{counted(self.held, 'offset')} of {self.topic}-{self.partition} wait for an open transaction"
        return f"{what} ({self.producer}{age}, from offset {self.since})"


def open_transactions(
    flow: ReplicationFlow, source: KafkaCluster, partitions: Sequence[TopicPartition]
) -> Tuple[OpenTransaction, ...]:
    """The open transactions that keep offsets of `partitions` from the flow. Raises `ClusterError`."""
    if flow.isolation_level != "read_committed" or not partitions:
        return ()
    # The ends first: an offset before them that is not stable afterwards waits for a transaction.
    ends = {place: log.end for place, log in source.offsets(sorted(partitions), "read_uncommitted").items()}
    stable = {place: log.end for place, log in source.offsets(sorted(ends), "read_committed").items()}
    held = held_back(ends, stable)
    producers = source.active_producers(sorted(held)) if held else {}
    found = []
    for place, count in sorted(held.items()):
        own = [
            OpenTransaction(
                *(*place, each.name, each.open_since, each.last_timestamp / 1000, count),
                None if each.started is None else each.started / 1000,
            )
            for each in producers.get(place, ())
            if each.open_since is not None
        ]
        # The first transaction begins at the last stable offset, whether or not the leader names its producer.
        found += own or [OpenTransaction(*place, "an unknown producer", stable[place], None, count)]
    return tuple(found)
