"""Reads where MirrorMaker stored its progress (`--from`): Connect's offsets topic and offset syncs.

A Connect source offset is JSON without a schema (KIP-382): `["NAME",{"cluster":"A","partition":0,"topic":"t"}]` to
`{"offset":N}`, where N is the last replicated record; `null` takes it back.
"""

from __future__ import annotations

import json
import logging
import struct
from dataclasses import dataclass, field
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.errors import ConfigError, RefusedError, StateError
from mirror_lib.facts import ConsumerGroup, GroupMember, TopicPartition
from mirror_lib.groups.mm2_format import decode_offset_sync
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.kafka.compacted_topic import whole_topic
from mirror_lib.ledger.records import Position
from mirror_lib.replication.copy_ranges import committed_by
from mirror_lib.topics.policy import offset_syncs_topics

log = logging.getLogger(__name__)

# Of MirrorMaker's dedicated mode, where a connector has the name of its class.
DEDICATED_CONNECTOR = "MirrorSourceConnector"
STABLE = "Stable"
_PARTITION_FIELDS = {"cluster", "partition", "topic"}

KeyValue = Tuple[Optional[bytes], Optional[bytes]]


def connect_positions(
    records: Iterable[KeyValue], cluster: str, connector: Optional[str] = None
) -> Mapping[TopicPartition, int]:
    """The next upstream offsets of the source `cluster` (an alias), from all records of a Connect offsets topic.

    The records of a key are in the order in which they were written. If `connector` is given, only its records count.
    Raises `RefusedError` if several connectors store a position of one partition, or if an offset cannot be read.
    """
    reported: Dict[TopicPartition, Dict[str, Optional[int]]] = {}
    for key, value in records:
        found = _source_partition(key)
        if found is None or found[1] != cluster or connector not in (None, found[0]):
            continue
        reported.setdefault(found[2], {})[found[0]] = _offset(value, found[2])
    positions: Dict[TopicPartition, int] = {}
    for partition, by_connector in reported.items():
        kept = {name: offset for name, offset in by_connector.items() if offset is not None}
        if len(kept) > 1:
            raise RefusedError(
                f"several connectors keep positions of {partition[0]}-{partition[1]}: {', '.join(sorted(kept))}",
                "name the one that wrote to the remote topics with --connector",
                code="MIR-341",
            )
        for offset in kept.values():
            positions[partition] = offset + 1
    return positions


def _source_partition(key: Optional[bytes]) -> Optional[Tuple[str, str, TopicPartition]]:
    """Connector, cluster and partition; `None` for a key of another kind of connector."""
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
        code="MIR-341",
    )


def sync_histories(records: Iterable[KeyValue]) -> Mapping[TopicPartition, Sequence[Position]]:
    """Offset syncs by source partition, in the order in which they were written to the offset-syncs topic. Records of
    another form are skipped."""
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
    return syncs


MM2, CONNECT_TOPIC, GROUP = "mm2", "connect-topic", "group"


@dataclass(frozen=True)
class Origin:
    """`kind` and `name` as in `--from KIND=NAME`; `connector` and `worker_group` if they were given."""

    kind: str = MM2
    name: str = ""
    connector: Optional[str] = None
    worker_group: Optional[str] = None

    @property
    def is_group(self) -> bool:
        return self.kind == GROUP

    def offsets_topic(self, flow: ReplicationFlow) -> str:
        """Connect's offsets topic on the target: MirrorMaker's own is always called with dots."""
        return self.name or f"mm2-offsets.{flow.source.alias}.internal"

    def members_group(self, flow: ReplicationFlow) -> Optional[str]:
        """The group whose members must be stopped; `None` if it is unknown."""
        if self.is_group:
            return self.name
        return self.worker_group or (f"{flow.source.alias}-mm2" if self.kind == MM2 else None)

    def described(self, flow: ReplicationFlow) -> str:
        return f"group {self.name}" if self.is_group else self.offsets_topic(flow)


@dataclass(frozen=True)
class Left:
    """The progress that the other tool stored: the first upstream offset that may not be copied, and offset syncs, by
    source partition."""

    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    syncs: Mapping[TopicPartition, Sequence[Position]] = field(default_factory=dict)


def parse_origin(text: str, connector: Optional[str] = None, worker_group: Optional[str] = None) -> Origin:
    """Raises `ConfigError` for anything but `mm2`, `connect-topic=NAME` and `group=NAME`."""
    kind, _, name = text.partition("=")
    if kind not in (MM2, CONNECT_TOPIC, GROUP) or bool(name) == (kind == MM2):
        raise ConfigError(f"--from {text} is not known", "write mm2, connect-topic=NAME or group=NAME")
    return Origin(kind, name, connector, worker_group)


def refuse_live(origin: Origin, flow: ReplicationFlow, source: KafkaCluster, target: KafkaCluster) -> None:
    """Raise `RefusedError` if the other tool's group has members, or if that cannot be read."""
    name = origin.members_group(flow)
    if name is None:
        log.warning("%s: only heartbeats and log ends show whether the other tool runs: name its group", flow.name)
        return
    cluster = source if origin.is_group else target
    hosts = hosts_of(origin, flow, cluster)
    if hosts is None:
        raise RefusedError(
            f"{flow.name}: it is unknown whether the other tool still runs: group {name} on {cluster.alias}",
            "grant Describe on it to this principal; its coordinator may be away for a while",
            code="MIR-340",
        )
    if hosts:
        raise RefusedError(
            f"{flow.name}: the other tool still runs: group {name} on {cluster.alias} has members ({', '.join(hosts)})",
            "stop it; after a kill wait until the brokers have noticed, which takes its session timeout",
            code="MIR-340",
        )


