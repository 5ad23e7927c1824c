"""The status line: one line a pass, the same words every time, so that people and log filters can rely on it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from mirror_lib.metrics import FlowMetrics, TopicMetrics, by_topic, is_news, metrics_json, status_line
from mirror_lib.text import duration, grouped, size

COPYING = FlowMetrics(
    flow="A->B",
    batch_id=7,
    records=48210,
    bytes=12_300_000,
    seconds=2.4,
    copy_seconds=2.0,
    behind_records=1204,
    behind_seconds=3.14,
    recovered=0,
    stopped=0,
    waiting="copying",
)


def plain(snapshot: FlowMetrics) -> str:
    """The line with its thin gaps as spaces."""
    return status_line(snapshot).replace("\u202f", " ").replace("\u2009", " ")


def test_line_of_a_pass() -> None:
    assert plain(COPYING) == (
        "A->B batch 7 · 48 210 records, 12.3 MB in 2.4 s (20 088/s) · behind 1 204 records, 3.1 s · copying"
    )


def test_line_of_a_flow_that_has_nothing_to_do() -> None:
    idle = replace(COPYING, records=0, bytes=0, seconds=0.0, behind_records=0, waiting="waiting for records")
    assert plain(idle) == "A->B batch 7 · 0 records, 0 B in 0.0 s (0/s) · caught up · waiting for records"


def test_flow_with_a_stopped_partition_is_never_called_caught_up() -> None:
    halted = replace(COPYING, behind_records=0, stopped=3, waiting="waiting for records")
    assert plain(halted) == (
        "A->B batch 7 · 48 210 records, 12.3 MB in 2.4 s (20 088/s) · 3 partitions stopped · waiting for records"
    )


def test_that_nothing_happens_is_told_once_and_all_else_each_time() -> None:
    idle = replace(COPYING, records=0, bytes=0, behind_records=0, waiting="waiting for records")
    assert is_news(idle, None) and is_news(idle, COPYING) and is_news(COPYING, idle) and is_news(COPYING, COPYING)
    assert not is_news(replace(idle, batch_id=8, seconds=10.1), idle)
    for change in ({"stopped": 1}, {"behind_records": 5}, {"recovered": 1}, {"target_throttled_seconds": 0.1}):
        assert is_news(replace(idle, **change), replace(idle, **change)), change
    assert is_news(replace(idle, waiting="copying"), idle)


def test_line_tells_of_trouble() -> None:
    trouble = replace(COPYING, recovered=1500, stopped=1, batch_id=-1, behind_seconds=None)
    assert plain(trouble) == (
        "A->B own pass · 48 210 records, 12.3 MB in 2.4 s (20 088/s) · behind 1 204 records · "
        "1 500 records found from an interrupted attempt · 1 partition stopped · copying"
    )
    assert "2 partitions stopped" in plain(replace(trouble, stopped=2))


def test_line_is_one_line() -> None:
    assert "\n" not in status_line(COPYING)


def test_json_holds_the_same_numbers_and_the_rate() -> None:
    document = json.loads(json.dumps(metrics_json(COPYING)))
    assert document["records_per_second"] == 20087.5
    assert FlowMetrics(**{k: v for k, v in document.items() if k != "records_per_second"}) == COPYING


@pytest.mark.parametrize(
    ("nbytes", "words"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 KB"), (12_345_678, "12.3 MB"), (5e12, "5.0 TB")]
)
def test_sizes(nbytes: float, words: str) -> None:
    assert size(nbytes) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(3.14, "3.1 s"), (599, "599.0 s"), (7199, "120 min"), (18720, "5.2 h"), (35_404_256.5, "409.8 days")],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_digits_come_in_threes() -> None:
    assert [len(part) for part in grouped(1234567).split(grouped(1000)[1])] == [1, 3, 3]


def test_topics_of_a_pass_name_the_partition_that_is_farthest_back() -> None:
    left = {("orders", 0): 5, ("orders", 1): 9, ("orders", 2): 9, ("audit", 0): 0}
    orders, audit = TopicMetrics("orders", 3, 7, 70, 23, 1, 9), TopicMetrics("audit", 1, 0, 0, 0, 0, 0)
    assert by_topic(left, [("orders", 3, 30), ("orders", 4, 40)]) == (audit, orders)
    assert by_topic({("orders", 0): 5}, None) == (TopicMetrics("orders", 1, None, None, 5, 0, 5),)
    assert (orders.idle().records, orders.idle().behind_records) == (0, 23)


def test_topics_are_not_in_a_pass_document() -> None:
    assert "topics" not in metrics_json(replace(COPYING, topics=by_topic({("orders", 0): 5}, None)))
