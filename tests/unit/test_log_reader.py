"""One answer of a broker is no proof: what its reader demands before it believes that a log ends."""

from __future__ import annotations

import time
from itertools import islice
from typing import Dict, List, cast

import pytest

from mirror_lib.kafka import log_reader
from mirror_lib.kafka.connection import Disconnected, LogClient
from mirror_lib.kafka.fetcher import EMPTY_ANSWERS, KNOWS_NEAREST, READ_UNCOMMITTED
from mirror_lib.kafka.log_reader import LogEntries
from mirror_lib.kafka.wire import FetchAnswer
from mirror_lib.ledger.records import Position
from mirror_lib.replication.reconcile import Records, reconcile
from tests.unit.leader import PARTITION, Leader, fetch_answer
from tests.unit.logs import Rec, batch_of, marker
from tests.unit.test_legacy import Row, message, wrapper

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


@pytest.mark.parametrize(
    ("empty", "gap_from", "found"),
    [
        *((empty, END, [0, 3]) for empty in ([], [0], [1], [0, 1], [0, 3])),
        # Offsets are without a record after as many empty answers as the fetcher demands.
        ([], 3, [0]),
        (list(range(EMPTY_ANSWERS)), END, []),
    ],
)
def test_records_after_an_empty_answer_are_read(empty: List[int], gap_from: int, found: List[int]) -> None:
    assert read(empty, gap_from) == found


@pytest.mark.parametrize("throttle_ms", [0, 1000], ids=["an error alone", "throttled for ever"])
def test_answers_without_the_partition_are_not_the_end_of_the_log(
    throttle_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "THROTTLED_SECONDS", 0.1)
    until = time.monotonic() + 5

    def answer(position: int, version: int) -> FetchAnswer:
        assert time.monotonic() < until, "the reader asks for ever"
        return FetchAnswer(throttle_time_ms=throttle_ms, error_code=0 if throttle_ms else -1, responses=[])

    with pytest.raises(Disconnected):
        next(LogEntries(cast(LogClient, Leader(answer)), PARTITION, 0, READ_UNCOMMITTED))


ROWS: List[Row] = [(1_000 + number, b"k", b"value %d" % (number % 2)) for number in range(7)]
# By the last offset of each entry, as brokers find them; every answer holds one.
OLD: Dict[int, bytes] = {
    0: message(0, 1, 0, ROWS[0]),
    1: message(1, 1, 0, ROWS[1]),
    4: wrapper(4, 1, 1, b"".join(message(number, 1, 0, ROWS[2 + number]) for number in range(3))),
    6: wrapper(6, 0, 1, b"".join(message(number, 0, 0, ROWS[number]) for number in (5, 6))),
}


def entries_of(log: Dict[int, bytes]) -> LogEntries:
    end = max(log) + 1

    def answer(position: int, version: int) -> FetchAnswer:
        assert version < KNOWS_NEAREST  # a later one may be sent to another replica
        return fetch_answer(version, end, next((raw for last, raw in log.items() if last >= position), b""))

    return LogEntries(Leader(answer), PARTITION, 0, READ_UNCOMMITTED)  # type: ignore[arg-type]


def test_messages_of_the_old_formats_are_each_read_once() -> None:
    assert [bytes(raw) for raw, _, _ in islice(entries_of(OLD), 20)] == list(OLD.values())


def test_what_a_killed_attempt_wrote_of_old_messages_is_found() -> None:
    copied = [Rec(value, key, timestamp if number < 5 else -1) for number, (timestamp, key, value) in enumerate(ROWS)]
    remote = entries_of({4: batch_of(0, copied[:5]).raw(), 6: batch_of(5, copied[5:]).raw(), 7: marker(7).raw()})
    source = entries_of(OLD)
    logs = Records(source, 0), Records(remote, 0)
    found = reconcile(*logs, "A.orders-0", Position(0, 0), lambda: source.end)
    assert sum(match.record_count for match in found) == len(ROWS)
    assert remote.end == len(ROWS) + 1
