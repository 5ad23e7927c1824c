"""How far behind a flow says that it is: the rest, and since when."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Dict, Mapping

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


def days_behind(snapshot: FlowMetrics) -> float:
    assert snapshot.behind_seconds is not None
    return round(snapshot.behind_seconds / DAY, 1)


def lag(left: Mapping[TopicPartition, int]) -> Lag:
    return {source: (10, 10 + count) for source, count in left.items()}


def of_both(left: Dict[TopicPartition, int]) -> FlowMetrics:
    """A cycle that copied from both topics, one with old records."""
    report = replace(nothing_copied(0), partitions=(part(ARCHIVE, days_ago(30)), part(LIVE, days_ago(0.1))))
    return metrics_of("A->B", 0, [report], lag(left), 1.0)


def test_old_records_of_a_partition_that_is_caught_up_put_nothing_behind() -> None:
    live = of_both({ARCHIVE: 0, LIVE: 5})
    assert (live.behind_records, days_behind(live), live.waiting) == (5, 0.1, "copying")


def test_flow_is_as_far_behind_as_the_partition_that_is_farthest_back() -> None:
    assert days_behind(of_both({ARCHIVE: 1, LIVE: 5})) == 30.0


def test_flow_that_has_nothing_left_is_behind_nothing() -> None:
    done = of_both({ARCHIVE: 0, LIVE: 0})
    assert (done.behind_records, done.behind_seconds, done.waiting) == (0, None, "waiting for records")


def test_topic_that_does_not_count_is_neither_in_the_lag_nor_among_the_topics() -> None:
    report = replace(nothing_copied(0), partitions=(part(ARCHIVE, days_ago(30)), part(LIVE, days_ago(0.1))))
    left = {ARCHIVE: 1, LIVE: 5}
    both = metrics_of("A->B", 0, [report], lag(left), 1.0)
    live = metrics_of("A->B", 0, [report], lag(left), 1.0, {"archive"})
    assert (both.behind_records, live.behind_records, days_behind(live)) == (6, 5, 0.1)
    assert ([each.topic for each in live.topics], live.next_offsets, live.records) == (["live"], {LIVE: 10}, 20)


def test_what_a_task_told_before_its_last_report_does_not_count() -> None:
    before = replace(nothing_copied(0), partitions=(part(LIVE, days_ago(30)),))
    last = replace(nothing_copied(0), partitions=(part(LIVE, days_ago(1)),))
    assert days_behind(metrics_of("A->B", 0, [before, last], lag({LIVE: 5}), 1.0)) == 1.0


def test_age_is_not_known_where_no_record_of_what_is_behind_was_copied() -> None:
    untold = replace(nothing_copied(0), partitions=(part(ARCHIVE, days_ago(30)), part(LIVE, -1)))
    snapshot = metrics_of("A->B", 0, [untold], lag({LIVE: 5}), 1.0)
    assert (snapshot.behind_records, snapshot.behind_seconds) == (5, None)


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


def test_flow_that_places_records_anew_is_as_far_behind_as_the_partition_that_is_farthest_back() -> None:
    newest = {ARCHIVE: days_ago(30), LIVE: days_ago(0.1)}

    def days(left: Dict[TopicPartition, int]) -> float:
        return round((farthest_back(left, newest) or 0.0) / DAY, 1)

    assert (days({ARCHIVE: 0, LIVE: 5}), days({ARCHIVE: 1, LIVE: 5})) == (0.1, 30.0)
    assert farthest_back({ARCHIVE: 0, LIVE: 0}, newest) is None
