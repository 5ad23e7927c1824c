"""After an interruption each row is found on the remote log or appended, exactly once, wherever passes end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import List, Optional, Sequence, Set, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirror_lib.errors import RefusedError
from mirror_lib.log.batch import Record
from mirror_lib.log.reencode import read_records
from mirror_lib.log.visible import entries
from mirror_lib.records.remainder import Remainder
from mirror_lib.replicate.log_records import Records
from mirror_lib.replicate.partition import PartitionCopy
from tests.unit.logs import LogBatch, Rec, batch_of, fetched, marker, task_of


@dataclass
class Log:
    """What a reader of the remote log has learned of it."""

    end: int
    start: int = 0
    expired: bool = False


def rows_of(contents: Sequence[int]) -> List[Record]:
    """Rows as a flow gives them; only their contents tell them apart, and some are alike."""
    return read_records(batch_of(0, [Rec(b"%d" % content) for content in contents]).raw()) if contents else []


def remote_log(contents: Sequence[int], markers: Set[int], batch: int) -> Tuple[List[LogBatch], List[int]]:
    """These records as an interrupted attempt left them, with fences before some; and where each of them lies."""
    log: List[LogBatch] = []
    offsets: List[int] = []
    at = 0
    for first in range(0, len(contents), batch):
        if first in markers:
            log.append(marker(at))
            at += 1
        part = contents[first : first + batch]
        log.append(batch_of(at, [Rec(b"%d" % content) for content in part]))
        offsets += range(at, at + len(part))
        at += len(part)
    return [*log, marker(at)], offsets


def opened(
    log: Sequence[LogBatch], repeatable: bool = True, at: Tuple[int, int] = (0, 0)
) -> Tuple[PartitionCopy, Remainder]:
    """A pass that begins `at` these upstream and downstream offsets."""
    copy = PartitionCopy(replace(task_of(), upstream_offset=at[0], downstream_offset=at[1]))
    written = Records(entries(fetched(log)), at[1])
    return copy, Remainder(copy, Log(log[-1].next), written, repeatable)


def passed(remainder: Remainder, rows: Sequence[Record], cuts: Sequence[int]) -> List[Record]:
    """Give the rows in pieces; what is left to append."""
    rest: List[Record] = []
    bounds = [0, *sorted(cut for cut in cuts if cut < len(rows)), len(rows)]
    for start, end in zip(bounds, bounds[1:]):
        rest += remainder.compare(rows[start:end]) if remainder.left else rows[start:end]
    return rest + (remainder.end() if remainder.left else [])


CONTENTS = st.lists(st.integers(0, 3), min_size=1, max_size=30)


@settings(max_examples=300, deadline=None)
@given(CONTENTS, st.integers(0, 30), st.sets(st.integers(0, 30)), st.integers(1, 7), st.lists(st.integers(0, 30)))
def test_what_was_written_is_found_and_the_rest_is_left(
    contents: List[int], written: int, markers: Set[int], batch: int, cuts: List[int]
) -> None:
    rows, written = rows_of(contents), min(written, len(contents))
    log, offsets = remote_log(contents[:written], markers, batch)
    copy, remainder = opened(log)
    rest = passed(remainder, rows, cuts)
    assert [row.offset for row in rest] == list(range(written, len(contents)))
    assert not remainder.left and copy.downstream == log[-1].next
    told = [(s.upstream_offset + i, s.downstream_offset + i) for s in copy.syncs for i in range(s.record_count)]
    assert told == list(enumerate(offsets))


@settings(max_examples=100, deadline=None)
@given(CONTENTS, st.integers(1, 30), st.integers(0, 29))
def test_rows_that_end_before_what_was_written_leave_the_rest_of_it(
    contents: List[int], batch: int, given_rows: int
) -> None:
    rows = rows_of(contents)[: min(given_rows, len(contents) - 1)]
    log, offsets = remote_log(contents, set(), batch)
    copy, remainder = opened(log)
    assert passed(remainder, rows, []) == []
    assert remainder.left and copy.downstream == offsets[len(rows) - 1] + 1 if rows else remainder.left


@settings(max_examples=200, deadline=None)
@given(st.integers(2, 30), st.sets(st.integers(0, 28)), st.integers(1, 7), st.lists(st.integers(0, 30)))
def test_records_that_compaction_took_meanwhile_are_stepped_over(
    count: int, gone: Set[int], batch: int, cuts: List[int]
) -> None:
    contents = list(range(count))  # all of them unlike, else nobody could tell
    log, offsets = remote_log(contents, set(), batch)
    gone = {n for n in gone if n < count - 1}
    left = [each.without({offsets[n] for n in gone}) for each in log]
    copy, remainder = opened(left)
    assert passed(remainder, rows_of(contents), cuts) == []
    told = {s.upstream_offset + i: s.downstream_offset + i for s in copy.syncs for i in range(s.record_count)}
    assert told == {n: offsets[n] for n in range(count) if n not in gone}


@settings(max_examples=200, deadline=None)
@given(st.integers(2, 30), st.sets(st.integers(0, 28)), st.integers(1, 7), st.integers(1, 29))
def test_passes_may_end_within_what_compaction_took(count: int, gone: Set[int], batch: int, first_pass: int) -> None:
    contents, first_pass = list(range(count)), min(first_pass, count - 1)
    log, offsets = remote_log(contents, set(), batch)
    gone = {n for n in gone if n < count - 1}
    left = [each.without({offsets[n] for n in gone}) for each in log]
    rows = rows_of(contents)
    copy, remainder = opened(left)
    assert passed(remainder, rows[:first_pass], []) == [] and remainder.left
    second, rest = opened(left, at=(first_pass, copy.downstream))
    assert passed(rest, rows[first_pass:], []) == [] and not rest.left
    syncs = [*copy.syncs, *second.syncs]
    told = {s.upstream_offset + i: s.downstream_offset + i for s in syncs for i in range(s.record_count)}
    assert told == {n: offsets[n] for n in range(count) if n not in gone}


@pytest.mark.parametrize("cut", [None, 1])
def test_other_rows_are_refused_or_where_nothing_can_be_told_appended_with_a_word(cut: Optional[int]) -> None:
    log, _ = remote_log([1, 2, 3], set(), 2)
    rows = rows_of([1, 9, 9, 9])
    copy, strict = opened(log)
    with pytest.raises(RefusedError, match="offset 1 of the remote log is not what the flow gives now for offset 1"):
        passed(strict, rows, [] if cut is None else [cut])
    copy, lax = opened(log, repeatable=False)
    assert [row.offset for row in passed(lax, rows, [] if cut is None else [cut])] == [1, 2, 3]
    assert [(each.kind, each.from_offset) for each in copy.incidents] == [("copied again", 1)]
    assert copy.downstream == log[-1].next
