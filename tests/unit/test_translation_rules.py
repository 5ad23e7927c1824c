"""What is done about one group on one partition: never past an unread record, never under a client's feet, said why."""

from __future__ import annotations

from array import array
from dataclasses import replace
from itertools import takewhile
from typing import Any, Dict, List, Optional

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from mirror_lib.facts import CommittedOffset, ConsumerGroup, GroupMember, OffsetRange
from mirror_lib.groups.map import FlowMaps
from mirror_lib.groups.translation import (
    ACTIVE,
    FOREIGN,
    MOVED_BACK,
    TO_DOWNSTREAM,
    TO_UPSTREAM,
    UNRECORDED,
    GroupPosition,
    Translation,
    TranslationRules,
    only_we_moved,
    translate,
)
from mirror_lib.ledger.intervals import PartitionMap
from mirror_lib.ledger.records import GroupOffset, PartitionKey
from tests.unit.offset_histories import History, Triple, histories

KEY = PartitionKey("u1", "u2", "orders", 0)
RUN = PartitionMap.of([(100, 50, 10), (120, 62, 10)])
LOG = OffsetRange(50, 72)
HERE = GroupPosition(CommittedOffset(104, "m"), TO_DOWNSTREAM, RUN, LOG, end=110)
REWIND = TranslationRules(allow_rewind=True)
INCLUDE = TranslationRules(simple_groups="include")
SHARED = TranslationRules(shared=True)
EMPTY = ConsumerGroup("g", "Empty", False, ())
SIMPLE = replace(EMPTY, simple=True)
MOVED = GroupOffset("B", "g", "A.orders", 0, 51, "", 57, "", "orders", 101, "exact", "commit")
LIVE = ConsumerGroup("g", "Stable", False, (GroupMember("/h"),))


def moved_to(offset: int) -> GroupOffset:
    """The audit row of the group's first commit."""
    return replace(MOVED, previous_offset=None, new_offset=offset)


def at(offset: int, present: Optional[int] = None) -> GroupPosition:
    found = None if present is None else CommittedOffset(present)
    return replace(HERE, position=CommittedOffset(offset, "m"), present=found)


RIGHT, STAYS = Translation("exact", 54, "m", commit=True, reread=0), TranslationRules()
BEFORE = Translation("before first copied record", 50, commit=True, reread=0)
CLAMPED = Translation("clamped", 58, commit=True, reread=0, lost=4)
BEHIND_MARKERS = Translation("exact", 61, "m", commit=True, reread=0)
FROM_58, FROM_61, TO_64 = {"log": OffsetRange(58, 72)}, {"log": OffsetRange(61, 72)}, {"log": OffsetRange(50, 64)}


@pytest.mark.parametrize(
    ("offset", "present", "changes", "rules", "expected"),
    [
        pytest.param(104, None, {}, STAYS, RIGHT, id="absent there"),
        pytest.param(104, 51, {}, STAYS, RIGHT, id="lags there"),
        pytest.param(104, 54, {}, STAYS, replace(RIGHT, commit=False), id="right there"),
        pytest.param(104, 57, {}, STAYS, Translation("would move backwards", 54, "m", False, 3), id="farther there"),
        pytest.param(104, 57, {}, REWIND, replace(RIGHT, reread=3), id="farther there, and may go back"),
        pytest.param(137, 51, {}, STAYS, Translation("held: ahead of the ledger by 7"), id="ahead of the mirror"),
        pytest.param(99, None, {}, STAYS, BEFORE, id="older than the first copied record"),
        pytest.param(99, 50, {}, STAYS, replace(BEFORE, commit=False), id="older, and there already"),
        # The loss is counted; what only markers left is none.
        pytest.param(104, None, FROM_58, STAYS, CLAMPED, id="records left the other log"),
        pytest.param(104, 54, FROM_58, STAYS, CLAMPED, id="records left it, behind the group"),
        pytest.param(104, 58, FROM_58, STAYS, replace(CLAMPED, commit=False), id="records left it, and there already"),
        pytest.param(115, None, FROM_61, STAYS, BEHIND_MARKERS, id="markers left the other log"),
        pytest.param(115, 60, FROM_61, STAYS, BEHIND_MARKERS, id="markers left it, behind the group"),
        pytest.param(126, None, TO_64, STAYS, Translation("clamped", 64, "m", True, 4), id="the log ends before"),
        pytest.param(126, 68, TO_64, STAYS, Translation("exact", 68, "m", False, 0), id="it ends before, and right"),
    ],
)
def test_group_is_moved_to_the_translated_offset_or_left_for_a_reason(
    offset: int, present: Optional[int], changes: Dict[str, Any], rules: TranslationRules, expected: Translation
) -> None:
    assert translate(replace(at(offset, present), **changes), rules) == expected


