from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mirror_lib.cli import main
from mirror_lib.config.loader import load
from mirror_lib.config.model import IDENTITY_POLICY, ClusterConfig, ReplicationFlow
from mirror_lib.config.record_change import RecordChange
from mirror_lib.facts import CommittedOffset, ConsumerGroup, TopicDescription
from mirror_lib.plan.explain import Explanation, explain_group, explain_topic, explanation_json, explanation_lines
from mirror_lib.plan.preview import GroupFacts
from mirror_lib.topics.plan import TopicFacts, plan_topics

NAMES = ("orders", "A.orders", "B.orders", "C.B.orders", "x", "heartbeats", "B.heartbeats", "__consumer_offsets", ".x",
         "A.checkpoints.internal", "mm2-offsets.A.internal", "a b", "o" * 249, "loop", "raises")  # fmt: skip


def flow(source: str = "A", target: str = "B", **settings: Any) -> ReplicationFlow:
    settings = {"replication_factor": 1, **settings}
    return ReplicationFlow(ClusterConfig(source, {}), ClusterConfig(target, {}), **settings)


def facts(*names: str, target: Sequence[str] = ()) -> TopicFacts:
    source = {name: TopicDescription(name, "", 3, internal=name == "__consumer_offsets") for name in names}
    return TopicFacts(source, {name: TopicDescription(name, "", 1) for name in target})


class Raises:
    """A topic filter that fails on one name."""

    def __init__(self, *_: object) -> None:
        pass

    def why_not(self, topic: str) -> None:
        if topic == "raises":
            raise ValueError("cannot say")


def test_a_renamed_topic_names_the_rule_and_the_engine() -> None:
    renamed = replace(FLOWS["renamed"], places={"rename": "mirror.yaml:9"})
    found = explain_topic("orders", renamed, facts("orders"))
    assert found.verdict == "copied to all"
    assert [(step.rule, step.place) for step in found.steps if step.rule in ("rename", "engine")] == [
        ("rename", "mirror.yaml:9"), ("engine", "default"),
    ]  # fmt: skip


def rules(found: Explanation) -> List[str]:
    return [step.rule for step in found.steps]


# --- topics ------------------------------------------------------------------------------------------------------


FLOWS = {
    "default": flow(topics=("orders|x", "A.*|B.*|C.*"), topics_exclude=("x",)),
    "everything": flow(topics_exclude=()),
    "identity": flow(replication_policy=IDENTITY_POLICY),
    "without heartbeats": flow(topics=("orders",), heartbeats_replication=False),
    "too many replicas": flow(replication_factor=3),
    "custom": flow(topic_filter=f"{__name__}:Raises"),
    "renamed": flow(change=RecordChange(rename=(("orders|x", ("all",)), ("loop", ("one", "two"))))),
}


@settings(max_examples=200)
@given(
    which=st.sampled_from(sorted(FLOWS)),
    name=st.sampled_from(NAMES) | st.from_regex(r"[ABC]?[._]?[a-z.]{1,8}", fullmatch=True),
    there=st.booleans(),
    remote_there=st.booleans(),
)
@example("renamed", "loop", True, False)
def test_the_verdict_is_always_that_of_the_plan(which: str, name: str, there: bool, remote_there: bool) -> None:
    chosen, back = FLOWS[which], flow("B", "A", topics=("loop",), replication_policy=IDENTITY_POLICY)
    known = facts("orders", target=[f"A.{name}"] if remote_there else [])
    if there:
        known = replace(known, source_topics={**known.source_topics, **facts(name).source_topics})
    found = explain_topic(name, chosen, known, (chosen, back))
    as_if = replace(known, source_topics={name: TopicDescription(name, "", 1), **known.source_topics})
    plan = plan_topics(chosen, as_if, (chosen, back))
    copied = [each.remote_topic for each in plan.copied if each.source.name == name]
    reasons = {each.name: each.reason for each in plan.skipped}
    assert found.taken == bool(copied)
    assert found.exists == (name in known.source_topics)
    reported = found.verdict.replace("would be copied to", "copied to")
    assert reported == (f"copied to {' and '.join(copied)}" if found.taken else f"not copied: {reasons[name]}")
    # One rule decides, it is the last that was asked, and it gives the plan's reason.
    assert [step.stops for step in found.steps if step.stops] == ([] if found.taken else [reasons[name]])
    assert found.taken or found.steps[-1].stops


