from __future__ import annotations

import re
from typing import Any, Dict, Mapping, Optional, Sequence

import pytest

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.config.record_change import RecordChange
from mirror_lib.facts import NewTopic, TopicConfigs, TopicDescription
from mirror_lib.topics.plan import CopiedTopic, TopicFacts, TopicPlan, plan_topics, select_topics
from tests.lab.flows import default, flow_of, of_brokers, own

NO_LIMIT = "9223372036854775807"
NEW_BOUNDS = {"message.timestamp.before.max.ms", "message.timestamp.after.max.ms"}


def flow(source: str = "primary", target: str = "backup", **settings: Any) -> ReplicationFlow:
    return flow_of(source, target, **{"replication_factor": 1, **settings})


def topics(**partitions: int) -> Mapping[str, TopicDescription]:
    return {name: TopicDescription(name, f"id-{name}", count) for name, count in partitions.items()}


def facts(
    source: Mapping[str, TopicDescription], target: Optional[Mapping[str, TopicDescription]] = None, **more: Any
) -> TopicFacts:
    return TopicFacts(source, target or {}, **more)


def only(plan: TopicPlan) -> CopiedTopic:
    (copied,) = plan.copied
    return copied


def created(plan: TopicPlan) -> NewTopic:
    create = only(plan).create
    assert create is not None
    return create


def new_configs(configs: TopicConfigs, known: frozenset[str] = frozenset(), **settings: Any) -> Dict[str, str]:
    read = facts(topics(orders=1), source_configs={"orders": configs}, target_config_keys=known)
    return dict(created(plan_topics(flow(**settings), read)).configs)


def reasons(plan: TopicPlan) -> Dict[str, str]:
    return {each.name: each.reason for each in plan.skipped}


def test_a_new_remote_topic_gets_the_sources_partition_count_and_the_flows_replication_factor() -> None:
    plan = plan_topics(flow(replication_factor=-1), facts(topics(orders=7)))
    assert (created(plan).name, created(plan).partitions, created(plan).replication_factor) == ("primary.orders", 7, -1)
    assert (only(plan).remote_topic, only(plan).remote_topic_id, only(plan).grow_to) == ("primary.orders", "", None)


def test_every_source_topic_is_either_copied_or_skipped_with_a_reason() -> None:
    source = {**topics(orders=1, draft=1, heartbeats=1), "odd": TopicDescription("odd", "", 1, True)}
    plan = plan_topics(flow(topics=("orders",)), facts(source))
    # The filter leaves heartbeats out, and a note says why they are copied.
    assert [(each.source.name, bool(each.notes)) for each in plan.copied] == [("heartbeats", True), ("orders", False)]
    assert reasons(plan) == {"draft": "no include pattern matches", "odd": "internal topic"}
    assert plan.blocked == ()


LONG = "x" * 242


@pytest.mark.parametrize(
    ("settings", "source", "target", "blocked", "reason"),
    [
        ({}, (LONG, "x" * 241), (), LONG, "remote name longer than 249 characters"),
        ({"source": "us west"}, ("orders",), (), "orders", "not a legal topic name"),
        ({}, ("orders",), ("primary_orders",), "orders", "collides with existing topic primary_orders"),
        # Of two new names the first is copied.
        ({}, ("a.b", "a_b"), (), "a_b", "collides with existing topic primary.a.b"),
        ({"change": RecordChange(rename=(("a-(.*)", "x$1"), ("b", "xb")))}, ("a-b", "b"), (), "b",
            "another source topic of this flow maps to the same remote topic: a-b"),
        ({"change": RecordChange(rename=(("orders", "dead"),), dead_letter_topic="dead")}, ("orders",), (), "orders",
            "would be written into dead, the flow's dead letter topic"),
    ],
)  # fmt: skip
def test_topic_whose_remote_name_cannot_be_used_is_blocked(
    settings: Dict[str, Any], source: Sequence[str], target: Sequence[str], blocked: str, reason: str
) -> None:
    plan = plan_topics(flow(**settings), facts(topics(**dict.fromkeys(source, 1)), topics(**dict.fromkeys(target, 1))))
    assert [each.name for each in plan.blocked] == [blocked] and reason in reasons(plan)[blocked]
    assert len(plan.copied) == len(source) - 1


