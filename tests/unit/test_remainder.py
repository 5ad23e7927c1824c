"""After an interruption each row is found on the remote log or appended, exactly once, wherever passes end."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Dict, List, Optional, Sequence, Set, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirror_lib.errors import RefusedError
from mirror_lib.log.batch import Record
from mirror_lib.log.reencode import read_records
from mirror_lib.log.visible import entries
from mirror_lib.records.remainder import ANEW, Remainder, Unsettled
from mirror_lib.replicate.log_records import Records, key_of
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
    log: Sequence[LogBatch], repeatable: bool = True, at: Tuple[int, int] = (0, 0), before: Unsettled = ANEW
) -> Tuple[PartitionCopy, Remainder]:
    """A pass that begins `at` these upstream and downstream offsets."""
    copy = PartitionCopy(replace(task_of(), upstream_offset=at[0], downstream_offset=at[1]))
    written = Records(entries(fetched(log)), at[1])
    return copy, Remainder(copy, Log(log[-1].next), written, repeatable, before=before)


def passed(
    remainder: Remainder, rows: Sequence[Record], cuts: Sequence[int], more_behind: bool = True
) -> List[Record]:
    """Give the rows in pieces; what is left to append."""
    rest: List[Record] = []
    bounds = [0, *sorted(cut for cut in cuts if cut < len(rows)), len(rows)]
    for start, end in zip(bounds, bounds[1:]):
        rest += remainder.compare(rows[start:end]) if remainder.left else rows[start:end]
    return rest + (remainder.end(more_behind) if remainder.left else [])


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


def source_rows(records: Dict[int, Rec]) -> List[Record]:
    """What the source still has, by its offsets."""
    numbered = read_records(batch_of(0, list(records.values())).raw()) if records else []
    return [record._replace(offset=offset) for offset, record in zip(records, numbered)]


def test_rows_that_came_since_are_not_taken_for_those_that_compaction_took() -> None:
    # Five records of one key were copied, and the cleaners left the last one here and none of them there.
    log = [batch_of(0, [Rec(b"%d" % n, b"k1") for n in range(5)]).without({0, 1, 2, 3})]
    rows = source_rows({5: Rec(b"5", b"k1"), 6: Rec(b"b", b"k2")})
    copy, remainder = opened(log)
    with pytest.raises(RefusedError, match="offset 4 of the remote log is not what the flow gives now for offset 5"):
        passed(remainder, rows, [], more_behind=False)
    assert (copy.acknowledged, copy.downstream) == (0, 0)
    # Nor where the pass ends before what there is.
    copy, remainder = opened(log)
    with pytest.raises(RefusedError, match="nobody can tell whether offset 6 of orders-0 was copied"):
        passed(remainder, rows, [])
    assert (copy.acknowledged, copy.downstream, len(copy.syncs)) == (0, 0, 0)


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("value", [b"b", None])
def test_row_before_one_that_equals_a_copy_by_chance_is_not_taken_for_copied(
    value: Optional[bytes], mixed: bool
) -> None:
    log = [batch_of(0, [Rec(b"x", b"k1"), Rec(b"a", b"k1")]).without({0})]
    # Both were copied, then came another key and the same once more; the source's cleaner took the first two.
    rows = source_rows({(0 if mixed else 2) + n: rec for n, rec in enumerate([Rec(value, b"k2"), Rec(b"a", b"k1")])})
    copy, _ = opened(log)
    remainder = Remainder(copy, Log(2), Records(entries(fetched(log)), 0), True, mixed)
    with pytest.raises(RefusedError, match="nobody can tell whether"):
        passed(remainder, rows, [], more_behind=False)
    assert (copy.acknowledged, copy.downstream, len(copy.syncs), remainder.found) == (0, 0, 0, 0)


def test_what_is_not_proven_when_a_pass_breaks_off_is_looked_at_again() -> None:
    log = [batch_of(0, [Rec(b"x", b"k2"), Rec(b"a", b"k1"), Rec(b"b", b"k2")]).without({0})]
    rows = source_rows({2: Rec(b"x", b"k2"), 4: Rec(b"a", b"k1"), 7: Rec(b"b", b"k2")})
    copy, remainder = opened(log)
    assert remainder.compare(rows[:2]) == [] and copy.acknowledged == 5
    remainder.take_back(all=False)
    assert (copy.acknowledged, copy.downstream, len(copy.syncs), remainder.found) == (0, 0, 0, 0)
    # The later copy of its key is there for a pass that comes to an end before it, too.
    copy, remainder = opened(log)
    assert passed(remainder, rows[:2], []) == [] and copy.acknowledged == 5
    copy, remainder = opened(log)
    assert passed(remainder, rows, [], more_behind=False) == [] and remainder.found == 2


ON_OFF = [Rec(b"ON", b"k"), Rec(b"OFF", b"k")]


@pytest.mark.parametrize(
    ("copied", "rows"),
    [
        # Equal by chance: the source's cleaner took those that were copied.
        (ON_OFF, {2: Rec(b"ON", b"k")}),
        ([*ON_OFF, Rec(None, b"k")], {3: Rec(b"ON", b"k")}),
        # Its tombstone was not copied, and both are gone on the source.
        ([Rec(b"z", b"k2"), Rec(b"a", b"k")], {0: Rec(b"z", b"k2")}),
        ([Rec(b"a", None)], {}),
    ],
)
def test_copies_for_which_the_source_has_no_row_to_its_end_are_refused(
    copied: List[Rec], rows: Dict[int, Rec]
) -> None:
    copy, remainder = opened([batch_of(0, copied)])
    with pytest.raises(RefusedError, match="of the remote log is not what the flow gives now: nothing more"):
        passed(remainder, source_rows(rows), [], more_behind=False)
    # So that the next life comes back to it.
    assert (copy.acknowledged, copy.downstream, len(copy.syncs), remainder.found) == (0, 0, 0, 0)
    # Another pass may have the rows.
    copy, remainder = opened([batch_of(0, copied)])
    assert passed(remainder, source_rows(rows), []) == [] and remainder.left
    # A flow that does not give the same each time promised nothing.
    copy, remainder = opened([batch_of(0, copied)], repeatable=False)
    assert passed(remainder, source_rows(rows), [], more_behind=False) == [] and remainder.left


def test_rows_that_retention_took_the_copies_of_are_stepped_over_whatever_their_keys() -> None:
    log = [batch_of(2, [Rec(b"c", b"k3")])]
    rows = source_rows({1: Rec(b"a", b"k1"), 4: Rec(b"b", b"k2"), 6: Rec(b"c", b"k3"), 7: Rec(b"d", b"k4")})
    copy, _ = opened(log)
    remainder = Remainder(copy, Log(3, start=2, expired=True), Records(entries(fetched(log)), 0), True)
    assert passed(remainder, rows, [], more_behind=False) == rows[3:]


@dataclass(frozen=True)
class Cleaned:
    """A source and a remote log over which cleaners went, between an interrupted attempt and the next life. The attempt
    had `written` records of these keys; of any key the remote log may have a value of long ago."""

    rows: List[Record]
    log: List[LogBatch]
    copies: List[Tuple[int, Rec]]
    written: Set[Optional[bytes]]

    def upstream(self, end: int) -> int:
        """Where a pass over the first `end` rows ends."""
        return self.rows[end - 1].offset + 1 if end else 0


@st.composite
def cleaned(draw: st.DrawFn) -> Cleaned:
    """Few keys and values, so that many records are alike; some are tombstones, some the flow does not take."""
    values, keys = st.sampled_from([b"a", b"b", None]), st.sampled_from([b"k1", b"k2", b"k3"])
    recs = st.tuples(values, keys).map(lambda of: Rec(*of))
    source = draw(st.lists(recs, min_size=1, max_size=12))
    untaken = draw(st.sets(st.integers(0, 11), max_size=4))
    seen = draw(st.integers(1, len(source)))
    given = [rec for n, rec in enumerate(source[:seen]) if n not in untaken]
    written = draw(st.integers(0, len(given)))
    log, offsets = logged(given[:written], draw(st.sets(st.integers(0, 11))), draw(st.integers(1, 4)))
    there = dict(zip(offsets, given))
    gone = may_go(there, draw(st.sets(st.sampled_from(offsets)))) if offsets else set()
    every = dict(enumerate(source))
    taken = may_go(every, draw(st.sets(st.integers(0, len(source) - 1))))
    left = {at: rec for at, rec in every.items() if at not in taken | untaken}
    return Cleaned(
        source_rows(left),
        [each.without(gone) for each in log],
        [(at, r) for at, r in there.items() if at not in gone],
        {rec.key for rec in there.values()},
    )


def logged(recs: Sequence[Rec], markers: Set[int], batch: int) -> Tuple[List[LogBatch], List[int]]:
    """As `remote_log`."""
    log, offsets = remote_log(range(len(recs)), markers, batch)
    by_offset = dict(zip(offsets, recs))
    return [
        each if each.attributes else replace(each, records=tuple((at, by_offset[at]) for at, _ in each.records))
        for each in log
    ], offsets


def may_go(records: Dict[int, Rec], wanted: Set[int]) -> Set[int]:
    """Of those `wanted` what a cleaner may take: what has a later one of its key, and tombstones that are old."""
    keys = {at: [offset for offset, rec in records.items() if rec.key == records[at].key] for at in wanted}
    superseded = {at for at in wanted if max(keys[at]) > at}
    last = {at for at in wanted - superseded if records[at].value is None}
    return superseded | {at for at in last if superseded.issuperset(offset for offset in keys[at] if offset < at)}


@dataclass
class Life:
    """What is known of a partition: by a driver, and by its ledger, to which the next life goes back."""

    at: Tuple[int, int] = (0, 0)
    ledger: Tuple[int, int] = (0, 0)
    before: Unsettled = ANEW
    left: bool = True
    told: Dict[int, int] = field(default_factory=dict)
    waiting: Dict[int, int] = field(default_factory=dict)

    def begin_anew(self) -> None:
        if self.left:
            self.at, self.before, self.waiting = self.ledger, ANEW, {}

    def passed_over(self) -> None:
        """See `RowPartition.unsettled`, and `UnsettledPartitions` of passes without a row."""
        self.before = self.before._replace(holed=True)

    def passed(self, copy: PartitionCopy, remainder: Remainder, end: int) -> None:
        self.left, self.at, self.before = remainder.left, (end, copy.downstream), remainder.unsettled
        if end > copy.acknowledged:
            self.passed_over()
        self.waiting.update(syncs_of(copy))
        if self.waiting and not (self.left and self.before.holed):  # see `UnsettledPartitions`
            self.ledger = (max(self.waiting) + 1, max(self.waiting.values()) + 1)
            self.told.update(self.waiting)
            self.waiting = {}


@settings(max_examples=500, deadline=None)
@given(
    cleaned(),
    st.lists(st.integers(1, 12), max_size=3),
    st.lists(st.integers(0, 12), max_size=3),
    st.sets(st.integers(0, 3)),
    st.sets(st.integers(0, 3)),
    st.booleans(),
)
def test_nothing_is_lost_or_doubled_whatever_cleaners_took_on_both_sides(
    scene: Cleaned, ends: List[int], cuts: List[int], deaths: Set[int], breaks: Set[int], silent: bool
) -> None:
    """Passes end at the offsets `ends`, lives behind those that are named in `deaths`; in front of those in `breaks` a
    connection broke. A last pass may have no rows: it is `silent`, and refuses what is left. What cannot be told is
    refused."""
    life = Life()
    appended: List[Record] = []
    last = scene.upstream(len(scene.rows))
    for number, upstream in enumerate([*sorted({end for end in ends if end < last}), last]):
        rows = [row for row in scene.rows if life.at[0] <= row.offset < upstream]
        if life.left and rows:
            try:
                if number in breaks:
                    copy, remainder = opened(scene.log, at=life.at, before=life.before)
                    remainder.compare(rows)
                    remainder.take_back(all=True)
                    if remainder.left:
                        assert not len(copy.syncs) and remainder.unsettled == life.before
                copy, remainder = opened(scene.log, at=life.at, before=life.before)
                rows = passed(remainder, rows, cuts, more_behind=silent or upstream < last)
            except RefusedError:
                return
            life.passed(copy, remainder, upstream)
        elif life.left:
            life.passed_over()
        life.at = (upstream, life.at[1])
        appended += rows
        if number in deaths:
            life.begin_anew()
    if not life.left or (scene.rows and not silent):
        assert_all_there(scene, life.told, appended)


@settings(max_examples=300, deadline=None)
@given(cleaned(), st.lists(st.integers(0, 12), max_size=3))
def test_nothing_is_lost_or_doubled_of_rows_whose_offsets_do_not_show_what_is_gone(
    scene: Cleaned, cuts: List[int]
) -> None:
    scene = replace(scene, rows=[row._replace(offset=n) for n, row in enumerate(scene.rows)])
    copy, _ = opened(scene.log)
    written = Records(entries(fetched(scene.log)), 0)
    remainder = Remainder(copy, Log(scene.log[-1].next), written, True, mixed=True)
    try:
        appended = passed(remainder, scene.rows, cuts, more_behind=False)
    except RefusedError:
        return
    if not remainder.left:  # the driver refuses such a pass
        assert_all_there(scene, syncs_of(copy), appended)


def syncs_of(copy: PartitionCopy) -> Dict[int, int]:
    """By upstream offset, where each record that was found lies."""
    return {s.upstream_offset + i: s.downstream_offset + i for s in copy.syncs for i in range(s.record_count)}


def assert_all_there(scene: Cleaned, told: Dict[int, int], appended: Sequence[Record]) -> None:
    """By each key, what the source has last is what the remote log has last, and it has no other keys."""
    copies = dict(zip(dict(scene.copies), source_rows(dict(scene.copies))))
    by_offset = {row.offset: row for row in scene.rows}
    assert all(copies[downstream].body == by_offset[upstream].body for upstream, downstream in told.items())
    assert not {row.offset for row in appended} & set(told)
    latest = {key_of(row.body)[0]: row for row in scene.rows}
    remote = {key_of(row.body)[0]: row for row in [*copies.values(), *appended]}
    there, wanted = ({at: row.body for at, row in each.items() if not key_of(row.body)[1]} for each in (remote, latest))
    assert there == wanted
    # A tombstone that never came to the remote log leaves the value of long ago there.
    deleted = {key for key, row in latest.items() if key_of(row.body)[1]}
    assert deleted <= scene.written | {key_of(row.body)[0] for row in appended}


HOLED_LOG = [batch_of(0, [Rec(b"ON", b"k"), Rec(b"x", b"j"), Rec(b"5", b"m")]).without({1})]
HOLED_ROWS = {3: Rec(b"ON", b"k"), 4: Rec(None, b"p"), 5: Rec(b"5", b"m")}


def test_tombstone_in_a_gap_is_doubted_also_by_the_pass_after_one_that_found_offsets_missing() -> None:
    rows = source_rows(HOLED_ROWS)
    copy, remainder = opened(HOLED_LOG)
    assert passed(remainder, rows[:1], []) == [] and remainder.unsettled.holed
    _, after = opened(HOLED_LOG, at=(4, copy.downstream), before=remainder.unsettled)
    with pytest.raises(RefusedError, match="nobody can tell whether offset 4"):
        passed(after, rows[1:], [], more_behind=False)


def test_pass_that_does_not_know_of_missing_offsets_would_step_over_the_tombstone() -> None:
    rows = source_rows(HOLED_ROWS)
    copy, remainder = opened(HOLED_LOG)
    passed(remainder, rows[:1], [])
    _, after = opened(HOLED_LOG, at=(4, copy.downstream))
    assert passed(after, rows[1:], [], more_behind=False) == [] and not after.left


def test_nothing_of_a_comparison_counts_that_broke_off() -> None:
    rows = source_rows({2: Rec(b"ON", b"k")})
    copy, remainder = opened([batch_of(0, [Rec(b"ON", b"k"), Rec(b"OFF", b"k")])])
    assert remainder.compare(rows) == [] and copy.acknowledged == 3
    remainder.take_back(all=True)
    assert not len(copy.syncs) and (copy.acknowledged, copy.downstream) == (0, 0)
