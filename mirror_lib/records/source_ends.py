"""Whether the source has records behind the ranges of a pass, which was planned before its lanes were fenced: whoever
had them may have copied what came since.
"""

from __future__ import annotations

import time
from typing import Optional

from mirror_lib.log.connection import LogClient, Network
from mirror_lib.log.fetch import ISOLATION
from mirror_lib.replicate.lanes import PartitionTask, TaskPlan
from mirror_lib.replicate.recovery import told_ends

CONNECT_SECONDS = 30.0


class SourceEnds:
    """Connections that are made when somebody asks."""

    def __init__(self, network: Network, plan: TaskPlan) -> None:
        self._network = network
        self._plan = plan
        self._client: Optional[LogClient] = None

    def more_behind(self, task: PartitionTask) -> bool:
        """Whether the log goes on behind the task's range. To be asked once its lane is fenced: what is on the remote
        log then was there for readers of the source before. Raises `Disconnected`, `ClusterError`."""
        deadline = time.monotonic() + CONNECT_SECONDS
        client = self._connected(deadline)
        client.refresh_leaders_of([task.source], deadline)
        return told_ends(client, [task.source], ISOLATION[self._plan.isolation_level])[task.source] > task.end

    def close(self) -> None:
        """Close them."""
        if self._client is not None:
            self._client.close()

    def _connected(self, deadline: float) -> LogClient:
        if self._client is None:
            self._client = LogClient(self._network, self._plan.source_alias, self._plan.source_options)
            self._client.connect(deadline)
        return self._client
