"""Groups of flows that repartition records: nothing that a group has not read lies before the place that it is
given."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, List, Mapping, Optional, Sequence, Set, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_lib.config.record_change import KEY, RecordChange
from mirror_lib.facts import CommittedOffset, OffsetRange, TopicDescription, TopicPartition
from mirror_lib.groups.decisions import Decision, Known, PositionsAhead
from mirror_lib.groups.map import FlowMaps
from mirror_lib.groups.ranges import FlowRanges, decide_back, decide_there, feeds_of, place_back, place_there
from mirror_lib.groups.survey import Survey
from mirror_lib.groups.translation import TO_UPSTREAM
from mirror_lib.ledger.intervals import Place
from mirror_lib.ledger.records import NO_PARTITION, LedgerRow
from tests.unit.test_plan import flow

REMOTES = [("all", 0), ("all", 1)]
# A record: its source partition and offset.
Record = Tuple[int, int]
Logs = Dict[TopicPartition, List[Record]]
Pair = Tuple[int, int]


def row(source: int, remote: int, upstream: Pair, downstream: Pair, count: int = 0) -> LedgerRow:
    names = ("orders", "all", source, "s", "r")
    return LedgerRow(*names, upstream[0], downstream[0], count, remote, upstream[1], downstream[1])


def rows_of(batches: Sequence[Sequence[int]], partitions: int, salt: int) -> Tuple[List[LedgerRow], Logs, List[int]]:
    """So many records of each source partition in each micro-batch, spread over both remote partitions by their
    offsets: the ledger's rows, the remote logs, and where the source partitions end."""
    ends = [0] * partitions
    logs: Logs = {at: [] for at in REMOTES}
    rows = [row(n, NO_PARTITION, (0, 0), (0, 0)) for n in range(partitions)]
    rows += [row(NO_PARTITION, n, (0, 0), (0, 0)) for _, n in REMOTES]
    for counts in batches:
        stood, began = {at: len(log) for at, log in logs.items()}, list(ends)
        for n, count in enumerate(counts):
            for offset in range(ends[n], ends[n] + count):
                logs["all", (offset * 7 + n + salt) % 2].append((n, offset))
            ends[n] += count
        for n in range(partitions):
            into = [at for at, log in logs.items() if any(each[0] == n for each in log[stood[at] :])]
            for at in into:
                there = (stood[at], len(logs[at]))
                rows.append(row(n, at[1], (began[n], ends[n]), there, sum(e[0] == n for e in logs[at][stood[at] :])))
            if not into and ends[n] > began[n]:
                rows.append(row(n, NO_PARTITION, (began[n], ends[n]), (0, 0)))
    return rows, logs, ends


def ranges_of(rows: Sequence[LedgerRow]) -> FlowRanges:
    found = FlowRanges()
    for each in rows:
        found.add(each)
    return found


def copied(batches: Sequence[Sequence[int]], partitions: int, salt: int) -> Tuple[FlowRanges, Logs, List[int]]:
    rows, logs, ends = rows_of(batches, partitions, salt)
    return ranges_of(rows), logs, ends


def merged(rows: Sequence[LedgerRow], share: int) -> List[LedgerRow]:
    """As compaction leaves old rows: so many in a row of two partitions are one that spans them."""
    by_pair: Dict[Tuple[int, Optional[int]], List[LedgerRow]] = {}
    for each in rows:
        by_pair.setdefault((each.partition, each.remote_partition), []).append(each)
    return [_spanning(own[at : at + share]) for own in by_pair.values() for at in range(0, len(own), share)]


def _spanning(rows: Sequence[LedgerRow]) -> LedgerRow:
    return replace(
        rows[0],
        upstream_offset=min(each.upstream_offset for each in rows),
        downstream_offset=min(each.downstream_offset for each in rows),
        record_count=sum(each.record_count for each in rows),
        upstream_until=max(each.upstream_until or 0 for each in rows),
        downstream_until=max(each.downstream_until or 0 for each in rows),
    )


