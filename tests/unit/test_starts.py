"""Where a partition that was never copied begins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Mapping, Sequence, Set

import pytest

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.config.values import OffsetChoice
from mirror_lib.errors import ClusterError
from mirror_lib.facts import CommittedOffset, OffsetRange, TopicDescription, TopicPartition
from mirror_lib.ledger.records import Position
from mirror_lib.ledger.table_reader import TableReader
from mirror_lib.plan.read import with_starts
from mirror_lib.replication.copy_ranges import BEHIND_REMOTE_LOG, Start, Starts, noted
from mirror_lib.replication.messages import CopiedPartition
from mirror_lib.topics.plan import CopiedTopic

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
    return Starts(flow, source).of([ORDERS, MORE])  # type: ignore[arg-type]


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
    by_time = Starts(flow, source)  # type: ignore[arg-type]
    found = by_time.of([ORDERS, MORE])
    assert by_time.without_answer([ORDERS, MORE], found) == {MORE.source}
    by_group = Starts(SHARED, Source({}, {}))  # type: ignore[arg-type]
    assert by_group.without_answer([ORDERS, MORE], by_group.of([ORDERS, MORE])) == frozenset()


def test_group_of_which_nobody_tells_where_it_stands_is_not_taken_for_one_without_an_offset() -> None:
    source = Source({}, {})
    assert Starts(SHARED, source).of([ORDERS]) == {}  # type: ignore[arg-type]
    source.silent = {"g"}
    with pytest.raises(ClusterError, match="A: cannot read the committed offsets of group g"):
        Starts(SHARED, source).of([ORDERS])  # type: ignore[arg-type]


def test_plan_notes_the_offsets_before_the_start_of_a_new_topic(tmp_path: Path) -> None:
    topic, cluster = CopiedTopic(TopicDescription("orders", "source-1", 2), "A.orders", "", 2), Source({}, {})

    def noted(**settings: Any) -> str:
        flow = replace(FLOW, **settings)
        (found,) = with_starts(flow, [topic], cluster, cluster, TableReader(str(tmp_path)), "")  # type: ignore[arg-type]
        return " ".join(found.notes)

    assert "(80 offsets of 2 partitions)" in noted(auto_offset_reset="latest")
    assert "(5 offsets)" in noted(start_position=OffsetChoice(offsets=((("orders", 1), 15),)))
    assert noted() == ""
