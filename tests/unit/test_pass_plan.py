"""Which ranges the next pass of a flow that places records anew has, behind the last one that was written down."""

from __future__ import annotations

from typing import Dict, List, Tuple

import pytest

from mirror_lib.errors import ClusterError, RefusedError
from mirror_lib.facts import OffsetRange
from mirror_lib.records.pass_plan import Beginnings, first_places, new_rows, next_pass, remote_rows
from mirror_lib.records.pass_room import Room
from mirror_lib.replicate.starts import Start
from mirror_lib.replicate.topics import CopiedPartition
from mirror_lib.state.row_passes import SOURCE, PassRow, RowPass

REMOTES = remote_rows({"B": ("r1", 2)}, {("B", 0): 10, ("B", 1): 20})


def partitions(*numbers: int, topic_id: str = "s1") -> List[CopiedPartition]:
    return [CopiedPartition("A", "B", number, topic_id, "r1", 1000) for number in numbers]


def logs(**ends: Tuple[int, int]) -> Dict[Tuple[str, int], OffsetRange]:
    return {("A", int(name[1:])): OffsetRange(*bounds) for name, bounds in ends.items()}


def ranges(planned: RowPass) -> Dict[int, Tuple[int, int]]:
    return {row.partition: (row.from_offset, row.until_offset or 0) for row in planned.of(SOURCE)}


def test_first_pass_begins_at_log_starts_and_names_where_remote_logs_stand() -> None:
    planned = next_pass(None, partitions(0, 1), logs(p0=(5, 50), p1=(0, 7)), REMOTES, Room(1000))
    assert (planned.number, ranges(planned)) == (0, {0: (5, 50), 1: (0, 7)})
    assert [(row.partition, row.from_offset) for row in planned.of("remote")] == [(0, 10), (1, 20)]
    latest = next_pass(None, partitions(0), logs(p0=(5, 50)), REMOTES, Room(9), Beginnings({}, True))
    assert ranges(latest) == {0: (50, 50)}


def test_first_pass_begins_where_a_group_stands_and_ends_where_it_is_told() -> None:
    told = Beginnings({("A", 0): Start(20, "group g", -1), ("A", 1): Start(-1, "group g")}, latest=True)
    both = logs(p0=(5, 50), p1=(0, 7), p2=(0, 9))
    planned = next_pass(None, partitions(0, 1, 2), both, REMOTES, Room(1000), told, {("A", 0): 30, ("A", 1): 3})
    assert ranges(planned) == {0: (20, 30), 1: (7, 7), 2: (9, 9)}
    assert [row.partition for row in new_rows(None, planned)] == [1, 2, 0]
    assert new_rows(planned, next_pass(planned, partitions(0, 1, 2), both, REMOTES, Room(1000))) == []


def test_first_pass_copies_again_what_went_to_a_remote_topic_that_is_gone() -> None:
    told = Beginnings({("A", 0): Start(20, "group g", recreated=True)}, latest=True)
    assert ranges(next_pass(None, partitions(0), logs(p0=(5, 50)), REMOTES, Room(1000), told)) == {0: (5, 50)}


