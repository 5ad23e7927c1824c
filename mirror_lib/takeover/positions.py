"""What MirrorMaker kept about its progress, decoded: records of Connect's offsets topic and offset syncs in.

Pure. A Connect source offset is JSON without a schema (KIP-382): `["NAME",{"cluster":"A","partition":0,"topic":"t"}]`
to `{"offset":N}`, where N is the last record that was replicated; `null` takes it back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Dict, FrozenSet, Iterable, List, Mapping, Optional, Set, Tuple

from mirror_lib.errors import RefusedError, StateError
from mirror_lib.facts import TopicPartition
from mirror_lib.groups.mm2_format import decode_offset_sync
from mirror_lib.ledger.records import Position
from mirror_lib.takeover.walk import Restarts

# Of MirrorMaker's dedicated mode, where a connector has the name of its class.
DEDICATED_CONNECTOR = "MirrorSourceConnector"
_PARTITION_FIELDS = {"cluster", "partition", "topic"}

KeyValue = Tuple[Optional[bytes], Optional[bytes]]


@dataclass(frozen=True)
class KeptPosition:
    """How far a partition was copied: `next_offset` is the first upstream offset that is not known to be copied.

    `earlier` are the next offsets that were kept before, as far as they are still told.
    """

    next_offset: int
    earlier: FrozenSet[int] = frozenset()


def connect_positions(
    records: Iterable[KeyValue], cluster: str, connector: Optional[str] = None
) -> Mapping[TopicPartition, KeptPosition]:
    """Positions of the source `cluster` (an alias), from all records of a Connect offsets topic.

    The records of a key are in the order they were written. Only those of `connector` count where it is given.
    Raises `RefusedError` where several connectors speak of one partition, or an offset cannot be read.
    """
    told: Dict[TopicPartition, Dict[str, List[Optional[int]]]] = {}
    for key, value in records:
        found = _source_partition(key)
        if found is None or found[1] != cluster or connector not in (None, found[0]):
            continue
        told.setdefault(found[2], {}).setdefault(found[0], []).append(_offset(value, found[2]))
    positions: Dict[TopicPartition, KeptPosition] = {}
    for partition, by_connector in told.items():
        kept = {name: offsets for name, offsets in by_connector.items() if offsets[-1] is not None}
        if len(kept) > 1:
            raise RefusedError(
                f"several connectors keep positions of {partition[0]}-{partition[1]}: {', '.join(sorted(kept))}",
                "name the one that wrote to the remote topics with --connector",
            )
        for offsets in kept.values():
            following = [offset + 1 for offset in offsets if offset is not None]
            positions[partition] = KeptPosition(following[-1], frozenset(following))
    return positions


def _source_partition(key: Optional[bytes]) -> Optional[Tuple[str, str, TopicPartition]]:
    """Connector, cluster and partition; `None` for what another connector keeps."""
    try:
        connector, at = json.loads(key or b"")
        if set(at) != _PARTITION_FIELDS:
            return None
        return str(connector), str(at["cluster"]), (str(at["topic"]), int(at["partition"]))
    except (ValueError, TypeError):
        return None


def _offset(value: Optional[bytes], partition: TopicPartition) -> Optional[int]:
    if value is None:
        return None
    try:
        written = json.loads(value)
        offset = None if written is None else written["offset"]
    except (ValueError, TypeError, KeyError):
        offset = value
    if offset is None or (isinstance(offset, int) and offset >= 0):
        return offset
    raise RefusedError(
        f"the position kept of {partition[0]}-{partition[1]} is not an offset: {value[:80]!r}",
        "something else writes to the offsets topic; name the right one with --from connect-topic=NAME",
    )


def group_positions(offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, KeptPosition]:
    """Positions of a MirrorMaker 1, which commits the next offset to read as a consumer group on the source."""
    return {partition: KeptPosition(offset) for partition, offset in offsets.items()}


@dataclass(frozen=True)
class SyncHistory:
    """A partition's offset syncs in the order in which they were told."""

    syncs: Tuple[Position, ...] = ()

    def restarts(self, position: Optional[KeptPosition]) -> Restarts:
        """Where the writer may have begun again: at syncs that go back, and at the positions that it kept."""
        told: Dict[int, Set[int]] = {}
        newest = -1
        for sync in self.syncs:
            if sync.upstream_offset <= newest:
                told.setdefault(sync.downstream_offset, set()).add(sync.upstream_offset)
            newest = sync.upstream_offset
        kept = frozenset() if position is None else position.earlier | {position.next_offset}
        return Restarts({at: frozenset(offsets) for at, offsets in told.items()}, kept)


def sync_histories(records: Iterable[KeyValue]) -> Mapping[TopicPartition, SyncHistory]:
    """By source partition, from the offset-syncs topic. A record that is no offset sync is left out."""
    syncs: Dict[TopicPartition, List[Position]] = {}
    for key, value in records:
        if key is None or value is None:
            continue
        try:
            sync = decode_offset_sync(key, value)
        except StateError:
            continue
        at = Position(sync.upstream_offset, sync.downstream_offset)
        syncs.setdefault((sync.topic, sync.partition), []).append(at)
    return {partition: SyncHistory(tuple(found)) for partition, found in syncs.items()}
