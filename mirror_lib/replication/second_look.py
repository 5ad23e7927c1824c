"""Reports of a pass in; the same out, with partitions not stopped whose remote topic takes other sizes than was known.

What a remote topic takes is known from the last look at all topics, which may be ten minutes old.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import List, Sequence

from mirror_lib.errors import ClusterError
from mirror_lib.replication.copied_topics import TopicWatch
from mirror_lib.replication.messages import PartitionReport, TaskReport
from mirror_lib.replication.rejections import PASSED

log = logging.getLogger(__name__)


def looked_again(flow: str, topics: TopicWatch, reports: Sequence[TaskReport]) -> Sequence[TaskReport]:
    """Look at the topics of which something was refused. `topics.partitions` may have other limits afterwards."""
    refused = {part.topic for report in reports for part in report.partitions if part.rejected_from is not None}
    before = topics.partitions
    if not refused:
        return reports
    try:
        topics.look_again(refused)
    except ClusterError as error:
        log.warning("%s: what the remote topics take could not be looked up: %s", flow, error)
        return reports
    limits = {each.source: each.max_message_bytes for each in topics.partitions.values()}
    other = {each.source for each in before.values() if each.max_message_bytes != limits[each.source]}

    def told(part: PartitionReport) -> PartitionReport:
        if part.rejected_from is None or (part.topic, part.partition) not in other:
            return part
        # Its position is behind what was passed before.
        passed = tuple(each for each in part.incidents if each.kind in PASSED)
        return replace(part, stopped=None, rejected_from=None, rejected_until=-1, incidents=passed)

    found: List[TaskReport] = [replace(each, partitions=tuple(map(told, each.partitions))) for each in reports]
    return found