@pytest.mark.parametrize(
    ("start", "words"),
    [
        pytest.param(Start(4, "group g", -1), "offsets 4 to 4 left the source's log", id="expired"),
        pytest.param(Start(51, "group g", -1), "ends at 50, before offset 51", id="ahead"),
        pytest.param(Start(20, "group g", 19), "by a mirror that keeps partitions", id="kept elsewhere"),
    ],
)
def test_position_that_cannot_be_gone_on_from_is_refused(start: Start, words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        next_pass(None, partitions(0), logs(p0=(5, 50)), REMOTES, Room(10), Beginnings({("A", 0): start}, False))


def test_next_pass_goes_on_where_the_last_one_ended_and_takes_new_partitions_in() -> None:
    first = next_pass(None, partitions(0), logs(p0=(0, 50)), REMOTES, Room(1000))
    second = next_pass(first, partitions(0, 1), logs(p0=(0, 60), p1=(3, 4)), REMOTES, Room(1000))
    assert (second.number, ranges(second), second.empty) == (1, {0: (50, 60), 1: (3, 4)}, False)
    third = next_pass(second, partitions(0, 1), logs(p0=(0, 60), p1=(3, 4)), REMOTES, Room(1000))
    assert third.empty


def test_partition_that_tells_no_offsets_keeps_its_place() -> None:
    first = next_pass(None, partitions(0, 1), logs(p0=(0, 50), p1=(0, 9)), REMOTES, Room(1000))
    second = next_pass(first, partitions(0, 1), logs(p0=(0, 60)), REMOTES, Room(1000))
    third = next_pass(second, partitions(0, 1), logs(p0=(0, 60), p1=(0, 11)), REMOTES, Room(1000))
    assert (ranges(second)[1], ranges(third)[1]) == ((9, 9), (9, 11))


def test_pass_has_no_more_offsets_than_it_may_but_each_partition_moves() -> None:
    planned = next_pass(None, partitions(0, 1, 2), logs(p0=(0, 900), p1=(0, 10), p2=(0, 900)), REMOTES, Room(110))
    assert ranges(planned) == {1: (0, 10), 0: (0, 50), 2: (0, 50)}


@pytest.mark.parametrize(
    ("log", "topic_id", "words"),
    [
        pytest.param((51, 90), "s1", "offsets 50 to 50 left the source's log", id="expired"),
        pytest.param((0, 49), "s1", "ends at 49, before offset 50", id="truncated"),
        pytest.param((0, 90), "s2", "deleted and created again", id="recreated"),
    ],
)
def test_lost_source_is_refused(log: Tuple[int, int], topic_id: str, words: str) -> None:
    last = RowPass(4, (PassRow(SOURCE, "A", "s1", 0, 20, 50), *REMOTES))
    with pytest.raises(RefusedError, match=words):
        next_pass(last, partitions(0, topic_id=topic_id), logs(p0=log), REMOTES, Room(10))


def test_source_of_several_remote_topics_and_remote_topic_of_several_sources_have_one_range_each() -> None:
    other, also = CopiedPartition("A", "C", 0, "s1", "r2", 9), CopiedPartition("D", "B", 0, "s3", "r1", 9)
    several = [*partitions(0), other, also]
    both = {("A", 0): OffsetRange(0, 5), ("D", 0): OffsetRange(1, 3)}
    planned = next_pass(None, several, both, [*REMOTES, *remote_rows({"C": ("r2", 1)}, {("C", 0): 0})], Room(100))
    found = sorted((row.topic, row.from_offset, row.until_offset) for row in planned.of(SOURCE))
    assert found == [("A", 0, 5), ("D", 1, 3)]


def test_remote_topic_that_a_copied_source_gets_later_is_refused() -> None:
    first = next_pass(None, partitions(0), logs(p0=(0, 50)), REMOTES, Room(1000))
    more = [*partitions(0), CopiedPartition("A", "C", 0, "s1", "r2", 1000)]
    with pytest.raises(RefusedError, match="C is a new remote topic of A, and would lack what was copied before"):
        next_pass(first, more, logs(p0=(0, 60)), REMOTES, Room(1000))


def test_remote_partition_that_tells_no_offsets_is_named_with_its_cluster() -> None:
    told = {("orders", 0): OffsetRange(2, 9), ("orders", 1): OffsetRange(0, 5)}
    assert first_places("A->B: B", sorted(told), told, behind=False) == {("orders", 0): 2, ("orders", 1): 0}
    assert first_places("A->B: B", sorted(told), told, behind=True) == {("orders", 0): 9, ("orders", 1): 5}
    with pytest.raises(ClusterError) as caught:
        first_places("A->B: B", [*told, ("orders", 3)], told, behind=False)
    assert str(caught.value) == "A->B: B tells no end of orders-3 (has it lost its leader?)"
