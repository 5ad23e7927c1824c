"""The part of a partition that is compared, and what whole batches settle of it: any layout, cuts, differences."""

from __future__ import annotations

from array import array
from dataclasses import replace
from itertools import chain
from typing import Any, List, Sequence, Tuple, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_lib.cli import command_line
from mirror_lib.commands.verify import scope_of
from mirror_lib.errors import BatchError, ConfigError
from mirror_lib.facts import OffsetRange
from mirror_lib.kafka.log_reader import LogEntries, entries
from mirror_lib.kafka.record_batch import read_header
from mirror_lib.verify.batches import Equal, Settled, compare_batches, pieces_of, settled
from mirror_lib.verify.ranges import EVERYTHING, CopiedPartition, CopiedRange, Scope, a_few, copied_range, part_of
from tests.unit.logs import LogBatch, Rec, batch_of, fetched
from tests.unit.offset_histories import Triple


def reader(log: Sequence[LogBatch], start: int) -> LogEntries:
    """As a broker answers: from the batch that holds `start` on."""
    return cast(LogEntries, entries(fetched([batch for batch in log if batch.next > start])))


def ranged(
    *runs: Tuple[int, int, int], source: Tuple[int, int] = (0, 100), remote: Tuple[int, int] = (0, 100), **more: Any
) -> CopiedRange:
    logs = (OffsetRange(*source), OffsetRange(*remote))
    return copied_range(CopiedPartition("t", "r", 0, array("q", chain.from_iterable(runs)), *logs, **more))


def range_of(
    source: List[LogBatch], remote: List[LogBatch], runs: List[Triple], starts: Tuple[int, int] = (0, 0)
) -> CopiedRange:
    ends = [log[-1].next if log else 0 for log in (source, remote)]
    held = [(min(start, end), end) for start, end in zip(starts, ends)]
    return ranged(*runs, source=held[0], remote=held[1])


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
    pieces = pieces_of(0, copied, size)
    alone = [compare_batches(at, reader(logs[0], at.source[0]), reader(logs[1], at.remote[0])) for at in pieces]
    found = settled(alone, copied.runs.records)
    settled_and_left = not found.tail and all(by_record(source, remote, part_of(copied, *each)) for each in found.open)
    assert settled_and_left == by_record(source, remote, copied)


def test_corrupt_batch_is_an_error() -> None:
    log = [batch_of(0, [Rec(b"v")] * 3)]
    raw = bytearray(log[0].raw())
    raw[-1] ^= 1
    damaged: Any = iter([(memoryview(raw), read_header(raw), True)])
    (piece,) = pieces_of(0, range_of(log, log, [(0, 0, 3)]), 10)
    with pytest.raises(BatchError):
        compare_batches(piece, reader(log, 0), damaged)


def test_pieces_that_have_the_same_record_settle_nothing() -> None:
    assert settled([Equal(0, 6, 0), Equal(5, 10, 0)], 10) == Settled(((0, 10),), 0)


def test_logs_that_begin_behind_the_ledger_are_told_for_their_records_have_other_ranks() -> None:
    assert ranged((0, 0, 50), source=(60, 100)).cut_behind and ranged((0, 0, 50), remote=(51, 100)).cut_behind
    assert not ranged((0, 0, 50), source=(50, 100), remote=(50, 100)).cut_behind
    assert not ranged((0, 0, 50), source=(0, 40)).cut_behind and not ranged(source=(60, 100)).cut_behind


def test_tail_of_a_partition_without_rows_is_not_compared_from_a_later_time() -> None:
    assert not ranged(source=(0, 10), remote=(0, 3)).cut_behind
    assert ranged(source=(0, 10), remote=(0, 3), since=2).cut_behind


def scope(*options: str) -> Scope:
    return scope_of(command_line().parse_args(["verify", "mirror.yaml", *options]))


def test_command_without_a_time_compares_everything() -> None:
    assert replace(scope(), seed=0) == EVERYTHING
    assert replace(scope("--since", "1970-01-01T00:00:01Z"), seed=0) == Scope(since=1000)
    with pytest.raises(ConfigError, match="--since"):
        scope("--since", "yesterday")


def test_each_comparison_reads_other_records_one_by_one() -> None:
    copied = ranged((0, 0, 100_000), source=(0, 100_000), remote=(0, 100_000))
    few = {a_few(copied, seed).runs[0] for seed in range(20)}
    assert {run.record_count for run in few} == {1000} and len(few) == 20
    assert len({scope().seed for _ in range(20)}) > 1
