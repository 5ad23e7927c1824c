"""Finds out which offsets after the ledger's end hold only control records, for groups that have read these.

A process that is killed leaves the marker of its fence at the end of each remote log, and the ledger has a row for it
only once the partition is copied again. A consumer that reads the log to its end commits the offset after the marker.
"""

from __future__ import annotations

import logging
import time
from typing import Dict, Iterable, Mapping, Tuple

from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import MirrorError
from mirror_lib.facts import TopicPartition
from mirror_lib.groups.map import FlowMaps
from mirror_lib.kafka.admin_client import log_client
from mirror_lib.kafka.connection import Disconnected, name_of
from mirror_lib.kafka.fetcher import READ_UNCOMMITTED
from mirror_lib.kafka.log_reader import glances, markers_until
from mirror_lib.ledger.intervals import PartitionMap
from mirror_lib.ledger.records import PartitionKey

log = logging.getLogger(__name__)

# How long brokers may take to answer. Groups whose stretch could not be read stay held.
READ_SECONDS = 30.0

# Partition, remote partition, and the offset that a group has committed on the latter.
Committed = Tuple[PartitionKey, TopicPartition, int]


def pass_markers(maps: FlowMaps, committed: Iterable[Committed], target: ClusterConfig) -> None:
    """Extend the maps of partitions if a group is past the ledger's end and only markers lie in between.

    A map is extended to the first data record at most. If the remote log cannot be read, the map stays unchanged, and a
    warning has the reason.
    """
    beyond = _beyond(maps, committed)
    if not beyond:
        return
    try:
        found = marker_ends({remote: (start, end) for remote, start, end in beyond.values()}, target)
    except (MirrorError, Disconnected) as error:
        log.warning("%s: cannot read the log after the last copied record: %s", target.alias, error)
        return
    for key, (remote, _, _) in beyond.items():
        if remote in found:
            maps.pass_markers(key, found[remote])


def _beyond(
    maps: FlowMaps, committed: Iterable[Committed]
) -> Mapping[PartitionKey, Tuple[TopicPartition, int, int]]:
    """By partition: the remote partition, the end of the map, and the farthest committed offset past that end."""
    beyond: Dict[PartitionKey, Tuple[TopicPartition, int, int]] = {}
    for key, remote, offset in committed:
        known = maps.of(key)
        if isinstance(known, PartitionMap) and offset > known.downstream_end:
            _, _, farthest = beyond.get(key, (remote, 0, 0))
            beyond[key] = remote, known.downstream_end, max(farthest, offset)
    return beyond


def marker_ends(
    stretches: Mapping[TopicPartition, Tuple[int, int]], target: ClusterConfig
) -> Mapping[TopicPartition, int]:
    """The end of the markers at the start of each stretch of offsets. Omits a stretch if the log was truncated before
    it. Raises `MirrorError` or `Disconnected` if the cluster does not answer."""
    found: Dict[TopicPartition, int] = {}
    deadline = time.monotonic() + READ_SECONDS
    with log_client(target, "consumer", deadline) as client:
        client.refresh_leaders_of(set(stretches), deadline)
        firsts = glances(client, {each: start for each, (start, _) in stretches.items()}, READ_UNCOMMITTED)
        for each, (start, end) in stretches.items():
            try:
                found[each] = markers_until(client, each, start, end, firsts.get(each))
            except (MirrorError, Disconnected) as error:
                log.warning("%s: cannot read %s from offset %d: %s", target.alias, name_of(each), start, error)
    return found