@pytest.mark.parametrize(
    ("name", "decided_by"),
    [
        ("x", "topics.exclude"),
        ("unknown", "topics"),
        ("B.orders", "cycle"),
        ("mm2-offsets.A.internal", "internal topic"),
        ("__consumer_offsets", "internal topic"),
        ("orders", None),
    ],
)
def test_the_rule_that_decides_is_named(name: str, decided_by: str) -> None:
    by = explain_topic(name, FLOWS["default"], facts(name)).decided_by
    assert (by and by.rule) == decided_by


def test_every_pattern_is_shown_that_was_tried_up_to_the_one_that_matched() -> None:
    chosen = flow(topics=("a", "o.*", "never.asked"), topics_exclude=("p", "q"))
    excluding, including = (step for step in explain_topic("orders", chosen, facts()).steps if step.tried)
    assert (excluding.tried, excluding.matched) == (("p", "q"), False)
    assert (including.tried, including.matched) == (("a", "o.*"), True)


def test_a_heartbeats_topic_that_the_filter_leaves_out_is_explained() -> None:
    found = explain_topic("heartbeats", flow(topics=("orders",)), facts("heartbeats"))
    assert found.taken
    assert rules(found)[3:5] == ["topics", "heartbeats.replication.enabled"]


def test_what_stands_on_the_target_is_said() -> None:
    assert explain_topic("orders", flow(), facts("orders")).steps[-1].says == "would be created, replication.factor 1"
    there = explain_topic("orders", flow(), facts("orders", target=["A.orders"]))
    assert there.steps[-1].says == "exists, 1 partition, would be grown to 3"
    collides = explain_topic("orders", flow(), facts("orders", target=["A_orders"]))
    assert collides.verdict.startswith("not copied: collides with existing topic A_orders")


def test_a_class_of_the_users_that_fails_is_what_decided() -> None:
    found = explain_topic("raises", FLOWS["custom"], facts("raises"))
    assert "why_not('raises') failed: ValueError: cannot say" in found.verdict
    assert explain_topic("orders", FLOWS["custom"], facts("orders")).taken


@pytest.fixture
def config(tmp_path: Any) -> str:
    path = tmp_path / "mirror.yaml"
    path.write_text(
        'clusters:\n  A: {bootstrap.servers: "127.0.0.1:1"}\n  B: {bootstrap.servers: "127.0.0.1:2"}\n'
        "flows:\n  A->B:\n    topics: [orders]\n    admin.timeout.ms: 100\n"
    )
    return str(path)


def test_the_explanation_names_the_line_of_the_key_or_says_that_it_is_the_default(config: str) -> None:
    (chosen,) = load(config, {}).flows
    lines = explanation_lines(explain_topic("payments", chosen, facts("payments")))
    assert lines == [
        "A->B, topic payments",
        "  RULE            SAYS                          WHERE",
        "  on A            exists, 3 partitions          always",
        "  internal topic  no                            always",
        "  topics.exclude  no pattern matches            default",
        r"                    no       `mm2.*\.internal`",
        r"                    no       `.*\.replica`",
        "                    no       `__.*`",
        f"  topics          no pattern matches            {config}:6",
        "                    no       `orders`",
        f"verdict: not copied: no include pattern matches (topics, {config}:6)",
    ]


def test_the_explanation_as_json_has_every_rule(config: str) -> None:
    (chosen,) = load(config, {}).flows
    found: Dict[str, Any] = json.loads(json.dumps(explanation_json(explain_topic("payments", chosen, facts()))))
    assert (found["topic"], found["exists"], found["taken"]) == ("payments", False, False)
    assert found["decided_by"] == "topics"
    assert found["place"] == f"{config}:6"
    assert found["steps"][-1]["tried"] == [{"pattern": "orders", "matches": False}]
    assert found["steps"][-1]["stops"] is True


