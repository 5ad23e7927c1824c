"""Both clusters and the copied topics in; the partitions of remote topics that no source partition has, out."""

from __future__ import annotations

from typing import Dict, List, Mapping, Sequence

from mirror_lib.facts import Cluster, TopicDescription
from mirror_lib.topics.plan import CopiedTopic


def extra_partitions(
    source: Cluster, target: Cluster, copied: Sequence[CopiedTopic]
) -> Mapping[str, Sequence[int]]:
    """By remote topic, those of them that hold something. Only of topics whose records keep their partition's number.
    Raises `ClusterError`."""
    # In this order: a flow that runs beside this makes remote partitions for those that came to the source meanwhile.
    there = target.topics()
    here = source.topics()
    further = [
        (topic.remote_topic, number)
        for topic in copied
        if topic.remote_topic in there
        for number in range(_count(here, topic), there[topic.remote_topic].partitions)
    ]
    logs = target.offsets(further, "read_uncommitted") if further else {}
    found: Dict[str, List[int]] = {}
    for (name, number), log in sorted(logs.items()):
        if log.end > log.log_start:
            found.setdefault(name, []).append(number)
    return found


def _count(here: Mapping[str, TopicDescription], topic: CopiedTopic) -> int:
    now = here.get(topic.source.name)
    return topic.partitions if now is None else max(topic.partitions, now.partitions)
