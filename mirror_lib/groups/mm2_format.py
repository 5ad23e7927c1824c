"""The bytes of checkpoints, offset syncs and heartbeats in MirrorMaker 2's internal topics (KIP-382). Pure.

Integers are big-endian; a string is a 16-bit length in bytes and UTF-8, never null. Records go to partition 0. A
tombstone is never written: MirrorMaker's readers fail on one. Bytes after a known layout are ignored, as
MirrorMaker ignores them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Tuple

from mirror_lib.errors import StateError

CHECKPOINT_VERSION = 0
HEARTBEAT_VERSION = 0
LONGEST_STRING = 32_767
_NOT_OURS = "something else writes to this topic; give it a topic of its own or remove what it wrote"


@dataclass(frozen=True)
class Checkpoint:
    """A group's position on both sides: `upstream_offset` on the source is `downstream_offset` on the remote topic.

    `topic` is the remote topic's name. `metadata` is what the group committed with the offset, `""` for nothing.
    """

    group: str
    topic: str
    partition: int
    upstream_offset: int
    downstream_offset: int
    metadata: str = ""


@dataclass(frozen=True)
class PointSync:
    """MirrorMaker's offset sync: the source's record at `upstream_offset` is at `downstream_offset` of the remote
    log."""

    topic: str
    partition: int
    upstream_offset: int
    downstream_offset: int


@dataclass(frozen=True)
class Heartbeat:
    """A sign of life of what copies from `source` to `target`, both aliases. `timestamp` is in ms since 1970."""

    source: str
    target: str
    timestamp: int


def encode_checkpoint(checkpoint: Checkpoint) -> Tuple[bytes, bytes]:
    """Key and value for the checkpoints topic. StateError where a text is longer than the format can hold."""
    key = _string("group", checkpoint.group) + _string("topic", checkpoint.topic)
    offsets = struct.pack(">hqq", CHECKPOINT_VERSION, checkpoint.upstream_offset, checkpoint.downstream_offset)
    return key + struct.pack(">i", checkpoint.partition), offsets + _string("commit metadata", checkpoint.metadata)


def decode_checkpoint(key: bytes, value: bytes) -> Checkpoint:
    """What a record of the checkpoints topic says. StateError where it is cut off or has another version."""
    group, at = _read_string(key, 0)
    topic, at = _read_string(key, at)
    (version,) = _unpack(">h", value, 0)
    if version != CHECKPOINT_VERSION:
        raise StateError(
            f"a checkpoint of group {group} has version {version}, and only {CHECKPOINT_VERSION} is known", _NOT_OURS
        )
    (partition,), (upstream, downstream) = _unpack(">i", key, at), _unpack(">qq", value, 2)
    metadata, _ = _read_string(value, 18)
    return Checkpoint(group, topic, partition, upstream, downstream, metadata)


def decode_offset_sync(key: bytes, value: bytes) -> PointSync:
    """What a record of the offset syncs topic says. StateError where it is cut off."""
    topic, at = _read_string(key, 0)
    (partition,), (upstream, downstream) = _unpack(">i", key, at), _unpack(">qq", value, 0)
    return PointSync(topic, partition, upstream, downstream)


def encode_heartbeat(heartbeat: Heartbeat) -> Tuple[bytes, bytes]:
    key = _string("cluster alias", heartbeat.source) + _string("cluster alias", heartbeat.target)
    return key, struct.pack(">hq", HEARTBEAT_VERSION, heartbeat.timestamp)


def _string(what: str, text: str) -> bytes:
    data = text.encode("utf-8")
    if len(data) > LONGEST_STRING:
        raise StateError(
            f"a {what} of {len(data)} bytes does not fit into a record of MirrorMaker's format",
            f"it holds {LONGEST_STRING} bytes; leave this group out, or switch emit.checkpoints.enabled off",
        )
    return struct.pack(">h", len(data)) + data


def _read_string(data: bytes, at: int) -> Tuple[str, int]:
    (length,) = _unpack(">h", data, at)
    end = at + 2 + length
    if length < 0 or end > len(data):
        raise _cut_off()
    try:
        return data[at + 2:end].decode("utf-8"), end
    except UnicodeDecodeError as error:
        raise StateError("a record of MirrorMaker's format holds a text that is not UTF-8", _NOT_OURS) from error


def _unpack(layout: str, data: bytes, at: int) -> Tuple[int, ...]:
    try:
        return struct.unpack_from(layout, data, at)
    except struct.error as error:
        raise _cut_off() from error


def _cut_off() -> StateError:
    return StateError("a record of MirrorMaker's format is truncated", _NOT_OURS)
