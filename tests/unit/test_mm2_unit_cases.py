"""Cases of MirrorMaker's own unit tests, and its records in topics, byte for byte."""

from __future__ import annotations

from array import array
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

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
from mirror_lib.topics.policy import DefaultReplicationPolicy
from tests.lab.offset_sync import sync_bytes


def flow(source: str = "source", target: str = "target", **settings: Any) -> ReplicationFlow:
    return ReplicationFlow(ClusterConfig(source, {}), ClusterConfig(target, {}), **settings)


def topics(*names: str, partitions: int = 1) -> Dict[str, TopicDescription]:
    return {name: TopicDescription(name, f"id-{name}", partitions) for name in names}


# --- MirrorSourceConnectorTest: which topics are copied -----------------------------------------------------------


def test_search_for_cycles_ends_where_a_policy_names_no_upstream_topic() -> None:
    class Forgetful(DefaultReplicationPolicy):
        def upstream_topic(self, topic: str) -> Optional[str]:
            return None

    assert not Forgetful().is_cycle(".b", "source", "target")
    assert not Forgetful().is_cycle("other.target.b", "source", "target")
    assert Forgetful().is_cycle("target.b", "source", "target")


# --- MirrorCheckpointTaskTest and MirrorCheckpointConnectorTest: which positions are translated to what ------------


class FakeCluster:
    """A cluster that describes topics, groups and their offsets."""

    alias = "reported"

    def __init__(
        self, names: Sequence[str] = (), committed: Optional[Mapping[str, Mapping[TopicPartition, int]]] = None
    ) -> None:
        self.described = topics(*names, partitions=10)
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
    chosen = flow(topics=("t1", "t2"), groups_exclude=("g4",))
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


def test_groups_are_found_by_both_filters() -> None:
    maps = FlowMaps({**copied("t1", 0, 0, 0, 100), **copied("t2", 0, 0, 0, 100), **copied("t3", 0, 0, 0, 100)})
    groups = {
        "g1": {("t3", 0): 1, ("t2", 0): 2},
        "g2": {("t1", 0): 3, ("t2", 0): 4},
        "g3": {("t3", 0): 5},
        "g4": {("t1", 0): 6},
    }
    assert committed_to(groups, maps) == {
        "g1": {("source.t2", 0): 2},
        "g2": {("source.t1", 0): 3, ("source.t2", 0): 4},
    }


def test_partition_that_nothing_was_copied_of_is_told_nothing_of_and_the_others_are() -> None:
    # Neither a commit nor a checkpoint: both are made of decisions with an offset.
    groups = {"g1": {("t1", 0): 10, ("t1", 1): 0, ("t2", 0): 0}}
    maps = FlowMaps(copied("t1", 0, 3, 4, 7))
    assert committed_to(groups, maps) == {"g1": {("source.t1", 0): 11}}


# --- records, byte for byte ---------------------------------------------------------------------------------------


def golden(key: str, value: str) -> Tuple[bytes, bytes]:
    return bytes.fromhex(key), bytes.fromhex(value)


CHECKPOINT = Checkpoint("g1", "A.t", 3, 250, 201)
CHECKPOINT_BYTES = golden("0002 6731 0003 412e74 00000003", "0000 00000000000000fa 00000000000000c9 0000")
SYNC = PointSync("t", 3, 200, 200)
SYNC_BYTES = golden("0001 74 00000003", "00000000000000c8 00000000000000c8")


def test_checkpoint_has_the_bytes_of_mirrormaker() -> None:
    assert encode_checkpoint(CHECKPOINT) == CHECKPOINT_BYTES
    assert decode_checkpoint(*CHECKPOINT_BYTES) == CHECKPOINT


def test_offset_sync_has_the_bytes_of_mirrormaker() -> None:
    assert sync_bytes(SYNC) == SYNC_BYTES
    assert decode_offset_sync(*SYNC_BYTES) == SYNC


def test_heartbeat_has_the_bytes_of_mirrormaker() -> None:
    heartbeat, its_bytes = Heartbeat("A", "B", 1_700_000_000_000), golden("0001 41 0001 42", "0000 0000018bcfe56800")
    assert encode_heartbeat(heartbeat) == its_bytes


offsets = st.integers(-1, 2**63 - 1)
partitions = st.integers(0, 2**31 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(st.builds(Checkpoint, texts, texts, partitions, offsets, offsets, texts), st.binary(max_size=9))
def test_checkpoint_survives_the_way_there_and_back_whatever_follows_it(checkpoint: Checkpoint, more: bytes) -> None:
    key, value = encode_checkpoint(checkpoint)
    assert decode_checkpoint(key + more, value + more) == checkpoint


@given(st.builds(PointSync, texts, partitions, offsets, offsets), st.binary(max_size=9))
def test_offset_sync_survives_the_way_there_and_back_whatever_follows_it(sync: PointSync, more: bytes) -> None:
    key, value = sync_bytes(sync)
    assert decode_offset_sync(key + more, value + more) == sync


def test_checkpoint_of_another_version_is_refused() -> None:
    key, value = CHECKPOINT_BYTES
    with pytest.raises(StateError, match="a checkpoint of group g1 has version 1"):
        decode_checkpoint(key, b"\x00\x01" + value[2:])


@pytest.mark.parametrize(
    ("decode", "key", "value"), [(decode_checkpoint, *CHECKPOINT_BYTES), (decode_offset_sync, *SYNC_BYTES)]
)
def test_record_that_is_cut_off_is_refused(decode: Any, key: bytes, value: bytes) -> None:
    for pair in ((key[:kept], value) for kept in range(len(key))):
        with pytest.raises(StateError, match="truncated"):
            decode(*pair)
    for pair in ((key, value[:kept]) for kept in range(len(value))):
        with pytest.raises(StateError, match="truncated"):
            decode(*pair)


@pytest.mark.parametrize(
    ("key", "words"), [(b"\x00\x01\xff\x00\x00\x00\x03", "not UTF-8"), (b"\xff\xff\x00\x00\x00\x03", "truncated")]
)
def test_key_that_is_no_text_is_refused(key: bytes, words: str) -> None:
    with pytest.raises(StateError, match=words):
        decode_offset_sync(key, SYNC_BYTES[1])


def test_text_that_the_format_cannot_hold_is_refused() -> None:
    longest = "ü" * 16_383 + "u"
    assert decode_checkpoint(*encode_checkpoint(Checkpoint("g", "t", 0, 1, 1, longest))).metadata == longest
    with pytest.raises(StateError, match="a commit metadata of 32768 bytes does not fit"):
        encode_checkpoint(Checkpoint("g", "t", 0, 1, 1, "ü" * 16_384))
