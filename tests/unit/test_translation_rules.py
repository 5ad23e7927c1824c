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
    OLDER,
    TO_DOWNSTREAM,
    TO_UPSTREAM,
    UNRECORDED,
    GroupPosition,
    TranslationRules,
    translate,
)
from mirror_lib.ledger.intervals import PartitionMap
from mirror_lib.ledger.records import GroupOffset, PartitionKey
from tests.unit.offset_histories import History, Triple, histories

KEY = PartitionKey("u1", "u2", "orders", 0)
RUN = PartitionMap.of([(100, 50, 10), (120, 62, 10)])
LOG = OffsetRange(50, 72)
HERE = GroupPosition(CommittedOffset(104, "m"), TO_DOWNSTREAM, RUN, LOG, own_log=OffsetRange(0, 110))
REWIND, INCLUDE = TranslationRules(allow_rewind=True), TranslationRules(simple_groups="include")
SHARED, SHARED_TOO = TranslationRules(shared=True), TranslationRules(shared=True, simple_groups="include")
EMPTY = ConsumerGroup("g", "Empty", False, ())
SIMPLE = replace(EMPTY, simple=True)
MOVED = GroupOffset("B", "g", "A.orders", 0, 51, "", 57, "", "orders", 101, "exact", "commit")
MOVED_HOME = replace(MOVED, new_offset=107, from_offset=54)
NOT_MADE = replace(MOVED, previous_offset=57, new_offset=60)
BACK_NOT_MADE = replace(MOVED, previous_offset=60, verdict=MOVED_BACK)
LIVE = ConsumerGroup("g", "Stable", False, (GroupMember("/h"),))


def moved_to(offset: int) -> GroupOffset:
    """The audit row of the group's first commit."""
    return replace(MOVED, previous_offset=None, new_offset=offset)


def at(offset: int, present: Optional[int] = None, end: Optional[int] = 110, **changes: Any) -> GroupPosition:
    found = None if present is None else CommittedOffset(present)
    own = {"own_log": None if end is None else OffsetRange(0, end), **changes}
    return replace(HERE, position=CommittedOffset(offset, "m"), present=found, **own)


def home(offset: int, present: Optional[int] = None, **changes: Any) -> GroupPosition:
    return at(offset, present, direction=TO_UPSTREAM, **{"log": OffsetRange(100, 140), **changes})


def decided(case: GroupPosition, rules: Optional[TranslationRules] = None) -> str:
    """The verdict; for a translated offset the offset, `m` if the metadata travels, what is read again and lost."""
    found = translate(case, rules or TranslationRules())
    if found.new_offset is None:
        assert not found.commit
        return found.verdict
    words = [f"{found.new_offset}{found.metadata}", *["commit"] * found.commit]
    words += [f"rereads {found.reread}"] * bool(found.reread) + [f"loses {found.lost}"] * bool(found.lost)
    return f"{found.verdict}: {' '.join(words)}"


def maps(rows: List[int], markers_to: Optional[int] = None) -> Any:
    found = FlowMaps({KEY: array("q", rows)})
    if markers_to is not None:
        found.pass_markers(KEY, markers_to)
    return found.of(KEY)


ONE_RUN, HOLE = PartitionMap.of([(100, 50, 30)]), PartitionMap.of([(100, 50, 29), (130, 80, 0)])
FROM_58, FROM_61, TO_64, WIDE = OffsetRange(58, 72), OffsetRange(61, 72), OffsetRange(50, 64), OffsetRange(50, 90)
TAKEN_OVER: Dict[str, Any] = {"map": replace(RUN, older=True)}
# The remote topic was re-created: the ledger does not cover the remote log from its start.
LATE = PartitionMap.of([(5000, 4800, 10)])
UNCOVERED: Dict[str, Any] = {"map": LATE, "log": OffsetRange(0, 4810)}
# Only markers are before the ledger's first row.
AFTER_MARKERS: Dict[str, Any] = {"map": maps([40, 2, 10], 0), "log": OffsetRange(0, 12)}
AT_THE_END: Dict[str, Any] = {"map": maps([100, 50, 10, 120, 62, 10], 75), "log": OffsetRange(50, 75)}
ELSEWHERE, NOT_COVERED = "before first copied record", f"untranslatable: {UNRECORDED}"
BACK, RIGHT = "would move backwards: 54m rereads 3", "exact: 54m commit"

