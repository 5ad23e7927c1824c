"""A flow's `where`, `select`, `transform` and the rest of its change, as the engine asks for it: rows in, rows out.

Nothing is read.
"""

from __future__ import annotations

from typing import Callable, Dict, List, Mapping, Sequence, Tuple

from pyspark.sql import DataFrame

from mirror_lib.changes.changed import changed
from mirror_lib.changes.check import is_deterministic
from mirror_lib.changes.remote_names import RemoteNames
from mirror_lib.config.model import ReplicationFlow
from mirror_lib.config.record_change import RecordChange
from mirror_lib.errors import RefusedError
from mirror_lib.facts import Cluster
from mirror_lib.records.engine import Changed
from mirror_lib.records.narrow_rows import needless
from mirror_lib.replicate.lanes import PartitionTask


class FlowChange:
    """`partitions_of` tells how many partitions a topic of the target has.

    What the change comes to is looked at once: each pass has the same, but for what a function of the user's makes.
    """

    def __init__(self, change: RecordChange, source_alias: str, partitions_of: Callable[[str], int]) -> None:
        self._change = change
        self._alias = source_alias
        self._partitions_of = partitions_of
        self._counts: Dict[str, int] = {}
        self._repeats: List[Tuple[bool, str]] = []

    @staticmethod
    def of(flow: ReplicationFlow, target: Cluster) -> FlowChange:
        """The change of a flow, whose remote topics are on `target`."""

        def partitions_of(topic: str) -> int:
            found = target.topics().get(topic)
            if found is None:
                raise RefusedError(f"{flow.name}: there is no topic {topic} on {flow.target.alias}", "create it first")
            return found.partitions

        return FlowChange(flow.change or RecordChange(), flow.source.alias, partitions_of)

    def with_counts(self, counts: Mapping[str, int]) -> FlowChange:
        """The same where remote topics have these partition counts, whatever they have by now."""
        other = FlowChange(self._change, self._alias, self._partitions_of)
        other._counts = {**self._counts, **counts}
        other._repeats = self._repeats
        return other

    def __call__(self, rows: DataFrame, tasks: Sequence[PartitionTask]) -> Changed:
        """The rows of a pass over `tasks`. Raises `ConfigError` where the change cannot be made."""
        names: Dict[str, Tuple[str, ...]] = {}
        for topic, remote in dict.fromkeys((task.topic, task.remote_topic) for task in tasks):
            names[topic] = (*names.get(topic, ()), remote)
        again = bool(self._repeats) and self._change.transform is None
        found = changed(rows, self._change, self._remote(names), again)
        if not again:
            self._repeats[:] = [is_deterministic(found, self._change.deterministic)]
        return Changed(found, *self._repeats[0], needless(self._change, tasks))

    def _remote(self, names: Mapping[str, Tuple[str, ...]]) -> RemoteNames:
        dead = self._change.dead_letter_topic
        remotes = {remote for several in names.values() for remote in several}
        for topic in {*remotes, *([] if dead is None else [dead])} - self._counts.keys():
            self._counts[topic] = self._partitions_of(topic)
        return RemoteNames(self._alias, names, self._counts)
