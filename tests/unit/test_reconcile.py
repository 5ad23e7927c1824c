"""After an interruption the position is found from the two logs alone, exactly, or the partition is refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple, Union

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirror_lib.errors import RefusedError
from mirror_lib.kafka.log_reader import Entry, entries
from mirror_lib.kafka.record_batch import Producer
from mirror_lib.ledger.intervals import Run
from mirror_lib.ledger.records import Position
from mirror_lib.replication.encoder import Encoder
from mirror_lib.replication.reconcile import Records, reconcile
from tests.unit.logs import (
    CONTROL,
    LOG_APPEND_TIME,
    NOON,
    LogBatch,
    Rec,
    batch_of,
    fetched,
    marker,
    read_back,
    task_of,
    whole,
)


@dataclass
class Interrupted:
    """A copy that was cut short. `pairs` is the truth: upstream offset to downstream offset of every record written.

    `start` is where the ledger stands, in both logs' offsets.
    """

    source: List[LogBatch]
    remote: List[LogBatch]
    pairs: Dict[int, int]
    start: Tuple[int, int]


def interrupted(
    source: Sequence[LogBatch], known: int, written: int, fences: Sequence[int] = (), limit: int = 1 << 20
) -> Interrupted:
    """Copy `source`; the ledger heard of `known` batches, `written` more are on the remote log. `fences` lie before
    the outgoing batches of these numbers."""
    encoder = Encoder(task_of(max_message_bytes=limit), Producer(1, 0), source[0].base, 0)
    outgoing = list(encoder.encode(fetched(source)))
    remote: List[LogBatch] = []
    pairs: Dict[int, int] = {}
    upstream, downstream, start = source[0].base, 0, (source[0].base, 0)
    for number, out in enumerate(outgoing[: known + written]):
        for _ in range(fences.count(number)):
            remote.append(marker(downstream))
            downstream += 1
        if number == known:
            start = (upstream, downstream)
        remote.append(batch_of(downstream, read_back(whole(out.pieces))))
        for first, count in out.runs:
            pairs.update({first + i: downstream + i for i in range(count)})
            downstream += count
        upstream = out.next_upstream
    if known >= len(outgoing[: known + written]):
        start = (upstream, downstream)
    remote.append(marker(downstream))
    return Interrupted(list(source), remote, pairs, start)


def from_offset(batches: Sequence[LogBatch], offset: int) -> Iterator[Entry]:
    return entries(fetched([batch for batch in batches if batch.next > offset]))


def reconciled(case: Interrupted) -> List[Run]:
    source, remote = (Records(from_offset(log, at), at) for log, at in zip((case.source, case.remote), case.start))
    end = case.source[-1].next
    return list(reconcile(source, remote, "A.orders-0", Position(*case.start), lambda: end))


@pytest.mark.parametrize("written", [[], [marker(7)]])
def test_source_is_not_asked_where_the_remote_log_has_nothing_to_compare(written: List[LogBatch]) -> None:
    """It may be slow, and would hold up the other partitions of the task."""
    asked: Any = iter(lambda: 1 // 0, None)
    remote = Records(from_offset(written, 7), 7)
    assert list(reconcile(Records(asked, 5), remote, "A.orders-0", Position(5, 7), lambda: 1 // 0)) == []


def resumes_at(case: Interrupted, matches: Sequence[Run]) -> int:
    return matches[-1].upstream_offset + matches[-1].record_count if matches else case.start[0]


def assert_true(case: Interrupted, matches: Sequence[Run]) -> None:
    """Every match is what happened; nothing uncopied is passed over; nothing that is there is copied again.

    A copy of what the source's cleaner took is matched where nothing is, and before the place where it was only if the
    copies of all that lies between are gone too: those records are copied again, behind it."""
    position = resumes_at(case, matches)
    there = {offset for batch in case.remote for offset, _ in batch.records}
    kept = {offset for batch in case.source for offset, _ in batch.records}
    came_from = {down: up for up, down in case.pairs.items()}
    for up, down in pairs_of(matches):
        at = came_from[down]
        between = {case.pairs[offset] for offset in kept if up < offset < at}
        assert at == up if up in kept else case.start[0] <= at and at not in kept and not between & there
    assert [*pairs_of(matches)] == sorted({*pairs_of(matches)})
    data = [offset for batch in case.remote if not batch.attributes & CONTROL for offset, _ in batch.records]
    assert [down for _, down in pairs_of(matches)] == [offset for offset in data if offset >= case.start[1]]
    for offset, _ in (pair for batch in case.source for pair in batch.records):
        if case.start[0] <= offset < position:
            assert offset in case.pairs, f"{offset} is lost"
        if offset >= position:
            assert case.pairs.get(offset) not in there, f"{offset} is doubled"


def pairs_of(matches: Iterable[Run]) -> Iterator[Tuple[int, int]]:
    for up, down, count in matches:
        yield from zip(range(up, up + count), range(down, down + count))


def numbered(count: int, stem: str = "v") -> List[Rec]:
    return [Rec(f"{stem}{n}".encode(), f"k{n}".encode(), NOON + n) for n in range(count)]


@st.composite
def source_logs(draw: st.DrawFn, holes: int = 2) -> List[LogBatch]:
    batches: List[LogBatch] = []
    offset = draw(st.integers(0, 50))
    for number in range(draw(st.integers(1, 8))):
        recs = numbered(draw(st.sampled_from([1, 2, 3, 5, 16, 17, 30])), f"batch {number} ")
        attributes = draw(st.sampled_from([0, 0, 0, LOG_APPEND_TIME]))
        batches.append(batch_of(offset, recs, draw(st.integers(0, 4)), attributes))
        offset = batches[-1].next + draw(st.integers(0, holes))
    return batches


def compacted(data: st.DataObject, batches: Sequence[LogBatch]) -> List[LogBatch]:
    offsets = [offset for batch in batches if not batch.attributes & CONTROL for offset, _ in batch.records]
    gone: Set[int] = set(data.draw(st.lists(st.sampled_from(offsets), max_size=12))) if offsets else set()
    return [batch.without(gone) for batch in batches]


@st.composite
def interruptions(draw: st.DrawFn, holes: int = 2) -> Interrupted:
    source = draw(source_logs(holes))
    fences = draw(st.lists(st.integers(0, 8), max_size=4))
    known, written = draw(st.integers(0, 4)), draw(st.integers(0, 6))
    return interrupted(source, known, written, fences, draw(st.sampled_from([400, 1 << 20])))


@settings(max_examples=300)
@given(interruptions())
def test_position_is_exact_wherever_the_copy_was_cut_short(case: Interrupted) -> None:
    matches = reconciled(case)
    assert_true(case, matches)
    recovered = {offset for offset in case.pairs if offset >= case.start[0]}
    assert {up for up, _ in pairs_of(matches)} == recovered


@settings(max_examples=500)
@given(interruptions(), st.data())
def test_compaction_of_either_log_never_leads_to_a_wrong_position(case: Interrupted, data: st.DataObject) -> None:
    case.source = compacted(data, case.source)
    last_words = {rec.key: offset for batch in case.remote for offset, rec in batch.records}
    case.remote = compacted(data, case.remote)
    try:
        matches = reconciled(case)
    except RefusedError:
        # A copy whose source record the cleaner took looks like a stranger's. And no cleaner takes the last
        # record of a key: where one is gone, records are not believed that something else was copied before.
        kept = {offset for batch in case.source for offset, _ in batch.records}
        there = {offset for batch in case.remote for offset, _ in batch.records}
        orphans = [up for up, down in case.pairs.items() if down in there and up not in kept]
        assert orphans or not there.issuperset(last_words.values())
        return
    assert_true(case, matches)


@settings(max_examples=200)
@given(interruptions(holes=0), st.data())
def test_remote_log_that_holds_anything_else_is_refused(case: Interrupted, data: st.DataObject) -> None:
    candidates = [n for n, b in enumerate(case.remote) if b.base >= case.start[1] and not b.attributes & CONTROL]
    if not candidates:
        return
    number = data.draw(st.sampled_from(candidates))
    batch = case.remote[number]
    at = data.draw(st.integers(0, len(batch.records) - 1))
    offset, rec = batch.records[at]
    changes: List[Dict[str, Any]] = [
        *({"value": b"changed"}, {"value": None}, {"key": b"changed"}),
        *({"timestamp": rec.timestamp + 1}, {"headers": (("h", b"1"),)}),
    ]
    changed = rec._replace(**data.draw(st.sampled_from(changes)))
    records = (*batch.records[:at], (offset, changed), *batch.records[at + 1 :])
    case.remote[number] = replace(batch, records=records)
    with pytest.raises(RefusedError, match=f"A.orders-0: the record at offset {offset} of the remote log"):
        reconciled(case)


FIRST, SECOND = numbered(20), numbered(20, "w")
WHOLE = [batch_of(0, FIRST), batch_of(20, SECOND)]
SWAPPED = [*FIRST[:4], FIRST[5], FIRST[4], *FIRST[6:]]


@pytest.mark.parametrize(
    ("source", "remote"),
    [
        pytest.param(WHOLE, [*WHOLE, marker(40), batch_of(41, [Rec(b"stranger")])], id="foreign record at the end"),
        pytest.param(WHOLE, [batch_of(0, SWAPPED), WHOLE[1]], id="swapped pair"),
        pytest.param(WHOLE, [batch_of(0, SECOND), batch_of(20, FIRST)], id="swapped batches"),
        pytest.param(WHOLE, [*WHOLE, batch_of(40, SECOND)], id="doubled batch"),
        pytest.param(WHOLE[:1], WHOLE, id="more than the source has"),
    ],
)
def test_remote_log_with_a(source: List[LogBatch], remote: List[LogBatch]) -> None:
    with pytest.raises(RefusedError, match="is not the source's next one"):
        reconciled(Interrupted(source, remote, {}, (0, 0)))


def test_target_that_sets_the_time_itself_is_believed_by_the_rest_of_the_record() -> None:
    case = interrupted([batch_of(0, numbered(20))], 0, 1)
    case.remote[0] = replace(case.remote[0], attributes=LOG_APPEND_TIME)
    assert resumes_at(case, reconciled(case)) == 20


def test_equal_records_that_compaction_made_ambiguous_are_refused() -> None:
    twins = [Rec(b"first", b"other"), Rec(b"same"), Rec(b"same")]
    case = interrupted([batch_of(0, twins)], 0, 1)
    case.remote = [batch_of(0, twins[:2])]
    # Nothing was compacted: the same twins are distinguished by their place.
    assert resumes_at(case, reconciled(case)) == 2
    case.source, case.remote = [case.source[0].without([0])], [case.remote[0].without([0])]
    with pytest.raises(RefusedError):
        reconciled(case)


def cleaned(log: Sequence[LogBatch], until: int, tombstones_go: bool) -> List[LogBatch]:
    """As a pass of Kafka's cleaner over the offsets before `until` leaves the log."""
    records = [each for batch in log if not batch.attributes & CONTROL for each in batch.records if each[0] < until]
    last = {rec.key: offset for offset, rec in records}
    gone = {
        offset
        for offset, rec in records
        if rec.key is None or offset < last[rec.key] or (tombstones_go and rec.value is None)
    }
    return [batch.without(gone) for batch in log]