DECISIONS: Dict[str, Any] = {
    "absent there": (decided(at(104)), RIGHT),
    "lags there": (decided(at(104, 51)), RIGHT),
    "right there": (decided(at(104, 54)), "exact: 54m"),
    "farther there": (decided(at(104, 57)), BACK),
    "farther there, and may go back": (decided(at(104, 57), REWIND), f"{RIGHT} rereads 3"),
    "ahead of the mirror": (decided(at(137, 51)), "held: ahead of the ledger by 7"),
    "older than the first copied record": (decided(at(99)), f"{ELSEWHERE}: 50 commit"),
    "older, and there already": (decided(at(99, 50)), f"{ELSEWHERE}: 50"),
    # The loss is counted; what only markers left is none.
    "records left the other log": (decided(at(104, log=FROM_58)), "clamped: 58 commit loses 4"),
    "records left it, and the group is before": (decided(at(104, 54, log=FROM_58)), "clamped: 58 commit loses 4"),
    "records left it, and there already": (decided(at(104, 58, log=FROM_58)), "clamped: 58 loses 4"),
    "markers left the other log": (decided(at(115, log=FROM_61)), "exact: 61m commit"),
    "markers left it, and the group is before": (decided(at(115, 60, log=FROM_61)), "exact: 61m commit"),
    "the log ends before": (decided(at(126, log=TO_64)), "clamped: 64m commit rereads 4"),
    "it ends before, and right": (decided(at(126, 68, log=TO_64)), "exact: 68m"),
    # Records before what a take-over compared are there unread.
    "before a take-over": (decided(at(99, **TAKEN_OVER)), f"untranslatable: {OLDER}"),
    "after a take-over": (decided(at(100, **TAKEN_OVER)), "exact: 50m commit"),
    "back before a take-over": (decided(home(49, **TAKEN_OVER)), f"untranslatable: {OLDER}"),
    **{
        f"not covered, {present}": (decided(at(100, present, **UNCOVERED)), NOT_COVERED)
        for present in (None, 0, 90, 4800)
    },
    "covered": (decided(at(5001, **UNCOVERED)), "exact: 4801m commit"),
    "back, not covered": (decided(home(100, map=LATE, log=OffsetRange(0, 5010))), NOT_COVERED),
    "expired too": (decided(at(100, map=LATE, log=OffsetRange(4805, 4810))), f"{ELSEWHERE}: 4805 commit loses 5"),
    "markers are not passed": (decided(at(20, map=maps([40, 2, 10]), log=OffsetRange(0, 12))), NOT_COVERED),
    "markers are passed": (decided(at(20, **AFTER_MARKERS)), f"{ELSEWHERE}: 0 commit"),
    **{
        f"among those markers, {present}": (decided(at(20, present, **AFTER_MARKERS)), f"{ELSEWHERE}: 0")
        for present in (0, 1, 2)
    },
    "back among those markers": (decided(home(1, **{**AFTER_MARKERS, "log": OffsetRange(0, 50)})), "exact: 40 commit"),
    "after those markers": (decided(at(44, **AFTER_MARKERS)), "exact: 6 commit"),
    # A group at the end follows the markers there: lag that only control records make would never go away.
    "at the end": (decided(at(130, 72, **AT_THE_END, last=moved_to(72))), "exact: 75m commit"),
    "at the end, among the markers": (decided(at(130, 73, **AT_THE_END, last=moved_to(73))), "exact: 75m commit"),
    "at the end, and there": (decided(at(130, 75, **AT_THE_END, last=moved_to(75))), "exact: 75m"),
    "not at the end": (decided(at(129, 71, **AT_THE_END, last=moved_to(71))), "exact: 71m"),
    # Metadata travels only if all offsets that it may describe are mapped by one shift.
    "one shift to the end": (decided(at(104, map=ONE_RUN, log=WIDE, end=130)), RIGHT),
    "a record is not copied yet": (decided(at(104, map=ONE_RUN, log=WIDE, end=131)), "exact: 54 commit"),
    "an unknown end": (decided(at(104, map=ONE_RUN, log=WIDE, end=None)), "exact: 54 commit"),
    "a marker in between": (decided(at(104, log=WIDE, end=130)), "exact: 54 commit"),
    "after the marker": (decided(at(124, log=WIDE, end=130)), "exact: 66m commit"),
    "an offset without a record": (decided(at(104, map=HOLE, log=WIDE, end=130)), "exact: 54 commit"),
    "nothing after it": (decided(at(130, log=WIDE, end=130)), "exact: 72m commit"),
    "back by one shift": (decided(home(54, map=ONE_RUN, end=80)), "exact: 104m commit"),
    "back, a record was written since": (decided(home(54, map=ONE_RUN, end=81)), "exact: 104 commit"),
    # The remote log was truncated, and copied again.
    "only we moved it": (decided(at(104, 57, last=MOVED)), f"{MOVED_BACK}: 54m commit rereads 3"),
    "another client moved it on": (decided(at(104, 58, last=MOVED)), "would move backwards: 54m rereads 4"),
    "it was reset on the source": (decided(at(100, 57, last=MOVED)), "would move backwards: 50m rereads 7"),
    "an undo put it back": (decided(at(104, 57, last=replace(MOVED, action="rollback"))), BACK),
    "its move was not made": (decided(at(104, 57, last=NOT_MADE)), BACK),
    "its move back was not made": (decided(at(104, 60, last=BACK_NOT_MADE)), f"{MOVED_BACK}: 54m commit rereads 6"),
    "only we moved it on the source": (decided(home(54, 107, last=MOVED_HOME)), "would move backwards: 104 rereads 3"),
    # A simple group is moved only if no client can have committed for it.
    "another client committed": (decided(at(104, 51, group=SIMPLE)), f"{FOREIGN}: 54m"),
    "not where we put it": (decided(at(104, 51, group=SIMPLE, last=moved_to(50))), f"{FOREIGN}: 54m"),
    "included": (decided(at(104, 51, group=SIMPLE), INCLUDE), RIGHT),
    "where we put it": (decided(at(104, 51, group=SIMPLE, last=moved_to(51))), RIGHT),
    "a crash before the commit": (decided(at(104, 51, group=SIMPLE, last=replace(MOVED, new_offset=53))), RIGHT),
    "where it was translated from": (decided(at(104, 51, group=SIMPLE, left_at=51)), RIGHT),
    "not where it was translated from": (decided(at(104, 51, group=SIMPLE, left_at=50)), f"{FOREIGN}: 54m"),
    "its first offset": (decided(at(104, group=SIMPLE)), RIGHT),
    "MirrorMaker put it there": (decided(at(104, 51, group=SIMPLE, by_mirrormaker=True)), RIGHT),
    "MirrorMaker did, and it has members": (decided(at(104, 51, group=LIVE, by_mirrormaker=True)), f"{ACTIVE}: 54m"),
    "MirrorMaker did, on a shared topic": (decided(at(104, 51, group=SIMPLE, by_mirrormaker=True), SHARED), RIGHT),
    "another flow may have, on a shared topic": (decided(at(104, 51, group=EMPTY), SHARED), f"{ACTIVE}: 54m"),
    "where we put it on a shared topic": (decided(at(104, 51, group=EMPTY, last=MOVED), SHARED), RIGHT),
    "included on a shared topic": (decided(at(104, 51, group=SIMPLE), SHARED_TOO), f"{ACTIVE}: 54m"),
    "its first offset on a shared topic": (decided(at(104, group=SIMPLE), SHARED), RIGHT),
    # Of several reasons not to move it the first counts.
    "untranslatable": (decided(at(137, 57, map="no", group=LIVE)), "untranslatable: no"),
    "held": (decided(at(137, 57, group=LIVE)), "held: ahead of the ledger by 7"),
    "active": (decided(at(104, 57, group=LIVE)), "active on target: 54m rereads 3"),
    "foreign": (decided(at(104, 57, group=SIMPLE)), "committed by another client: 54m rereads 3"),
    "backwards": (decided(at(90, 57, log=OffsetRange(55, 72))), "would move backwards: 55 rereads 2 loses 5"),
    # A run that copies the partition commits the offset, so it is no fault.
    "nothing is copied yet": (decided(at(104, map=FlowMaps({}).of(KEY))).partition(":")[0], "held"),
    "no log there": (decided(at(104, log=None)).partition(":")[0], "untranslatable"),
}  # fmt: skip


