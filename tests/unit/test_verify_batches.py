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
from mirror_lib.verify.ranges import CopiedPartition, CopiedRange, copied_range, rest

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


def range_of(source: Log, remote: Log, runs: List[Tuple[int, int, int]], earliest: bool = True) -> CopiedRange:
    ends = [next((each[1].next_offset for each in reversed(log) if each[1]), 0) for log in (source, remote)]
    flat = array("q", [number for run in runs for number in run])
    known = CopiedPartition(
        *("orders", "A.orders", 0, flat, OffsetRange(0, ends[0]), OffsetRange(0, ends[1])),
        *(False, False, earliest, False),
    )
    return copied_range(known)


def compared(source: Log, remote: Log, copied: CopiedRange, size: int) -> Settled:
    found = [
        compare_batches(piece, reader(source, piece.source[0]), reader(remote, piece.remote[0]))
        for piece in pieces_of(0, copied, size)
    ]
    return settled(found, copied.runs.records)


LAYOUTS = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=12)


@given(LAYOUTS, st.integers(1, 40))
def test_equal_logs_are_settled_whole(layout: List[Tuple[int, int, int]], size: int) -> None:
    source, remote, runs = copy_of(layout)
    assert compared(source, remote, range_of(source, remote, runs), size) == Settled((), 0)


@given(LAYOUTS, st.integers(1, 40), st.data())
def test_batch_that_differs_stays_open(layout: List[Tuple[int, int, int]], size: int, data: st.DataObject) -> None:
    """Its records are within what is left, and what is left is not all where pieces are small."""
    source, remote, runs = copy_of(layout)
    number = data.draw(st.integers(0, len(runs) - 1))
    at = next(n for n, each in enumerate(remote) if each[1] and each[2] and each[1].base_offset == runs[number][1])
    remote[at] = entry(runs[number][1], runs[number][2], b"another")
    found = compared(source, remote, range_of(source, remote, runs), size)
    first = sum(run[2] for run in runs[:number])
    assert any(begin <= first and first + runs[number][2] <= end for begin, end in found.open)


@given(LAYOUTS, st.integers(1, 40), st.data())
def test_records_that_the_ledger_does_not_name_stay_open(
    layout: List[Tuple[int, int, int]], size: int, data: st.DataObject
) -> None:
    """Between two runs, on either side: nothing in the map says that they are there."""
    layout = [(4, 0, 0), *((records, before + 1, behind + 1) for records, before, behind in layout)]
    source, remote, runs = copy_of(layout)
    log = data.draw(st.sampled_from([source, remote]))
    places = [n for n, each in enumerate(log) if not each[2]]
    at = data.draw(st.sampled_from(places))
    header = log[at][1]
    assert header is not None
    log[at] = entry(header.base_offset, 1, b"stray")
    assert compared(source, remote, range_of(source, remote, runs), size).open


@given(LAYOUTS, st.integers(1, 40), st.integers(1, 3))
def test_records_behind_the_ledgers_end_are_counted(
    layout: List[Tuple[int, int, int]], size: int, behind: int
) -> None:
    source, remote, runs = copy_of(layout)
    end = runs[-1][1] + runs[-1][2]
    remote += [entry(end + 5 * n, 5, b"not entered yet") for n in range(behind)]
    assert compared(source, remote, range_of(source, remote, runs), size) == Settled((), 5 * behind)


@given(LAYOUTS, st.integers(1, 40), st.data())
def test_batch_split_by_the_ledger_stays_open(
    layout: List[Tuple[int, int, int]], size: int, data: st.DataObject
) -> None:
    """A run that ends within a batch: another row of the ledger may place the rest elsewhere."""
    source, remote, runs = copy_of([*layout, (4, 1, 1)])
    up, down, _ = runs[-1]
    runs = [*runs[:-1], (up, down, 2)]
    assert compared(source, remote, range_of(source, remote, runs), size).open


@given(LAYOUTS, st.data())
def test_what_is_left_is_compared_from_where_the_settled_ends(
    layout: List[Tuple[int, int, int]], data: st.DataObject
) -> None:
    source, remote, runs = copy_of(layout)
    copied = range_of(source, remote, runs)
    records = copied.runs.records
    first = data.draw(st.integers(0, records - 1))
    until = data.draw(st.integers(first + 1, records))
    part = rest(copied, first, until)
    places = [(up + n, down + n) for up, down, count in copied.runs for n in range(count)]
    told = [(up + n, down + n) for up, down, count in part.runs for n in range(count)]
    assert told == places[first:until]
    before = places[first - 1] if first else (copied.source.read_from - 1, copied.remote.read_from - 1)
    assert (part.source.read_from, part.remote.read_from) == (before[0] + 1, before[1] + 1)
    if until == records:
        assert (part.source.read_until, part.remote.read_until) == (copied.source.read_until, copied.remote.read_until)
    else:
        assert (part.source.read_until, part.remote.read_until) == (places[until - 1][0] + 1, places[until - 1][1] + 1)


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