KEYED = st.builds(
    Rec,
    value=st.sampled_from([b"a", b"b", b"c", b"d", None]),
    key=st.sampled_from([b"1", b"2", b"3", b"4", b""]),
    timestamp=st.integers(NOON, NOON + 5),
    headers=st.just(()),
)


@st.composite
def compacted_topics(draw: st.DrawFn, twins: bool) -> Interrupted:
    """A compacted topic whose copy was cut short, and which was cleaned, on both sides, before the next check.

    `twins`: records may be equal in all that they have; tombstones may have gone before they were copied."""
    batches: List[LogBatch] = []
    for number in range(draw(st.integers(1, 6))):
        recs = draw(st.lists(KEYED, min_size=1, max_size=5))
        if not twins:
            recs = [rec._replace(timestamp=NOON + 100 * number + n) for n, rec in enumerate(recs)]
        batches.append(batch_of(batches[-1].next if batches else 0, recs))
    early = draw(st.integers(0, batches[-1].next))
    case = interrupted(cleaned(batches, early, twins), draw(st.integers(0, 3)), draw(st.integers(1, 4)), [1], 100)
    for _ in range(draw(st.integers(0, 2))):
        case.source = cleaned(case.source, draw(st.integers(early, batches[-1].next)), twins and draw(st.booleans()))
    case.remote = cleaned(case.remote, draw(st.integers(0, case.remote[-1].next)), twins and draw(st.booleans()))
    return case


