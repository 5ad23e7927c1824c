"""Topics that were copied and that the plan does not list any more."""

from __future__ import annotations

from typing import Mapping, Sequence, Tuple

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.facts import TopicDescription
from mirror_lib.topics.plan import CopiedTopic, SkippedTopic, TopicPlan
from mirror_lib.verify.flow import DELETED, FILTERED, GONE, unlisted, with_unlisted
from mirror_lib.verify.verdicts import EQUAL, NOT_COMPARED, PartitionVerdict, TopicVerdict, VerifyReport

FLOW = ReplicationFlow(
    ClusterConfig("A", {"bootstrap.servers": "a:9092"}),
    ClusterConfig("B", {"bootstrap.servers": "b:9092"}),
    topics=("shop[.].*",),
)
ORDERS = CopiedTopic(TopicDescription("shop.orders", "id", 2), "A.shop.orders", "remote id", 2)
NOTHING = VerifyReport("A->B", ())
COMPARED = VerifyReport("A->B", (TopicVerdict("shop.orders", "A.shop.orders", (PartitionVerdict(0, 5, EQUAL),)),))


def found(
    *copied: str, skipped: Sequence[SkippedTopic] = (), present: Sequence[str] = ()
) -> Mapping[str, Tuple[str, Sequence[int]]]:
    partitions = [(name, number) for name in copied for number in (0, 1)]
    remote = ["A.shop.orders", "A.shop.gone", "A.other"]
    return unlisted(FLOW, TopicPlan((ORDERS,), tuple(skipped)), partitions, present, remote)


def test_topic_that_is_no_longer_on_the_source_is_told_once_and_is_not_called_equal() -> None:
    report = with_unlisted(FLOW, COMPARED, found("shop.orders", "shop.gone"))
    orders, gone = report.topics
    assert (orders.verdict, gone.verdict, report.equal) == (EQUAL, NOT_COMPARED, False)
    assert (gone.topic, gone.remote_topic) == ("shop.gone", "A.shop.gone")
    assert [each.unknown for each in gone.partitions] == [(GONE,), ()]


def test_topic_that_the_flow_leaves_out_now_is_named_and_does_no_harm() -> None:
    missed = found("shop.orders", "other", "shop.back", skipped=[SkippedTopic("shop.back", "cycle")])
    assert missed == {"other": (FILTERED, [0, 1]), "shop.back": (FILTERED, [0, 1])}
    assert with_unlisted(FLOW, COMPARED, missed) == COMPARED


def test_where_the_flow_leaves_out_all_that_it_copied_nothing_is_called_equal() -> None:
    report = with_unlisted(FLOW, NOTHING, found("other"))
    assert not report.equal
    assert [each.partitions[0].unknown for each in report.topics] == [(FILTERED,)]


def test_topic_that_is_told_of_otherwise_or_came_just_now_is_not_gone() -> None:
    blocked = [SkippedTopic("shop.blocked", "cannot be created", wanted=True)]
    missed = found("shop.blocked", "shop.new", skipped=blocked, present=["shop.new"])
    assert missed == {}


def test_topic_that_was_deleted_on_both_clusters_fails_nothing_but_is_not_called_equal_alone() -> None:
    missed = found("shop.orders", "shop.tmp")
    assert missed == {"shop.tmp": (DELETED, [0, 1])}
    assert with_unlisted(FLOW, COMPARED, missed) == COMPARED
    alone = with_unlisted(FLOW, NOTHING, missed)
    assert not alone.equal and [each.partitions[0].unknown for each in alone.topics] == [(DELETED,)]
