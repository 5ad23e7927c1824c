"""Remote partitions that got no row of a pass, and of which nobody knew what they hold behind their positions, in; what
is known of them now out.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Collection, Dict, List, Mapping, Optional, Sequence

from mirror_lib.log.connection import LogClient, name_of
from mirror_lib.log.fetch import READ_UNCOMMITTED
from mirror_lib.log.tail import log_entries
from mirror_lib.records.ready import PATIENCE_SECONDS, target_of
from mirror_lib.records.remainder import more_than_given, unproven
from mirror_lib.records.rows import Partition
from mirror_lib.records.source_ends import SourceEnds
from mirror_lib.replicate.lanes import PartitionReport, PartitionTask, TaskPlan
from mirror_lib.replicate.log_records import Records
from mirror_lib.replicate.partition import PartitionCopy
from mirror_lib.replicate.recovery import told_ends, up_to


def ends_without_records(plan: TaskPlan, silent: Sequence[PartitionTask]) -> Dict[Partition, int]:
    """By remote partition, where markers and nothing else lie behind the position. Raises `Disconnected`, and
    `ClusterError` where a broker refuses."""
    ends: Dict[Partition, int] = {}
    if not silent:
        return ends
    with target_of(plan, time.monotonic() + PATIENCE_SECONDS) as client:
        told = told_ends(client, [task.remote for task in silent])
        for task in silent:
            entries = log_entries(client, task.remote, task.downstream_offset, READ_UNCOMMITTED)
            if not any(is_data for _, _, is_data in up_to(entries, told[task.remote], name_of(task.remote))):
                ends[task.remote] = entries.end
    return ends


def looked_behind(
    plan: TaskPlan,
    silent: Sequence[PartitionTask],
    owed: Mapping[Partition, int],
    more_behind: Collection[Partition],
) -> List[PartitionReport]:
    """The reports of partitions of whose ranges no row came. Where the source has nothing behind them, what is left on
    the remote log is refused, and what was `owed`; see `Remainder`. Of those `more_behind` it is known to have more.
    Raises `Disconnected`, `ClusterError`."""
    if not silent:
        return []
    with target_of(plan, time.monotonic() + PATIENCE_SECONDS) as client:
        told = told_ends(client, [task.remote for task in silent])
        ends = SourceEnds(client.network, plan)
        try:
            return [
                _looked_behind(task, _behind(client, task, told), owed.get(task.remote), ends, more_behind)
                for task in silent
            ]
        finally:
            ends.close()


def _looked_behind(
    task: PartitionTask, behind: Records, owed: Optional[int], ends: SourceEnds, more_behind: Collection[Partition]
) -> PartitionReport:
    copy = PartitionCopy(task)
    written = None if owed is not None else behind.record()
    left = owed is not None or written is not None
    if left and task.remote not in more_behind and not ends.more_behind(task):
        copy.refuse(str(unproven(copy, owed) if written is None else more_than_given(copy, written.offset)))
    position = task.end if copy.stopped is None else task.upstream_offset
    return replace(copy.report(), position=position, sequence=None, left=left)


def _behind(client: LogClient, task: PartitionTask, told: Mapping[Partition, int]) -> Records:
    entries = log_entries(client, task.remote, task.downstream_offset, READ_UNCOMMITTED)
    return Records(up_to(entries, told[task.remote], name_of(task.remote)), task.downstream_offset)
