"""Groups of flows that place records anew: nothing that a group has not read lies before the place that it is given."""

from __future__ import annotations

from dataclasses import replace
from typing import Collection, Dict, List, Mapping, Optional, Sequence, Set, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_lib.config.record_change import KEY, RecordChange
from mirror_lib.facts import CommittedOffset, OffsetRange, TopicDescription, TopicPartition
from mirror_lib.state.pass_thinning import KEPT_WHOLE, SHARE, merged_into
from mirror_lib.state.row_passes import ELSEWHERE, REMOTE, SOURCE, PassRow, RowPass
from mirror_lib.translate.ahead import PositionsAhead
from mirror_lib.translate.decisions import Decision, Known
from mirror_lib.translate.maps import FlowMaps
from mirror_lib.translate.partition_map import Place
from mirror_lib.translate.placed import decide_placed, placed_at
from mirror_lib.translate.placed_history import PassHistory
from mirror_lib.translate.placed_look import decide_back, feeds_of, place_back
from mirror_lib.translate.survey import Survey
from mirror_lib.translate.verdicts import TO_UPSTREAM
from tests.unit.test_plan import flow

REMOTES = [("all", 0), ("all", 1)]
# A record: its source partition and offset.
Record = Tuple[int, int]
Logs = Dict[TopicPartition, List[Record]]


def passes_of(
    batches: Sequence[Sequence[int]],
    partitions: int,
    salt: int,
    ends_empty: bool,
    elsewhere: Collection[int] = (),
    born: Sequence[int] = (0, 0, 0),
    thinned: bool = False,
) -> Tuple[PassHistory, Logs, List[int]]:
    """So many records of each source partition in each pass, spread over both remote partitions by their offsets.

    The passes `elsewhere` are in another process's table. A partition is there from pass `born` on. With `thinned` the
    table was made small before it is read.
    """
    ends, own = [0] * partitions, []
    logs: Logs = {at: [] for at in REMOTES}
    others: List[PassRow] = []
    for number, counts in enumerate([*batches, *([[0] * partitions] if ends_empty else [])]):
        rows = [PassRow(REMOTE, topic, "r", n, len(logs[topic, n])) for topic, n in REMOTES]
        for n, count in enumerate(counts):
            if number < born[n]:
                continue
            rows.append(PassRow(SOURCE, "orders", "s", n, ends[n], ends[n] + count))
            for offset in range(ends[n], ends[n] + count):
                logs["all", (offset * 7 + n + salt) % 2].append((n, offset))
            ends[n] += count
        if number in elsewhere:
            others = [PassRow(ELSEWHERE, "", "", 0, number)]
            continue
        own.append(RowPass(number, (*rows, *others)))
        others = []
    history = PassHistory()
    assert all(history.add(each) for each in (merged(own, 2, 1) if thinned else own))
    return history, logs, ends


def merged(passes: Sequence[RowPass], whole: int, share: int) -> List[RowPass]:
    """What `PassThinning` makes of them; the last one is left alone."""
    begun = {row.place: each.number for each in reversed(passes) for row in each.of(REMOTE)}
    borders = {*begun.values(), *(each.number for each in passes if each.of(ELSEWHERE))}
    into = merged_into([each.number for each in passes], borders, whole, share)
    found: Dict[int, Dict[Tuple[str, str, str, int], PassRow]] = {}
    for each in passes:
        rows = found.setdefault(into[each.number], {})
        for row in each.rows:
            first = rows.setdefault((row.side, row.topic, row.topic_id, row.partition), row)
            rows[row.side, row.topic, row.topic_id, row.partition] = replace(
                first,
                from_offset=min(first.from_offset, row.from_offset),
                until_offset=max(first.until_offset or 0, row.until_offset) if row.until_offset is not None else None,
            )
    return [RowPass(number, tuple(rows.values())) for number, rows in sorted(found.items())]