def decided(
    ranges: FlowRanges,
    logs: Logs,
    at: Mapping[int, int],
    partitions: int,
    target: Optional[Mapping[str, TopicDescription]] = None,
) -> List[Decision]:
    named = flow(change=RecordChange(rename=((".*", ("all",)),), partitioner=KEY))
    source = {"orders": TopicDescription("orders", "s", partitions)}
    there = {"all": TopicDescription("all", "r", 2)} if target is None else target
    feeds = feeds_of(named, ranges, source, there, ["orders"])
    found = Survey(
        pairs={},
        positions={"g": {("orders", n): CommittedOffset(offset) for n, offset in at.items()}},
        present={"g": {}},
        groups={},
        logs={each: OffsetRange(0, len(log)) for each, log in logs.items()},
    )
    return decide_there(found, Known(FlowMaps({}), {}, "B"), feeds, PositionsAhead())


def decided_back(ranges: FlowRanges, at: Mapping[int, int], ends: Sequence[int]) -> List[Decision]:
    """Where a group resumes on the source that stands so on the remote partitions."""
    named = flow(change=RecordChange(rename=((".*", ("all",)),), partitioner=KEY))
    source = {"orders": TopicDescription("orders", "s", len(ends))}
    feeds = feeds_of(named, ranges, source, {"all": TopicDescription("all", "r", 2)}, ["orders"])
    found = Survey(
        pairs={},
        positions={"g": {("all", n): CommittedOffset(offset) for n, offset in at.items()}},
        present={"g": {}},
        groups={},
        logs={("orders", n): OffsetRange(0, end) for n, end in enumerate(ends)},
    )
    return decide_back(found, Known(FlowMaps({}), {}, "A", TO_UPSTREAM), feeds)


COUNTS = st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=1, max_size=9)


@given(batches=COUNTS, salt=st.integers(0, 1), cuts=st.tuples(*[st.floats(0, 1)] * 3))
def test_nothing_unread_is_passed_over_and_no_more_is_read_again_than_is_told(
    batches: List[List[int]], salt: int, cuts: Tuple[float, float, float]
) -> None:
    ranges, logs, ends = copied(batches, 3, salt)
    at = {n: round(cut * ends[n]) for n, cut in enumerate(cuts)}
    decisions = decided(ranges, logs, at, 3)
    assert [each.there for each in decisions] == REMOTES
    for each in decisions:
        place, log = each.translation.new_offset, logs[each.there]
        assert place is not None and each.translation.commit
        read = [offset < at[n] for n, offset in log]
        assert all(read[:place])
        assert sum(read[place:]) <= (each.translation.reread or 0)
        assert each.translation.verdict in ("exact", "clamped")


@given(
    batches=COUNTS,
    salt=st.integers(0, 1),
    cuts=st.tuples(*[st.floats(0, 1)] * 3),
    without=st.sets(st.integers(0, 2), max_size=1),
    share=st.integers(1, 4),
    again=st.lists(st.integers(0, 60), max_size=4),
    unwritten=st.integers(0, 2),
)
def test_nothing_unread_is_passed_over_where_rows_repeat_or_were_merged_or_the_last_are_not_written_yet(
    batches: List[List[int]],
    salt: int,
    cuts: Tuple[float, float, float],
    without: Set[int],
    share: int,
    again: List[int],
    unwritten: int,
) -> None:
    reported, _, known = rows_of(batches[: max(1, len(batches) - unwritten)], 3, salt)
    _, logs, _ = rows_of(batches, 3, salt)
    rows = merged(reported, share) + [reported[n % len(reported)] for n in again]
    at = {n: round(cut * known[n]) for n, cut in enumerate(cuts) if n not in without}
    for each in decided(ranges_of(rows), logs, at, 3):
        place, log = each.translation.new_offset, logs[each.there]
        if place is not None:
            read = [offset < at.get(n, 0) for n, offset in log]
            assert all(read[:place])
            assert sum(read[place:]) <= (each.translation.reread or 0)


