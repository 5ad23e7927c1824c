"""The ids of the topics that a pass was planned for in; which of them are other topics by now out.

Spark's Kafka source reads by name. An id only ever changes to a later topic's: where it is the planned one after rows
have come, they came from that topic.
"""

from __future__ import annotations

import time
from typing import FrozenSet, Mapping

from mirror_lib.log.connection import LogClient, Network
from mirror_lib.replicate.lanes import TaskPlan

CONNECT_SECONDS = 30.0


class SourceTopics:
    """One task's. `ids` are by topic, empty where brokers have none; nobody is asked then."""

    def __init__(self, network: Network, plan: TaskPlan, ids: Mapping[str, str]) -> None:
        self._client = LogClient(network, plan.source_alias, plan.source_options)
        self._ids = {topic: topic_id for topic, topic_id in ids.items() if topic_id}
        self._connected = False

    def others(self) -> FrozenSet[str]:
        """Those that were deleted and created again. Raises `Disconnected`, `ClusterError`."""
        if not self._ids:
            return frozenset()
        if not self._connected:
            self._client.connect(time.monotonic() + CONNECT_SECONDS)
            self._connected = True
        now = self._client.ids_now(self._ids)
        return frozenset(topic for topic, topic_id in self._ids.items() if now.get(topic, topic_id) != topic_id)

    def close(self) -> None:
        """Close its connections."""
        self._client.close()