def decided(
    history: PassHistory,
    logs: Logs,
    at: Mapping[int, int],
    partitions: int,
    target: Optional[Mapping[str, TopicDescription]] = None,
) -> List[Decision]:
    named = flow(change=RecordChange(rename=((".*", ("all",)),), partitioner=KEY))
    source = {"orders": TopicDescription("orders", "s", partitions)}
    there = {"all": TopicDescription("all", "r", 2)} if target is None else target
    feeds = feeds_of(named, history, source, there, ["orders"])
    found = Survey(
        pairs={},
        positions={"g": {("orders", n): CommittedOffset(offset) for n, offset in at.items()}},
        present={"g": {}},
        groups={},
        logs={each: OffsetRange(0, len(log)) for each, log in logs.items()},
    )
    return decide_placed(found, Known(FlowMaps({}), {}, "B"), history, feeds, PositionsAhead())


COUNTS = st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=1, max_size=9)


@given(batches=COUNTS, salt=st.integers(0, 1), ends_empty=st.booleans(), cuts=st.tuples(*[st.floats(0, 1)] * 3))
def test_nothing_unread_is_passed_over_and_no_more_is_read_again_than_is_told(
    batches: List[List[int]], salt: int, ends_empty: bool, cuts: Tuple[float, float, float]
) -> None:
    history, logs, ends = passes_of(batches, 3, salt, ends_empty)
    at = {n: round(cut * ends[n]) for n, cut in enumerate(cuts)}
    decisions = decided(history, logs, at, 3)
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
    elsewhere=st.sets(st.integers(0, 8), max_size=3),
    born=st.tuples(*[st.integers(0, 5)] * 3),
    cuts=st.tuples(*[st.floats(0, 1)] * 3),
    without=st.sets(st.integers(0, 2), max_size=1),
    thinned=st.booleans(),
)
def test_nothing_unread_is_passed_over_where_others_did_some_of_the_passes_or_old_ones_were_merged(
    batches: List[List[int]],
    salt: int,
    elsewhere: Set[int],
    born: Tuple[int, int, int],
    cuts: Tuple[float, float, float],
    without: Set[int],
    thinned: bool,
) -> None:
    history, logs, ends = passes_of(batches, 3, salt, True, elsewhere & set(range(len(batches))), born, thinned)
    at = {n: round(cut * ends[n]) for n, cut in enumerate(cuts) if n not in without}
    for each in decided(history, logs, at, 3):
        place, log = each.translation.new_offset, logs[each.there]
        if place is not None:
            read = [offset < at.get(n, 0) for n, offset in log]
            assert all(read[:place])
            assert sum(read[place:]) <= (each.translation.reread or 0)


def test_position_between_two_passes_of_this_table_is_behind_the_first_where_another_process_did_more() -> None:
    history, logs, _ = passes_of([[4, 0, 0]] * 4, 3, 0, True, elsewhere=[1, 2])
    (first, _) = decided(history, logs, {0: 10}, 3)
    assert (first.translation.new_offset, first.translation.verdict) == (0, "clamped")
    (first, _) = decided(history, logs, {0: 12}, 3)
    assert (first.translation.new_offset, first.translation.reread) == (6, 0)
    # The table of the other one, which does not know what came before.
    history, logs, _ = passes_of([[4, 0, 0]] * 3, 3, 0, True, elsewhere=[0])
    (first, _) = decided(history, logs, {0: 3}, 3)
    assert first.translation.verdict == (
        "untranslatable: the group has not read all that lies before what this ledger knows of orders-0"
    )


def test_what_only_another_process_copied_counts_as_copied_and_as_read() -> None:
    history, _, _ = passes_of([[0, 0, 1], [1, 0, 0]], 3, 0, True, elsewhere=[0])
    (first, _) = decided(history, {at: [] for at in REMOTES}, {0: 1}, 3)
    assert first.translation.verdict == "untranslatable: there is no position on orders-2, whose records lie there too"
    history, logs, _ = passes_of([[0, 0, 1], [1, 0, 0]], 3, 0, True, elsewhere=[1])
    (first, _) = decided(history, logs, {0: 1, 1: 0, 2: 0}, 3)
    assert (first.translation.new_offset, first.translation.reread) == (0, len(logs["all", 0]))


