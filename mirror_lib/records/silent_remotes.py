"""Remote partitions that got no row of a pass, and of which nobody knew what they hold behind their positions, in; the
ends of those that hold no record there out.
"""

from __future__ import annotations

import time
from typing import Dict, Sequence

from mirror_lib.log.fetch import READ_UNCOMMITTED
from mirror_lib.log.tail import log_entries
from mirror_lib.records.ready import PATIENCE_SECONDS, target_of
from mirror_lib.records.rows import Partition
from mirror_lib.replicate.lanes import PartitionTask, TaskPlan


def ends_without_records(plan: TaskPlan, silent: Sequence[PartitionTask]) -> Dict[Partition, int]:
    """By remote partition, where markers and nothing else lie behind the position. Raises `Disconnected`, and
    `ClusterError` where a broker refuses."""
    ends: Dict[Partition, int] = {}
    if not silent:
        return ends
    with target_of(plan, time.monotonic() + PATIENCE_SECONDS) as client:
        for task in silent:
            entries = log_entries(client, task.remote, task.downstream_offset, READ_UNCOMMITTED)
            if not any(is_data for _, _, is_data in entries):
                ends[task.remote] = entries.end
    return ends