@pytest.mark.parametrize(("found", "expected"), DECISIONS.values(), ids=DECISIONS)
def test_decision(found: str, expected: str) -> None:
    assert found == expected


@pytest.mark.parametrize(
    ("case", "skips_from"),
    [
        (at(104), None),
        (at(104, log=FROM_58), 104),
        (at(104, log=FROM_58, own_log=OffsetRange(106, 110)), 106),
        (at(104, log=FROM_58, own_log=OffsetRange(108, 110)), None),
        (at(104, log=FROM_58, end=None), 104),
        (at(99), 99),
        (at(99, own_log=OffsetRange(100, 110)), None),
    ],
)
def test_loss_that_this_side_shares_is_none(case: GroupPosition, skips_from: Optional[int]) -> None:
    assert translate(case).skips_from == skips_from


@pytest.mark.parametrize("state", ["Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"])
def test_group_with_members_is_never_moved(state: str) -> None:
    for group in (replace(LIVE, state=state), replace(EMPTY, state=state)):
        for rules in (TranslationRules(), REWIND, INCLUDE):
            assert decided(at(104, 51, group=group), rules) == "active on target: 54m"


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
        moved = replace(MOVED, previous_offset=self.present, new_offset=decided.new_offset, from_offset=self.group)
        self.rows.append(replace(moved, verdict=decided.verdict))
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
