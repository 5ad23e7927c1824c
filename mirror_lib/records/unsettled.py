"""What a comparison that takes several passes has come to: the reports of a pass in, what may go into the ledger out.

Where source offsets are missing, records that were found equal may be so by chance, which only the end of the remote
log tells. Until then the ledger keeps to where the comparison began: a life that began in its middle would not ask.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Mapping, Sequence, Tuple

from mirror_lib.records.remainder import ANEW, Unsettled
from mirror_lib.records.rows import Partition
from mirror_lib.replicate.lanes import PartitionTask, TaskReport
from mirror_lib.state.records import OffsetSyncs

Left = Sequence[Tuple[Partition, Unsettled]]


class UnsettledPartitions:
    """The remote partitions with something left, in one driver's life."""

    def __init__(self) -> None:
        self.left: Mapping[Partition, Unsettled] = {}
        self._syncs: Dict[Partition, List[OffsetSyncs]] = {}

    def owed(self) -> Dict[Partition, int]:
        """The offsets that are owed, see `Unsettled`."""
        return {remote: left.owed for remote, left in self.left.items() if left.owed is not None}

    def learn(self, report: TaskReport, left: Left) -> None:
        """Of the partitions in a task's report, those `left` have something left."""
        told = {part.remote for part in report.partitions}
        self.left = {**{remote: own for remote, own in self.left.items() if remote not in told}, **dict(left)}

    def told(self, report: TaskReport, tasks: Sequence[PartitionTask]) -> TaskReport:
        """The report of a pass over `tasks` without the offset syncs that have to wait, and with those that had to."""
        remote_of = {task.source: task.remote for task in tasks}
        waiting = {part.remote for part in report.partitions if part.left and self.left.get(part.remote, ANEW).holed}
        syncs: List[OffsetSyncs] = []
        for each in report.syncs:
            remote = remote_of[(each.topic, each.partition)]
            (self._syncs.setdefault(remote, []) if remote in waiting else syncs).append(each)
        refused = {part.remote for part in report.partitions if part.refused}
        for remote in [remote for remote in self._syncs if remote not in self.left]:
            waited = self._syncs.pop(remote)
            syncs = syncs if remote in refused else waited + syncs
        return replace(report, syncs=tuple(syncs))
