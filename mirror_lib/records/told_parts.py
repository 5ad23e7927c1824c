"""Reports of partitions as tasks that write rows give them in; as the table at a run's end is to count them out. Pure.

Such a task times what it sends. Spark read and changed that before, for all partitions of the pass at once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, Iterable, List, Tuple

from mirror_lib.replicate.lanes import PartitionReport

NAMES_TOLD = 3


def taking(parts: Iterable[PartitionReport], seconds: float) -> Tuple[PartitionReport, ...]:
    """The same, where what was copied took all `seconds` of the pass."""
    return tuple(replace(part, seconds=seconds if part.records else 0.0) for part in parts)


def by_source(parts: Iterable[PartitionReport], pairs: Iterable[Tuple[str, str]]) -> Tuple[PartitionReport, ...]:
    """The same where they are under their remote topics, under the source topics of these. `pairs` are the topics that
    are copied, each with its remote topic."""
    found: Dict[str, List[str]] = {}
    for topic, remote in sorted(set(pairs)):
        found.setdefault(remote, []).append(topic)
    return tuple(replace(part, topic=_named(found.get(part.remote_topic, [part.topic]))) for part in parts)


def _named(topics: List[str]) -> str:
    more = len(topics) - NAMES_TOLD
    return ", ".join(topics[:NAMES_TOLD]) + (f" and {more} more" if more > 0 else "")
