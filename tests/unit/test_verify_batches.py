"""What whole batches settle of a partition: any layout, any cuts, planted differences."""

from __future__ import annotations

from array import array
from typing import Any, List, Sequence, Tuple, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_lib.errors import BatchError
from mirror_lib.facts import OffsetRange
from mirror_lib.kafka.log_reader import LogEntries, entries
from mirror_lib.kafka.record_batch import read_header
from mirror_lib.verify.batches import Equal, Settled, compare_batches, pieces_of, settled
from mirror_lib.verify.ranges import CopiedPartition, CopiedRange, copied_range, part_of
from tests.unit.logs import LogBatch, Rec, batch_of, fetched, marker
from tests.unit.offset_histories import Triple


def reader(log: Sequence[LogBatch], start: int) -> LogEntries:
    """As a broker answers: from the batch that holds `start` on."""
    return cast(LogEntries, entries(fetched([batch for batch in log if batch.next > start])))


def copy_of(layout: List[Triple]) -> Tuple[List[LogBatch], List[LogBatch], List[Triple]]:
    """Both logs of batches of `(records, markers before it on the source, on the remote)`, and their runs."""
    source: List[LogBatch] = []
    remote: List[LogBatch] = []
    runs: List[Triple] = []
    up = down = 0
    for number, (records, before, behind) in enumerate(layout):
        source += [marker(up + n) for n in range(before)]
        remote += [marker(down + n) for n in range(behind)]
        up, down = up + before, down + behind
        recs = [Rec(b"batch %d" % number)] * records
        source.append(batch_of(up, recs, producer_id=7))
        remote.append(batch_of(down, recs, producer_id=900))
        runs.append((up, down, records))
        up, down = up + records, down + records
    return source, remote, runs


def range_of(
    source: List[LogBatch], remote: List[LogBatch], runs: List[Triple], starts: Tuple[int, int] = (0, 0)
) -> CopiedRange:
    ends = [log[-1].next if log else 0 for log in (source, remote)]
    logs = [OffsetRange(min(start, end), end) for start, end in zip(starts, ends)]
    flat = array("q", [number for run in runs for number in run])
    return copied_range(CopiedPartition("orders", "A.orders", 0, flat, logs[0], logs[1]))


def compared(source: List[LogBatch], remote: List[LogBatch], copied: CopiedRange, size: int) -> Settled:
    found = [
        compare_batches(piece, reader(source, piece.source[0]), reader(remote, piece.remote[0]))
        for piece in pieces_of(0, copied, size)
    ]
    return settled(found, copied.runs.records)


LAYOUTS = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=12)


@given(LAYOUTS, st.integers(1, 40), st.integers(0, 3))
def test_equal_logs_are_settled_whole_and_records_after_the_ledgers_end_are_counted(
    layout: List[Triple], size: int, more: int
) -> None:
    source, remote, runs = copy_of(layout)
    end = runs[-1][1] + runs[-1][2]
    remote += [batch_of(end + 5 * n, [Rec(b"not entered yet")] * 5) for n in range(more)]
    assert compared(source, remote, range_of(source, remote, runs), size) == Settled((), 5 * more)


Batches = List[Tuple[int, bytes]]


@st.composite
def damaged_copies(draw: st.DrawFn) -> Tuple[Batches, Batches, List[Triple], Tuple[int, int]]:
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
    runs: List[Triple] = []
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
    made: Tuple[Batches, Batches, List[Triple], Tuple[int, int]], size: int
) -> None:
    source, remote, runs, starts = made
    logs = [[batch_of(at, [Rec(bytes([n])) for n in payload]) for at, payload in log] for log in (source, remote)]
    copied = range_of(logs[0], logs[1], runs, starts)
    if not (copied.in_order and copied.runs.records):
        return
    found = compared(logs[0], logs[1], copied, size)
    settled_and_left = not found.tail and all(by_record(source, remote, part_of(copied, *each)) for each in found.open)
    assert settled_and_left == by_record(source, remote, copied)


def test_corrupt_batch_is_an_error() -> None:
    source, remote, runs = copy_of([(3, 0, 0)])
    raw = bytearray(remote[0].raw())
    raw[-1] ^= 1
    damaged: Any = iter([(memoryview(raw), read_header(raw), True)])
    (piece,) = pieces_of(0, range_of(source, remote, runs), 10)
    with pytest.raises(BatchError):
        compare_batches(piece, reader(source, 0), damaged)


def test_pieces_that_have_the_same_record_settle_nothing() -> None:
    assert settled([Equal(0, 6, 0), Equal(5, 10, 0)], 10) == Settled(((0, 10),), 0)


@given(LAYOUTS, st.data())
def test_what_is_left_is_compared_from_where_the_settled_ends(
    layout: List[Triple], data: st.DataObject
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
