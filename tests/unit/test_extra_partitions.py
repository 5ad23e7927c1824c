"""Partitions of a remote topic that no partition of the source has, next to a flow that continues."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Dict, Sequence, cast

from mirror_lib.facts import Cluster, OffsetRange, TopicDescription, TopicPartition
from mirror_lib.topics.plan import CopiedTopic
from mirror_lib.verify.flow import extra_partitions


def described(name: str, partitions: int) -> TopicDescription:
    return TopicDescription(name, name, partitions)


def cluster(topic: TopicDescription, filled: Sequence[int] = ()) -> Cluster:
    def offsets(asked: Sequence[TopicPartition], isolation_level: str) -> Dict[TopicPartition, OffsetRange]:
        return {(name, number): OffsetRange(0, int(number in filled)) for name, number in asked}

    return cast(Cluster, SimpleNamespace(topics=lambda: {topic.name: topic}, offsets=offsets))


def found(of_source: int, planned: int) -> Dict[str, Sequence[int]]:
    """The source has so many partitions by now, and had `planned`; the remote topic has 6, and 3 to 5 hold
    something."""
    copied = CopiedTopic(described("orders", planned), "a.orders", "id", planned)
    target = cluster(described("a.orders", 6), (3, 4, 5))
    return dict(extra_partitions(cluster(described("orders", of_source)), target, [copied]))


def test_partitions_that_the_source_never_had_are_told() -> None:
    assert found(of_source=4, planned=4) == {"a.orders": [4, 5]}


def test_partitions_that_came_to_the_source_since_are_its_own() -> None:
    assert found(of_source=6, planned=4) == {}
    assert found(of_source=5, planned=4) == {"a.orders": [5]}
