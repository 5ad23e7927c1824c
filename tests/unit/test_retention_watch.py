"""The time to retention is read in the background, and a read that fails neither ends the thread nor leaves a time."""

from __future__ import annotations

from typing import Dict, List, Mapping

import pytest

from mirror_lib import retention_watch
from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.errors import ClusterError
from mirror_lib.facts import TopicPartition
from mirror_lib.retention_watch import RetentionWatch
from tests.lab.one_flow import until

AB = ReplicationFlow(ClusterConfig("A", {}), ClusterConfig("B", {}))


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention_watch, "WAKE_SECONDS", 0.01)
    monkeypatch.setattr(retention_watch, "READ_SECONDS", 0.01)


def test_a_read_that_fails_is_followed_by_others() -> None:
    asked: List[Mapping[TopicPartition, int]] = []
    failures: List[Exception] = [ClusterError("no broker answers"), ValueError("unforeseen")]

    def read(flow: ReplicationFlow, next_offsets: Mapping[TopicPartition, int]) -> Dict[str, float]:
        asked.append(next_offsets)
        if failures:
            raise failures.pop()
        return {"orders": 5.0}

    with RetentionWatch(read) as watch:
        watch.update(AB, {("orders", 0): 7})
        until(lambda: watch.left("A->B") == {"orders": 5.0}, 30)
    assert asked[0] == {("orders", 0): 7} and failures == []


def test_a_flow_without_lag_is_not_read_and_its_last_time_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: List[str] = []

    def read(flow: ReplicationFlow, next_offsets: Mapping[TopicPartition, int]) -> Dict[str, float]:
        reads.append(flow.name)
        return {"orders": 5.0}

    monkeypatch.setattr(retention_watch, "VALID_SECONDS", 0.2)
    with RetentionWatch(read) as watch:
        watch.update(AB, {("orders", 0): 7})
        until(lambda: bool(watch.left("A->B")), 30)
        watch.update(AB, {})
        until(lambda: not watch.left("A->B"), 30)
        count = len(reads)
        until(lambda: not watch.left("A->B"), 30)
        assert len(reads) - count <= 1