def test_group_before_the_first_copied_record_is_told_so_unless_others_had_written_there_before() -> None:
    begun = [row(0, NO_PARTITION, (30, 30), (0, 0)), row(NO_PARTITION, 0, (0, 0), (500, 500))]
    ranges = ranges_of([*begun, row(0, 0, (30, 40), (500, 510), 10)])
    named = flow(change=RecordChange(partitioner=KEY, rename=((".*", ("all",)),)))
    topics = {"orders": TopicDescription("orders", "s", 1)}, {"all": TopicDescription("all", "r", 1)}
    feeds = feeds_of(named, ranges, *topics, ["orders"])
    for log_start, verdict in ((500, "before first copied record"), (0, "untranslatable")):
        place = place_there(("all", 0), {("orders", 0): 10}, OffsetRange(log_start, 510), feeds)
        assert isinstance(place, str) == (verdict == "untranslatable")
        if isinstance(place, Place):
            assert (place.kind, place.offset) == ("before", 500)
    # On the way back, too, what lies before may be copies of what it has not read.
    for offset, found in ((499, "all-0 was not read up to where this ledger begins"), (500, 30), (510, 40)):
        back = place_back(("orders", 0), {("all", 0): offset}, OffsetRange(0, 40), feeds)
        assert found == (back if isinstance(back, str) else back.offset)


@given(
    batches=COUNTS,
    salt=st.integers(0, 1),
    cuts=st.tuples(*[st.floats(0, 1)] * 2),
    without=st.sets(st.integers(0, 1), max_size=1),
    share=st.integers(1, 4),
    unwritten=st.integers(0, 2),
)
def test_on_the_way_back_nothing_unread_lies_before_the_place_and_no_more_is_read_again_than_is_told(
    batches: List[List[int]],
    salt: int,
    cuts: Tuple[float, float],
    without: Set[int],
    share: int,
    unwritten: int,
) -> None:
    reported, _, _ = rows_of(batches[: max(1, len(batches) - unwritten)], 3, salt)
    _, logs, ends = rows_of(batches, 3, salt)
    at = {n: round(cut * len(logs["all", n])) for n, cut in enumerate(cuts) if n not in without}
    read = {record for n, place in at.items() for record in logs["all", n][:place]}
    for each in decided_back(ranges_of(merged(reported, share)), at, ends):
        offset, (_, number) = each.translation.new_offset, each.there
        if offset is not None:
            assert all((number, before) in read for before in range(offset))
            assert sum((number, behind) in read for behind in range(offset, ends[number])) <= (
                each.translation.reread or 0
            )


def test_group_that_has_read_a_remote_topic_up_to_the_end_of_a_micro_batch_comes_home_exactly() -> None:
    batches = [[3, 2, 0], [1, 0, 4]]
    ranges, _, ends = copied(batches, 3, 0)
    for count, at in ((1, [3, 2, 0]), (2, ends)):
        _, logs, _ = rows_of(batches[:count], 3, 0)
        found = decided_back(ranges, {n: len(log) for (_, n), log in logs.items()}, ends)
        assert [(each.translation.new_offset, each.translation.verdict) for each in found] == [
            (offset, "exact") for offset in at
        ]
    # Read to its end and beyond, where markers or another's records lie.
    assert {each.translation.verdict for each in decided_back(ranges, {0: 99, 1: 99}, ends)} == {"exact"}
    # Where the source has more, its copies may be there and not in the ledger yet.
    found = decided_back(ranges, {0: 99, 1: 99}, [each + 5 for each in ends])
    assert [(each.translation.new_offset, each.translation.reread) for each in found] == [(end, 5) for end in ends]


