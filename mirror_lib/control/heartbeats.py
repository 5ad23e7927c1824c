"""MirrorMaker 2's heartbeats of a pair of clusters in the topic `heartbeats`: writes them, and finds by them a process
that copies the same flow.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Callable, List, Sequence

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.errors import MirrorError
from mirror_lib.groups.mm2_format import Heartbeat, encode_heartbeat
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.kafka.compacted_topic import InternalTopic, key_and_value, one_header
from mirror_lib.threads import BackgroundCall
from mirror_lib.topics.policy import policy_for

# The header of the mirror's heartbeats: from a process that copies the pair's flow, and from any other one, such as the
# mirror of the other direction. MirrorMaker's have none.
COPIES, COPIES_NOT = (one_header(b"mirror.copies", each) for each in (b"1", b"0"))
# A process without a heartbeat for so many intervals does not copy. A longer wait than `LONGEST_WAIT_SECONDS` is no
# answer for an operator who starts a run.
SILENT_INTERVALS, LONGEST_WAIT_SECONDS = 3.0, 15.0


def beating_pairs(config: MirrorConfig, flows: Sequence[ReplicationFlow]) -> List[ReplicationFlow]:
    """The pairs whose heartbeats a run of `flows` writes: to clusters that these read, and to those that none reads."""
    read = {flow.source.alias for flow in flows}
    elsewhere = {flow.source.alias for flow in config.flows} - read
    return [pair for pair in config.heartbeat_pairs if pair.target.alias not in elsewhere]


class HeartbeatWriter:
    """Writes the heartbeats of one pair. Connects at the first one, and again after an error; one thread at a time.

    `check` gets the target at every connecting, and raises a MirrorError where no heartbeat is to be written there.
    `copies`: this process copies the pair's flow.
    """

    def __init__(self, pair: ReplicationFlow, check: Callable[[KafkaCluster], None], copies: bool = False) -> None:
        self._pair, self._check = pair, check
        self._headers = COPIES if copies else COPIES_NOT
        self._topic = _topic_of(pair)
        self._ready = False

    def beat(self) -> None:
        """Write one, and return when all replicas in sync have it. Raises ClusterError where that is not certain."""
        try:
            if not self._ready:
                with KafkaCluster(self._pair.target, self._pair.admin_timeout) as cluster:
                    self._check(cluster)
                    self._topic.ensure(cluster)
            heartbeat = Heartbeat(self._pair.source.alias, self._pair.target.alias, int(1000 * time.time()))
            self._topic.append([encode_heartbeat(heartbeat)], self._headers)
            self._ready = True
        except MirrorError:
            # The topic may have been deleted in the meantime.
            self._ready = False
            raise

    def close(self) -> None:
        self._topic.close()


def is_audible(flow: ReplicationFlow) -> bool:
    """Whether a process that copies the flow shows by its heartbeats: it writes some, and often enough to wait for."""
    return 0 < _silence(flow) <= LONGEST_WAIT_SECONDS


def copied_elsewhere(flows: Sequence[ReplicationFlow]) -> List[str]:
    """The names of the audible `flows` for which another process writes heartbeats now. Waits for `SILENT_INTERVALS`.
    Raises ClusterError where a target cannot be read.

    To be asked before this process writes heartbeats of its own.
    """
    waits = {
        flow.name: BackgroundCall(f"heartbeats of {flow.name}", partial(_arrivals, flow, _silence(flow)))
        for flow in flows
    }
    return [name for name, wait in waits.items() if any(body.endswith(COPIES) for body in wait.result())]


def _silence(flow: ReplicationFlow) -> float:
    """The seconds after which a process without a heartbeat does not copy; 0 where it writes none."""
    return SILENT_INTERVALS * (flow.emit_heartbeats_interval or 0.0)


def foreign_heartbeats(flow: ReplicationFlow, seconds: float) -> int:
    """How many another tool writes within `seconds`. Raises ClusterError, BatchError."""
    return sum(not body.endswith((COPIES, COPIES_NOT)) for body in _arrivals(flow, seconds))


def _arrivals(flow: ReplicationFlow, seconds: float) -> List[bytes]:
    key, _ = encode_heartbeat(Heartbeat(flow.source.alias, flow.target.alias, 0))
    return [record.body for record in _topic_of(flow).arrivals(seconds) if key_and_value(record)[0] == key]


def _topic_of(pair: ReplicationFlow) -> InternalTopic:
    name, replicas = policy_for(pair).heartbeats_topic(), pair.heartbeats_topic_replication_factor
    return InternalTopic(pair.target, name, replicas, answer_seconds=pair.admin_timeout)
