"""Where the source's log starts behind the ledger's position: what is called lost is lost, and the rest is exact."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Optional, Sequence, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirror_lib.errors import RefusedError
from mirror_lib.kafka.log_reader import entries
from mirror_lib.ledger.records import Position
from mirror_lib.replication.reconcile import Records, Settled, settle
from tests.unit.logs import CONTROL, NOON, LogBatch, Rec, batch_of, fetched, marker
from tests.unit.test_reconcile import Interrupted, from_offset, interrupted, numbered, pairs_of


def logs(records: Sequence[Rec], known: int, written: int, gap: int = 0) -> Interrupted:
    """Batches of 20, a gap behind each on the source; the ledger heard of `known`, `written` more were copied."""
    source: List[LogBatch] = []
    for at in range(0, len(records), 20):
        source.append(batch_of(source[-1].next + gap if source else 0, records[at : at + 20]))
    return interrupted(source, known, written, [known])


def settled(case: Interrupted, log_start: int) -> Settled:
    left = [batch.without(range(log_start)) for batch in case.source if batch.next > log_start]
    tail = entries(fetched([batch for batch in case.remote if batch.next > case.start[1]]))
    source, remote = Records(from_offset(left, log_start), log_start), Records(tail, case.start[1])
    return settle(source, remote, Position(*case.start), log_start, "A.orders-0")


def reported(case: Interrupted, found: Settled) -> None:
    assert {*pairs_of(found.matches)} <= case.pairs.items()


@pytest.mark.parametrize(
    ("written", "log_start", "found_at", "matched", "lost_from"),
    [
        pytest.param(3, 80, True, 20, None, id="copied before it left the source"),
        pytest.param(3, 140, False, 0, 120, id="only a part was copied"),
        pytest.param(3, 120, False, 60, None, id="the copy ends where the source begins"),
        pytest.param(0, 100, False, 0, 60, id="nothing was copied"),
        pytest.param(3, 200, False, 0, 120, id="the whole source is gone"),
    ],
)
def test_offsets_that_left_the_source_are_lost_only_where_they_were_not_copied(
    written: int, log_start: int, found_at: bool, matched: int, lost_from: Optional[int]
) -> None:
    case = logs(numbered(200), 3, written)
    found = settled(case, log_start)
    assert found.downstream_offset == (case.pairs[log_start] if found_at else None)
    assert (sum(match.record_count for match in found.matches), found.lost_from) == (matched, lost_from)
    reported(case, found)


def test_gaps_on_the_source_leave_copied_records_without_a_place_or_are_refused() -> None:
    case = logs(numbered(200), 3, 3, gap=1)
    found = settled(case, case.source[4].base)
    assert (found.downstream_offset, found.matches, found.lost_from) == (case.pairs[case.source[4].base], (), None)
    # 60 records of 120 offsets: by their number they could all be before the start of the log, but one is not.
    with pytest.raises(RefusedError, match="log starts at 219 now"):
        settled(logs(numbered(200), 3, 3, gap=20), 219)


def test_remote_log_without_the_source_s_first_record_is_refused() -> None:
    case = logs(numbered(200), 3, 3)
    left = [batch_of(80, [Rec(b"another"), *numbered(200)[81:100]]), *case.source[5:]]
    with pytest.raises(RefusedError, match="it is unknown"):
        settled(replace(case, source=left), 80)


def test_record_that_compaction_removed_is_refused_on_the_target_and_not_counted_on_the_source() -> None:
    case = logs(numbered(200), 3, 3)
    with pytest.raises(RefusedError, match="neither log has them any more"):
        settled(replace(case, remote=[batch.without({case.pairs[70]}) for batch in case.remote]), 80)
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