def test_names_decide_where_no_cluster_is_reached(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", config, "orders"]) == 0
    reported = capsys.readouterr()
    assert "warning: explained by names alone: " in reported.err
    assert reported.out.endswith("verdict: copied to A.orders\n") and "not asked; names alone decide" in reported.out


def test_a_topic_or_a_group_must_be_named(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", config]) == 2
    assert "say what to explain: a topic after the file, or --group GROUP" in capsys.readouterr().err


# --- groups ------------------------------------------------------------------------------------------------------


def explained(group: str, chosen: ReplicationFlow, there: Mapping[str, ConsumerGroup], **more: Any) -> Explanation:
    offset = CommittedOffset(5)
    committed = {group: {("orders", 0): offset, ("orders", 1): offset, ("x", 0): offset}}
    known = GroupFacts(
        [group], committed, {"orders": "A.orders"}, there, {group: {("A.orders", 0): offset} if there else {}}
    )
    return explain_group(group, chosen, replace(known, **more), {"x": "no include pattern matches"}, exists=True)


def test_a_group_is_explained_down_to_its_topics() -> None:
    found = explained("app", flow(sync_group_offsets_interval=60.0), {})
    assert {step.rule: step.says for step in found.steps} == {
        "on A": "exists, 3 committed offsets",
        "groups.exclude": "no pattern matches",
        "groups": "`.*` matches",
        "topic orders": "2 partitions, copied to A.orders",
        "topic x": "1 partition, not copied: no include pattern matches",
        "sync.group.offsets.enabled": "on, every 60 s",
        "emit.checkpoints.enabled": "on, every 60 s",
        "on B": "does not exist yet",
    }
    assert (found.taken, found.verdict) == (True, "translated, and committed on B")
    beside, alone = explained("app", flow(checkpoints_in_run=True), {}), explained("app", flow(), {})
    assert beside.verdict == "translated for A.checkpoints.internal, not committed on B"
    assert alone.verdict == "translated for A.checkpoints.internal by mirror translate alone, not committed on B"


@pytest.mark.parametrize(
    ("settings", "there", "decided_by", "verdict"),
    [
        ({"groups_exclude": ("a.*",)}, {}, "groups.exclude", "not translated: excluded by `a.*`"),
        ({"groups": ("b",)}, {}, "groups", "not translated: no include pattern matches"),
        ({"emit_checkpoints_interval": None, "sync_group_offsets_interval": None}, {}, "translation",
         "not translated: sync.group.offsets.enabled and emit.checkpoints.enabled are false"),
        ({}, {"app": ConsumerGroup("app", "PreparingRebalance", False, ())}, "on B",
         "left alone: active on B: it has members there"),
    ],
)  # fmt: skip
def test_the_rule_that_leaves_a_group_out_is_named(
    settings: Dict[str, Any], there: Dict[str, ConsumerGroup], decided_by: str, verdict: str
) -> None:
    found = explained("app", flow(**{"sync_group_offsets_interval": 60.0, **settings}), there)
    assert found.decided_by is not None and found.decided_by.rule == decided_by
    assert (found.taken, found.verdict) == (False, verdict)
    assert found.steps[-1] is found.decided_by


def test_a_group_without_membership_on_the_target_is_translated_on_a_condition() -> None:
    found = explained("app", flow(sync_group_offsets_interval=60.0), {"app": ConsumerGroup("app", "Empty", True, ())})
    assert found.taken and (found.steps[-2].rule, found.steps[-2].says) == (
        "on B", "Empty, 0 members, never had members",
    )  # fmt: skip
    assert found.steps[-1].rule == "groups.simple"
    assert "only where this mirror or MirrorMaker put it" in found.steps[-1].says


def test_a_group_without_offsets_on_copied_topics_says_so() -> None:
    found = explained("app", flow(), {}, committed={"app": {("x", 0): CommittedOffset(5)}})
    assert found.verdict == "not translated: no committed offset on a topic that is copied"
