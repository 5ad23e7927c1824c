"""Shuts out lanes of another lane count: who wrote under `tasks.max: 4` must not write under `tasks.max: 8` any more.

A lane's fence reaches only its own transactional id, so a change of the count leaves earlier lanes unfenced.
"""

from __future__ import annotations

import logging
import time
from typing import Dict, List, Optional, Sequence, Tuple

from mirror_lib.config.clients import kafka_python_options
from mirror_lib.config.model import ReplicationFlow
from mirror_lib.errors import ClusterError
from mirror_lib.log.connection import LogClient, Network
from mirror_lib.log.fence import fence, transactional_ids
from mirror_lib.replicate.lanes import lane_and_count, lane_of, transactional_id_prefix

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 60.0


def fence_stale_lanes(
    name: str, flow: ReplicationFlow, remote_partitions: Sequence[Tuple[str, int]], last_lanes: Optional[int]
) -> int:
    """Fence every lane of another count that the target remembers; returns how many there were.

    `last_lanes` is the count of the flow's latest run: if it is today's, that run has done this already. Raises
    `ClusterError` where the target does not answer.
    """
    if flow.delivery != "exactly-once" or last_lanes == flow.tasks_max:
        return 0
    deadline = time.monotonic() + PATIENCE_SECONDS
    network = Network()
    client = LogClient(network, flow.target.alias, kafka_python_options(flow.target.client_properties("producer")))
    try:
        client.connect(deadline)
        stale = _stale(client, transactional_id_prefix(name, flow.name), flow.tasks_max, last_lanes)
        for transactional_id, lane, lanes in stale:
            fence(client, transactional_id, _members(remote_partitions, lane, lanes), deadline)
    finally:
        client.close()
        network.close()
    if stale:
        log.info("%s: fenced %d lanes of another tasks.max", flow.name, len(stale))
    return len(stale)


def _stale(client: LogClient, prefix: str, lanes_now: int, last_lanes: Optional[int]) -> List[Tuple[str, int, int]]:
    try:
        remembered = transactional_ids(client, prefix)
    except ClusterError:
        # Brokers before 3.0 cannot list them; then the table of runs is all there is to go by.
        remembered = {f"{prefix}{lane}of{last_lanes}" for lane in range(last_lanes or 0)}
    parsed = ((name, lane_and_count(prefix, name)) for name in sorted(remembered))
    return [(name, *found) for name, found in parsed if found is not None and found[1] != lanes_now]


def _members(partitions: Sequence[Tuple[str, int]], lane: int, lanes: int) -> Dict[str, List[int]]:
    members: Dict[str, List[int]] = {}
    for topic, partition in partitions:
        if lane_of(topic, partition, lanes) == lane:
            members.setdefault(topic, []).append(partition)
    return members
