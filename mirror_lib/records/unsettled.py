"""What a comparison that takes several passes has come to: the reports of a pass in, what may go into the ledger out.

Where source offsets are missing, records that were found equal may be so by chance, which only the end of the remote
log tells. Until then the ledger keeps to where the comparison began: a life that began in its middle would not ask.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, Iterable, List, Mapping, Sequence, Tuple

from mirror_lib.records.remainder import ANEW, Unsettled
from mirror_lib.records.rows import Partition
from mirror_lib.replicate.lanes import PartitionTask, TaskReport
from mirror_lib.state.records import OffsetSyncs


@dataclass(frozen=True)
class _Place:
    """Which topics were compared, and up to which upstream offset."""

    source_topic_id: str
    remote_topic_id: str
    upstream_offset: int


class UnsettledPartitions:
    """The remote partitions with something left, in one driver's life."""

    def __init__(self) -> None:
        self.left: Mapping[Partition, Unsettled] = {}
        self._places: Dict[Partition, _Place] = {}
        self._syncs: Dict[Partition, List[OffsetSyncs]] = {}

    def owed(self) -> Dict[Partition, int]:
        """The offsets that are owed, see `Unsettled`."""
        return {remote: left.owed for remote, left in self.left.items() if left.owed is not None}

    def begin(self, tasks: Sequence[PartitionTask]) -> None:
        """Forget what was found in partitions of which another topic, or another place of it, is to be copied now."""
        other = {task.remote for task in tasks if self._places.get(task.remote, _place(task)) != _place(task)}
        self.left = {remote: left for remote, left in self.left.items() if remote not in other}
        for remote in other:
            del self._places[remote]
            self._syncs.pop(remote, None)

    def learn(self, report: TaskReport, left: Sequence[Tuple[Partition, Unsettled]]) -> None:
        """Of the partitions in a task's report, those `left` have something left."""
        told = {part.remote for part in report.partitions}
        self.left = {**{remote: own for remote, own in self.left.items() if remote not in told}, **dict(left)}

    def pass_over(self, remotes: Iterable[Partition]) -> None:
        """Of these no row came, and they were looked at up to the pass's end, whatever offsets are missing there."""
        holed = {remote: self.left.get(remote, ANEW)._replace(holed=True) for remote in remotes}
        self.left = {**self.left, **holed}

    def told(self, report: TaskReport, tasks: Sequence[PartitionTask]) -> TaskReport:
        """The report of a pass over `tasks` without the offset syncs that have to wait, and with those that had to."""
        task_of, part_of = {task.source: task for task in tasks}, {part.remote: part for part in report.partitions}
        syncs: List[OffsetSyncs] = []
        for each in report.syncs:
            task = task_of[(each.topic, each.partition)]
            # What is left of a topic that others write to as well is not looked for where no row comes.
            waits = part_of[task.remote].left and self.left.get(task.remote, ANEW).holed and not task.shared
            (self._syncs.setdefault(task.remote, []) if waits else syncs).append(each)
        for remote in [remote for remote in self._syncs if remote not in self.left]:
            waited = self._syncs.pop(remote)
            syncs = syncs if remote in part_of and part_of[remote].lost_tail else waited + syncs
        now = {
            task.remote: replace(_place(task), upstream_offset=part_of[task.remote].position)
            for task in tasks
            if task.remote in part_of
        }
        self._places = {remote: place for remote, place in {**self._places, **now}.items() if remote in self.left}
        return replace(report, syncs=tuple(syncs))


def _place(task: PartitionTask) -> _Place:
    return _Place(task.source_topic_id, task.remote_topic_id, task.upstream_offset)
