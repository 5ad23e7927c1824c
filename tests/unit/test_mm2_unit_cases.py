"""Cases of MirrorMaker's own unit tests, and its records in topics, byte for byte."""

from __future__ import annotations

from array import array
from typing import Any, Dict, Mapping, Optional, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.errors import StateError
from mirror_lib.facts import CommittedOffset, OffsetRange, TopicDescription, TopicPartition
from mirror_lib.groups.decisions import Known, PositionsAhead, decide
from mirror_lib.groups.map import FlowMaps
from mirror_lib.groups.mm2_format import (
    Checkpoint,
    Heartbeat,
    PointSync,
    decode_checkpoint,
    decode_offset_sync,
    encode_checkpoint,
    encode_heartbeat,
)
from mirror_lib.groups.survey import group_names, pairs_of, survey
from mirror_lib.groups.translation import TO_DOWNSTREAM
from mirror_lib.ledger.records import PartitionKey
from tests.lab.offset_sync import sync_bytes


class FakeCluster:
    """A cluster that describes topics, groups and their offsets."""

    alias = "reported"

    def __init__(
        self, names: Sequence[str] = (), committed: Optional[Mapping[str, Mapping[TopicPartition, int]]] = None
    ) -> None:
        self.described = {name: TopicDescription(name, f"id-{name}", 10) for name in names}
        self.committed = committed or {}

    def topics(self) -> Mapping[str, TopicDescription]:
        return self.described

    def group_names(self) -> Sequence[str]:
        return sorted(self.committed)

    def describe_groups(self, groups: Sequence[str]) -> Mapping[str, Any]:
        return {}

    def committed_offsets(self, groups: Sequence[str]) -> Mapping[str, Mapping[TopicPartition, CommittedOffset]]:
        return {g: {at: CommittedOffset(to) for at, to in self.committed.get(g, {}).items()} for g in groups}

    def offsets(self, partitions: Sequence[TopicPartition], isolation_level: str) -> Mapping[Any, OffsetRange]:
        return {at: OffsetRange(0, 1000) for at in partitions}


def committed_to(groups: Mapping[str, Mapping[TopicPartition, int]], maps: FlowMaps) -> Dict[str, Dict[Any, int]]:
    """The offsets that would be committed on the target, by group and remote partition."""
    here, there = FakeCluster(["t1", "t2", "t3"], groups), FakeCluster(["source.t1", "source.t2", "source.t3"])
    source, target = ClusterConfig("source", {}), ClusterConfig("target", {})
    chosen = ReplicationFlow(source, target, topics=("t1", "t2"), groups_exclude=("g4",))
    pairs = pairs_of(chosen, (chosen,), here.topics(), there.topics(), TO_DOWNSTREAM)
    both: Any = (here, there)
    found = survey(pairs, group_names(chosen, both[0]), *both)
    moves: Dict[str, Dict[Any, int]] = {}
    for each in decide(found, Known(maps, {}, "target"), PositionsAhead()):
        if each.translation.new_offset is not None:
            moves.setdefault(each.group, {})[each.there] = each.translation.new_offset
    return moves


def copied(topic: str, partition: int, *rows: int) -> Dict[Any, Any]:
    return {PartitionKey(f"id-{topic}", f"id-source.{topic}", topic, partition): array("q", rows)}


def test_groups_are_found_by_both_filters_and_partitions_without_copied_records_are_left_out() -> None:
    maps = FlowMaps({**copied("t1", 0, 0, 0, 100), **copied("t2", 0, 0, 0, 100), **copied("t3", 0, 0, 0, 100)})
    groups = {
        "g1": {("t3", 0): 1, ("t2", 0): 2},
        "g2": {("t1", 0): 3, ("t2", 0): 4},
        "g3": {("t3", 0): 5},
        "g4": {("t1", 0): 6},
        "g5": {("t1", 0): 10, ("t1", 1): 0},
    }
    assert committed_to(groups, maps) == {
        "g1": {("source.t2", 0): 2},
        "g2": {("source.t1", 0): 3, ("source.t2", 0): 4},
        "g5": {("source.t1", 0): 10},
    }


CHECKPOINT, SYNC = Checkpoint("g1", "A.t", 3, 250, 201), PointSync("t", 3, 200, 200)
CHECKPOINT_BYTES = tuple(
    map(bytes.fromhex, ("0002 6731 0003 412e74 00000003", "0000 00000000000000fa 00000000000000c9 0000"))
)
SYNC_BYTES = tuple(map(bytes.fromhex, ("0001 74 00000003", "00000000000000c8 00000000000000c8")))
HEARTBEAT_BYTES = tuple(map(bytes.fromhex, ("0001 41 0001 42", "0000 0000018bcfe56800")))


def test_records_have_the_bytes_of_mirrormaker() -> None:
    assert encode_checkpoint(CHECKPOINT) == CHECKPOINT_BYTES and decode_checkpoint(*CHECKPOINT_BYTES) == CHECKPOINT
    assert sync_bytes(SYNC) == SYNC_BYTES and decode_offset_sync(*SYNC_BYTES) == SYNC
    assert encode_heartbeat(Heartbeat("A", "B", 1_700_000_000_000)) == HEARTBEAT_BYTES


offsets = st.integers(-1, 2**63 - 1)
partitions = st.integers(0, 2**31 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


CHECKPOINTS = st.builds(Checkpoint, texts, texts, partitions, offsets, offsets, texts)
SYNCS = st.builds(PointSync, texts, partitions, offsets, offsets)


@given(CHECKPOINTS, SYNCS, st.binary(max_size=9))
def test_records_are_read_back_with_any_bytes_after_them(checkpoint: Checkpoint, sync: PointSync, more: bytes) -> None:
    key, value = encode_checkpoint(checkpoint)
    assert decode_checkpoint(key + more, value + more) == checkpoint
    key, value = sync_bytes(sync)
    assert decode_offset_sync(key + more, value + more) == sync


@pytest.mark.parametrize(
    ("decode", "key", "value", "words"),
    [
        (decode_checkpoint, CHECKPOINT_BYTES[0], b"\0\1" + CHECKPOINT_BYTES[1][2:], "group g1 has version 1"),
        (decode_offset_sync, b"\x00\x01\xff\x00\x00\x00\x03", SYNC_BYTES[1], "not UTF-8"),
        (decode_offset_sync, b"\xff\xff\x00\x00\x00\x03", SYNC_BYTES[1], "truncated"),
        *((decode, key[:cut], value, "truncated")
          for decode, (key, value) in ((decode_checkpoint, CHECKPOINT_BYTES), (decode_offset_sync, SYNC_BYTES))
          for cut in range(len(key))),
        *((decode, key, value[:cut], "truncated")
          for decode, (key, value) in ((decode_checkpoint, CHECKPOINT_BYTES), (decode_offset_sync, SYNC_BYTES))
          for cut in range(len(value))),
    ],
)  # fmt: skip
def test_record_that_cannot_be_read_is_refused(decode: Any, key: bytes, value: bytes, words: str) -> None:
    with pytest.raises(StateError, match=words):
        decode(key, value)


def test_text_that_the_format_cannot_hold_is_refused() -> None:
    longest = "ü" * 16_383 + "u"
    assert decode_checkpoint(*encode_checkpoint(Checkpoint("g", "t", 0, 1, 1, longest))).metadata == longest
    with pytest.raises(StateError, match="a commit metadata of 32768 bytes does not fit"):
        encode_checkpoint(Checkpoint("g", "t", 0, 1, 1, "ü" * 16_384))
