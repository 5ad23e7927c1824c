"""A topic goes on in the way in which it began, whatever partition counts become."""

from __future__ import annotations

from typing import Optional, Tuple

import pytest

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.facts import TopicDescription
from mirror_lib.records.two_ways import ways_of
from mirror_lib.state.records import PartitionKey
from mirror_lib.state.row_passes import REMOTE, SOURCE, PassRow, RowPass
from mirror_lib.topics.plan import TopicFacts, TopicPlan, plan_topics
from mirror_lib.topics.ways import Ways

FLOW = ReplicationFlow(ClusterConfig("A", {}), ClusterConfig("B", {}), replication_factor=1, counts_differ="key")
KEPT = [PartitionKey("s1", "r1", "orders", 0)]
PASS = RowPass(3, (PassRow(SOURCE, "orders", "s1", 0, 0, 9), PassRow(REMOTE, "A.orders", "r1", 0, 5)))


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