def test_name_like_another_one_is_no_obstacle_to_a_copy_that_is_there() -> None:
    existing = topics(**{"primary_orders": 1, "primary.orders": 1})
    assert only(plan_topics(flow(), facts(topics(orders=1), existing))).create is None


def test_topic_whose_configs_may_not_be_read_is_blocked_only_where_it_needs_a_new_remote_topic() -> None:
    target = {"primary.there": TopicDescription("primary.there", "remote", 1)}
    closed: Dict[str, Optional[TopicConfigs]] = {"new": None, "there": None, "orders": {}}
    read = facts(topics(new=1, orders=1, there=1), target, source_configs=closed, target_configs={"primary.there": {}})
    plan = plan_topics(flow(), read)
    assert [each.source.name for each in plan.copied] == ["orders", "there"]
    assert [each.name for each in plan.blocked] == ["new"]
    assert "grant DescribeConfigs" in reasons(plan)["new"]
    noted = [each.source.name for each in plan.copied if "DescribeConfigs" in "".join(each.notes)]
    assert noted == ["there"]


def test_a_replication_factor_above_the_broker_count_blocks_creation_but_not_existing_topics() -> None:
    target = {"primary.old": TopicDescription("primary.old", "", 1)}
    plan = plan_topics(flow(replication_factor=3), facts(topics(new=1, old=1), target, target_broker_count=2))
    assert only(plan).source.name == "old"
    assert reasons(plan)["new"] == (
        "cannot create primary.new with replication.factor 3: backup has 2 brokers; "
        "lower replication.factor, or set -1 for the broker's default"
    )
    assert plan_topics(flow(replication_factor=2), facts(topics(new=1), target_broker_count=2)).skipped == ()


def test_copy_that_another_flow_would_bring_back_is_refused_topic_by_topic() -> None:
    there = flow(change=RecordChange(rename=(("orders", "b"),)))
    back = flow("backup", "primary", change=RecordChange(rename=(("b", "orders"),)))
    plan = plan_topics(there, facts(topics(orders=1, payments=1)), (there, back))
    assert only(plan).source.name == "payments"
    assert reasons(plan) == {"orders": "backup->primary would bring the copy back as orders: cycle"}
    assert [each.name for each in plan.blocked] == ["orders"]
    assert len(plan_topics(there, facts(topics(orders=1, payments=1)), (there,)).copied) == 2


def test_topic_that_is_named_like_a_copy_of_the_source_is_wanted_and_its_heartbeats_are_not() -> None:
    """MirrorMaker 4.4 leaves it out in silence (KAFKA-9914), earlier ones copy it."""
    there = topics(**{"primary.orders": 1, "primary.heartbeats": 1, "backup.orders": 1})
    assert [each.name for each in plan_topics(flow(topics=(".*",)), facts(there)).blocked] == ["primary.orders"]


def test_emptied_source_gets_its_topics_back_under_another_alias() -> None:
    """As docs/run/disaster-recovery.md has it; under its former alias they are left out as cycles."""
    change, there = RecordChange(rename=((r"primary\.(.*)", "$1"),)), topics(**{"orders": 1, "primary.orders": 1})
    selected = [dict(select_topics(flow("backup", alias, change=change), there)[0]) for alias in ("new", "primary")]
    assert selected == [{"orders": "backup.orders", "primary.orders": "orders"}, {"orders": "backup.orders"}]