def test_group_before_what_a_takeover_compared_is_held_for_its_records_are_there_unread() -> None:
    taken_over = replace(at(99), map=replace(RUN, older=True))
    assert (translate(taken_over).commit, translate(at(99)).commit) == (False, True)
    assert "take-over" in translate(taken_over).verdict
    assert translate(replace(taken_over, position=CommittedOffset(100))).verdict == "exact"
    back = replace(taken_over, direction=TO_UPSTREAM, position=CommittedOffset(49))
    assert not translate(back).commit


def test_ledger_that_does_not_cover_the_remote_log_from_its_start_moves_no_group_that_is_before_it() -> None:
    recreated = PartitionMap.of([(5000, 4800, 10)])
    lagging = replace(at(100), map=recreated, log=OffsetRange(0, 4810))
    unknown = Translation(f"untranslatable: {UNRECORDED}")
    for present in (None, 0, 90, 4800):
        stands = None if present is None else CommittedOffset(present)
        assert translate(replace(lagging, present=stands)) == unknown
    assert translate(replace(lagging, position=CommittedOffset(5001))).new_offset == 4801
    home = replace(lagging, direction=TO_UPSTREAM, log=OffsetRange(0, 5010))
    assert translate(home) == unknown
    # The earlier records are gone there.
    expired = replace(lagging, log=OffsetRange(4805, 4810))
    assert translate(expired).new_offset == 4805


def test_ledger_covers_the_remote_log_where_only_markers_are_before_its_first_row() -> None:
    maps = FlowMaps({KEY: array("q", [40, 2, 10])})
    older = replace(at(20), map=maps.of(KEY), log=OffsetRange(0, 12))
    assert not translate(older).commit
    maps.pass_markers(KEY, 0)
    covered = replace(older, map=maps.of(KEY))
    assert translate(covered) == Translation("before first copied record", 0, commit=True, reread=0)
    for present in (0, 1, 2):
        assert not translate(replace(covered, present=CommittedOffset(present))).commit
    home = replace(covered, direction=TO_UPSTREAM, position=CommittedOffset(1), log=OffsetRange(0, 50))
    assert translate(home).new_offset == 40
    assert translate(replace(covered, position=CommittedOffset(44))).new_offset == 6


@pytest.mark.parametrize("present", [72, 73])
def test_group_at_the_end_follows_the_markers_there_and_stays(present: int) -> None:
    """Lag that only control records make would never go away."""
    maps = FlowMaps({KEY: array("q", [100, 50, 10, 120, 62, 10])})
    stands = replace(at(130, present), map=maps.of(KEY), log=OffsetRange(50, 75), last=moved_to(present))
    assert translate(replace(stands, present=CommittedOffset(72))).commit is False
    maps.pass_markers(KEY, 75)
    follows = replace(stands, map=maps.of(KEY))
    assert translate(follows) == Translation("exact", 75, "m", commit=True, reread=0)
    assert translate(replace(follows, present=CommittedOffset(75), last=moved_to(75))).commit is False
    not_at_the_end = translate(replace(follows, position=CommittedOffset(129), present=CommittedOffset(71)))
    assert (not_at_the_end.new_offset, not_at_the_end.commit) == (71, False)


ONE_RUN = PartitionMap.of([(100, 50, 30)])


