"""Readers of committed records see what was committed, however transactions and fetches overlap."""

from __future__ import annotations

from typing import Dict, List, Set, Tuple

from hypothesis import given, settings
from hypothesis import strategies as st

from mirror_lib.kafka.log_reader import entries
from tests.unit.logs import TRANSACTIONAL, LogBatch, Rec, batch_of, fetched, marker


@st.composite
def transaction_logs(draw: st.DrawFn) -> Tuple[List[LogBatch], List[Tuple[int, int, int]], Set[int]]:
    """A log of ended transactions, the aborted ones as (producer, first offset, marker's offset), and the bases of
    what was committed."""
    log: List[LogBatch] = [batch_of(0, [Rec(b"v")])]
    aborted: List[Tuple[int, int, int]] = []
    committed: Set[int] = {0}
    running: Dict[int, List[int]] = {}

    def end(producer_id: int, offset: int) -> None:
        bases, commit = running.pop(producer_id), draw(st.booleans())
        log.append(marker(offset, producer_id, commit))
        if commit:
            committed.update(bases)
        else:
            aborted.append((producer_id, bases[0], offset))

    for _ in range(draw(st.integers(1, 25))):
        offset, producer_id = log[-1].next, draw(st.integers(1, 3))
        step = draw(st.sampled_from(["write", "write", "plain", "end"]))
        if step == "plain":
            log.append(batch_of(offset, [Rec(b"v")]))
            committed.add(offset)
        elif step == "write":
            recs = [Rec(b"v")] * draw(st.integers(1, 3))
            log.append(batch_of(offset, recs, attributes=TRANSACTIONAL, producer_id=producer_id))
            running.setdefault(producer_id, []).append(offset)
        elif producer_id in running:
            end(producer_id, offset)
    for producer_id in list(running):
        end(producer_id, log[-1].next)
    return log, aborted, committed


@settings(max_examples=300)
@given(transaction_logs(), st.data())
def test_each_answer_by_itself_shows_exactly_what_was_committed(
    made: Tuple[List[LogBatch], List[Tuple[int, int, int]], Set[int]], data: st.DataObject
) -> None:
    log, aborted, committed = made
    first = data.draw(st.integers(0, len(log) - 1))
    last = data.draw(st.integers(first + 1, len(log)))
    part = log[first:last]
    # A broker names the aborted transactions that overlap what it answers with, also those begun before.
    named = [(pid, start) for pid, start, end in aborted if end >= part[0].base and start < part[-1].next]
    found = entries(fetched(part, aborted=sorted(named, key=lambda pair: pair[1])))
    shown = [header.base_offset for _, header, is_data in found if header is not None and is_data]
    assert shown == [batch.base for batch in part if batch.base in committed]