@settings(max_examples=400)
@given(compacted_topics(twins=False))
def test_source_that_was_cleaned_meanwhile_is_gone_on_with(case: Interrupted) -> None:
    assert_true(case, reconciled(case))


def last_words_of(records: Iterable[Rec]) -> Dict[Optional[bytes], Rec]:
    return {rec.key: rec for rec in records if rec.key is not None}


@settings(max_examples=400)
@given(compacted_topics(twins=True))
def test_last_word_on_each_key_is_right_or_the_source_is_refused(case: Interrupted) -> None:
    try:
        position = resumes_at(case, reconciled(case))
    except RefusedError:
        return
    on_source = [each for batch in case.source for each in batch.records]
    copied = [rec for batch in case.remote if not batch.attributes & CONTROL for _, rec in batch.records]
    found = last_words_of([*copied, *(rec for offset, rec in on_source if offset >= position)])
    for key, rec in last_words_of(rec for offset, rec in on_source if offset >= case.start[0]).items():
        assert found.get(key) == rec or (rec.value is None and key not in found)


def only_left(records: Sequence[Rec], source: Sequence[int], remote: Sequence[int], copied: int) -> Interrupted:
    """Two logs that begin at offset 0. `copied` records were copied; compaction left these offsets."""
    case = interrupted([batch_of(offset, [rec]) for offset, rec in enumerate(records)], 0, copied, limit=80)
    every = {*range(len(records))}
    case.source = [batch.without(every - {*source}) for batch in case.source]
    case.remote = [each if each.attributes & CONTROL else each.without(every - {*remote}) for each in case.remote]
    return case


