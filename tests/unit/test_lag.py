"""`mirror groups lag`: Kafka's own columns, the same words for what is not known, and seconds at the end."""

from __future__ import annotations

import json
from typing import Any

from mirror_lib.facts import CommittedOffset, ConsumerGroup, GroupMember
from mirror_lib.groups.lag import GroupLag, group_lags, lag_json, lag_lines, unread

NOW = 1_700_000_000_000
READER = GroupMember("reader-1-abc", "reader-1", "/10.0.0.7", frozenset({("orders", 0), ("orders", 2)}))
BILLING = ConsumerGroup("billing", "Stable", False, (READER,))
COMMITTED = {
    "billing": {
        ("orders", 10): CommittedOffset(5),
        ("orders", 0): CommittedOffset(90),
        ("clicks", 0): CommittedOffset(7),
    },
    "audit": {("orders", 0): CommittedOffset(100, "by hand")},
}
LOG_ENDS = {("orders", 0): 100, ("orders", 2): 40, ("orders", 10): 5}


def rows(**changes: Any) -> list[GroupLag]:
    given: dict[str, Any] = {
        "groups": {"billing": BILLING, "idle": ConsumerGroup("idle", "Empty", False, ())},
        "committed": COMMITTED,
        "log_ends": LOG_ENDS,
        "timestamps": {"billing": {("orders", 0): NOW - 61_400}},
        "now_ms": NOW,
    }
    return list(group_lags(**{**given, **changes}))


def test_table_has_the_columns_of_kafkas_tool_in_its_order_and_seconds_last() -> None:
    assert [" ".join(line.split()) for line in lag_lines(rows())] == [
        "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID LAG-SECONDS",
        "audit orders 0 100 100 0 - - - 0",
        "billing clicks 0 7 - - - - - -",
        "billing orders 0 90 100 10 reader-1-abc /10.0.0.7 reader-1 61",
        "billing orders 2 - 40 - reader-1-abc /10.0.0.7 reader-1 -",
        "billing orders 10 5 5 0 - - - 0",
    ]


def test_json_holds_the_same_facts_with_null_for_unknown() -> None:
    documents = [json.loads(json.dumps(lag_json(row))) for row in rows()]

    assert documents[2] == {
        **{"group": "billing", "topic": "orders", "partition": 0, "current_offset": 90, "log_end_offset": 100},
        **{"lag": 10, "consumer_id": "reader-1-abc", "host": "/10.0.0.7", "client_id": "reader-1"},
        "lag_seconds": 61.4,
        "only_markers": False,
    }
    assert [documents[1][key] for key in ("log_end_offset", "lag", "host", "lag_seconds")] == [None] * 4


def test_a_timestamp_belongs_to_the_group_whose_next_record_it_is() -> None:
    behind = {**COMMITTED, "audit": {("orders", 0): CommittedOffset(10)}}

    found = {(row.group, row.topic, row.partition): row.lag_seconds for row in rows(committed=behind)}

    assert found["billing", "orders", 0] == 61.4
    assert found["audit", "orders", 0] is None


def test_only_the_topics_asked_for_are_shown() -> None:
    assert {row.topic for row in rows(topics={"clicks"})} == {"clicks"}


def test_a_record_of_the_future_or_without_a_timestamp_is_no_negative_lag() -> None:
    assert rows(timestamps={"billing": {("orders", 0): NOW + 5000}})[2].lag_seconds == 0.0
    assert rows(timestamps={"billing": {("orders", 0): -1}})[2].lag_seconds is None


def test_a_group_beyond_the_end_of_the_log_shows_a_negative_lag_as_kafka_does() -> None:
    (row,) = rows(groups={}, committed={"g": {("orders", 0): CommittedOffset(130)}})
    assert (row.lag, row.lag_seconds) == (-30, 0.0)


def test_timestamps_are_wanted_only_where_something_is_left_to_read() -> None:
    assert unread(COMMITTED["billing"], LOG_ENDS) == {("orders", 0): 90}


def test_lag_of_markers_alone_is_no_time_and_has_a_remark() -> None:
    shown = rows(without={"billing": [("orders", 0), ("orders", 10)], "audit": [("orders", 0)]})
    (marked,) = (row for row in shown if row.only_markers)
    assert (marked.group, marked.partition, marked.lag, marked.lag_seconds) == ("billing", 0, 10, 0.0)
    header, *lines = lag_lines(shown)
    assert header.endswith("REMARK")
    assert [line.split()[:3] for line in lines if line.endswith("only markers after offset 90")] == [
        ["billing", "orders", "0"]
    ]
