"""Which offsets after the ledger's end hold only markers."""

from __future__ import annotations

from typing import Sequence

import pytest

from mirror_lib.kafka.log_reader import markers_until
from mirror_lib.kafka.wire import FetchAnswer
from tests.unit.leader import PARTITION, Leader, fetch_answer
from tests.unit.logs import TRANSACTIONAL, LogBatch, Rec, batch_of, marker

DATA = batch_of(12, [Rec(b"v"), Rec(b"w")], producer_id=7)
ABORTED = batch_of(10, [Rec(b"v")], attributes=TRANSACTIONAL, producer_id=7)


def leader_of(batches: Sequence[LogBatch], end: int) -> Leader:
    """A log of these batches, one with each answer."""

    def answer(position: int, version: int) -> FetchAnswer:
        following = [batch.raw() for batch in batches if batch.next > position]
        return fetch_answer(version, end, b"".join(following[:1]))

    return Leader(answer)


@pytest.mark.parametrize(
    ("batches", "log_end", "until"),
    [
        pytest.param([marker(10), marker(11)], 12, 12, id="markers"),
        pytest.param([marker(10), marker(11), marker(12)], 13, 12, id="more-markers-than-the-group-has-read"),
        pytest.param([marker(10), marker(11), DATA], 14, 12, id="a-record-that-the-group-has-not-read"),
        pytest.param([marker(10), batch_of(11, [Rec(b"v")])], 12, 11, id="a-record"),
        pytest.param([batch_of(10, [Rec(b"v")]), marker(11)], 12, 10, id="a-record-before-a-marker"),
        pytest.param([ABORTED, marker(11)], 12, 10, id="an-aborted-record"),
        pytest.param([marker(10), batch_of(11, [Rec(b"v")]).without([11])], 12, 11, id="a-record-that-was-compacted"),
        pytest.param([marker(11)], 12, 10, id="an-offset-that-the-log-does-not-hold"),
        pytest.param([marker(10)], 12, 11, id="an-end-that-the-log-does-not-hold"),
        pytest.param([marker(10)], 11, 11, id="a-log-that-ends-before-the-group"),
        pytest.param([], 10, 10, id="nothing"),
    ],
)
def test_markers_end_where_anything_else_may_have_been(batches: Sequence[LogBatch], log_end: int, until: int) -> None:
    assert markers_until(leader_of(batches, log_end), PARTITION, 10, 12) == until  # type: ignore[arg-type]