def keyed(*words: str) -> List[Rec]:
    """Records of `key=value`; one without a value is a tombstone."""
    return [Rec(value.encode() or None, key.encode(), NOON) for key, value in (word.split("=") for word in words)]


@pytest.mark.parametrize(
    ("records", "source", "remote", "copied", "found"),
    [
        # Two copies are before the one at offset 2, so the record at offset 0 cannot be its original.
        ("3=v 2=v 3=v", [0], [1, 2], 3, "MIR-313"),
        # An offset that compaction emptied before the equal record is room for the orphan.
        ("1= 2= 3=", [2], [1, 2], 3, [Run(1, 1, 1), Run(2, 2, 1)]),
        # Several copies without a source record.
        ("0=a 1=b 2=c 3=d 0=e 1=f 2=g 3=h", [4, 5, 6, 7], [0, 1, 2, 3, 4], 5, [Run(n, n, 1) for n in range(5)]),
        ("3= 2=a 1=b 2= 1=", [1, 2, 3, 4], [2, 4], 5, [Run(2, 2, 1), Run(4, 4, 1)]),
        # A copy is the later record that proves an earlier one of its own key.
        ("3= 2=a 2=b", [1, 2], [2], 3, [Run(2, 2, 1)]),
        # An old tombstone that left the remote log explains what it took with it.
        ("last=old gone=v gone= last=new", [1, 2, 3], [3], 4, [Run(3, 3, 1)]),
        # A tombstone was cleaned before it was copied.
        ("gone=v kept=v gone= kept=w", [1, 3], [0], 1, "MIR-313"),
        # The copy at offset 0 equals a later record that was not copied, and its key got another value in between.
        ("1=v 1=w 1=v 2=a 2=b", [2, 4], [0, 1], 2, "MIR-314"),
        # The copy at offset 1 equals a later record that was not copied. Between the two are records that were not
        # copied either: of other keys, a value whose tombstone was copied, or a tombstone, which may be gone.
        ("1=x 1=a 1=y 1=y 1=y 1=y 1=y 2=a 1=a", [7, 8], [1], 2, "MIR-314"),
        ("1=x 2=a 2= 2=a 1=y", [0, 3, 4], [0, 1, 2], 3, "MIR-314"),
        ("1=u 1=a 2= 2=b 1=a 3=y 3=z", [3, 4, 6], [1, 2], 3, "MIR-314"),
        ("1=u 1=a 2= 1=a 3=y 3=z", [2, 3, 5], [1], 2, "MIR-314"),
    ],
)
def test_what_compaction_left_is_matched_where_no_other_place_is_possible(
    records: str, source: List[int], remote: List[int], copied: int, found: Union[List[Run], str]
) -> None:
    """`found`: the matches, or the code or words of the refusal."""
    case = only_left(keyed(*records.split()), source, remote, copied)
    if isinstance(found, list):
        assert reconciled(case) == found
        return
    with pytest.raises(RefusedError) as refused:
        reconciled(case)
    assert found in f"{refused.value.code}: {refused.value}"


