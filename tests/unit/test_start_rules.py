"""Every case in which a run may meet a partition, and what it does there: it never appends on an assumption."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace
from enum import Enum
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple, Type

import pytest

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.config.record_change import KEY, RecordChange
from mirror_lib.config.values import OffsetChoice
from mirror_lib.errors import ClusterError, RefusedError
from mirror_lib.facts import CommittedOffset, OffsetRange, TopicDescription, TopicPartition
from mirror_lib.kafka.record_batch import Record
from mirror_lib.ledger.records import LogPosition, PartitionKey, Position, RangePositions, TopicPair
from mirror_lib.ledger.table_reader import TableReader
from mirror_lib.plan.read import with_starts
from mirror_lib.replication.copy_ranges import BEHIND_REMOTE_LOG, Start, noted, refuse_other_mode, starts_of
from mirror_lib.replication.driver import starting_logs
from mirror_lib.replication.messages import CopiedPartition
from mirror_lib.replication.start_rules import (
    RULES,
    Action,
    Begins,
    Case,
    Ids,
    RemoteLog,
    Rows,
    SourceLog,
    Writer,
    rule_of,
    unlike,
)
from mirror_lib.rows.flow import pairs_of, refuse_row_passes
from mirror_lib.rows.repartitioned import beginnings, refuse_new_remote_topics
from mirror_lib.topics.plan import CopiedTopic

KINDS: Dict[str, Type[Enum]] = {
    "rows": Rows,
    "remote": RemoteLog,
    "source": SourceLog,
    "ids": Ids,
    "begins": Begins,
    "writer": Writer,
}
CASES = [Case(*each) for each in itertools.product(Rows, RemoteLog, SourceLog, Ids, Begins, Writer)]


def expected(case: Case) -> Tuple[Action, str]:
    """The same decision in another form: by what each fact proves."""
    if case.rows is not Rows.SOME:
        return without_rows(case)
    if case.source is SourceLog.RECREATED:
        return Action.STOP, "MIR-316"
    if case.source is SourceLog.SHORTER:
        return Action.STOP, "MIR-312" if case.remote is RemoteLog.SHORTER else "MIR-311"
    if case.remote is RemoteLog.SHORTER:
        return Action.REFILL, "MIR-312"
    return Action.RESUME, "MIR-313"


def without_rows(case: Case) -> Tuple[Action, str]:
    if case.writer is Writer.RUNNING:
        return Action.STOP, "MIR-340"
    if case.remote is RemoteLog.EMPTY:
        return Action.BEGIN, ""
    if case.rows is Rows.NONE and case.begins is Begins.OFFSETS:
        return Action.COMPARE, "MIR-329"
    if case.source is SourceLog.EMPTY:
        return Action.BEGIN, ""
    shows_all = case.remote in (RemoteLog.WHOLE, RemoteLog.SHORTER)
    from_the_start = case.rows is Rows.OTHER or case.begins is not Begins.LATEST
    return (Action.COMPARE if shows_all and from_the_start else Action.STOP), "MIR-329"


@pytest.mark.parametrize("rows", Rows)
@pytest.mark.parametrize("remote", RemoteLog)
@pytest.mark.parametrize("source", SourceLog)
def test_every_case_is_decided_by_what_is_proven(rows: Rows, remote: RemoteLog, source: SourceLog) -> None:
    cases = [each for each in CASES if (each.rows, each.remote, each.source) == (rows, remote, source)]
    assert len(cases) == len(Ids) * len(Begins) * len(Writer)
    for case in cases:
        rule = rule_of(case)
        assert (rule.action, rule.code) == expected(case), case


def test_cases_have_every_fact_and_rules_name_no_other() -> None:
    assert [each.name for each in fields(Case)] == list(KINDS)
    for rule in RULES:
        for name, values in rule.when.items():
            assert values and all(isinstance(value, KINDS[name]) for value in values), rule


def test_no_rule_is_dead() -> None:
    assert {id(rule_of(case)) for case in CASES} == {id(rule) for rule in RULES}


PLAIN = ReplicationFlow(ClusterConfig("A", {}), ClusterConfig("B", {}))
AT = Position(99, 104)


def record(offset: int, body: bytes = b"body", timestamp: int = 7) -> Record:
    return Record(offset, timestamp, body)


@pytest.mark.parametrize(
    ("ours", "theirs", "stamped", "found"),
    [
        (record(99), record(104), False, False),
        (record(99, b"new"), record(104), False, True),
        (record(99, timestamp=8), record(104), False, True),
        (record(99, timestamp=8), record(104), True, False),
        (record(99, b"new"), record(104), True, True),
        # A log that has lost its record shows nothing.
        (record(100, b"new"), record(104), False, False),
        (record(99, b"new"), record(105), False, False),
        (None, record(104), False, False),
        (record(99, b"new"), None, False, False),
    ],
)
def test_topic_is_another_one_where_a_recorded_copy_is_not_its_sources_record(
    ours: Optional[Record], theirs: Optional[Record], stamped: bool, found: bool
) -> None:
    assert unlike(PLAIN, AT, ours, theirs, stamped) is found


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (RecordChange(where="true"), True),
        (RecordChange(select="*, now() as timestamp"), False),
        (RecordChange(transform="module:function"), False),
    ],
)
def test_changed_records_have_the_timestamp_in_common_unless_the_flow_sets_it(
    change: RecordChange, found: bool
) -> None:
    flow = ReplicationFlow(ClusterConfig("A", {}), ClusterConfig("B", {}), change=change)
    assert unlike(flow, AT, record(99), record(104, b"with an origin"), False) is False
    assert unlike(flow, AT, record(99, timestamp=8), record(104, b"with an origin"), False) is found


ORDERS = CopiedPartition("orders", "orders", 0, "source-1", "remote-1", 1000)
MORE = replace(ORDERS, partition=1)
FLOW = ReplicationFlow(ClusterConfig("A", {}), ClusterConfig("B", {}))
SHARED = replace(FLOW, start_position=OffsetChoice(group="g"), commit_source_group="g")


class Source:
    """Answers what it was made with."""

    def __init__(self, committed: Mapping[TopicPartition, CommittedOffset], at: Mapping[TopicPartition, int]) -> None:
        self.committed = committed
        self.at = at
        self.silent: Set[str] = set()

    alias = "A"

    def committed_offsets(self, groups: Sequence[str]) -> Mapping[str, Mapping[TopicPartition, CommittedOffset]]:
        return {group: self.committed for group in groups if group not in self.silent}

    def offsets_at(
        self, partitions: Sequence[TopicPartition], timestamp: int, isolation_level: str
    ) -> Mapping[TopicPartition, int]:
        return {each: self.at[each] for each in partitions if each in self.at}

    def topics(self) -> Mapping[str, TopicDescription]:
        return {}

    def offsets(self, partitions: Sequence[TopicPartition], isolation_level: str) -> Mapping[Any, OffsetRange]:
        return {each: OffsetRange(10, 50) for each in partitions}


def starts(flow: ReplicationFlow, metadata: str = "") -> Mapping[TopicPartition, Start]:
    source = Source({("orders", 0): CommittedOffset(40, metadata)}, {("orders", 0): 17, ("orders", 1): -1})
    return starts_of(flow, source, [ORDERS, MORE])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("metadata", "downstream"),
    [
        (noted("orders", "remote-1", Position(0, 55)).metadata, 55),
        (noted("B.orders", "remote-1", Position(0, 55)).metadata, BEHIND_REMOTE_LOG),
        ("", BEHIND_REMOTE_LOG),
        ("other words", BEHIND_REMOTE_LOG),
    ],
)
def test_note_says_where_the_copy_goes_on_and_without_one_it_goes_on_behind_the_other_tool(
    metadata: str, downstream: int
) -> None:
    assert starts(SHARED, metadata) == {("orders", 0): Start(40, "group g", downstream)}


def test_note_of_a_remote_topic_that_is_gone_says_that_all_is_to_be_copied_again() -> None:
    gone = noted("orders", "remote-0", Position(0, 55)).metadata
    assert starts(SHARED, gone) == {("orders", 0): Start(40, "group g", recreated=True)}


def test_group_that_is_not_committed_to_is_compared_from_the_start_of_the_remote_log() -> None:
    flow = replace(SHARED, commit_source_group="")
    metadata = noted("orders", "remote-1", Position(0, 55)).metadata
    assert starts(flow, metadata) == {("orders", 0): Start(40, "group g", None)}


def test_time_without_a_later_record_is_the_end() -> None:
    found = starts(replace(FLOW, start_position=OffsetChoice(timestamp=1)))
    assert {each: start.upstream_offset for each, start in found.items()} == {("orders", 0): 17, ("orders", 1): -1}


def test_partition_whose_leader_does_not_tell_where_a_time_is_waits_and_begins_nowhere_else() -> None:
    flow, source = replace(FLOW, start_position=OffsetChoice(timestamp=1)), Source({}, {("orders", 0): 17})
    found, logs = starting_logs(flow, source, [ORDERS, MORE], {})  # type: ignore[arg-type]
    assert found.keys() == logs.keys() == {ORDERS.source}
    _, logs = starting_logs(SHARED, Source({}, {}), [ORDERS, MORE], {})  # type: ignore[arg-type]
    assert logs.keys() == {ORDERS.source, MORE.source}


def test_group_of_which_nobody_tells_where_it_stands_is_not_taken_for_one_without_an_offset() -> None:
    source = Source({}, {})
    assert starts_of(SHARED, source, [ORDERS]) == {}  # type: ignore[arg-type]
    source.silent = {"g"}
    with pytest.raises(ClusterError, match="A: cannot read the committed offsets of group g"):
        starts_of(SHARED, source, [ORDERS])  # type: ignore[arg-type]


def test_plan_notes_the_offsets_before_the_start_of_a_new_topic(tmp_path: Path) -> None:
    topic, cluster = CopiedTopic(TopicDescription("orders", "source-1", 2), "A.orders", "", 2), Source({}, {})

    def noted(**settings: Any) -> str:
        flow = replace(FLOW, **settings)
        (found,) = with_starts(flow, [topic], cluster, cluster, TableReader(str(tmp_path)), "")  # type: ignore[arg-type]
        return " ".join(found.notes)

    assert "(80 offsets of 2 partitions)" in noted(auto_offset_reset="latest")
    assert "(5 offsets)" in noted(start_position=OffsetChoice(offsets=((("orders", 1), 15),)))
    assert noted() == ""


SELECTED = ReplicationFlow(ClusterConfig("A", {}), ClusterConfig("B", {}), change=RecordChange(select="*"))
KEYED = ReplicationFlow(ClusterConfig("A", {}), ClusterConfig("B", {}), change=RecordChange(partitioner=KEY))
KEPT = [PartitionKey("s1", "r1", "orders", 0)]
NOTHING = RangePositions()
PLACED = RangePositions(pairs=frozenset([TopicPair("orders", "s1", "A.orders", "r1")]))


def start(
    flow: ReplicationFlow,
    kept: Sequence[PartitionKey] = (),
    ranges: RangePositions = NOTHING,
    source_id: str = "s1",
    remote_id: str = "r1",
) -> None:
    source = {"orders": TopicDescription("orders", source_id, 2)}
    target = {"A.orders": TopicDescription("A.orders", remote_id, 2)}
    refuse_other_mode(flow, pairs_of(flow, [flow], source, target), kept, ranges.pairs)


def test_topic_whose_partitions_were_kept_is_not_placed_anew() -> None:
    with pytest.raises(RefusedError, match="with records in their partitions, and would be copied there again"):
        start(KEYED, KEPT)


@pytest.mark.parametrize("flow", [PLAIN, SELECTED])
@pytest.mark.parametrize("kept", [[], KEPT])
def test_topic_that_was_placed_anew_does_not_keep_its_partitions(
    flow: ReplicationFlow, kept: Sequence[PartitionKey]
) -> None:
    with pytest.raises(RefusedError, match="with records repartitioned, and would be copied there again"):
        start(flow, kept, PLACED)


@pytest.mark.parametrize("ids", [("s2", "r1"), ("s1", "r2")], ids=["source re-created", "remote re-created"])
def test_topic_that_is_another_one_by_now_may_be_copied_either_way(ids: Sequence[str]) -> None:
    start(KEYED, KEPT, RangePositions(), *ids)
    start(PLAIN, [], PLACED, *ids)


def test_topic_goes_on_as_it_began_and_one_whose_remote_topic_is_not_there_begins_in_any_way() -> None:
    start(PLAIN, KEPT)
    start(KEYED, [], PLACED)
    start(KEYED, KEPT, PLACED)
    assert pairs_of(KEYED, [KEYED], {"orders": TopicDescription("orders", "s1", 2)}, {}) == []


def test_flow_whose_progress_an_earlier_release_kept_elsewhere_is_refused_until_the_ledger_has_ranges_of_it() -> None:
    with pytest.raises(RefusedError, match="row_passes") as refused:
        refuse_row_passes(KEYED, True, RangePositions())
    assert "another `name` and `state`, and the flow an empty remote topic" in str(refused.value)
    refuse_row_passes(KEYED, False, RangePositions())
    refuse_row_passes(KEYED, True, PLACED)


ZERO, ONE, TWO = ("orders", 0), ("orders", 1), ("orders", 2)
# Partition 0 was copied up to offset 50.
COPIED = {ZERO: LogPosition("s1", 50)}
PAIRS = frozenset([TopicPair("orders", "s1", "keyed", "r1")])
KNOWN = RangePositions(COPIED, {("keyed", 0): LogPosition("r1", 10)}, PAIRS)


def partitions(*numbers: int, topic_id: str = "s1", remote: str = "keyed") -> List[CopiedPartition]:
    return [CopiedPartition("orders", remote, number, topic_id, "r1", 1000) for number in numbers]


def begun(
    logs: Dict[TopicPartition, Tuple[int, int]],
    starts: Optional[Dict[TopicPartition, Start]] = None,
    latest: bool = False,
    stands: Optional[Dict[TopicPartition, LogPosition]] = None,
    topic_id: str = "s1",
) -> Dict[TopicPartition, int]:
    copied = {each.source: each for each in partitions(0, 1, 2, topic_id=topic_id)}
    given = {place: OffsetRange(*log) for place, log in logs.items()}
    return beginnings(stands or {}, copied, given, starts or {}, latest)


def test_partition_that_was_never_copied_begins_at_its_logs_start_or_at_its_end() -> None:
    logs = {ZERO: (5, 50), ONE: (0, 7)}
    assert begun(logs) == {ZERO: 5, ONE: 0}
    assert begun(logs, latest=True) == {ZERO: 50, ONE: 7}


def test_partition_begins_where_a_group_is_or_at_the_end_where_the_group_has_seen_nothing_newer() -> None:
    starts = {ZERO: Start(20, "group g", -1), ONE: Start(-1, "group g")}
    assert begun({ZERO: (5, 50), ONE: (0, 7), TWO: (3, 9)}, starts) == {ZERO: 20, ONE: 7, TWO: 3}


def test_partition_whose_remote_topic_is_another_one_by_now_begins_at_its_start() -> None:
    assert begun({ZERO: (5, 50)}, {ZERO: Start(20, "group g", recreated=True)}, latest=True) == {ZERO: 5}


def test_partition_that_was_copied_goes_on_where_it_ended_whatever_else_is_said() -> None:
    starts = {ZERO: Start(7, "group g")}
    assert begun({ZERO: (0, 60), ONE: (3, 4)}, starts, latest=True, stands=COPIED) == {ZERO: 50, ONE: 4}
    assert begun({ONE: (3, 4)}, stands=COPIED) == {ONE: 3}


@pytest.mark.parametrize("log", [(50, 50), (50, 60), (0, 50)])
def test_log_that_begins_or_ends_where_the_copy_does_is_gone_on_with(log: Tuple[int, int]) -> None:
    assert begun({ZERO: log}, stands=COPIED) == {ZERO: 50}


@pytest.mark.parametrize(
    ("log", "topic_id", "words"),
    [
        pytest.param((51, 90), "s1", "offsets 50 to 50 left the source's log", id="expired"),
        pytest.param((0, 49), "s1", "ends at 49, before offset 50", id="truncated"),
        pytest.param((0, 90), "s2", "orders was deleted and created again on the source", id="created again"),
    ],
)
def test_source_that_lost_what_comes_next_is_refused(log: Tuple[int, int], topic_id: str, words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        begun({ZERO: log}, stands=COPIED, topic_id=topic_id)


@pytest.mark.parametrize(
    ("start", "words"),
    [
        pytest.param(Start(4, "group g", -1), "offsets 4 to 4 left the source's log", id="expired"),
        pytest.param(Start(51, "group g", -1), "ends at 50, before offset 51", id="ahead"),
    ],
)
def test_start_that_the_log_does_not_have_is_refused(start: Start, words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        begun({ZERO: (5, 50)}, {ZERO: start})


def test_remote_topic_that_a_copied_source_gets_later_is_refused() -> None:
    with pytest.raises(RefusedError, match="new remote topic of orders, and would lack the records copied before"):
        refuse_new_remote_topics(KNOWN, [*partitions(0), *partitions(0, remote="other")])


@pytest.mark.parametrize("known", [RangePositions(), KNOWN])
def test_remote_topic_of_before_and_one_of_a_source_that_was_never_copied_are_taken(known: RangePositions) -> None:
    other = CopiedPartition("payments", "other", 0, "s2", "r2", 1000)
    refuse_new_remote_topics(known, [*partitions(0), other])


def test_remote_topic_that_another_source_has_filled_is_new_to_one_that_was_copied_elsewhere() -> None:
    pairs = frozenset([*KNOWN.pairs, TopicPair("payments", "s2", "other", "r2")])
    known = RangePositions({**COPIED, ("payments", 0): LogPosition("s2", 3)}, KNOWN.remotes, pairs)
    with pytest.raises(RefusedError, match="other is a new remote topic of orders"):
        refuse_new_remote_topics(known, [*partitions(0), *partitions(0, remote="other")])