@pytest.mark.parametrize(
    ("offset", "end", "a_map", "kept"),
    [
        pytest.param(104, 130, ONE_RUN, True, id="one shift to the end"),
        pytest.param(104, 131, ONE_RUN, False, id="a record that is not copied yet"),
        pytest.param(104, None, ONE_RUN, False, id="an unknown end"),
        pytest.param(104, 130, RUN, False, id="a marker in between"),
        pytest.param(124, 130, RUN, True, id="after the marker"),
        pytest.param(104, 130, PartitionMap.of([(100, 50, 29), (130, 80, 0)]), False, id="an offset without a record"),
        pytest.param(115, 130, RUN, False, id="in a gap"),
        pytest.param(130, 130, RUN, True, id="nothing after it"),
        pytest.param(99, 130, ONE_RUN, False, id="before the first record"),
    ],
)
def test_metadata_travels_only_where_all_offsets_that_it_may_describe_are_mapped_by_one_shift(
    offset: int, end: Optional[int], a_map: PartitionMap, kept: bool
) -> None:
    found = translate(replace(at(offset), map=a_map, log=OffsetRange(50, 90), end=end))
    assert (found.commit, found.metadata) == (True, "m" if kept else "")


@given(histories(), st.data())
def test_what_is_relative_to_the_offset_names_the_same_records_on_the_remote_log(
    history: History, data: st.DataObject
) -> None:
    """A reader that has processed any records after its offset, and keeps their distances from it."""
    position = data.draw(st.integers(0, history.end[0]))
    log = OffsetRange(0, history.end[1] + 2)
    case = GroupPosition(
        CommittedOffset(position, "m"), TO_DOWNSTREAM, PartitionMap.of(history.rows), log, end=history.end[0]
    )
    decided = translate(case)
    if decided.metadata and decided.new_offset is not None:
        for upstream in range(position, history.end[0]):
            assert history.copied[upstream] - upstream == decided.new_offset - position


def test_group_that_only_we_moved_goes_back_where_the_records_behind_it_were_copied_anew() -> None:
    put = replace(at(104, present=57), last=MOVED)
    back = Translation("moved back: the remote log lost its tail", 54, "m", commit=True, reread=3)
    assert translate(put) == back
    assert translate(replace(put, present=CommittedOffset(54), last=moved_to(54))).verdict == "exact"
    home = replace(put, direction=TO_UPSTREAM, position=CommittedOffset(54), log=OffsetRange(100, 140))
    home = replace(home, present=CommittedOffset(107), last=replace(MOVED, new_offset=107, from_offset=54))
    assert translate(home).verdict == "would move backwards"


@pytest.mark.parametrize(
    ("position", "stands", "last", "ours"),
    [
        pytest.param(104, 57, MOVED, True, id="as it was left"),
        pytest.param(100, 57, MOVED, False, id="reset on the source"),
        pytest.param(104, 58, MOVED, False, id="moved by another client"),
        pytest.param(104, 57, replace(MOVED, action="rollback"), False, id="put back by an undo"),
        pytest.param(104, 51, MOVED, False, id="a move that was not made"),
        pytest.param(104, 60, replace(MOVED, previous_offset=60, verdict=MOVED_BACK), True, id="back, and not made"),
        pytest.param(104, None, MOVED, False, id="not there"),
        pytest.param(104, 57, None, False, id="never moved"),
    ],
)
def test_only_what_nobody_else_moved_counts_as_moved_by_us_alone(
    position: int, stands: Optional[int], last: Optional[GroupOffset], ours: bool
) -> None:
    assert only_we_moved(position, stands, last) is ours


