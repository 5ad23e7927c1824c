"""Every case in which a run may meet a partition, and what it does there: it never appends on an assumption."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, List, Optional, Sequence, Tuple

import pytest

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.config.record_change import KEY, RecordChange
from mirror_lib.config.values import OffsetChoice
from mirror_lib.errors import ClusterError, RefusedError
from mirror_lib.facts import CommittedOffset, OffsetRange
from mirror_lib.kafka.record_batch import Record
from mirror_lib.ledger.records import LogPosition, PartitionKey, Position, RangePositions, TopicPair
from mirror_lib.replication.copy_ranges import BEHIND_REMOTE_LOG, Start, noted, refuse_other_mode, starts_of
from mirror_lib.replication.driver import starting_logs
from mirror_lib.replication.messages import CopiedPartition
from mirror_lib.replication.start_rules import (
    RULES,
    Action,
    Begins,
    Case,
    RemoteLog,
    Rows,
    SourceLog,
    Writer,
    rule_of,
    unlike,
)
from mirror_lib.rows.repartitioned import beginnings, refuse_new_remote_topics
from tests.lab.flows import flow_of

CASES = [Case(*each) for each in itertools.product(Rows, RemoteLog, SourceLog, Begins, Writer)]


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


def test_every_case_is_decided_by_what_is_proven_and_no_rule_is_dead() -> None:
    for case in CASES:
        rule = rule_of(case)
        assert (rule.action, rule.code) == expected(case), case
    assert {id(rule_of(case)) for case in CASES} == {id(rule) for rule in RULES}


PLAIN = flow_of()
AT = Position(99, 104)


def record(offset: int, body: bytes = b"body", timestamp: int = 7) -> Record:
    return Record(offset, timestamp, body)


LATER, NEW = record(99, timestamp=8), record(99, b"new")


@pytest.mark.parametrize(
    ("change", "ours", "theirs", "stamped", "found"),
    [
        (None, record(99), record(104), False, False),
        (None, NEW, record(104), False, True),
        (None, LATER, record(104), False, True),
        (None, LATER, record(104), True, False),
        (None, NEW, record(104), True, True),
        # A log that has lost its record shows nothing.
        (None, record(100, b"new"), record(104), False, False),
        (None, NEW, record(105), False, False),
        (None, None, record(104), False, False),
        (None, NEW, None, False, False),
        # Changed records have the timestamp in common, unless the flow sets it.
        (RecordChange(where="true"), record(99), record(104, b"with an origin"), False, False),
        (RecordChange(where="true"), LATER, record(104, b"with an origin"), False, True),
        (RecordChange(select="*, now() as timestamp"), LATER, record(104), False, False),
        (RecordChange(transform="module:function"), LATER, record(104), False, False),
    ],
)
def test_topic_is_another_one_where_a_recorded_copy_is_not_its_sources_record(
    change: Optional[RecordChange], ours: Optional[Record], theirs: Optional[Record], stamped: bool, found: bool
) -> None:
    assert unlike(replace(PLAIN, change=change), AT, ours, theirs, stamped) is found


ORDERS = CopiedPartition("orders", "orders", 0, "source-1", "remote-1", 1000)
MORE = replace(ORDERS, partition=1)
SHARED = replace(PLAIN, start_position=OffsetChoice(group="g"), commit_source_group="g")
AT_A_TIME = replace(PLAIN, start_position=OffsetChoice(timestamp=1))


def cluster(metadata: Optional[str] = None, at: Sequence[int] = (17, -1), silent: bool = False) -> Any:
    """Each log has offsets 10 to 49. The group is at offset 40 of partition 0 if `metadata` is given; `at`: the offsets
    at a time, as far as the leaders tell them."""
    committed = {} if metadata is None else {ORDERS.source: CommittedOffset(40, metadata)}
    return SimpleNamespace(
        alias="A",
        committed_offsets=lambda groups: {} if silent else dict.fromkeys(groups, committed),
        offsets_at=lambda partitions, *_: dict(zip(sorted(partitions), at)),
        offsets=lambda partitions, _: dict.fromkeys(partitions, OffsetRange(10, 50)),
    )


RECORDED = noted("orders", "remote-1", Position(0, 55)).metadata


@pytest.mark.parametrize(
    ("flow", "metadata", "start"),
    [
        (SHARED, RECORDED, Start(40, "group g", 55)),
        (SHARED, noted("B.orders", "remote-1", Position(0, 55)).metadata, Start(40, "group g", BEHIND_REMOTE_LOG)),
        (SHARED, "", Start(40, "group g", BEHIND_REMOTE_LOG)),
        (SHARED, "other words", Start(40, "group g", BEHIND_REMOTE_LOG)),
        (SHARED, noted("orders", "", Position(0, 55)).metadata, Start(40, "group g", 55)),  # of a broker without ids
        (SHARED, noted("orders", "gone", Position(0, 55)).metadata, Start(40, "group g", recreated=True)),
        # A group that is not committed to: the copy is compared from the start of the remote log.
        (replace(SHARED, commit_source_group=""), RECORDED, Start(40, "group g", None)),
    ],
)
def test_metadata_of_the_group_says_where_the_copy_resumes(flow: ReplicationFlow, metadata: str, start: Start) -> None:
    assert starts_of(flow, cluster(metadata), [ORDERS, MORE]) == {("orders", 0): start}


def test_time_without_a_later_record_is_the_end_and_one_that_no_leader_tells_waits() -> None:
    found = starts_of(AT_A_TIME, cluster(), [ORDERS, MORE])
    assert [start.upstream_offset for start in found.values()] == [17, -1]
    found, logs = starting_logs(AT_A_TIME, cluster(at=[17]), [ORDERS, MORE], {})
    assert found.keys() == logs.keys() == {ORDERS.source}
    _, logs = starting_logs(SHARED, cluster(), [ORDERS, MORE], {})
    assert logs.keys() == {ORDERS.source, MORE.source}


def test_group_whose_offsets_cannot_be_read_is_not_taken_for_one_without_an_offset() -> None:
    assert starts_of(SHARED, cluster(), [ORDERS]) == {}
    with pytest.raises(ClusterError, match="A: cannot read the committed offsets of group g"):
        starts_of(SHARED, cluster(silent=True), [ORDERS])


SELECTED, KEYED = replace(PLAIN, change=RecordChange(select="*")), replace(PLAIN, change=RecordChange(partitioner=KEY))
KEPT = [PartitionKey("s1", "r1", "orders", 0)]
PAIR = TopicPair("orders", "s1", "A.orders", "r1")


@pytest.mark.parametrize(
    ("flow", "kept", "ranges", "words"),
    [
        (KEYED, KEPT, [], "with records in their partitions"),
        *((flow, kept, [PAIR], "with records repartitioned") for flow in (PLAIN, SELECTED) for kept in ([], KEPT)),
    ],
)
def test_topic_that_began_in_one_partitioning_mode_is_refused_in_the_other(
    flow: ReplicationFlow, kept: Sequence[PartitionKey], ranges: Sequence[TopicPair], words: str
) -> None:
    with pytest.raises(RefusedError, match=f"{words}, and would be copied there again"):
        refuse_other_mode(flow, [PAIR], kept, ranges)
    for other in (PAIR._replace(topic_id="s2"), PAIR._replace(remote_topic_id="r2")):
        refuse_other_mode(flow, [other], kept, ranges)  # Another topic by now may be copied either way.
    refuse_other_mode(PLAIN, [PAIR], KEPT, [])
    refuse_other_mode(KEYED, [PAIR], KEPT, [PAIR])


ZERO = ("orders", 0)
# Partition 0 was copied up to offset 50.
COPIED = {ZERO: LogPosition("s1", 50)}
PAIRS = frozenset([TopicPair("orders", "s1", "keyed", "r1")])
KNOWN = RangePositions(COPIED, {("keyed", 0): LogPosition("r1", 10)}, PAIRS)


def partitions(*numbers: int, topic_id: str = "s1", remote: str = "keyed") -> List[CopiedPartition]:
    return [CopiedPartition("orders", remote, number, topic_id, "r1", 1000) for number in numbers]


def begun(
    log: Tuple[int, int], start: Optional[Start], latest: bool = False, copied: bool = False, topic_id: str = "s1"
) -> int:
    """Where partition 0 begins."""
    known = {each.source: each for each in partitions(0, topic_id=topic_id)}
    starts = {} if start is None else {ZERO: start}
    return beginnings(COPIED if copied else {}, known, {ZERO: OffsetRange(*log)}, starts, latest)[ZERO]


GROUP = Start(20, "group g", -1)


@pytest.mark.parametrize(
    ("log", "start", "latest", "copied", "begins"),
    [
        pytest.param((5, 50), None, False, False, 5, id="never copied"),
        pytest.param((5, 50), None, True, False, 50, id="never copied, from the latest on"),
        pytest.param((5, 50), GROUP, False, False, 20, id="at the group's offset"),
        pytest.param((0, 7), Start(-1, "group g"), False, False, 7, id="the group has seen nothing newer"),
        pytest.param((5, 50), replace(GROUP, recreated=True), True, False, 5, id="another remote topic by now"),
        # A partition that was copied resumes where it ended, whatever the file says.
        *(pytest.param(log, GROUP, True, True, 50, id=f"copied, {log}") for log in ((0, 60), (50, 50), (0, 50))),
    ],
)
def test_repartitioned_copy_begins_or_resumes(
    log: Tuple[int, int], start: Optional[Start], latest: bool, copied: bool, begins: int
) -> None:
    assert begun(log, start, latest, copied) == begins


@pytest.mark.parametrize(
    ("log", "start", "topic_id", "words"),
    [
        pytest.param((51, 90), None, "s1", "offsets 50 to 50 left the source's log", id="expired"),
        pytest.param((0, 49), None, "s1", "ends at 49, before offset 50", id="truncated"),
        pytest.param((0, 90), None, "s2", "orders was deleted and created again on the source", id="created again"),
        pytest.param((5, 50), Start(4, "group g"), "s1", "offsets 4 to 4 left the source's log", id="expired start"),
        pytest.param((5, 50), Start(51, "group g", -1), "s1", "ends at 50, before offset 51", id="start ahead"),
    ],
)
def test_source_that_lacks_what_comes_next_is_refused(
    log: Tuple[int, int], start: Optional[Start], topic_id: str, words: str
) -> None:
    with pytest.raises(RefusedError, match=words):
        begun(log, start, copied=start is None, topic_id=topic_id)


def test_remote_topic_that_a_copied_source_gets_later_is_refused() -> None:
    pairs = frozenset([*KNOWN.pairs, TopicPair("payments", "s2", "other", "r2")])
    filled_by_another = RangePositions({**COPIED, ("payments", 0): LogPosition("s2", 3)}, KNOWN.remotes, pairs)
    for known in (KNOWN, filled_by_another):
        with pytest.raises(RefusedError, match="new remote topic of orders, and would lack the records copied before"):
            refuse_new_remote_topics(known, [*partitions(0), *partitions(0, remote="other")])


@pytest.mark.parametrize("known", [RangePositions(), KNOWN])
def test_remote_topic_of_before_and_one_of_a_source_that_was_never_copied_are_taken(known: RangePositions) -> None:
    other = CopiedPartition("payments", "other", 0, "s2", "r2", 1000)
    refuse_new_remote_topics(known, [*partitions(0), other])
