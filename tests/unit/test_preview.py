from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Sequence
from unittest.mock import Mock

import pytest

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.config.record_change import RecordChange
from mirror_lib.errors import ClusterError, ConfigError, MirrorError, StateError
from mirror_lib.facts import (
    AclBinding,
    CommittedOffset,
    OffsetRange,
    TopicConfigEntry,
    TopicDescription,
    TopicPartition,
)
from mirror_lib.plan import read
from mirror_lib.plan.deciding import decided_group, decided_topic
from mirror_lib.plan.idle import all_copied, change_of
from mirror_lib.plan.preview import FlowPreview, internal_topics, preview
from mirror_lib.plan.render import preview_lines
from mirror_lib.status.read import Ledger
from mirror_lib.topics.matchless import is_name, matchless_patterns, selected_in_vain
from tests.lab.flows import flow_of, own

OFFSET = CommittedOffset(5)


def flow(**settings: Any) -> ReplicationFlow:
    quiet: Dict[str, Any] = {"replication_factor": 1, "emit_heartbeats_interval": None, "topics_exclude": ("x.*",)}
    return flow_of(**{**quiet, **settings})


def topics(**partitions: int) -> Dict[str, TopicDescription]:
    names = {name.replace("__", "."): count for name, count in partitions.items()}
    return {name: TopicDescription(name, f"id-{name}", count) for name, count in names.items()}


def acl(topic: str, operation: str = "READ", principal: str = "User:app") -> AclBinding:
    return AclBinding(topic, "LITERAL", principal, "*", operation, "ALLOW")


def cluster(
    alias: str,
    listed: Mapping[str, TopicDescription],
    configs: Optional[Mapping[str, Mapping[str, TopicConfigEntry]]] = None,
    acls: Optional[Sequence[AclBinding]] = (),
    offsets: Optional[Mapping[str, Mapping[TopicPartition, CommittedOffset]]] = None,
) -> Any:
    """A cluster that answers what it was asked to, and takes no orders. Without `acls` it does not list them."""
    committed = offsets or {}

    def topic_acls() -> FrozenSet[AclBinding]:
        if acls is None:
            raise ClusterError(f"{alias}: not allowed to list ACLs", "grant Describe on the cluster")
        return frozenset(acls)

    return SimpleNamespace(
        alias=alias,
        topics=lambda: listed,
        topic_configs=lambda names, _=None: {name: (configs or {}).get(name, {}) for name in names if name in listed},
        topic_config_keys=lambda _: frozenset(),
        broker_count=lambda: 1,
        topic_acls=topic_acls,
        group_names=lambda: sorted(committed),
        unlisted_brokers=tuple,
        committed_offsets=lambda names: {name: committed.get(name, {}) for name in names},
    )


def previewed(source: Any, target: Any, **settings: Any) -> FlowPreview:
    return preview(flow(**settings), source, target, None)


def example(**settings: Any) -> FlowPreview:
    source = cluster(
        "A",
        topics(orders=4, grows=12, there=1, x__replica=1),
        {"orders": {"cleanup.policy": own("compact")}, "there": {"retention.ms": own("1")}},
        [acl("orders"), acl("orders", "WRITE")],
        {"billing": {("orders", 0): OFFSET}, "busy": {("there", 0): OFFSET}, "other": {("x.replica", 0): OFFSET}},
    )
    remote = {"retention.ms": own("2"), "message.timestamp.type": own("LogAppendTime")}
    target = cluster("B", topics(A__grows=1, A__there=1), {"A.there": remote})
    return previewed(source, target, **{"sync_group_offsets_interval": 60.0, **settings})


def test_plan_is_printed_as_a_diff_with_a_reason_for_every_skip() -> None:
    shown = [line.split() for line in preview_lines(example())]
    assert [line[1:3] for line in shown if line[0] in ("+", "~")] == [
        *(["grows", "A.grows"], ["orders", "A.orders"], ["A.there", "retention.ms"], ["A.orders", "LITERAL"]),
        ["checkpoints", "A.checkpoints.internal"],
    ]
    text = "\n".join(preview_lines(example()))
    for reason in ("x.replica", "timestamps of records are not kept", "may not write to its copy"):
        assert reason in text
    total = "create 1 topic, grow 1 topic, change 1 config, create 1 ACL, create 1 internal topic; it copies 3 topics"
    assert text.endswith(f"A->B: a run would {total}")
    off = "\n".join(preview_lines(example(sync_group_offsets_interval=None)))
    assert "commits nothing on B: sync.group.offsets.enabled is false" in off
    stays = preview_lines(example(), show_all=True)
    assert any(line.split()[:2] == ["=", "there"] for line in stays)


