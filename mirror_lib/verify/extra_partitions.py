"""A target and the copied topics in; the partitions of their remote topics that no source partition has, out."""

from __future__ import annotations

from typing import Dict, List, Mapping, Sequence

from mirror_lib.facts import Cluster
from mirror_lib.topics.plan import CopiedTopic


def extra_partitions(target: Cluster, copied: Sequence[CopiedTopic]) -> Mapping[str, Sequence[int]]:
    """By remote topic, those of them that hold something. Only of topics whose records keep their partition's number.
    Raises `ClusterError`."""
    there = target.topics()
    further = [
        (topic.remote_topic, number)
        for topic in copied
        if topic.remote_topic in there
        for number in range(topic.partitions, there[topic.remote_topic].partitions)
    ]
    logs = target.offsets(further, "read_uncommitted") if further else {}
    found: Dict[str, List[int]] = {}
    for (name, number), log in sorted(logs.items()):
        if log.end > log.log_start:
            found.setdefault(name, []).append(number)
    return found
