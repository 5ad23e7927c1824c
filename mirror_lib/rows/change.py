"""A flow's `where`, `select` and `transform`: rows of Spark's source in, rows to be written out. Nothing is read."""

from __future__ import annotations

from typing import Collection, Dict, List, Mapping, Sequence, Tuple

from pyspark.sql import DataFrame

from mirror_lib.config.record_change import RecordChange
from mirror_lib.rows.changed import changed
from mirror_lib.rows.columns import REMOTE, SOURCE
from mirror_lib.rows.remote_names import RemoteNames


class FlowChange:
    """What the change comes to is looked at once: each micro-batch has the same, but for what a function of the user's
    makes."""

    def __init__(self, change: RecordChange) -> None:
        self._change = change
        self._known = False

    def __call__(self, rows: DataFrame, names: RemoteNames) -> DataFrame:
        """`rows` in the columns of `CHANGED_DDL`. Raises `ConfigError` where the change cannot be made."""
        found = changed(rows, self._change, names, self._known and self._change.transform is None)
        self._known = True
        return found


def needless(change: RecordChange, names: RemoteNames) -> Tuple[str, ...]:
    """Columns of changed rows that a task can do without, as each costs Spark time on the way to Python: REMOTE where
    each source partition has one remote partition, the topic where there is one, the failure where nothing can fail."""
    found: List[str] = []
    if change.dead_letter_topic is None and not change.places_anew:
        found += REMOTE
    # A function of the user's may change topics, and is then refused.
    if change.transform is None and len(names.topics) == 1:
        found.append(SOURCE[0])
    if change.transform is None and change.where is None and change.select in (None, "*"):
        found.append("failure")
    return tuple(found)


def remote_names(copied: Collection[Tuple[str, str]], partitions: Mapping[str, int]) -> RemoteNames:
    """Where the topics of pairs of topic and remote topic may go; `partitions` are the counts of remote topics."""
    topics: Dict[str, Sequence[str]] = {}
    for topic, remote in copied:
        topics[topic] = (*topics.get(topic, ()), remote)
    return RemoteNames({topic: tuple(names) for topic, names in topics.items()}, partitions)
