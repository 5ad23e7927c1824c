"""A topic goes on in the way in which it began, whatever partition counts become."""

from __future__ import annotations

import threading
from typing import Any, List, Mapping, Optional, Sequence, Tuple, cast

import pytest

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.errors import FencedError, RefusedError
from mirror_lib.facts import TopicDescription
from mirror_lib.records.two_ways import TwoWayMirror, ways_of
from mirror_lib.replicate.journal import BatchRef
from mirror_lib.state.records import PartitionKey
from mirror_lib.state.row_passes import REMOTE, SOURCE, PassRow, PlannedByAnother, RowPass
from mirror_lib.topics.plan import TopicFacts, TopicPlan, plan_topics
from mirror_lib.topics.remote_topics import apply_plan
from mirror_lib.topics.ways import Ways

FLOW = ReplicationFlow(ClusterConfig("A", {}), ClusterConfig("B", {}), replication_factor=1, counts_differ="key")
KEPT = [PartitionKey("s1", "r1", "orders", 0)]
PASS = RowPass(3, (PassRow(SOURCE, "orders", "s1", 0, 0, 9), PassRow(REMOTE, "A.orders", "r1", 0, 5)))


class Placing:
    """What places records, and cannot."""

    def __init__(self, error: RefusedError) -> None:
        self._error = error

    def copy_batch(self, spark: object, batch: BatchRef) -> None:
        raise self._error

    def has_topics(self) -> bool:
        return True


class Keeping:
    """What keeps partitions, and counts its batches."""

    flow = FLOW
    batches = 0

    def copy_batch(self, spark: object, batch: BatchRef, tail: object) -> None:
        self.batches += 1

    def blocked(self) -> List[str]:
        return []


def plan(upstream: int, downstream: int, remote_id: str = "r1") -> TopicPlan:
    source = {"orders": TopicDescription("orders", "s1", upstream)}
    return plan_topics(FLOW, TopicFacts(source, {"A.orders": TopicDescription("A.orders", remote_id, downstream)}))


def decided(ways: Ways, planned: TopicPlan) -> Tuple[Optional[int], int]:
    """Over how many partitions keys go, if they do, and how many the remote topic must have."""
    (topic,) = ways.as_begun(planned).copied
    return topic.keyed_over, topic.remote_partitions


@pytest.mark.parametrize(("upstream", "downstream"), [(4, 4), (8, 4), (4, 8)])
def test_partitions_that_were_kept_are_kept_and_the_remote_topic_grows(upstream: int, downstream: int) -> None:
    assert decided(ways_of(FLOW, KEPT, None), plan(upstream, downstream)) == (None, upstream)


class Growing:
    """A target that grows its one topic when it is told to."""

    alias = "B"

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions

    def create_topics(self, specs: Sequence[object]) -> Mapping[str, Optional[str]]:
        assert not specs
        return {}

    def create_partitions(self, counts: Mapping[str, int]) -> Mapping[str, Optional[str]]:
        self._partitions = counts["A.orders"]
        return {"A.orders": None}

    def topics(self) -> Mapping[str, TopicDescription]:
        return {"A.orders": TopicDescription("A.orders", "r1", self._partitions)}


@pytest.mark.parametrize(("upstream", "downstream", "becomes"), [(4, 4, 4), (8, 4, 8), (4, 8, 8)])
def test_a_remote_topic_whose_partitions_are_kept_is_grown_where_its_source_has_grown(
    upstream: int, downstream: int, becomes: int
) -> None:
    target = Growing(downstream)
    begun = ways_of(FLOW, KEPT, None).as_begun(plan(upstream, downstream))
    assert [each.grow_to for each in begun.copied] == [upstream if upstream > downstream else None]
    (topic,) = apply_plan(begun, cast(Any, target)).copied
    assert (topic.partitions, topic.grow_to, target.topics()["A.orders"].partitions) == (upstream, None, becomes)


@pytest.mark.parametrize(("upstream", "downstream"), [(4, 4), (8, 4), (4, 8)])
def test_keys_that_were_placed_are_placed_and_the_remote_topic_is_left(upstream: int, downstream: int) -> None:
    assert decided(ways_of(FLOW, [], PASS), plan(upstream, downstream)) == (downstream, downstream)


def test_a_remote_topic_that_was_created_anew_is_decided_on_anew() -> None:
    assert decided(ways_of(FLOW, KEPT, None), plan(4, 8, "r2")) == (8, 8)
    assert decided(ways_of(FLOW, [], PASS), plan(4, 4, "r2")) == (None, 4)


def test_what_one_look_decided_counts_at_the_next_and_is_news_once() -> None:
    ways = Ways((), ())
    ways.begin(plan(4, 4))
    assert not ways.news() and decided(ways, plan(4, 8)) == (None, 4)
    ways.begin(plan(4, 8, "r2"))
    assert ways.news()
    ways.seen()
    ways.begin(plan(4, 8, "r2"))
    assert not ways.news() and decided(ways, plan(8, 8, "r2")) == (8, 8)


@pytest.mark.parametrize("error", [FencedError("A->B: taken over"), PlannedByAnother("A->B", PASS)])
def test_flow_that_another_driver_has_ends_in_both_ways(error: FencedError) -> None:
    mirror, kept = two_ways(Placing(error))
    for _ in range(2):
        with pytest.raises(FencedError):
            mirror.copy_batch(cast(Any, None), BatchRef("", 0))
    assert mirror.blocked() == [] and kept.batches == 0


def test_what_is_refused_in_one_way_does_not_stop_the_other() -> None:
    mirror, kept = two_ways(Placing(RefusedError("its log is another one")))
    mirror.copy_batch(cast(Any, None), BatchRef("", 0))
    assert mirror.blocked() == ["records that go by their keys: its log is another one"] and kept.batches == 1


def two_ways(placed: Placing) -> Tuple[TwoWayMirror, Keeping]:
    kept = Keeping()
    return TwoWayMirror(cast(Any, kept), cast(Any, placed), Ways([], []), threading.Event()), kept
