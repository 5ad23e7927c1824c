"""MirrorMaker 2's records byte by byte: what is written is what its readers read, and what they wrote is read here."""

from __future__ import annotations

from typing import Any, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_lib.errors import StateError
from mirror_lib.groups.mm2_format import (
    Checkpoint,
    Heartbeat,
    PointSync,
    decode_checkpoint,
    decode_offset_sync,
    encode_checkpoint,
    encode_heartbeat,
)
from tests.lab.offset_sync import sync_bytes


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
