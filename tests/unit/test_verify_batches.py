"""What whole batches settle of a partition: any layout, any cuts, planted differences."""

from __future__ import annotations

from array import array
from typing import List, Optional, Tuple, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_lib.errors import BatchError
from mirror_lib.facts import OffsetRange
from mirror_lib.kafka.log_reader import LogEntries
from mirror_lib.kafka.record_batch import CONTROL, BatchHeader, new_batch, read_header
from mirror_lib.verify.batches import Equal, Settled, compare_batches, pieces_of, settled
from mirror_lib.verify.ranges import CopiedPartition, CopiedRange, copied_range, part_of

Log = List[Tuple[memoryview, Optional[BatchHeader], bool]]


def batch(offset: int, count: int, payload: bytes, producer: int = 7, attributes: int = 0) -> bytes:
    head, body = new_batch(0, count, 5, 5 + count, producer, 0, 0, payload)
    found = bytearray(head + body)
    found[0:8] = offset.to_bytes(8, "big")
    if attributes:
        found[21:23] = attributes.to_bytes(2, "big")
    return bytes(found)


def entry(offset: int, count: int, payload: bytes, producer: int = 7) -> Tuple[memoryview, Optional[BatchHeader], bool]:
    raw = batch(offset, count, payload, producer)
    return memoryview(raw), read_header(raw), True


def marker(offset: int) -> Tuple[memoryview, Optional[BatchHeader], bool]:
    raw = batch(offset, 1, b"marker", attributes=CONTROL | 0x10)
    return memoryview(raw), read_header(raw), False


def reader(log: Log, start: int) -> LogEntries:
    """As a broker answers: from the batch that holds `start` on."""
    found = [each for each in log if each[1] is not None and each[1].next_offset > start]
    return cast(LogEntries, iter(found))


def copy_of(layout: List[Tuple[int, int, int]]) -> Tuple[Log, Log, List[Tuple[int, int, int]]]:
    """Both logs of batches of `(records, markers before it on the source, on the remote)`, and their runs."""
    source: Log = []
    remote: Log = []
    runs: List[Tuple[int, int, int]] = []
    up = down = 0
    for number, (records, before, behind) in enumerate(layout):
        source += [marker(up + n) for n in range(before)]
        remote += [marker(down + n) for n in range(behind)]
        up, down = up + before, down + behind
        payload = f"batch {number}".encode()
        source.append(entry(up, records, payload))
        remote.append(entry(down, records, payload, 900))
        runs.append((up, down, records))
        up, down = up + records, down + records
    return source, remote, runs


def range_of(source: Log, remote: Log, runs: List[Tuple[int, int, int]]) -> CopiedRange:
    logs = [OffsetRange(0, next((each[1].next_offset for each in log[::-1] if each[1]), 0)) for log in (source, remote)]
    flat = array("q", [number for run in runs for number in run])
    return copied_range(CopiedPartition("orders", "A.orders", 0, flat, logs[0], logs[1]))


def compared(source: Log, remote: Log, copied: CopiedRange, size: int) -> Settled:
    found = [
        compare_batches(piece, reader(source, piece.source[0]), reader(remote, piece.remote[0]))
        for piece in pieces_of(0, copied, size)
    ]
    return settled(found, copied.runs.records)


LAYOUTS = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=12)


@given(LAYOUTS, st.integers(1, 40), st.integers(0, 3))
def test_equal_logs_are_settled_whole_and_records_after_the_ledgers_end_are_counted(
    layout: List[Tuple[int, int, int]], size: int, more: int
) -> None:
    source, remote, runs = copy_of(layout)
    end = runs[-1][1] + runs[-1][2]
    remote += [entry(end + 5 * n, 5, b"not entered yet") for n in range(more)]
    assert compared(source, remote, range_of(source, remote, runs), size) == Settled((), 5 * more)


Batches = List[Tuple[int, bytes]]


@st.composite
def damaged_copies(draw: st.DrawFn) -> Tuple[Batches, Batches, List[Tuple[int, int, int]], Tuple[int, int]]:
    """Batches of both logs (offset, a byte for each record), what the ledger says, and where the logs begin. The copy
    has other batches, and may lack records, have more of them, or others than the ledger says."""
    records: List[Tuple[int, int]] = []
    source: Batches = []
    at = 0
    for payload in draw(st.lists(st.binary(min_size=1, max_size=5), min_size=1, max_size=6)):
        at += draw(st.integers(0, 1))
        source.append((at, payload))
        records += [(at + n, value) for n, value in enumerate(payload)]
        at += len(payload)
    skipped = draw(st.sets(st.integers(0, len(records) - 1), max_size=3))
    copied = [each for n, each in enumerate(records) if n not in skipped]
    remote: Batches = []
    runs: List[Tuple[int, int, int]] = []
    down = 0
    while copied:
        down += draw(st.integers(0, 1))
        # Often as the source has them, so that batches are the same.
        whole = next((p for offset, p in source if offset == copied[0][0]), b"")
        same = [value for _, value in copied[: len(whole)]] == list(whole) and draw(st.booleans())
        size = len(whole) if same else draw(st.integers(1, 5))
        taken, copied = copied[:size], copied[size:]
        for n, (offset, _) in enumerate(taken):
            runs.append((offset, down + n, 1))
        payload = bytes(value for _, value in taken)
        if draw(st.integers(0, 4)) == 0:
            payload = draw(st.binary(min_size=1, max_size=len(payload) + 1))
        remote.append((down, payload))
        down += max(len(payload), len(taken))
    starts = draw(st.integers(0, at)), draw(st.integers(0, down))
    return source, remote, runs, (starts[0] * draw(st.integers(0, 1)), starts[1] * draw(st.integers(0, 1)))