@pytest.mark.parametrize("error", [ConfigError("deltalake is missing"), StateError("a commit is torn")])
def test_plan_says_where_it_could_not_read_the_tables(error: MirrorError, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "TableReader", Mock(side_effect=error))
    shown = preview_lines(read._with_tables(Mock(), example(), Mock(), Mock()))
    assert any("warning: " in line and error.message in line for line in shown)


def test_what_a_run_would_do_or_cannot_read_needs_spark() -> None:
    def found(*, config: str = "1", leaderless: Any = (), acls: Any = (), ids: bool = True, **more: Any) -> str:
        listed = {"orders": replace(topics(orders=1)["orders"], leaderless=leaderless)}
        source = cluster("A", listed, {"orders": {"retention.ms": own(config)}}, acls)
        there = topics(A__orders=1, A__checkpoints__internal=1)
        there = there if ids else {name: replace(each, topic_id="") for name, each in there.items()}
        target = cluster("B", there, {"A.orders": {"retention.ms": own("1")}})
        plan = previewed(source, target, **more)
        said = "no change is known" if acls is None else "nothing would change"
        assert any(plan.changes.values()) or preview_lines(plan)[-1].startswith(f"A->B: {said}")
        return change_of(plan)

    assert found() == ""
    assert change_of(example())
    assert found(config="2")
    assert found(leaderless=(0,))
    assert found(acls=None)
    assert found(change=RecordChange(dead_letter_topic="dead"))
    assert found(ids=False), "a remote topic may have been created again"


def test_records_that_applications_write_to_a_topic_named_like_heartbeats_are_work() -> None:
    """A scheduled run passed `plant.heartbeats` over as long as no other topic had records."""

    def is_work(name: str, *flows: ReplicationFlow) -> bool:
        listed, there = ({each: TopicDescription(each, each, 1)} for each in (name, f"A.{name}"))
        source, target = cluster("A", listed), cluster("B", there)
        source.offsets = lambda places, _: dict.fromkeys(places, OffsetRange(0, 5))
        target.offsets = lambda places, _: dict.fromkeys(places, OffsetRange(0, 0))
        return not all_copied(MirrorConfig(flows, "state"), flow(), source, target, Ledger({}, {}))

    assert is_work("orders") and is_work("plant.heartbeats")
    assert not is_work("heartbeats") and not is_work("plant.heartbeats", flow_of("plant", "A"))


@pytest.mark.parametrize(
    ("pattern", "lacking"),
    [
        ("orders|ordres|pay.*", ["ordres", "pay.*"]),
        (r"orders\.v1|audit", [r"orders\.v1", "audit"]),
        ("(orders|ordres)", []),
        ("[a|o]rders", []),
    ],
)
def test_alternatives_of_a_pattern_that_match_no_topic_are_told(pattern: str, lacking: List[str]) -> None:
    assert matchless_patterns(flow(topics=(pattern,)), ["orders"]) == lacking


def test_only_names_are_reported_once_records_are_copied_and_a_dot_makes_no_pattern() -> None:
    patterns = ("pay.*", "a|b", "x[.]y", r"x\.y")
    assert all(map(is_name, ("orders.v1", "a-b_c"))) and not any(map(is_name, patterns))
    source = cluster("A", topics(orders=1), offsets={"billing": {("orders", 0): OFFSET}})
    given: Dict[str, Any] = {"topics": ("orders", "orders.v1", "pay.*"), "groups": ("biling", "audit.*")}
    given["places"] = {"groups": "f:3"}
    syncing = flow(**given, sync_group_offsets_interval=60.0)
    both = selected_in_vain(syncing, source, names_only=True)
    assert [(each.key, each.place) for each in both] == [("topics", ""), ("groups", "f:3")]
    assert "orders.v1" in both[0].sentence and "pay" not in both[0].sentence and "mean billing" in both[1].sentence
    (later,) = selected_in_vain(flow(**given), source)
    assert "`orders.v1`" in later.sentence and "`pay.*`" in later.sentence


def test_topics_that_cannot_be_copied_stand_out() -> None:
    found = previewed(cluster("A", topics(orders=1)), cluster("B", topics(A_orders=1)))
    why = "collides with existing topic A_orders: Kafka treats . and _ alike in metric names"
    assert f"  !  orders   {why}" in preview_lines(found)
    assert preview_lines(found)[-1].endswith("it copies 0 topics; 1 topic cannot be copied")
    assert (found.exit_code, example().exit_code) == (1, 0)