@pytest.mark.parametrize(
    ("present", "changes", "rules", "verdict"),
    [
        pytest.param(51, {}, STAYS, FOREIGN, id="somebody else committed"),
        pytest.param(51, {"last": moved_to(50)}, STAYS, FOREIGN, id="not where we put it"),
        pytest.param(51, {}, INCLUDE, "exact", id="included"),
        pytest.param(51, {"last": moved_to(51)}, STAYS, "exact", id="where we put it"),
        pytest.param(51, {"last": replace(MOVED, new_offset=53)}, STAYS, "exact", id="a crash before the commit"),
        pytest.param(51, {"left_at": 51}, STAYS, "exact", id="where it was translated from"),
        pytest.param(51, {"left_at": 50}, STAYS, FOREIGN, id="not where it was translated from"),
        pytest.param(None, {}, STAYS, "exact", id="its first offset"),
        pytest.param(51, {"by_mirror": True}, STAYS, "exact", id="MirrorMaker put it there"),
        pytest.param(51, {"by_mirror": True, "group": LIVE}, STAYS, ACTIVE, id="and it has members"),
        pytest.param(51, {"by_mirror": True}, SHARED, "exact", id="MirrorMaker put it on a shared topic"),
        pytest.param(51, {"group": EMPTY}, SHARED, ACTIVE, id="another flow may have put it on a shared topic"),
        pytest.param(51, {"group": EMPTY, "last": MOVED}, SHARED, "exact", id="where we put it on a shared topic"),
        pytest.param(51, {}, replace(SHARED, simple_groups="include"), ACTIVE, id="included on a shared topic"),
        pytest.param(None, {}, SHARED, "exact", id="its first offset on a shared topic"),
    ],
)
def test_simple_group_is_moved_only_where_no_client_can_have_committed_for_it(
    present: Optional[int], changes: Dict[str, Any], rules: TranslationRules, verdict: str
) -> None:
    found = translate(replace(at(104, present), **{"group": SIMPLE, **changes}), rules)
    assert (found.verdict, found.commit) == (verdict, verdict == "exact")


@pytest.mark.parametrize("state", ["Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"])
def test_group_with_members_is_never_moved(state: str) -> None:
    for group in (replace(LIVE, state=state), replace(EMPTY, state=state)):
        for rules in (TranslationRules(), REWIND, INCLUDE):
            decided = translate(replace(at(104, present=51), group=group), rules)
            assert (decided.verdict, decided.commit, decided.new_offset) == ("active on target", False, 54)


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        pytest.param(replace(at(137, 57), map="no", group=LIVE), "untranslatable: no", id="untranslatable"),
        # A run that copies the partition commits the offset, so it is no fault.
        pytest.param(replace(HERE, map=FlowMaps({}).of(KEY)), "held: ", id="nothing is copied yet"),
        pytest.param(replace(HERE, log=None), "untranslatable: ", id="no log there"),
        # Of several reasons the first counts.
        pytest.param(replace(at(137, 57), group=LIVE), "held: ahead of the ledger by 7", id="held"),
        pytest.param(replace(at(104, 57), group=LIVE), "active on target", id="active"),
        pytest.param(replace(at(104, 57), group=SIMPLE), "committed by another client", id="foreign"),
        pytest.param(replace(at(90, 57), log=OffsetRange(55, 72)), "would move backwards", id="backwards"),
    ],
)
def test_group_that_cannot_be_moved_is_left_for_the_first_reason(facts: GroupPosition, verdict: str) -> None:
    found = translate(facts)
    assert found.verdict.startswith(verdict) and not found.commit


def facts(history: History, data: st.DataObject) -> GroupPosition:
    """Any position and anything that may be true of the other side."""
    offset = st.integers(0, history.end[0] + 3)
    log = st.tuples(st.integers(0, history.end[1] + 2), st.integers(0, 4)).map(lambda t: OffsetRange(t[0], sum(t)))
    whole = st.just(OffsetRange(0, history.end[1] + 2))
    present = st.none() | st.integers(0, history.end[1] + 3).map(CommittedOffset)
    last = st.none() | st.integers(0, history.end[1]).map(lambda offset: moved_to(offset))
    return GroupPosition(
        CommittedOffset(data.draw(offset)),
        data.draw(st.sampled_from([TO_DOWNSTREAM, TO_UPSTREAM])),
        PartitionMap.of(history.rows),
        data.draw(st.none() | whole | log),
        data.draw(present),
        data.draw(st.sampled_from([None, EMPTY, SIMPLE, LIVE])),
        data.draw(last),
    )


ANY_RULES = st.builds(TranslationRules, st.booleans(), st.sampled_from(["exclude", "include"]), st.booleans())


