"""Where passes may begin and end on the source: its logs, `start.position` and `--until` in."""

from __future__ import annotations

from typing import AbstractSet, Dict, Mapping, Optional, Sequence

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.config.offset_choice import OffsetChoice
from mirror_lib.facts import OffsetRange, TopicPartition
from mirror_lib.replicate.positions import Bounds, source_logs
from mirror_lib.replicate.starts import SourceCluster, Start, Starts
from mirror_lib.replicate.topics import CopiedPartition


class SourceEdges:
    """One flow's. Every call raises `ClusterError` where the source does not answer."""

    def __init__(self, flow: ReplicationFlow, source: SourceCluster, until: Optional[OffsetChoice]) -> None:
        self._flow = flow
        self._source = source
        self._starts = Starts(flow, source)
        self._ends: Dict[TopicPartition, int] = {}
        # Those whose logs, or where they begin, the last look told nothing of.
        self.untold: Sequence[TopicPartition] = ()
        self._waiting: AbstractSet[TopicPartition] = frozenset()
        self.bounds = Bounds(until, source, flow.isolation_level)

    def look_anew(self) -> None:
        """From here on the present ends of logs count: what comes later is for the next time that this is called."""
        self._ends = {}

    def begins(self, partitions: Sequence[CopiedPartition]) -> Mapping[TopicPartition, Start]:
        """By source partition, for those of `partitions`, which were never copied, that `start.position` tells of.

        Where it cannot tell yet, `logs` leaves them out.
        """
        starts = self._starts.of(partitions)
        self._waiting = self._starts.untold(partitions, starts)
        return starts

    def logs(
        self, partitions: Sequence[TopicPartition], stands: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, OffsetRange]:
        """What may be copied of each that tells it, as passes go; `stands` is where they stand."""
        logs = source_logs(self._source, partitions, stands, self._flow.isolation_level)
        found = {each: log for each, log in logs.items() if each not in self._waiting}
        self.untold = [each for each in partitions if each not in found]
        for each, log in found.items():
            self._ends.setdefault(each, log.end)
        return found

    def ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Where each ends for now, of those whose logs were looked at: where it did at the first look, or its bound."""
        bounds = self.bounds.of(partitions)
        ends = {each: self._ends[each] for each in partitions if each in self._ends}
        return {each: min(end, bounds.get(each, end)) for each, end in ends.items()}
