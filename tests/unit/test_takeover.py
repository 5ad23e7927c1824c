"""Where another tool ended is found from what it kept and both logs, exactly, or the partition is refused."""

from __future__ import annotations

import json
from collections import Counter
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Optional, Sequence, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirror_lib.errors import ConfigError, RefusedError
from mirror_lib.facts import ConsumerGroup, GroupMember, OffsetRange
from mirror_lib.ledger.records import Position
from mirror_lib.takeover.origin import connect_positions, may_copy, offset_syncs_places, parse_origin
from mirror_lib.takeover.verdicts import KNOWN, NOTHING, REFUSED, TAKE_OVER, Known, Verdict, decide, decide_known, moved
from mirror_lib.takeover.walk import LONGEST_GAP, PartitionLogs, Unproven
from tests.lab.flows import flow_of
from tests.unit.logs import LOG_APPEND_TIME, NOON, LogBatch, Rec, batch_of, marker
from tests.unit.test_reconcile import from_offset, numbered, pairs_of

ORDERS = ("orders", 0)


@dataclass
class Copied(PartitionLogs):
    """A source log and what MirrorMaker made of it. `attempts`: upstream offsets from and until of each of its runs.

    Like the real one it writes a sync at the start of each run, and then one in `lag` records.
    """

    source: List[LogBatch]
    attempts: Sequence[Tuple[int, int]]
    lag: int = 5
    remote: List[LogBatch] = field(default_factory=list)
    syncs: List[Position] = field(default_factory=list)
    pairs: List[Tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(
            lambda at, _: from_offset(self.source, at), lambda at: from_offset(self.remote, at), self.first_of
        )
        records = [pair for batch in self.source for pair in batch.records]
        for start, until in self.attempts:
            reported: Optional[int] = None
            for upstream, rec in records:
                if not start <= upstream < until:
                    continue
                at = self.remote[-1].next if self.remote else 0
                self.remote.append(batch_of(at, [rec]))
                self.pairs.append((upstream, at))
                if reported is None or at - reported >= self.lag:
                    self.syncs.append(Position(upstream, at))
                    reported = at

    @property
    def end(self) -> int:
        return self.remote[-1].next if self.remote else 0

    def first_of(self, timestamp: int) -> int:
        late = (at for batch in self.remote for at, rec in batch.records if rec.timestamp >= timestamp)
        return next(late, -1)

    def known(self, kept: Optional[int], **changes: object) -> Known:
        source = OffsetRange(self.source[0].base, self.source[-1].next)
        remote = OffsetRange(self.remote[0].base if self.remote else 0, self.end)
        return replace(Known(kept, self.syncs, source, remote, self.end, 100), **changes)  # type: ignore[arg-type]

    def without_syncs(self) -> Copied:
        self.syncs = []
        return self


def source_of(count: int) -> List[LogBatch]:
    return [batch_of(n, [rec]) for n, rec in enumerate(numbered(count))]


def assert_true(case: Copied, verdict: Verdict) -> None:
    """Resumes where nothing is lost or doubled, and every pair of the map is one of those that were written."""
    assert verdict.action == TAKE_OVER, verdict.reason
    assert verdict.resumes_at is not None and verdict.resumes_at.downstream_offset == case.end
    copied = {upstream for upstream, _ in case.pairs}
    for offset in (offset for batch in case.source for offset, _ in batch.records):
        if offset >= verdict.resumes_at.upstream_offset:
            assert offset not in copied, f"{offset} would be doubled"
        else:
            assert offset in copied or offset < case.attempts[0][0], f"{offset} would be lost"
    rising = sorted(pairs_of(verdict.runs))
    assert {*rising} <= {*case.pairs}
    assert all(a[1] < b[1] for a, b in zip(rising, rising[1:]))


@pytest.mark.parametrize(
    ("resumes_at", "attempts", "action"),
    [
        pytest.param(Position(23, 23), [(0, 23)], KNOWN, id="nothing-after-it"),
        pytest.param(Position(17, 17), [(0, 23)], KNOWN, id="an-interrupted-attempt"),
        pytest.param(Position(17, 17), [(0, 23), (17, 20)], REFUSED, id="two-tools-at-once"),
        pytest.param(Position(17, 17), [(0, 17), (5, 17)], REFUSED, id="what-the-ledger-has-once-more"),
    ],
)
def test_partition_in_the_ledger_is_refused_where_another_tool_wrote_after_it(
    resumes_at: Position, attempts: Sequence[Tuple[int, int]], action: str
) -> None:
    case = Copied(source_of(30), attempts)
    assert decide_known(resumes_at, case).action == action


@pytest.mark.parametrize(
    ("state", "assignments", "copies"),
    [
        pytest.param("Stable", [b"another form"], True, id="of-another-form"),
        pytest.param("PreparingRebalance", [b""], True, id="while-it-joins"),
        pytest.param("Empty", [], False, id="ended"),
    ],
)
def test_workers_whose_assignment_is_unknown_may_copy(state: str, assignments: List[bytes], copies: bool) -> None:
    members = tuple(GroupMember("/10.0.0.1", each) for each in assignments)
    assert may_copy(ConsumerGroup("A-mm2", state, False, members)) == copies


def test_where_compaction_took_older_originals_the_comparison_begins_nearer() -> None:
    case = Copied(source_of(400), [(0, 395)]).without_syncs()
    case.source = [batch.without({n for n in range(0, 385, 3)}) for batch in case.source]
    verdict = decide(case.known(390, compare=64), case)
    assert_true(case, verdict)
    assert verdict.resumes_at == Position(395, 395) and verdict.runs[0].upstream_offset > 384


def test_nothing_is_said_of_what_lies_before_a_hole_in_the_remote_log_and_compaction_makes_none() -> None:
    case = Copied(source_of(200), [(0, 80), (100, 200)])
    with pytest.raises(Unproven, match="what the source has from 80 on is not before it"):
        case.walk(Position(0, 0), {80: [100]})
    verdict = decide(case.known(200, compare=1000), case)
    assert (verdict.action, verdict.older) == (TAKE_OVER, True) and verdict.runs[0].upstream_offset >= 100
    compacted = Copied(source_of(200), [(0, 200)])
    compacted.remote = compacted.remote[:80] + compacted.remote[100:]
    assert compacted.walk(Position(0, 0), {100: [100]}).upstream_end == 200


def test_record_without_a_timestamp_got_one_from_the_producer() -> None:
    source = [batch_of(0, [Rec(b"v", timestamp=-1)])]
    case = Copied(source, [(0, 1)])
    case.remote = [batch_of(0, [Rec(b"v", timestamp=5)])]
    assert_true(case, decide(case.known(1), case))


@st.composite
def histories(draw: st.DrawFn, kinds: int = 0) -> Tuple[Copied, int]:
    """A MirrorMaker that was killed and started any number of times, and the position that it kept last. No two of its
    records are alike, or there are so many `kinds`."""
    recs = numbered(draw(st.integers(1, 60)))
    source: List[LogBatch] = []
    for rec in recs if not kinds else [Rec(b"v%d" % draw(st.integers(1, kinds))) for _ in recs]:
        base = (source[-1].next if source else draw(st.integers(0, 3))) + draw(st.sampled_from([0, 0, 0, 1, 3]))
        source.append(batch_of(base, [rec]))
    first, end = source[0].base, source[-1].next
    attempts, kept = [], first
    for _ in range(draw(st.integers(1, 4))):
        until = draw(st.integers(kept + 1, end)) if kept < end else end
        attempts.append((kept, until))
        offsets = [b.base + 1 for b in source if kept <= b.base < until]
        kept = draw(st.sampled_from([kept, *offsets]))
    return Copied(source, attempts, draw(st.sampled_from([1, 5, 100]))), kept


@settings(max_examples=400)
@given(histories(), st.booleans(), st.booleans(), st.sampled_from([3, 20, 100]))
def test_wherever_it_was_killed_nothing_is_lost_or_doubled(
    given_case: Tuple[Copied, int], with_syncs: bool, fenced: bool, compare: int
) -> None:
    case, kept = given_case
    if fenced and case.remote:
        case.remote.append(marker(case.end))
    if not with_syncs:
        case.without_syncs()
    position = kept if kept > case.source[0].base else None
    verdict = decide(case.known(position, compare=compare), case)
    if position is None:
        assert verdict.action == (REFUSED if case.pairs else NOTHING), "a run compares what it left"
    elif verdict.action == TAKE_OVER:
        assert_true(case, verdict)
    else:
        assert not with_syncs, verdict.reason


@settings(max_examples=400)
@given(st.integers(1, 3).flatmap(histories), st.booleans(), st.booleans(), st.sampled_from([1, 3, 20, 100]))
def test_records_that_are_alike_are_not_taken_for_one_another(
    given_case: Tuple[Copied, int], with_syncs: bool, stamped: bool, compare: int
) -> None:
    case, kept = given_case
    there = Counter(rec for batch in case.remote for _, rec in batch.records)
    if stamped:
        case.remote = [replace(batch, attributes=LOG_APPEND_TIME, appended_at=NOON + 77) for batch in case.remote]
    if not with_syncs:
        case.without_syncs()
    verdict = decide(case.known(kept if kept > case.source[0].base else None, compare=compare), case)
    if verdict.resumes_at is not None:
        source = [pair for batch in case.source for pair in batch.records]
        copied = {upstream for upstream, _ in case.pairs}
        left = Counter(rec for offset, rec in source if offset not in copied)
        taken = Counter(rec for offset, rec in source if offset >= verdict.resumes_at.upstream_offset)
        assert not Counter(rec for _, rec in source) - (there + taken), "a record would be lost"
        assert not taken - left, "a record would be copied again"


def ending(*end: LogBatch, cut: int = 1, records: int = 30, copied: int = 23) -> Copied:
    """The first records were copied, and then the last `cut` batches of the remote log were replaced by `end`."""
    case = Copied(source_of(records), [(0, copied)])
    case.remote[len(case.remote) - cut :] = end
    return case


def alike(records: int, copied: int) -> Copied:
    return Copied([batch_of(n, [Rec(b"same", b"same")]) for n in range(records)], [(0, copied)]).without_syncs()


def with_headers(value: bytes) -> Copied:
    case = Copied([batch_of(at, [Rec(b"v%d" % at, headers=(("n", b"1"),))]) for at in range(30)], [(0, 23)])
    ((offset, rec),) = case.remote[-1].records
    case.remote[-1] = batch_of(offset, [rec._replace(headers=(("n", value),))])
    return case


R21, R22 = (rec for batch in source_of(23)[21:] for _, rec in batch.records)
NO_COPIES = {
    "a foreign record": ending(batch_of(22, [R22]), batch_of(23, [Rec(b"stranger")])),
    "a changed value": ending(batch_of(22, [Rec(b"changed", b"k22")])),
    "a changed timestamp": ending(batch_of(22, [R22._replace(timestamp=R22.timestamp + 1)])),
    "a missing record": ending(batch_of(21, [R22]), cut=2),
    "swapped records": ending(batch_of(21, [R22]), batch_of(22, [R21]), cut=2),
}
REFUSALS: Dict[str, Any] = {
    **{name: (case, 20, {}, "remote log") for name, case in NO_COPIES.items()},
    **{f"{name}, no syncs": (copy(case).without_syncs(), 20, {}, "remote log") for name, case in NO_COPIES.items()},
    "headers that a Connect worker wrote again": (with_headers(b"MQ=="), 20, {}, "header.converter"),
    "ahead of the remote log": (ending(cut=0), 26, {}, "offset 23 is not in it"),
    "ahead of the source": (ending(cut=0), 31, {}, "the source's log ends at 30"),
    "an open transaction": (ending(cut=0), 20, {"stable_end": 21}, "a transaction is open"),
    "no position": (Copied(source_of(30), [(0, 23)]), None, {}, "a run compares the whole remote log"),
    "more than one place": (alike(30, 23), 20, {"compare": 5}, "more than one place"),
    "too many places": (alike(300, 280), 250, {"compare": 200}, "from more than 200 places"),
    "too far": (ending(cut=0, records=700, copied=690).without_syncs(), 20, {"compare": 1}, "larger --compare"),
    "a gap that does not fit in memory": (
        ending(batch_of(23 + LONGEST_GAP, [R22])), 20, {}, "at most 100000 are compared",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("case", "kept", "more", "words"), REFUSALS.values(), ids=REFUSALS)
def test_what_does_not_prove_where_the_copy_ended_is_refused(
    case: Copied, kept: Optional[int], more: Dict[str, Any], words: str
) -> None:
    verdict = decide(case.known(kept, **more), case)
    assert (verdict.action, verdict.resumes_at) == (REFUSED, None) and words in verdict.reason
    assert ("header.converter" in verdict.reason) == (words == "header.converter")


def test_long_tail_is_found_farther_back() -> None:
    far = Copied(source_of(700), [(0, 690)]).without_syncs()
    assert_true(far, decide(far.known(20, compare=11), far))


def test_empty_remote_log_is_accepted_only_where_nothing_can_have_been_written_after_the_position() -> None:
    never, case = Copied(source_of(30), []), Copied(source_of(30), [(0, 23)], lag=1)
    assert decide(never.known(None), never).action == NOTHING
    case.remote = []
    gone, emptied = ({"remote": OffsetRange(end, end), "stable_end": end} for end in (23, 0))
    assert decide(case.known(30, **gone), case).resumes_at == Position(30, 23)
    assert decide(case.known(20, **gone), case).resumes_at == Position(23, 23), "the last sync names the last record"
    assert "the remote log is empty" in decide(case.known(20, **emptied), case).reason
    case.syncs.pop()
    for kept in (20, None):
        assert decide(case.known(kept, **gone), case).action == REFUSED


def test_remote_log_that_grows_meanwhile_is_refused() -> None:
    taken = Verdict(TAKE_OVER, resumes_at=Position(1, 1))
    assert moved(taken, 5, 5) == taken
    assert moved(taken, 5, 6).action == REFUSED and "grew from 5 to 6" in moved(taken, 5, 6).reason


def kept(offset: Optional[int], partition: int = 0, connector: str = "MirrorSourceConnector", cluster: str = "A") -> (
    Tuple[bytes, bytes]
):
    key = f'["{connector}",{{"cluster":"{cluster}","partition":{partition},"topic":"orders"}}]'
    return key.encode(), json.dumps(None if offset is None else {"offset": offset}).encode()


GROUP_KEY = b'["MirrorCheckpointConnector",{"partition":0,"topic":"orders","group":"g"}]'


@pytest.mark.parametrize(
    ("records", "positions"),
    [
        ([kept(9), kept(41), kept(7, 1), kept(99, cluster="C")],
            {ORDERS: 42, ("orders", 1): 8}),
        # Taken back; of other connectors.
        ([kept(9), kept(None)], {}),
        ([kept(9), (kept(9)[0], None)], {}),
        ([(GROUP_KEY, b'{"offset":0}'), (b"no json", b"{}"), (None, b"x")], {}),
    ],
)  # fmt: skip
def test_connect_offset_is_the_last_record_that_was_replicated(records: List[Any], positions: Dict[Any, Any]) -> None:
    assert connect_positions(records, "A") == positions


def test_two_connectors_that_speak_of_one_partition_must_be_told_apart() -> None:
    records = [kept(9, connector="one"), kept(12, connector="two")]
    with pytest.raises(RefusedError, match="several connectors keep positions of orders-0: one, two"):
        connect_positions(records, "A")
    assert connect_positions(records, "A", "two")[ORDERS] == 13


@pytest.mark.parametrize("value", [b'{"offset":"9"}', b'{"offset":-1}', b"9", b"{}", b"nonsense", b'{"offset":1.5}'])
def test_position_that_is_no_offset_is_refused(value: bytes) -> None:
    with pytest.raises(RefusedError, match="the position kept of orders-0 is not an offset"):
        connect_positions([(kept(1)[0], value)], "A")


FLOW = flow_of("east", "west")


def test_offset_syncs_are_looked_for_on_both_sides_and_under_the_names_of_all_versions() -> None:
    def places(**settings: Any) -> List[str]:
        return [f"{config.alias}: {topic}" for config, topic in offset_syncs_places(replace(FLOW, **settings))]

    on_source, on_target = "east: mm2-offset-syncs.west.internal", "west: mm2-offset-syncs.east.internal"
    assert places() == [on_source, on_target]
    assert places(offset_syncs_topic_location="target") == [on_target, on_source]
    # Before 3.1 MirrorMaker put a dot there whatever the separator was.
    both = [name for place in (on_source, on_target) for name in (place.replace(".", "_"), place)]
    assert places(separator="_", internal_separator="_") == both


@pytest.mark.parametrize("text", ["", "mm1", "mm2=x", "group", "group=", "connect-topic", "connect-topic="])
def test_origin_that_names_nothing_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="write mm2, connect-topic=NAME or group=NAME"):
        parse_origin(text)
    assert [parse_origin(each).members_group(FLOW) for each in ("mm2", "group=mm1")] == ["east-mm2", "mm1"]