@given(histories(), st.data(), ANY_RULES)
def test_what_is_committed_is_in_the_other_log_forward_and_not_committed_again(
    history: History, data: st.DataObject, rules: TranslationRules
) -> None:
    case = facts(history, data)
    decided = translate(case, rules)
    if not decided.commit:
        assert decided.new_offset is None or decided.reread is not None
        return
    assert case.log is not None and decided.new_offset is not None
    assert case.log.log_start <= decided.new_offset <= case.log.end
    assert case.group is None or not case.group.members
    assert rules.allow_rewind or case.present is None or case.present.offset < decided.new_offset
    written = CommittedOffset(decided.new_offset, decided.metadata)
    after = replace(case, present=written, group=case.group or SIMPLE, last=moved_to(written.offset))
    again = translate(after, rules)
    assert not again.commit and (again.verdict, again.new_offset) == (decided.verdict, decided.new_offset)


@given(histories(), st.data(), ANY_RULES)
def test_no_record_that_the_remote_log_holds_is_passed_unread(
    history: History, data: st.DataObject, rules: TranslationRules
) -> None:
    case = replace(facts(history, data), direction=TO_DOWNSTREAM)
    decided = translate(case, rules)
    if decided.new_offset is None or case.log is None:
        return
    unread = history.read_upstream(case.position.offset)
    held_by_log = [up for up in unread if case.log.log_start <= history.copied[up] < case.log.end]
    assert set(held_by_log) <= set(history.read_downstream(decided.new_offset))
    gone = [up for up in unread if history.copied[up] < case.log.log_start]
    assert decided.lost >= len([up for up in gone if up >= min(row[0] for row in history.rows)])