def test_on_the_way_back_a_remote_partition_that_was_not_read_keeps_all_of_the_micro_batch() -> None:
    ranges, logs, ends = copied([[2, 2, 2]] * 3, 3, 0)
    middle = len(rows_of([[2, 2, 2]], 3, 0)[1]["all", 0])
    found = decided_back(ranges, {0: middle, 1: len(logs["all", 1])}, ends)
    assert [(each.translation.new_offset, each.here) for each in found] == [(2, ("all", 0))] * 3
    assert {each.translation.verdict for each in found} == {"clamped"}
    (first, *_) = decided_back(ranges, {0: middle}, ends)
    assert first.translation.verdict == "untranslatable: there is no position on all-1, where its records may lie too"


def test_group_that_is_where_a_micro_batch_ended_in_each_partition_reads_nothing_again() -> None:
    ranges, logs, ends = copied([[3, 2, 0], [1, 0, 4]], 3, 0)
    for at in ({0: 3, 1: 2, 2: 0}, dict(enumerate(ends))):
        for each in decided(ranges, logs, at, 3):
            assert (each.translation.verdict, each.translation.reread) == ("exact", 0)
            assert each.translation.new_offset == sum(offset < at[n] for n, offset in logs[each.there])


def test_one_partition_that_lags_holds_the_others_back_and_stands_for_them() -> None:
    ranges, logs, ends = copied([[2, 2, 2]] * 5, 3, 0)
    for each in decided(ranges, logs, {0: ends[0], 1: 2, 2: ends[2]}, 3):
        assert each.here == ("orders", 1)
        assert each.translation.verdict == "clamped"


def test_group_ahead_of_the_copy_is_held_and_one_without_a_position_is_not_guessed() -> None:
    ranges, logs, _ = copied([[2, 2, 2]], 3, 0)
    (first, _) = decided(ranges, logs, {0: 5, 1: 2, 2: 2}, 3)
    assert first.translation.verdict == "held: ahead of the ledger by 3"
    (first, _) = decided(ranges, logs, {0: 2, 2: 2}, 3)
    assert first.translation.verdict == (
        "untranslatable: there is no position on orders-1, whose records lie there too"
    )
    assert first.translation.new_offset is None


def test_partition_of_which_nothing_was_copied_needs_no_position() -> None:
    ranges, logs, _ = copied([[2, 0, 2]], 3, 0)
    assert {each.translation.verdict for each in decided(ranges, logs, {0: 2, 2: 2}, 3)} == {"exact"}


def test_source_partition_bounds_only_those_that_hold_records_of_it() -> None:
    ranges = ranges_of([row(0, 0, (0, 4), (0, 4), 4), row(1, 1, (0, 4), (0, 4), 4)])
    logs: Logs = {("all", n): [(n, offset) for offset in range(4)] for n in (0, 1)}
    assert [each.translation.new_offset for each in decided(ranges, logs, {0: 4, 1: 0}, 2)] == [4, 0]


@pytest.mark.parametrize("topics", [{}, {"all": TopicDescription("all", "other", 2)}])
def test_remote_topic_that_is_another_one_is_not_translated_to(topics: Mapping[str, TopicDescription]) -> None:
    ranges, logs, ends = copied([[2, 2, 2]], 3, 0)
    for each in decided(ranges, logs, dict(enumerate(ends)), 3, topics):
        assert each.translation.verdict == "untranslatable: all is not the topic that was copied into"


def test_source_topic_that_is_another_one_by_now_is_not_translated() -> None:
    ranges, logs, _ = copied([[2, 2, 2]], 3, 0)
    other = ranges_of([replace(each, source_topic_id="old") for each in rows_of([[2, 2, 2]], 3, 0)[0]])
    assert {each.translation.verdict for each in decided(ranges, logs, {0: 2, 1: 2, 2: 2}, 3)} == {"exact"}
    for each in decided(other, logs, {0: 2, 1: 2, 2: 2}, 3):
        assert each.translation.verdict == "untranslatable: orders was re-created and nothing of it is copied yet"
