"""Where the source partitions of a flow that repartitions records continue, and when none may."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

import pytest

from mirror_lib.errors import RefusedError
from mirror_lib.facts import OffsetRange, TopicPartition
from mirror_lib.ledger.records import LogPosition, RangePositions, TopicPair
from mirror_lib.replication.copy_ranges import Start
from mirror_lib.replication.messages import CopiedPartition
from mirror_lib.rows.repartitioned import beginnings, refuse_new_remote_topics

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