# Oracle: MM2's MirrorSourceConnectorTest config filtering.
def test_only_the_sources_own_configs_are_copied_to_a_new_remote_topic() -> None:
    configs = new_configs(
        {
            "cleanup.policy": own("compact"),
            "retention.ms": default("604800000"),
            "segment.bytes": of_brokers("9"),
            "segment.ms": of_brokers("8", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
            "a.secret": own(None, is_sensitive=True),
            "b.secret": own("s", is_sensitive=True),
            "fixed": own("1", is_read_only=True),
            "min.insync.replicas": own("2"),
            "unclean.leader.election.enable": own("true"),
            "leader.replication.throttled.replicas": own("*"),
        }
    )
    assert configs == {"cleanup.policy": "compact", "segment.ms": "8", "message.timestamp.type": "CreateTime"}


DEFAULTS = {"retention.ms": default("1"), "min.insync.replicas": default("1")}
RETENTION = {"retention.ms": own("1"), "retention.bytes": own("2"), "local.retention.ms": own("3")}
LIMIT = {"max.message.bytes": of_brokers("5000000")}


@pytest.mark.parametrize(
    ("source", "settings", "sent"),
    [
        (DEFAULTS, {}, {}),
        (DEFAULTS, {"use_defaults_from": "source"}, {"retention.ms": "1"}),
        ({"retention.ms": own("1")}, {"remote_topic_configs": (("retention.ms", "5"), ("segment.ms", "6"))},
            {"retention.ms": "5", "segment.ms": "6"}),
        # Patterns of excluded configs match whole names.
        (RETENTION, {"config_properties_exclude": (r"retention\..*",)}, {"local.retention.ms": "3"}),
        # A larger limit of the source's brokers counts for the remote topic.
        (LIMIT, {}, {"max.message.bytes": "5000000"}),
        (LIMIT, {"config_properties_exclude": ("max.message.bytes",)}, {}),
        ({"max.message.bytes": default("1048588")}, {}, {}),
    ],
)  # fmt: skip
def test_configs_of_a_new_remote_topic_follow_the_settings(
    source: TopicConfigs, settings: Dict[str, Any], sent: Dict[str, str]
) -> None:
    assert new_configs(source, **settings) == {**sent, "message.timestamp.type": "CreateTime"}


def test_a_new_remote_topic_refuses_no_timestamp_and_keeps_them_all() -> None:
    source = {
        "message.timestamp.type": own("LogAppendTime"),
        "message.timestamp.before.max.ms": own("3600000"),
        "message.timestamp.after.max.ms": default("3600000"),
    }
    kept = {"message.timestamp.type": "CreateTime"}
    known = frozenset({"retention.ms", "message.timestamp.type", *NEW_BOUNDS})
    assert new_configs(source, known) == {**kept, **dict.fromkeys(NEW_BOUNDS, NO_LIMIT)}
    # Under the names that the target knows.
    old = frozenset({"message.timestamp.type", "message.timestamp.difference.max.ms"})
    assert new_configs({}, old) == {**kept, "message.timestamp.difference.max.ms": NO_LIMIT}
    assert new_configs({}) == kept


def test_a_config_that_the_target_does_not_know_is_left_out_with_a_note() -> None:
    read = facts(
        topics(orders=1),
        source_configs={"orders": {"retention.ms": own("1"), "remote.storage.enable": own("true")}},
        target_config_keys=frozenset({"retention.ms", "message.timestamp.type"}),
    )
    plan = plan_topics(flow(), read)
    assert "remote.storage.enable" not in created(plan).configs
    assert only(plan).notes == ("backup does not know the config remote.storage.enable",)


def test_topic_in_tiered_storage_is_created_without_it_where_the_target_has_none() -> None:
    tiered = {"retention.ms": own("9"), "remote.storage.enable": own("true"), "local.retention.ms": own("1")}
    read = facts(topics(orders=1), source_configs={"orders": tiered}, target_tiered=False)
    plan = plan_topics(flow(), read)
    assert created(plan).configs == {"retention.ms": "9", "message.timestamp.type": "CreateTime"}
    assert "without remote.storage.enable, local.retention.ms" in only(plan).notes[0]
    asked = plan_topics(flow(remote_topic_configs=(("remote.storage.enable", "true"),)), read)
    assert created(asked).configs["remote.storage.enable"] == "true"
    there = plan_topics(flow(), facts(topics(orders=1), source_configs={"orders": tiered}))
    assert created(there).configs.keys() > tiered.keys() and only(there).notes == ()


WIDE = {
    **{"max.message.bytes": own("2000"), "message.timestamp.type": own("CreateTime")},
    **{key: own(NO_LIMIT) for key in NEW_BOUNDS},
}
AFTER = "message.timestamp.after.max.ms"


@pytest.mark.parametrize(
    ("source", "remote", "words"),
    [
        ({"max.message.bytes": own("2000")}, {"max.message.bytes": own("1000")}, "1000 is below the source's 2000"),
        ({}, {"message.timestamp.type": own("LogAppendTime")}, "timestamps of records are not kept"),
        ({AFTER: own(NO_LIMIT)}, {AFTER: own("3600000")}, "stricter than the source's"),
        ({}, {AFTER: default("3600000")}, "stricter than the source's"),
        ({"message.timestamp.before.max.ms": own("3600000")}, {"message.timestamp.before.max.ms": own("3600000")},
            "records older than that stop their partition"),
        ({"max.message.bytes": own("1000"), AFTER: own("5")}, WIDE, ""),
    ],
)  # fmt: skip
def test_an_existing_remote_topic_that_would_refuse_records_is_noted(
    source: TopicConfigs, remote: TopicConfigs, words: str
) -> None:
    target = {"primary.orders": TopicDescription("primary.orders", "", 1)}
    configs = {"source_configs": {"orders": source}, "target_configs": {"primary.orders": remote}}
    notes = "\n".join(only(plan_topics(flow(), facts(topics(orders=1), target, **configs))).notes)
    assert words in notes and bool(words) == bool(notes)


def test_a_dead_letter_topic_is_made_once_as_wide_as_the_widest_topic() -> None:
    burying = flow(change=RecordChange(dead_letter_topic="dead"))
    plan = plan_topics(burying, facts(topics(orders=7, payments=2)))
    assert plan.dead_letters == NewTopic("dead", 7, 1, {"message.timestamp.type": "CreateTime"})
    assert plan_topics(burying, facts(topics(orders=7), topics(dead=1))).dead_letters is None
    empty = plan_topics(burying, facts({})).dead_letters
    assert empty is not None and empty.partitions == 1


REFUSE, KEEP = {"counts_differ": "refuse"}, {"counts_differ": "keep"}
KEY, OVER_12 = {"change": RecordChange(partitioner="key")}, {"change": RecordChange(partitioner=12)}


@pytest.mark.parametrize(
    ("settings", "present", "expected"),
    [
        *(({}, None, "create 4"), ({}, 2, "grow to 4"), ({}, 4, "as it is"), ({}, 9, "as it is")),
        *((KEEP, 2, "grow to 4"), (KEEP, 9, "as it is")),
        *((REFUSE, 2, "refused"), (REFUSE, 9, "refused"), (REFUSE, 4, "as it is")),
        # A topic whose keys are spread is made as wide as asked, and never grown.
        *((KEY, None, "create 4, keyed over 4"), (OVER_12, None, "create 12, keyed over 12")),
        *((KEY, 2, "as it is, keyed over 2"), (KEY, 9, "as it is, keyed over 9")),
        *((OVER_12, 12, "as it is, keyed over 12"), (OVER_12, 3, "refused")),
        # What a refused topic names as a remedy.
        *(({**REFUSE, **KEY}, 2, "as it is, keyed over 2"), ({**REFUSE, **KEY}, 9, "as it is, keyed over 9")),
    ],
)
def test_topic_of_4_partitions_is_created_grown_or_refused_by_the_count_there(
    settings: Dict[str, Any], present: Optional[int], expected: str
) -> None:
    there = {} if present is None else {"primary.orders": TopicDescription("primary.orders", "there", present)}
    plan = plan_topics(flow(**settings), facts(topics(orders=4), there))
    if expected == "refused":
        assert [each.name for each in plan.blocked] == ["orders"] and not plan.copied
        assert re.search(f"primary.orders (has )?{present}", reasons(plan)["orders"])
        return
    copied = only(plan)
    assert (copied.partitions, copied.remote_topic_id) == (4, "" if present is None else "there")
    said = f"create {copied.create.partitions}" if copied.create else f"grow to {copied.grow_to or 0}"
    said = said.replace("grow to 0", "as it is")
    assert expected == said + (f", keyed over {copied.keyed_over}" if copied.keyed_over else "")