def hosts_of(origin: Origin, flow: ReplicationFlow, cluster: KafkaCluster) -> Optional[Tuple[str, ...]]:
    """The hosts of the other tool's members; `None` if its group, which must be known, cannot be described.

    In a Connect cluster only the workers that run the connector count, if it is named: the others may keep running.
    """
    name = str(origin.members_group(flow))
    found = cluster.describe_groups([name]).get(name)
    if name in cluster.undescribed_groups():
        return None
    if found is None or not found.has_members:
        return ()
    working = {member.host for member in found.members if _runs(origin, member)}
    return tuple(sorted(working)) or (() if found.members else ("a member whose host is unknown",))


def _runs(origin: Origin, member: GroupMember) -> bool:
    """Whether a member may be copying. The assignment of a Connect worker has the names of its connectors, as text
    between numbers."""
    shared = origin.kind == CONNECT_TOPIC and origin.connector is not None and bool(member.other_work)
    return not shared or str(origin.connector).encode() in member.other_work


def may_copy(workers: ConsumerGroup) -> bool:
    """Whether the workers of a dedicated MirrorMaker copy, or may be about to.

    Workers that only write heartbeats, as for the other direction, have no task of MirrorSourceConnector.
    """
    assigned = [_connectors_with_tasks(each.other_work) for each in workers.members]
    if workers.state != STABLE:
        return workers.has_members
    connectors = {name for each in assigned for name in each}
    return bool(assigned) and (not connectors or DEDICATED_CONNECTOR in connectors)


def _connectors_with_tasks(assignment: bytes) -> Set[str]:
    """The connectors of which a worker has tasks, by its assignment in Connect's protocol: -1 stands for the connector
    itself. Those before the first part that cannot be read."""
    found: Set[str] = set()
    try:
        at = 4  # after version and error
        for _ in ("leader", "its URL"):
            at += 2 + struct.unpack_from(">h", assignment, at)[0]
        (connectors,) = struct.unpack_from(">i", assignment, at + 8)  # after the config offset
        at += 12
        for _ in range(connectors):
            (length,) = struct.unpack_from(">h", assignment, at)
            name, at = assignment[at + 2 : at + 2 + length], at + 2 + length
            (count,) = struct.unpack_from(">i", assignment, at)
            numbers, at = struct.unpack_from(f">{count}i", assignment, at + 4), at + 4 + 4 * count
            found |= {name.decode()} if max(numbers, default=-1) >= 0 else set()
    except (struct.error, UnicodeDecodeError):
        log.debug("an assignment is not in Connect's protocol: %r", assignment)
    return found


def read_left(origin: Origin, flow: ReplicationFlow, source: KafkaCluster, target: KafkaCluster) -> Left:
    """Raises `RefusedError` if there are no positions at all."""
    if origin.is_group:
        offsets = committed_by(origin.name, source)
        if not offsets:
            raise RefusedError(
                f"{flow.name}: group {origin.name} has no committed offsets on {source.alias}",
                code="MIR-341",
            )
        return Left({at: each.offset for at, each in offsets.items()})
    topic = origin.offsets_topic(flow)
    found = target.topics().get(topic)
    if found is None:
        raise RefusedError(
            f"{flow.name}: there is no topic {topic} on {target.alias}",
            "name the Connect worker's offsets topic, --from connect-topic=NAME, or grant Read on it if it is there",
            code="MIR-341",
        )
    connector = origin.connector or (DEDICATED_CONNECTOR if origin.kind == MM2 else None)
    records = whole_topic(flow.target, topic, found.partitions)
    positions = connect_positions(records, flow.naming_alias, connector)
    return Left(positions, _syncs(flow, source, target))


def offset_syncs_places(flow: ReplicationFlow) -> Sequence[Tuple[ClusterConfig, str]]:
    """The places where offset syncs may be: the configured side first, and on each side the flow's own name first. The
    other names belong to other versions of MirrorMaker."""
    places = [
        *((flow.source, topic) for topic in offset_syncs_topics(flow, flow.target.alias)),
        *((flow.target, topic) for topic in offset_syncs_topics(flow, flow.source.alias)),
    ]
    configured = flow.source.alias if flow.offset_syncs_topic_location == "source" else flow.target.alias
    return sorted(places, key=lambda place: place[0].alias != configured)


def _syncs(
    flow: ReplicationFlow, source: KafkaCluster, target: KafkaCluster
) -> Mapping[TopicPartition, Sequence[Position]]:
    listed = {flow.source.alias: source.topics(), flow.target.alias: target.topics()}
    for config, topic in offset_syncs_places(flow):
        if topic in listed[config.alias]:
            return sync_histories(whole_topic(config, topic, 1))
    log.warning(
        "%s: no readable offset-syncs topic (grant Read on it if it exists): the comparison searches for its start",
        flow.name,
    )
    return {}


def changed(before: Left, after: Left) -> List[str]:
    """The partitions whose stored position changed between two reads, such as `orders-0`."""
    both = {**before.positions, **after.positions}
    moved = [at for at in both if before.positions.get(at) != after.positions.get(at)]
    return [f"{topic}-{partition}" for topic, partition in sorted(moved)]
