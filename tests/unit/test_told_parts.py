"""The closing table of flows whose records go through rows: topics of the source, and rates that the run had."""

from __future__ import annotations

from typing import List

from mirror_lib.records.told_parts import by_source, taking
from mirror_lib.replicate.lanes import PartitionReport
from mirror_lib.replicate.totals import Totals, total_lines


def part(remote: str, number: int, records: int) -> PartitionReport:
    return PartitionReport(
        remote, remote, number, 0, 0, 0, -1, records=records, bytes=records * 100, seconds=0.01
    )


def table(*passes: float) -> List[str]:
    """The rows behind the head, after passes that took so many seconds each."""
    totals, pairs = Totals(), [("sales", "keyed"), ("b", "both"), ("a", "both")]
    for seconds in passes:
        parts = [part("keyed", 0, 1000), part("keyed", 1, 0), part("both", 0, 10)]
        totals.add(taking(by_source(parts, pairs), seconds))
    return [" ".join(line.split()) for line in total_lines("A->B", totals.topics())[2:]]


def test_records_are_under_the_topics_they_came_from_and_their_rate_is_that_of_the_passes() -> None:
    assert table(8.0, 2.0) == ["a, b both 1 20 2.0 KB 10.00 2", "sales keyed 1 2 000 200.0 KB 10.00 200"]


def test_many_topics_of_one_remote_topic_are_not_all_named() -> None:
    (found,) = by_source([part("all", 0, 1)], [(f"t{number}", "all") for number in range(9)])
    assert found.topic == "t0, t1, t2 and 6 more"


def test_remote_topic_that_is_not_copied_any_more_keeps_its_name() -> None:
    assert by_source([part("gone", 0, 1)], [("sales", "keyed")])[0].topic == "gone"