def by_record(source: Batches, remote: Batches, part: CopiedRange) -> bool:
    """Whether a part is equal, record by record, and nothing else is in its logs."""
    held = []
    for log, bounds in ((source, part.source), (remote, part.remote)):
        all_of_it = {offset + n: value for offset, payload in log for n, value in enumerate(payload)}
        held.append({at: each for at, each in all_of_it.items() if bounds.read_from <= at < bounds.read_until})
    pairs = [(up + n, down + n) for up, down, count in part.runs for n in range(count)]
    mapped = [held[0].keys() == {up for up, _ in pairs}, held[1].keys() == {down for _, down in pairs}]
    return all(mapped) and all(held[0][up] == held[1][down] for up, down in pairs)


@given(damaged_copies(), st.integers(1, 20))
def test_what_batches_settle_and_what_is_left_together_say_what_the_records_say(
    made: Tuple[Batches, Batches, List[Tuple[int, int, int]], Tuple[int, int]], size: int
) -> None:
    source, remote, runs, starts = made
    logs = [[entry(at, len(payload), payload) for at, payload in log] for log in (source, remote)]
    ends = [log[-1][0] + len(log[-1][1]) if log else 0 for log in (source, remote)]
    flat = array("q", [number for run in runs for number in run])
    bounds = [OffsetRange(min(start, end), end) for start, end in zip(starts, ends)]
    copied = copied_range(CopiedPartition("orders", "A.orders", 0, flat, bounds[0], bounds[1]))
    if not (copied.in_order and copied.runs.records):
        return
    found = compared(logs[0], logs[1], copied, size)
    settled_and_left = not found.tail and all(by_record(source, remote, part_of(copied, *each)) for each in found.open)
    assert settled_and_left == by_record(source, remote, copied)


def test_corrupt_batch_is_an_error() -> None:
    source, remote, runs = copy_of([(3, 0, 0)])
    raw = bytearray(remote[0][0])
    raw[-1] ^= 1
    remote[0] = (memoryview(bytes(raw)), remote[0][1], True)
    (piece,) = pieces_of(0, range_of(source, remote, runs), 10)
    with pytest.raises(BatchError):
        compare_batches(piece, reader(source, 0), reader(remote, 0))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([Equal(0, 5, 0), Equal(5, 10, 2)], Settled((), 2)),
        ([Equal(0, 6, 0), Equal(6, 10, 0)], Settled((), 0)),
        ([Equal(0, 10, 0), Equal(0, 0, 0)], Settled((), 0)),
        ([None, Equal(6, 10, 0)], Settled(((0, 6),), 0)),
        ([Equal(0, 5, 0), None], Settled(((5, 10),), 0)),
        ([Equal(0, 4, 0), Equal(6, 9, 0)], Settled(((4, 6), (9, 10)), 0)),
        ([Equal(0, 6, 0), Equal(5, 10, 0)], Settled(((0, 10),), 0)),
        ([None, None], Settled(((0, 10),), 0)),
    ],
)
def test_pieces_together(found: List[Optional[Equal]], expected: Settled) -> None:
    assert settled(found, 10) == expected


@given(LAYOUTS, st.data())
def test_what_is_left_is_compared_from_where_the_settled_ends(
    layout: List[Tuple[int, int, int]], data: st.DataObject
) -> None:
    source, remote, runs = copy_of(layout)
    copied = range_of(source, remote, runs)
    records = copied.runs.records
    first = data.draw(st.integers(0, records - 1))
    until = data.draw(st.integers(first + 1, records))
    part = part_of(copied, first, until)
    places = [(up + n, down + n) for up, down, count in copied.runs for n in range(count)]
    reported = [(up + n, down + n) for up, down, count in part.runs for n in range(count)]
    assert reported == places[first:until]
    before = places[first - 1] if first else (copied.source.read_from - 1, copied.remote.read_from - 1)
    assert (part.source.read_from, part.remote.read_from) == (before[0] + 1, before[1] + 1)
    if until == records:
        assert (part.source.read_until, part.remote.read_until) == (copied.source.read_until, copied.remote.read_until)
    else:
        assert (part.source.read_until, part.remote.read_until) == (places[until - 1][0] + 1, places[until - 1][1] + 1)
