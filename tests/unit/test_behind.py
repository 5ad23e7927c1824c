"""How far behind a flow says that it is: the rest, and since when."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Dict, List, Mapping, Optional, Sequence

import pytest

from mirror_lib.facts import TopicPartition
from mirror_lib.ledger.records import Position
from mirror_lib.metrics import FlowMetrics, farthest_back
from mirror_lib.replication.copy_ranges import Range
from mirror_lib.replication.flow_state import FlowState, Lag, metrics_of
from mirror_lib.replication.messages import CopiedPartition, PartitionReport, Stop, nothing_copied

DAY = 86_400.0
ARCHIVE, LIVE = ("archive", 0), ("live", 0)


def days_ago(days: float) -> int:
    """Milliseconds since 1970."""
    return int(1000 * (time.time() - days * DAY))


def part(source: TopicPartition, last_timestamp: int) -> PartitionReport:
    return PartitionReport(source[0], f"A.{source[0]}", source[1], 10, 10, 10, last_timestamp, records=10)


def snapshot(left: Mapping[TopicPartition, int], *reports: Sequence[PartitionReport], without: str = "") -> FlowMetrics:
    lag: Lag = {source: (10, 10 + count) for source, count in left.items()}
    tasks = [replace(nothing_copied(0), partitions=tuple(parts)) for parts in reports]
    return metrics_of("A->B", 0, tasks, lag, 1.0, {without})


def days(seconds: Optional[float]) -> Optional[float]:
    return None if seconds is None else round(seconds / DAY, 1)


OLD, NEW, UNKNOWN = part(ARCHIVE, days_ago(30)), part(LIVE, days_ago(0.1)), part(LIVE, -1)


@pytest.mark.parametrize(
    ("left", "reports", "records", "age"),
    [
        pytest.param({ARCHIVE: 0, LIVE: 5}, [[OLD, NEW]], 5, 0.1, id="old records of a partition without lag"),
        pytest.param({ARCHIVE: 1, LIVE: 5}, [[OLD, NEW]], 6, 30.0, id="the partition that is farthest back"),
        pytest.param({ARCHIVE: 0, LIVE: 0}, [[OLD, NEW]], 0, None, id="no lag"),
        pytest.param({LIVE: 5}, [[part(LIVE, days_ago(30))], [NEW]], 5, 0.1, id="the last report of a task"),
        pytest.param({LIVE: 5}, [[OLD, UNKNOWN]], 5, None, id="no copied record of the partition with lag"),
    ],
)
def test_lag_is_the_rest_and_the_age_of_the_partition_that_is_farthest_back(
    left: Dict[TopicPartition, int], reports: List[List[PartitionReport]], records: int, age: Optional[float]
) -> None:
    found = snapshot(left, *reports)
    assert (found.behind_records, days(found.behind_seconds)) == (records, age)
    assert found.waiting == ("copying" if records else "waiting for records")
    if len(reports) == 1 and UNKNOWN not in reports[0]:  # as a flow that repartitions computes it
        newest = {each.source: each.last_timestamp for each in reports[0]}
        assert days(farthest_back(left, newest)) == age


def test_topic_that_does_not_count_is_neither_in_the_lag_nor_among_the_topics() -> None:
    found = snapshot({ARCHIVE: 1, LIVE: 5}, [OLD, NEW], without="archive")
    assert (found.behind_records, days(found.behind_seconds), found.records) == (5, 0.1, 20)
    assert ([each.topic for each in found.topics], found.next_offsets) == (["live"], {LIVE: 10})


def reported(position: int, source_end: int) -> PartitionReport:
    return replace(part(LIVE, -1), position=position, downstream_offset=position, source_end=source_end)


def test_partition_without_news_keeps_its_lag() -> None:
    copied = [CopiedPartition(topic, f"A.{topic}", number, "a", "b", 1000) for topic, number in (ARCHIVE, LIVE)]
    archive, live = (each.key for each in copied)
    flow: Any = SimpleNamespace(name="A->B", on_error="fail")
    state = FlowState(flow, {archive: Position(10, 10), live: Position(10, 10)})
    ranges = [Range(archive, Position(10, 10), 60), Range(live, Position(10, 10), 10)]
    state.begin({each.key: each for each in copied}, ranges)

    def left(*parts: PartitionReport) -> Dict[TopicPartition, int]:
        state.take(state.apply([replace(nothing_copied(0), partitions=parts)]))
        return {source: end - at for source, (at, end) in state.lag().items()}

    assert left() == {ARCHIVE: 50, LIVE: 0}
    assert left(reported(20, 25)) == {ARCHIVE: 50, LIVE: 5}
    assert left(reported(22, -1)) == {ARCHIVE: 50, LIVE: 3}  # without an answer about its end
    assert left(replace(part(ARCHIVE, -1), stopped=Stop("too large"))) == {LIVE: 3}
