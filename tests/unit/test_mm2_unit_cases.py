"""Cases of MirrorMaker's own unit tests, and its records in topics, byte for byte."""

from __future__ import annotations

from typing import Any

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