def test_group_before_the_first_copied_record_is_told_so_unless_others_had_written_there_before() -> None:
    begun = RowPass(0, (PassRow(SOURCE, "orders", "s", 0, 30, 40), PassRow(REMOTE, "all", "r", 0, 500)))
    done = RowPass(1, (PassRow(SOURCE, "orders", "s", 0, 40, 40), PassRow(REMOTE, "all", "r", 0, 510)))
    history = PassHistory()
    assert history.add(begun) and history.add(done)
    for log_start, verdict in ((500, "before first copied record"), (0, "untranslatable")):
        named = flow(change=RecordChange(partitioner=KEY, rename=((".*", ("all",)),)))
        feeds = feeds_of(
            named,
            history,
            {"orders": TopicDescription("orders", "s", 1)},
            {"all": TopicDescription("all", "r", 1)},
            ["orders"],
        )
        read = {("orders", 0): history.read(("orders", 0), 10)}
        place = placed_at(("all", 0), read, OffsetRange(log_start, 510), history, feeds)
        assert isinstance(place, str) == (verdict == "untranslatable")
        if isinstance(place, Place):
            assert (place.kind, place.offset) == ("before", 500)
    # On the way back, too, what lies before may be copies of what it has not read.
    for offset, found in ((499, "all-0 was not read up to where this ledger begins"), (500, 30), (510, 40)):
        through = {("all", 0): history.read_remote(("all", 0), offset)}
        back = place_back(("orders", 0), through, OffsetRange(0, 40), history, feeds)
        assert found == (back if isinstance(back, str) else back.offset)


def decided_back(history: PassHistory, at: Mapping[int, int], ends: Sequence[int]) -> List[Decision]:
    """Where a group goes on on the source that stands so on the remote partitions."""
    named = flow(change=RecordChange(rename=((".*", ("all",)),), partitioner=KEY))
    source = {"orders": TopicDescription("orders", "s", len(ends))}
    feeds = feeds_of(named, history, source, {"all": TopicDescription("all", "r", 2)}, ["orders"])
    found = Survey(
        pairs={},
        positions={"g": {("all", n): CommittedOffset(offset) for n, offset in at.items()}},
        present={"g": {}},
        groups={},
        logs={("orders", n): OffsetRange(0, end) for n, end in enumerate(ends)},
    )
    return decide_back(found, Known(FlowMaps({}), {}, "A", TO_UPSTREAM), history, feeds)


@given(
    batches=COUNTS,
    salt=st.integers(0, 1),
    ends_empty=st.booleans(),
    elsewhere=st.sets(st.integers(0, 8), max_size=3),
    born=st.tuples(*[st.integers(0, 5)] * 3),
    cuts=st.tuples(*[st.floats(0, 1)] * 2),
    without=st.sets(st.integers(0, 1), max_size=1),
    thinned=st.booleans(),
)
def test_on_the_way_back_nothing_unread_lies_before_the_place_and_no_more_is_read_again_than_is_told(
    batches: List[List[int]],
    salt: int,
    ends_empty: bool,
    elsewhere: Set[int],
    born: Tuple[int, int, int],
    cuts: Tuple[float, float],
    without: Set[int],
    thinned: bool,
) -> None:
    others = elsewhere & set(range(len(batches)))
    history, logs, ends = passes_of(batches, 3, salt, ends_empty or bool(others), others, born, thinned)
    at = {n: round(cut * len(logs["all", n])) for n, cut in enumerate(cuts) if n not in without}
    read = {record for n, place in at.items() for record in logs["all", n][:place]}
    for each in decided_back(history, at, ends):
        offset, (_, number) = each.translation.new_offset, each.there
        if offset is not None:
            assert all((number, before) in read for before in range(offset))
            assert sum((number, behind) in read for behind in range(offset, ends[number])) <= (
                each.translation.reread or 0
            )


def test_group_that_has_read_a_remote_topic_up_to_the_end_of_a_pass_comes_home_exactly() -> None:
    history, _, ends = passes_of([[3, 2, 0], [1, 0, 4]], 3, 0, ends_empty=True)
    for passes, at in ((1, [3, 2, 0]), (2, ends)):
        place = {n: history.stood(("all", n), passes) or 0 for n in (0, 1)}
        found = decided_back(history, place, ends)
        assert [(each.translation.new_offset, each.translation.verdict) for each in found] == [
            (offset, "exact") for offset in at
        ]
    # Read to its end and beyond, where markers or another's records lie.
    assert {each.translation.verdict for each in decided_back(history, {0: 99, 1: 99}, ends)} == {"exact"}


