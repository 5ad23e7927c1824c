"""What MirrorMaker 2's own readers make of the records that are emitted for them: no one is led past a record."""

from __future__ import annotations

import pytest

from mirror_lib.facts import CommittedOffset
from mirror_lib.groups.mm2_format import Checkpoint, encode_checkpoint
from mirror_lib.groups.mm2_topics import OURS, last_checkpoints, new_checkpoints, synced_by
from mirror_lib.kafka.record_batch import Record, encode_varint
from mirror_lib.kafka.reencoder import NO_HEADERS


def checkpoint(upstream: int, downstream: int, metadata: str = "", group: str = "g") -> Checkpoint:
    return Checkpoint(group, "A.orders", 0, upstream, downstream, metadata)


def record(made: Checkpoint, headers: bytes) -> Record:
    parts = (part for each in encode_checkpoint(made) for part in (encode_varint(len(each)), each))
    return Record(0, 0, b"".join(parts) + headers)


def test_every_checkpoint_of_mirrormaker_names_an_offset_that_it_may_have_committed_and_none_of_our_own_does() -> None:
    older, newest, ours = checkpoint(250, 201), checkpoint(260, 205, "m"), checkpoint(270, 210)
    found = synced_by([record(older, NO_HEADERS), record(newest, NO_HEADERS), record(ours, OURS)])
    assert found == {("g", "A.orders", 0, CommittedOffset(201)), ("g", "A.orders", 0, CommittedOffset(205, "m"))}


@pytest.mark.parametrize(
    ("now", "emitted"),
    [
        pytest.param(checkpoint(250, 201), False, id="the same again"),
        pytest.param(checkpoint(260, 201), False, id="went on over records that do not exist downstream"),
        pytest.param(checkpoint(250, 205), True, id="advanced downstream"),
        pytest.param(checkpoint(249, 200), True, id="reset to an earlier offset"),
        pytest.param(checkpoint(250, 199), True, id="an earlier checkpoint is no longer true"),
        pytest.param(checkpoint(260, 199), True, id="an earlier checkpoint would pass records"),
        pytest.param(checkpoint(10, 10, group="other"), True, id="first of another group"),
    ],
)
def test_checkpoint_is_emitted_when_it_says_something_new(now: Checkpoint, emitted: bool) -> None:
    last = last_checkpoints(dict([encode_checkpoint(checkpoint(250, 201))]))
    new = new_checkpoints(last, [now])
    assert list(new.values()) == ([now] if emitted else [])
    assert new_checkpoints({**last, **new}, [now]) == {}