MARKED = [batch_of(0, [Rec(b"v", b"kept")]), marker(1, commit=True), batch_of(2, [Rec(None, b"gone")])]


def test_offsets_of_markers_are_no_room_for_copies_at_the_end_of_a_cleaned_source() -> None:
    case = interrupted(MARKED, 0, 2)
    assert case.pairs == {0: 0, 2: 1}
    case.source = cleaned(MARKED, 3, tombstones_go=True)
    assert reconciled(case) == [Run(0, 0, 1), Run(2, 1, 1)]
    stranger = replace(case, remote=[*case.remote, batch_of(case.remote[-1].next, [Rec(None, b"stranger")])])
    with pytest.raises(RefusedError, match="offset 1 of the remote log is not the source's next one"):
        reconciled(stranger)


def test_later_copies_prove_what_left_the_remote_log_before_a_match_in_doubt() -> None:
    """Offsets 1 and 3 of the source were empty: the copy at offset 2 may have come from offset 3."""
    keys = {0: b"0", 2: b"1", 4: b"2", 5: b"1", 6: b"5"}
    source = [batch_of(offset, [Rec(b"v", key, NOON + offset)]) for offset, key in keys.items()]
    case = interrupted(source, 0, 4, limit=80)
    assert case.pairs == {0: 0, 2: 1, 4: 2, 5: 3}

    def left(*gone: int) -> Interrupted:
        return replace(case, remote=[each if each.attributes & CONTROL else each.without(gone) for each in case.remote])

    assert reconciled(left(1)) == [Run(0, 0, 1), Run(4, 2, 1), Run(5, 3, 1)]
    with pytest.raises(RefusedError, match="offset 2 of the remote log equals one of the source, and compaction"):
        reconciled(left(1, 3))


def test_records_that_left_the_remote_log_make_no_room_for_a_stranger_where_the_source_has_them_all() -> None:
    case = only_left(keyed("k=a", "k=b", "k=c", "k=d"), source=[0, 1, 2, 3], remote=[1], copied=2)
    assert reconciled(case) == [Run(1, 1, 1)]
    case.remote[1] = batch_of(1, [Rec(b"stranger", b"stranger")])
    with pytest.raises(RefusedError, match="offset 1 of the remote log is not the source's next one"):
        reconciled(case)
