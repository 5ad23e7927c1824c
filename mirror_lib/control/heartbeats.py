"""Writes MirrorMaker 2's heartbeats of a pair of clusters to the topic `heartbeats`."""

from __future__ import annotations

import time
from typing import Callable, List, Sequence

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.errors import MirrorError
from mirror_lib.groups.mm2_format import Heartbeat, encode_heartbeat
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.kafka.compacted_topic import InternalTopic
from mirror_lib.topics.policy import policy_for


def beating_pairs(config: MirrorConfig, flows: Sequence[ReplicationFlow]) -> List[ReplicationFlow]:
    """The pairs whose heartbeats a run of `flows` writes: to clusters that these read, and to those that none reads."""
    read = {flow.source.alias for flow in flows}
    elsewhere = {flow.source.alias for flow in config.flows} - read
    return [pair for pair in config.heartbeat_pairs if pair.target.alias not in elsewhere]


class HeartbeatWriter:
    """Writes the heartbeats of one pair. Connects at the first one, and anew after an error; one thread at a time.

    `check` gets the target at every connecting, and raises a MirrorError where no heartbeat is to be written there.
    """

    def __init__(self, pair: ReplicationFlow, check: Callable[[KafkaCluster], None]) -> None:
        self._pair, self._check = pair, check
        name = policy_for(pair).heartbeats_topic()
        self._topic = InternalTopic(
            pair.target, name, pair.heartbeats_topic_replication_factor, answer_seconds=pair.admin_timeout
        )
        self._ready = False

    def beat(self) -> None:
        """Write one, and return when all replicas in sync have it. Raises ClusterError where that is not certain."""
        try:
            if not self._ready:
                with KafkaCluster(self._pair.target, self._pair.admin_timeout) as cluster:
                    self._check(cluster)
                    self._topic.ensure(cluster)
            heartbeat = Heartbeat(self._pair.source.alias, self._pair.target.alias, int(1000 * time.time()))
            self._topic.append([encode_heartbeat(heartbeat)])
            self._ready = True
        except MirrorError:
            # The topic may have been deleted in the meantime.
            self._ready = False
            raise

    def close(self) -> None:
        """Drop the connections."""
        self._topic.close()