def test_acls_to_create_are_planned_where_the_table_of_those_to_delete_cannot_be_read() -> None:
    def unreadable() -> FrozenSet[AclBinding]:
        raise StateError("no package reads the table topic_acls here")

    settings: Dict[str, Any] = {"sync_topic_acls_delete": True, "sync_topic_configs_interval": None}
    for there, planned in (({}, 1), ({"A.orders": ("READ",)}, 0)):
        target = cluster("B", topics(A__orders=1, A__checkpoints__internal=1), acls=[acl(name) for name in there])
        source = cluster("A", topics(orders=1), acls=[acl("orders")])
        found = preview(flow(**settings), source, target, None, unreadable)
        assert found.acls is not None and len(found.acls.create) == planned and found.acls.delete == ()
        shown = preview_lines(found)
        assert any("to delete: not known: no package reads" in line for line in shown)
        assert ("acls to delete could not be read" in shown[-1]) == (planned == 0) and change_of(found)


RULES = {"topics": ("orders|A.*", ".*"), "heartbeats_replication": True, "places": {"topics": "mirror.yaml:6"}}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("orders", "copied to A.orders: `orders|A.*` matches (topics, mirror.yaml:6)"),
        ("x.replica", "not copied: excluded by `x.*` (topics.exclude, default)"),
        (
            "x.heartbeats",
            "copied to A.x.heartbeats: a heartbeats topic (heartbeats.replication.enabled, default)"
            "; A has no such topic now",
        ),
        ("B.orders", "not copied: would be copied back to B: cycle; A has no such topic now"),
        ("mm2-offsets.A.internal", "not copied: is an MM2 internal topic; A has no such topic now"),
    ],
)
def test_rule_that_decides_about_a_topic_is_named_with_its_place(name: str, said: str) -> None:
    found = decided_topic(example(**RULES), name, ())
    assert found.line() == f"A->B: topic {name} is {said}"
    assert found.taken == said.startswith("copied")
    only = decided_topic(example(topics=("orders",)), "payments", ())
    assert (only.taken, only.exists, only.key, only.place) == (False, False, "topics", "default")
    assert decided_topic(example(copied=False), "orders", ()).verdict.endswith("copy.enabled is false")


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("billing", {}, "translated for orders, committed on B: `.*` matches (groups, default)"),
        ("other", {}, "not translated: no committed offset on a topic that is copied"),
        ("billing", {"groups_exclude": ("b.*",)}, "not translated: excluded by `b.*` (groups.exclude, default)"),
        ("new", {"groups": ("b.*",)},
         "not translated: no include pattern matches (groups, default); A has no such group now"),
        ("billing", {"emit_checkpoints_interval": None, "sync_group_offsets_interval": None},
         "not translated (off: sync.group.offsets.enabled and emit.checkpoints.enabled are false)"),
    ],
)  # fmt: skip
def test_rule_that_decides_about_a_group_is_named(name: str, settings: Dict[str, Any], said: str) -> None:
    found = decided_group(example(**settings), name)
    assert found.line() == f"A->B: group {name} is {said}"
    assert found.taken == said.startswith("translated")


def written(settings: Mapping[str, Any], here: Any = None, there: Any = None, pairs: Any = ()) -> List[str]:
    states = {True: "exists", False: "create", None: "not known"}
    planned = internal_topics(flow(**settings), here or {}, there or {}, pairs)
    return [f"{states[each.exists]} {each.topic} on {each.alias}" for each in planned]


EMITTING = {"emit_heartbeats_interval": 1.0, "checkpoints_in_run": True}
HEARTBEATS_ONLY = {"emit_checkpoints_interval": None}
CHECKPOINTS, THERE = "A.checkpoints.internal on B", topics(A__checkpoints__internal=1, heartbeats=1)
OTHER_PAIR = flow_of("C", "B")


@pytest.mark.parametrize(
    ("settings", "more", "planned"),
    [
        (EMITTING, {}, [f"create {CHECKPOINTS}", "create heartbeats on B"]),
        ({**EMITTING, **HEARTBEATS_ONLY}, {}, ["create heartbeats on B"]),
        # Not where only the other job writes them.
        ({}, {}, []),
        (EMITTING, {"there": THERE}, [f"exists {CHECKPOINTS}", "exists heartbeats on B"]),
        ({"sync_group_offsets_interval": 1.0}, {}, [f"create {CHECKPOINTS}"]),
        # Those of another pair on the same cluster are planned once.
        ({**HEARTBEATS_ONLY, "emit_heartbeats_interval": 1.0}, {"pairs": (OTHER_PAIR,)}, ["create heartbeats on B"]),
    ],
)
def test_internal_topics_are_where_mm2_has_them(
    settings: Dict[str, Any], more: Dict[str, Any], planned: List[str]
) -> None:
    assert written(settings, **more) == planned


def test_heartbeats_of_a_pair_that_the_file_asks_for_are_written_to_the_source() -> None:
    pairs = flow_of("B", "A"), flow_of("A", "C")
    assert written(HEARTBEATS_ONLY, pairs=pairs) == ["create heartbeats on A", "not known heartbeats on C"]
