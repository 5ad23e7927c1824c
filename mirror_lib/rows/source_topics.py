"""The ids of the topics that a micro-batch is of in; which of them are other topics by now out.

Spark's Kafka source reads by name. An id only ever changes to a later topic's: where it is the planned one after rows
have come, they came from that topic.
"""

from __future__ import annotations

import time
from typing import Any, FrozenSet, Mapping, Optional

from mirror_lib.log.connection import Future, LogClient, Network

CONNECT_SECONDS = 30.0


class SourceTopics:
    """One task's, which asks the cluster `alias`. `ids` are by topic, empty where brokers have none; nobody is asked
    then."""

    def __init__(self, network: Network, alias: str, options: Mapping[str, Any], ids: Mapping[str, str]) -> None:
        self._client = LogClient(network, alias, options)
        self._ids = {topic: topic_id for topic, topic_id in ids.items() if topic_id}
        self._connected = False
        self._asked: Optional[Future] = None

    def ask(self) -> None:
        """Ask about the rows that have come, without waiting. Raises `ClusterError`."""
        if self._ids and not self._connected:
            self._client.connect(time.monotonic() + CONNECT_SECONDS)
            self._connected = True
        self._asked = self._client.ask_ids(self._ids) if self._ids else None

    def waits(self) -> bool:
        """Whether the answer has not come yet."""
        return self._asked is not None and not self._asked.is_done

    def others(self) -> FrozenSet[str]:
        """Those that were deleted and created again, by the answer to the last `ask`. Raises `Disconnected`."""
        if self._asked is None:
            return frozenset()
        now = self._client.told_ids(self._asked)
        return frozenset(topic for topic, topic_id in self._ids.items() if now.get(topic, topic_id) != topic_id)

    def close(self) -> None:
        """Close its connections."""
        self._client.close()
