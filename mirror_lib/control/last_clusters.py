"""The clusters of the last runs of flows, and what stands behind their aliases now: a refusal where that is another.

Asked before anything is done beside the copy: a cluster that the copy is refused on is not to be changed either.
"""

from __future__ import annotations

import threading
from typing import Dict, Mapping, Optional, Protocol, Sequence

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.state.cluster_ids import same_clusters
from mirror_lib.state.records import MirrorRun


class LastRuns(Protocol):
    """Remembers the runs of flows."""

    def latest(self, flow: str) -> Optional[MirrorRun]:
        """The run of `flow` that started last; `None` before the first. May raise StateError."""


class LastClusters:
    """What the last runs of `flows` say of their clusters. Read when it is asked for, and once it is known kept."""

    def __init__(self, runs: LastRuns, flows: Sequence[ReplicationFlow]) -> None:
        self._runs, self._flows = runs, flows
        self._known: Dict[str, MirrorRun] = {}
        self._reading = threading.Lock()

    def check(self, ids: Mapping[str, str]) -> None:
        """Raise RefusedError where a cluster of `ids`, by alias, is not that of the last run; StateError.

        A flow that never ran says nothing.
        """
        for flow in self._flows:
            sides = flow.source.alias, flow.target.alias
            last = None if ids.keys().isdisjoint(sides) else self._last(flow.name)
            if last is not None:
                source, target = ids.get(sides[0], last.source_cluster_id), ids.get(sides[1], last.target_cluster_id)
                same_clusters(flow.name, (source, target), last)

    def _last(self, flow: str) -> Optional[MirrorRun]:
        # Every duty of a flow asks at its start, and one read is enough.
        with self._reading:
            last = self._known.get(flow) or self._runs.latest(flow)
            if last is not None:
                self._known[flow] = last
            return last
