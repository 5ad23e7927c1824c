"""One answer of a broker is no proof: what the reader of a log demands before it believes that a log ends."""

from __future__ import annotations

import time
from typing import List, cast

import pytest

from mirror_lib.kafka import log_reader
from mirror_lib.kafka.connection import Disconnected, LogClient
from mirror_lib.kafka.fetcher import EMPTY_ANSWERS, READ_UNCOMMITTED
from mirror_lib.kafka.log_reader import LogEntries
from mirror_lib.kafka.wire import FetchAnswer
from tests.unit.leader import PARTITION, Leader, fetch_answer
from tests.unit.logs import Rec, batch_of

END = 6
LOG = [batch_of(0, [Rec(b"a")] * 3), batch_of(3, [Rec(b"b")] * 3)]


def read(empty: List[int], gap_from: int = END) -> List[int]:
    """Base offsets that are read of a log where the fetches with the numbers in `empty` are answered without data, and
    which has no record from `gap_from` on. The end is right in every answer."""
    asked: List[int] = []

    def answer(position: int, version: int) -> FetchAnswer:
        asked.append(position)
        here = [each for each in LOG if each.base <= position < each.next and each.base < gap_from]
        data = b"" if len(asked) - 1 in empty or not here else here[0].raw()
        return fetch_answer(version, END, data)

    log = LogEntries(cast(LogClient, Leader(answer)), PARTITION, 0, READ_UNCOMMITTED)
    found = [header.base_offset for _, header, _ in log if header is not None]
    assert log.end == END
    return found


@pytest.mark.parametrize("empty", [[], [0], [1], [0, 1], [0, 3]])
def test_records_after_an_empty_answer_are_read(empty: List[int]) -> None:
    assert read(empty) == [0, 3]


def test_offsets_without_a_record_are_believed_after_as_many_answers_as_the_fetcher_demands() -> None:
    assert read([], gap_from=3) == [0]
    assert read(list(range(EMPTY_ANSWERS))) == []


def test_broker_that_never_stops_throttling_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "THROTTLED_SECONDS", 0.1)
    until = time.monotonic() + 5

    def answer(position: int, version: int) -> FetchAnswer:
        assert time.monotonic() < until, "the reader asks for ever"
        return FetchAnswer(throttle_time_ms=1000, error_code=0, session_id=0, responses=[])

    with pytest.raises(Disconnected):
        next(LogEntries(cast(LogClient, Leader(answer)), PARTITION, 0, READ_UNCOMMITTED))
