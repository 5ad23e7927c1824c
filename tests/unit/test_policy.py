"""Which topics a flow copies, and under which names: policies, filters, loops, patterns that both languages read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional, Sequence, Tuple

import pytest

from mirror_lib.config.model import IDENTITY_POLICY, ReplicationFlow
from mirror_lib.config.values import check_pattern
from mirror_lib.topics.filters import PatternFilter, copied_back, subscribe_pattern, why_skipped
from mirror_lib.topics.policy import (
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    checkpoints_topics,
    counts,
    offset_syncs_topics,
    written_by_mirrors,
)
from tests.lab.flows import flow_of as flow
from tests.unit.pattern_cases import ALIKE, JAVA_ONLY, PYTHON_ONLY


def identity(source: str = "A", target: str = "B", **settings: Any) -> ReplicationFlow:
    return flow(source, target, replication_policy=IDENTITY_POLICY, **settings)


DEFAULT = DefaultReplicationPolicy()
IDENTITY = IdentityReplicationPolicy(source_alias="A")


# Oracle: MM2's ReplicationPolicyTest and DefaultReplicationPolicy.
@pytest.mark.parametrize(
    ("topic", "source", "upstream", "original"),
    [
        ("orders", None, None, "orders"),
        ("A.orders", "A", "orders", "orders"),
        ("B.A.orders", "B", "A.orders", "orders"),
        ("orders.", None, None, "orders."),
        ("A.orders.", "A", "orders.", "orders."),
        ("A..orders", "A", ".orders", "orders"),
        ("..", None, None, ".."),
    ],
)
def test_default_policy_reads_the_aliases_off_a_name_as_mm2_does(
    topic: str, source: str | None, upstream: str | None, original: str
) -> None:
    found = (DEFAULT.topic_source(topic), DEFAULT.upstream_topic(topic), DEFAULT.original_topic(topic))
    assert found == (source, upstream, original)


EVERYTHING = flow(topics=(".*", "__.*", r"\..*"), topics_exclude=())
ORDERS_ONLY = flow(topics=("orders",), topics_exclude=("heartbeats",))
NOTHING = flow(topics=(), separator="_")
# MM2 put `.` into internal names before 3.1, then the separator, then either (KIP-949); what it left behind stays.
OF_OTHER_VERSIONS = (
    *("A.checkpoints.internal", "A_checkpoints_internal", "mm2-offset-syncs.B.internal"),
    *("mm2-offset-syncs_B_internal", "mm2-configs.A.internal", "mm2-offsets-CLUSTER-internal"),
)
LOOPS = ("B.{}", "B.A.{}", "A.B.{}", "B.A.B.{}", "A.B.A.{}", "C.B.{}", "B.C.{}")
LOOKING_INTERNAL = (
    *("orders.internal", "orders-internal", "mm2", "checkpoints", "_schemas", "mm2x", "mm2-offsets_CLUSTER_internal"),
    *("checkpoints.internal", "checkpoints-internal", "a.checkpoints.internal!", "source1checkpointsinternal"),
)
OF_OTHERS = ("orders", "orders.B", "Bee.orders", "C.orders", "C.D.orders", "heartbeats", "C.heartbeats")
CYCLE = "would be copied back to B: cycle"
ITSELF = "its name says that it came from A itself: exclude it, or give another alias or separator"
MM2_INTERNAL = "is an MM2 internal topic"
UNMATCHED = "no include pattern matches"


# Oracle: MM2's MirrorSourceConnectorTest, testNoCycles among them, and KAFKA-9914.
@pytest.mark.parametrize(
    ("chosen", "topics", "reason"),
    [
        (flow(), (*LOOKING_INTERNAL, *OF_OTHERS), None),
        (EVERYTHING, ("__consumer_offsets", "__transaction_state", ".hidden"), "internal topic"),
        (EVERYTHING, ("mm2-offsets.A.internal", "A.checkpoints.internal"), MM2_INTERNAL),
        *(
            (flow(separator="_", internal_separator=own, topics_exclude=()), OF_OTHER_VERSIONS, MM2_INTERNAL)
            for own in "._"
        ),
        (flow(), [each.format(topic) for each in LOOPS for topic in ("orders", "heartbeats")], CYCLE),
        (flow(), ("A.orders", "C.A.orders", "A.heartbeats"), ITSELF),
        # Where names are kept, only heartbeats show where they came from.
        (identity(), [each.format("heartbeats") for each in LOOPS], CYCLE),
        (identity(), (*(each.format("orders") for each in LOOPS), "A.orders", *OF_OTHERS), None),
        # Heartbeats are copied whatever the filter says, unless that is switched off.
        (ORDERS_ONLY, ("heartbeats",), None),
        (replace(ORDERS_ONLY, heartbeats_replication=False), ("heartbeats",), "excluded by `heartbeats`"),
        (ORDERS_ONLY, ("device-heartbeats", "heartbeats.A", "heartbeats!", "!heartbeats"), UNMATCHED),
        (flow(heartbeats_replication=False), ("heartbeats", "us-west.heartbeats"), None),
        (flow(topics=("orders",), heartbeats_replication=False), ("heartbeats", "us-west.heartbeats"), UNMATCHED),
        # The separator tells those of other clusters.
        (NOTHING, ("heartbeats", "us-west_heartbeats"), None),
        (NOTHING, ("us-west.heartbeats",), UNMATCHED),
    ],
)
def test_topic_is_copied_or_skipped_for_its_reason(
    chosen: ReplicationFlow, topics: Sequence[str], reason: Optional[str]
) -> None:
    assert {topic: why_skipped(topic, chosen) for topic in topics} == dict.fromkeys(topics, reason)


@pytest.mark.parametrize("separator", [".", "_", "-", "__", "~"])
@pytest.mark.parametrize("own", [True, False])
def test_names_are_read_back_as_they_were_made_with_any_separator(separator: str, own: bool) -> None:
    policy = DefaultReplicationPolicy(separator, separator if own else ".")
    twice = policy.format_remote_topic("B", policy.format_remote_topic("A", "orders"))
    assert twice == f"B{separator}A{separator}orders"
    assert (policy.topic_source(twice), policy.original_topic(twice)) == ("B", "orders")
    assert policy.is_cycle(twice, "C", "A") and not policy.is_cycle(twice, "C", "D")
    inner = separator if own else "."
    assert policy.checkpoints_topic("A") == f"A{inner}checkpoints{inner}internal"
    assert policy.offset_syncs_topic("B") == f"mm2-offset-syncs{inner}B{inner}internal"
    assert policy.heartbeats_topic() == "heartbeats"
    for topic in (policy.checkpoints_topic("A"), policy.offset_syncs_topic("B"), "mm2-offsets.A.internal"):
        assert policy.is_mm2_internal_topic(topic)


def test_internal_topics_are_looked_for_under_the_names_of_all_versions_the_flows_own_first() -> None:
    new, kept = flow(separator="_", internal_separator="_"), flow(separator="_", internal_separator=".")
    assert checkpoints_topics(new) == ("A_checkpoints_internal", "A.checkpoints.internal")
    assert checkpoints_topics(kept) == ("A.checkpoints.internal", "A_checkpoints_internal")
    assert offset_syncs_topics(new, "B") == ("mm2-offset-syncs_B_internal", "mm2-offset-syncs.B.internal")
    assert checkpoints_topics(flow()) == ("A.checkpoints.internal",)


def test_heartbeats_count_only_where_the_file_names_them_or_an_application_may_write_them() -> None:
    ab, ca = flow(), flow("C", "A")
    topics = ("orders", "heartbeats", "C.heartbeats", "plant.heartbeats", "plant.C.heartbeats")
    assert [each for each in topics if not counts(ab, each, [ab, ca])] == ["heartbeats", "C.heartbeats"]
    assert [each for each in topics if not counts(ab, each, [ab])] == ["heartbeats"]
    named = flow(topics=("orders", "heartbeats"))
    assert counts(named, "heartbeats", []) and written_by_mirrors(named, "heartbeats", [])
    assert not written_by_mirrors(named, "plant.heartbeats", [])
    assert not counts(replace(ca, remote_alias="plant"), "plant.heartbeats", [])


def test_identity_policy_keeps_names_except_those_of_heartbeats() -> None:
    names = {
        **{name: name for name in ("orders", "B.orders")},
        **{"heartbeats": "A.heartbeats", "C.heartbeats": "A.C.heartbeats"},
        "device-heartbeats": "device-heartbeats",  # MM2 renames this topic of a user's.
    }
    assert {name: IDENTITY.format_remote_topic("A", name) for name in names} == names
    assert (IDENTITY.topic_source("orders"), IDENTITY.upstream_topic("orders")) == ("A", "orders")
    assert (IDENTITY.topic_source("C.heartbeats"), IDENTITY.upstream_topic("C.heartbeats")) == ("C", "heartbeats")
    assert (IDENTITY.topic_source("heartbeats"), IDENTITY.original_topic("orders")) == (None, "orders")
    # Separators that overlap come to an end.
    policy = IdentityReplicationPolicy(separator="aa", source_alias="A")
    assert not policy.is_cycle("xaaaheartbeats", "A", "B")
    assert policy.original_topic("xaaaheartbeats") == "aheartbeats"


ONE, BACK = identity("A", "B"), identity("B", "A", topics=("orders",))
THREE = (identity("A", "B"), identity("B", "C"), identity("C", "A"))


@pytest.mark.parametrize(
    ("topic", "flows", "found"),
    [
        ("orders", (ONE, BACK), "B->A"),
        ("payments", (ONE, BACK), None),
        ("orders", (ONE,), None),
        ("orders", THREE, "C->A"),
        ("orders", (*THREE[1:], THREE[0]), "A->B"),
        ("orders", (flow("A", "B"), flow("B", "A")), None),
        # Unlike separators hide the aliases from each other; names grow, and the search still ends.
        ("orders", (flow("A", "B", separator="-"), flow("B", "A", separator=".")), None),
    ],
)
def test_loop_of_flows_in_one_file_is_found_for_the_topics_that_all_of_them_copy(
    topic: str, flows: Tuple[ReplicationFlow, ...], found: Optional[str]
) -> None:
    assert copied_back(topic, flows[0], flows) == found


def test_exclude_beats_include_and_patterns_match_whole_names() -> None:
    topics = PatternFilter(("orders|refunds", "a.b", "payments.*"), (r".*\.replica",))
    assert topics.why_not("payments.replica") == r"excluded by `.*\.replica`"
    names = ("orders", "my-orders", "orders2", "refunds", "axb", "payments.eu")
    assert [name for name in names if topics.why_not(name) is None] == ["orders", "refunds", "axb", "payments.eu"]
    assert topics.why_not("order") == PatternFilter(()).why_not("orders") == UNMATCHED


def test_pattern_is_taken_only_where_both_languages_read_it_alike() -> None:
    for pattern in ALIKE:
        check_pattern(pattern, 1)
    for pattern in (*PYTHON_ONLY, *JAVA_ONLY):
        with pytest.raises(ValueError, match="item 7"):
            check_pattern(pattern, 7)


def test_spark_subscribes_to_every_topic_that_may_be_copied() -> None:
    alone: Any = {"topics_exclude": ("b",), "heartbeats_replication": False}
    assert subscribe_pattern(flow(topics=("a|b", "c.*"), **alone)) == "(?:a|b)|(?:c.*)"
    assert subscribe_pattern(flow(topics=(), **alone)) == "(?!)"
    assert subscribe_pattern(flow(topics=("orders",))) == "(?:orders)|(?:.*heartbeats)"
    assert subscribe_pattern(flow(topics=("orders",), heartbeats_replication=False)) == "(?:orders)"
