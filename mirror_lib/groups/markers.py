"""Finds out which offsets before the ledger's start and after its end hold only control records.

Each start of the mirror leaves the marker of its fence in each remote log, and the ledger has a row for it only once
the partition is copied again. A consumer that reads the log to its end commits the offset after the marker.
"""

from __future__ import annotations

import logging
import time
from typing import Dict, Iterator, Mapping, Tuple

from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import MirrorError
from mirror_lib.facts import TopicPartition
from mirror_lib.groups.map import FlowMaps
from mirror_lib.groups.survey import Survey
from mirror_lib.groups.translation import TO_UPSTREAM
from mirror_lib.kafka.admin_client import log_client
from mirror_lib.kafka.connection import Disconnected, name_of
from mirror_lib.kafka.fetcher import READ_UNCOMMITTED
from mirror_lib.kafka.log_reader import glances, markers_until
from mirror_lib.ledger.intervals import PartitionMap
from mirror_lib.ledger.records import PartitionKey

log = logging.getLogger(__name__)

# How long brokers may take to answer. Groups whose stretch could not be read stay held.
READ_SECONDS = 30.0

# Partition, remote partition, and an offset of the latter up to which the map is needed.
Needed = Tuple[PartitionKey, TopicPartition, int]


def _needed_offsets(maps: FlowMaps, found: Survey, direction: str) -> Iterator[Needed]:
    """How far the maps must reach on the remote logs to decide about the groups of `found`; nothing of a partition
    whose records suffice."""
    for group, offsets in found.positions.items():
        for here, at in offsets.items():
            pair = found.pairs[here]
            known, log = maps.of(pair.key), found.logs.get(pair.there)
            if direction == TO_UPSTREAM and not pair.missing:
                yield pair.key, here, at.offset
            elif isinstance(known, PartitionMap) and log is not None:
                present = found.present.get(group, {}).get(pair.there)
                if at.offset < known.upstream_start:
                    yield pair.key, pair.there, log.log_start
                elif at.offset == known.upstream_end:
                    yield pair.key, pair.there, log.end
                elif at.offset > known.upstream_end and present is not None:
                    # The group was at the end before, and followed the markers.
                    yield pair.key, pair.there, present.offset


# Remote partition, start and end.
_Stretch = Tuple[TopicPartition, int, int]


def pass_markers(maps: FlowMaps, found: Survey, direction: str, target: ClusterConfig) -> None:
    """Extend the maps to the offsets that decisions about the groups of `found` need, as far as only markers lie in
    between.

    At the end a map is extended to the first data record at most, at the start completely or not at all. If the remote
    log cannot be read, the map stays unchanged, and a warning has the reason.
    """
    # From the earliest needed offset to the start of the map, and from its end to the latest one.
    before: Dict[PartitionKey, _Stretch] = {}
    after: Dict[PartitionKey, _Stretch] = {}
    for key, remote, offset in _needed_offsets(maps, found, direction):
        known = maps.of(key)
        if isinstance(known, PartitionMap) and offset < known.downstream_start:
            _, earliest, _ = before.get(key, (remote, offset, 0))
            before[key] = remote, min(earliest, offset), known.downstream_start
        elif isinstance(known, PartitionMap) and offset > known.downstream_end:
            _, _, latest = after.get(key, (remote, 0, 0))
            after[key] = remote, known.downstream_end, max(latest, offset)
    for stretches in (before, after):
        try:
            ends = marker_ends({each: (start, end) for each, start, end in stretches.values()}, target)
        except (MirrorError, Disconnected) as error:
            log.warning("%s: cannot read the log next to the copied records: %s", target.alias, error)
            return
        for key, (remote, start, end) in stretches.items():
            if stretches is after and remote in ends:
                maps.pass_markers(key, ends[remote])
            elif ends.get(remote) == end:
                maps.pass_markers(key, start)


def marker_ends(
    stretches: Mapping[TopicPartition, Tuple[int, int]], target: ClusterConfig
) -> Mapping[TopicPartition, int]:
    """The end of the markers at the start of each stretch of offsets. Omits a stretch if the log was truncated before
    it. Raises `MirrorError` or `Disconnected` if the cluster does not answer."""
    found: Dict[TopicPartition, int] = {}
    if not stretches:
        return found
    deadline = time.monotonic() + READ_SECONDS
    with log_client(target, "consumer", deadline) as client:
        client.refresh_leaders(set(stretches), deadline)
        firsts = glances(client, {each: start for each, (start, _) in stretches.items()}, READ_UNCOMMITTED)
        for each, (start, end) in stretches.items():
            try:
                found[each] = markers_until(client, each, start, end, firsts.get(each))
            except (MirrorError, Disconnected) as error:
                log.warning("%s: cannot read %s from offset %d: %s", target.alias, name_of(each), start, error)
    return found