class MirroredGroup(RuleBasedStateMachine):
    """A log that is written, mirrored, expired and read on both sides while a translator works, crashing between
    its audit row and its commit. The mirror crashes between the remote log and its ledger, and the remote log may lose
    its tail, which is copied again with fewer markers."""

    def __init__(self) -> None:
        super().__init__()
        self.source: List[bool] = []
        self.remote: List[Optional[int]] = []
        self.copied_to = 0
        self.unreported: List[Triple] = []
        self.ledger: List[Triple] = []
        self.log_start = 0
        self.group = 0
        self.present: Optional[int] = None
        self.simple = True
        self.rows: List[GroupOffset] = []
        self.lost_its_tail = False
        self.was_reset = False
        self.passed_unread: List[int] = []

    @initialize(start=st.integers(0, 3))
    def anchor(self, start: int) -> None:
        self.remote = [None] * start
        self.ledger = [(0, start, 0)]

    @rule(visible=st.lists(st.booleans(), min_size=3, max_size=8))
    def produce(self, visible: List[bool]) -> None:
        self.source += visible

    @rule(count=st.integers(1, 12), fence=st.booleans(), killed=st.booleans())
    def mirror(self, count: int, fence: bool, killed: bool) -> None:
        if fence or self.unreported or self.lost_its_tail:
            self.remote.append(None)
        self.lost_its_tail = False
        for up in range(self.copied_to, min(self.copied_to + count, len(self.source))):
            if self.source[up]:
                self.unreported.append((up, len(self.remote), 1))
                self.remote.append(up)
            self.copied_to = up + 1
        if not killed:
            self.ledger += [*self.unreported, (self.copied_to, len(self.remote), 0)]
            self.unreported = []

    @rule(count=st.integers(1, 8))
    def lose_the_tail_of_the_remote_log(self, count: int) -> None:
        end = max(len(self.remote) - count, self.log_start, self.ledger[0][1])
        left = [up for up in self.remote[:end] if up is not None]
        self.copied_to = max(left, default=-1) + 1
        self.remote = self.remote[:end]
        known = [*self.ledger, *self.unreported]
        cut = [(up, down, min(count, end - down)) for up, down, count in known if count and down < end]
        self.ledger, self.unreported = [self.ledger[0], *cut, (self.copied_to, end, 0)], []
        self.lost_its_tail = True

    @rule(count=st.integers(1, 4))
    def work_on_the_source(self, count: int) -> None:
        self.group = min(self.group + count, len(self.source))

    @rule(count=st.integers(1, 4))
    def reset_on_the_source(self, count: int) -> None:
        self.group = max(self.group - count, 0)
        self.was_reset = True

    @rule(count=st.integers(1, 2))
    def expire(self, count: int) -> None:
        self.log_start = min(self.log_start + count, len(self.remote))

    @precondition(lambda self: self.present is not None)
    @rule(count=st.integers(1, 2))
    def work_on_the_target(self, count: int) -> None:
        self.present = min(max(self.present or 0, self.log_start) + count, len(self.remote))
        self.simple = False

    @precondition(lambda self: self.simple and self.present is not None)
    @rule()
    def group_that_only_we_moved_stands_before_all_that_it_has_not_read(self) -> None:
        found = translate(self._facts())
        if found.verdict in ("exact", "clamped", "before first copied record") and not found.commit:
            passed = self.remote[self.log_start : self.present]
            assert not [up for up in passed if up is not None and up >= self.group]
        assert found.verdict != "would move backwards" or self.was_reset

    @rule(rules=ANY_RULES, live=st.sampled_from([False, False, False, True]), killed=st.booleans())
    def translate(self, rules: TranslationRules, live: bool, killed: bool) -> None:
        decided = translate(self._facts(live), rules)
        assert live <= (not decided.commit)
        if not decided.commit:
            return
        assert decided.new_offset is not None
        back = rules.allow_rewind or decided.verdict.startswith("moved back")
        assert back or self.present is None or decided.new_offset > self.present
        # Until a move that was not made is made, the mirror moves the group back only where it was about to.
        self.was_reset = killed and not decided.verdict.startswith("moved back")
        self.rows.append(
            replace(
                MOVED,
                previous_offset=self.present,
                new_offset=decided.new_offset,
                from_offset=self.group,
                verdict=decided.verdict,
            )
        )
        if not killed:
            self._commit(decided.new_offset)

    def _commit(self, offset: int) -> None:
        passed = self.remote[max(self.present or 0, self.log_start) : offset]
        self.passed_unread += [up for up in passed if up is not None and up >= self.group]
        self.present = offset
        assert not translate(self._facts()).commit, "the second run writes nothing"

    def _map(self) -> PartitionMap:
        """With the markers after it, for a group that has read all that was copied."""
        known = PartitionMap.of(self.ledger)
        if self.group < known.upstream_end:
            return known
        markers = list(takewhile(lambda up: up is None, self.remote[known.downstream_end :]))
        return known.extended(array("q", (known.upstream_end, known.downstream_end + len(markers), 0)))

    def _facts(self, live: bool = False) -> GroupPosition:
        there = LIVE if live else None if self.present is None else replace(EMPTY, simple=self.simple)
        found = None if self.present is None else CommittedOffset(self.present)
        log = OffsetRange(self.log_start, len(self.remote))
        the_map, last = self._map(), self.rows[-1] if self.rows else None
        return GroupPosition(CommittedOffset(self.group), TO_DOWNSTREAM, the_map, log, found, there, last)

    @invariant()
    def no_record_is_passed_unread(self) -> None:
        assert not self.passed_unread

    @invariant()
    def group_without_members_that_only_we_committed_for_is_never_taken_for_a_live_one(self) -> None:
        if self.ledger:
            assert translate(self._facts()).verdict not in (ACTIVE, FOREIGN)


TestMirroredGroup = MirroredGroup.TestCase


class CopiesOffsetsLiterally(MirroredGroup):
    """The negative control: an offset here is taken for the same offset there."""

    def _facts(self, live: bool = False) -> GroupPosition:
        return replace(super()._facts(live), map=PartitionMap.of([(0, 0, 10_000)]))


def test_translator_that_skips_records_is_caught_by_the_same_machine() -> None:
    once_is_enough = settings(derandomize=True, max_examples=1000, phases=[Phase.generate])
    with pytest.raises(AssertionError):
        run_state_machine_as_test(CopiesOffsetsLiterally, settings=once_is_enough)