def test_on_the_way_back_a_remote_partition_that_was_not_read_keeps_all_of_the_pass() -> None:
    history, logs, ends = passes_of([[2, 2, 2]] * 3, 3, 0, ends_empty=True)
    middle = history.stood(("all", 0), 1)
    assert middle is not None
    found = decided_back(history, {0: middle, 1: len(logs["all", 1])}, ends)
    assert [(each.translation.new_offset, each.here) for each in found] == [(2, ("all", 0))] * 3
    assert {each.translation.verdict for each in found} == {"clamped"}
    (first, *_) = decided_back(history, {0: middle}, ends)
    assert first.translation.verdict == "untranslatable: there is no position on all-1, where its records may lie too"


def test_old_passes_become_few_and_what_a_group_reads_again_stays_a_small_share_of_what_it_is_behind() -> None:
    into: Dict[int, int] = {}
    for count in range(0, 30_000, 700):
        # Merged again and again, as more come.
        left = sorted(set(into.values()))
        again = merged_into([*left, *range(count, count + 700)], ())
        into = {number: again[into.get(number, number)] for number in range(count + 700)}
        assert into[count + 699 - KEPT_WHOLE + 1] == count + 699 - KEPT_WHOLE + 1
    last = max(into)
    first = {into[number]: number for number in reversed(range(last + 1))}
    assert len(first) <= KEPT_WHOLE + SHARE * (last // KEPT_WHOLE).bit_length()
    assert all(end - begin < max(1, (last - begin) / SHARE) for end, begin in first.items())


def test_passes_of_two_processes_stay_apart() -> None:
    assert merged_into(range(9), [3], 1, 1)[2] == 2 and merged_into(range(9), [], 1, 1)[2] == 3


def test_group_that_is_where_a_pass_ended_in_each_partition_reads_nothing_again() -> None:
    history, logs, ends = passes_of([[3, 2, 0], [1, 0, 4]], 3, 0, ends_empty=True)
    for at in ({0: 3, 1: 2, 2: 0}, dict(enumerate(ends))):
        for each in decided(history, logs, at, 3):
            assert (each.translation.verdict, each.translation.reread) == ("exact", 0)
            assert each.translation.new_offset == sum(offset < at[n] for n, offset in logs[each.there])


def test_one_partition_that_lags_holds_the_others_back_and_stands_for_them() -> None:
    history, logs, ends = passes_of([[2, 2, 2]] * 5, 3, 0, ends_empty=True)
    for each in decided(history, logs, {0: ends[0], 1: 2, 2: ends[2]}, 3):
        assert each.here == ("orders", 1)
        assert each.translation.verdict == "clamped"


def test_group_ahead_of_the_passes_is_held_and_one_without_a_position_is_not_guessed() -> None:
    history, logs, _ = passes_of([[2, 2, 2]], 3, 0, ends_empty=True)
    (first, _) = decided(history, logs, {0: 5, 1: 2, 2: 2}, 3)
    assert first.translation.verdict == "held: ahead of the mirror by 3"
    (first, _) = decided(history, logs, {0: 2, 2: 2}, 3)
    assert first.translation.verdict == (
        "untranslatable: there is no position on orders-1, whose records lie there too"
    )
    assert first.translation.new_offset is None


def test_partition_of_which_nothing_was_copied_needs_no_position() -> None:
    history, logs, _ = passes_of([[2, 0, 2]], 3, 0, ends_empty=True)
    assert {each.translation.verdict for each in decided(history, logs, {0: 2, 2: 2}, 3)} == {"exact"}


@pytest.mark.parametrize("topics", [{}, {"all": TopicDescription("all", "other", 2)}])
def test_remote_topic_that_is_another_one_is_not_translated_to(topics: Mapping[str, TopicDescription]) -> None:
    history, logs, ends = passes_of([[2, 2, 2]], 3, 0, ends_empty=True)
    for each in decided(history, logs, dict(enumerate(ends)), 3, topics):
        assert each.translation.verdict == "untranslatable: all is not the topic that was copied into"
