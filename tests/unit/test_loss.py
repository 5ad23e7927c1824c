"""Where the source's log starts behind the ledger's position: what is called lost is lost, and the rest is exact."""

from __future__ import annotations

from dataclasses import replace
from typing import Iterator, List, Sequence, Set, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirror_lib.errors import RefusedError
from mirror_lib.kafka.log_reader import Entry, entries
from mirror_lib.ledger.records import Position
from mirror_lib.replication.reconcile import Records, Settled, settle
from tests.unit.logs import CONTROL, NOON, LogBatch, Rec, batch_of, fetched, marker
from tests.unit.test_reconcile import Interrupted, from_offset, interrupted, numbered


def logs(records: Sequence[Rec], known: int, written: int, gap: int = 0) -> Interrupted:
    """Batches of 20, a gap behind each on the source; the ledger heard of `known`, `written` more were copied."""
    source: List[LogBatch] = []
    for at in range(0, len(records), 20):
        source.append(batch_of(source[-1].next + gap if source else 0, records[at : at + 20]))
    return interrupted(source, known, written, [known])


def settled(case: Interrupted, log_start: int) -> Settled:
    left = [batch.without(range(log_start)) for batch in case.source if batch.next > log_start]
    source, remote = Records(from_offset(left, log_start), log_start), Records(_tail(case), case.start[1])
    return settle(source, remote, Position(*case.start), log_start, "A.orders-0")


def _tail(case: Interrupted) -> Iterator[Entry]:
    return entries(fetched([batch for batch in case.remote if batch.next > case.start[1]]))


def reported(case: Interrupted, found: Settled) -> None:
    for match in found.matches:
        for i in range(match.record_count):
            assert case.pairs[match.upstream_offset + i] == match.downstream_offset + i


def test_what_was_copied_before_it_left_the_source_is_no_loss() -> None:
    case = logs(numbered(200), 3, 3)
    found = settled(case, 80)
    assert (found.downstream_offset, found.lost_from) == (case.pairs[80], None)
    assert sum(match.record_count for match in found.matches) == 20
    reported(case, found)


def test_only_what_was_not_copied_is_called_lost() -> None:
    found = settled(logs(numbered(200), 3, 3), 140)
    assert found == Settled(None, (), 120)


def test_copy_that_ends_where_the_source_begins_lost_nothing() -> None:
    case = logs(numbered(200), 3, 3)
    found = settled(case, 120)
    assert (found.downstream_offset, found.lost_from) == (None, None)
    assert sum(match.record_count for match in found.matches) == 60
    reported(case, found)


def test_nothing_copied_is_all_lost() -> None:
    assert settled(logs(numbered(200), 3, 0), 100) == Settled(None, (), 60)


def test_whole_source_gone_is_no_matter() -> None:
    assert settled(logs(numbered(200), 3, 3), 200) == Settled(None, (), 120)


def test_gaps_on_the_source_leave_what_was_copied_without_a_place() -> None:
    case = logs(numbered(200), 3, 3, gap=1)
    found = settled(case, case.source[4].base)
    assert (found.downstream_offset, found.matches, found.lost_from) == (case.pairs[case.source[4].base], (), None)


def test_gaps_that_leave_it_open_what_was_copied_are_refused() -> None:
    # 60 records of 120 offsets: by their number they could all lie before the start of the log, but one does not.
    case = logs(numbered(200), 3, 3, gap=20)
    with pytest.raises(RefusedError, match="log starts at 219 now"):
        settled(case, 219)


@pytest.mark.parametrize("log_start", [80, 120, 140])
def test_records_that_are_all_alike_are_refused(log_start: int) -> None:
    with pytest.raises(RefusedError, match="it is unknown"):
        settled(logs([Rec(b"beat", b"k", NOON)] * 200, 3, 3), log_start)


def test_record_that_compaction_took_from_the_remote_log_is_refused() -> None:
    case = logs(numbered(200), 3, 3)
    gone: Set[int] = {case.pairs[70]}
    with pytest.raises(RefusedError, match="neither log has them any more"):
        settled(replace(case, remote=[batch.without(gone) for batch in case.remote]), 80)


def test_source_that_compaction_thinned_too_is_counted_up_to_its_first_record() -> None:
    case = logs(numbered(200), 3, 3)
    found = settled(replace(case, source=[batch.without(range(80, 85)) for batch in case.source]), 80)
    assert (found.downstream_offset, found.lost_from) == (case.pairs[85], None)
    assert sum(match.record_count for match in found.matches) == 20
    reported(case, found)


@st.composite
def losses(draw: st.DrawFn) -> Tuple[Interrupted, int]:
    few = draw(st.booleans())
    records = [Rec(b"%d" % draw(st.integers(0, 2)), b"k", NOON) for _ in range(60)] if few else numbered(60)
    source: List[LogBatch] = []
    while records:
        size = draw(st.integers(1, 17))
        base = source[-1].next + draw(st.sampled_from([0, 0, 0, 1, 3])) if source else 0
        source.append(batch_of(base, records[:size]))
        records = records[size:]
        if draw(st.integers(0, 5)) == 0:
            source.append(marker(source[-1].next))
    case = interrupted(source, draw(st.integers(0, 4)), draw(st.integers(0, 6)), draw(st.lists(st.integers(0, 8))))
    log_start = draw(st.integers(case.start[0] + 1, max(case.start[0] + 1, source[-1].next)))
    cleaned = draw(st.sets(st.integers(log_start, log_start + 20)))
    case.source = [each if each.attributes & CONTROL else each.without(cleaned) for each in case.source]
    return case, log_start


@settings(max_examples=200)
@given(losses())
def test_no_record_is_lost_in_silence_or_doubled(drawn: Tuple[Interrupted, int]) -> None:
    case, log_start = drawn
    try:
        found = settled(case, log_start)
    except RefusedError:
        return
    reported(case, found)
    for offset, _ in (pair for batch in case.source for pair in batch.records if not batch.attributes & CONTROL):
        if case.start[0] <= offset < log_start and offset not in case.pairs:
            assert found.lost_from is not None and offset >= found.lost_from
        if offset >= log_start and offset in case.pairs:
            assert found.downstream_offset is not None and case.pairs[offset] >= found.downstream_offset
        if offset < log_start and offset in case.pairs and found.downstream_offset is not None:
            assert case.pairs[offset] < found.downstream_offset
