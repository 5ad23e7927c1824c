from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, Optional

import pytest

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.control.topic_acls import acl_changes
from mirror_lib.errors import ConfigError, CustomClassError
from mirror_lib.facts import LITERAL, PREFIXED, AclBinding, TopicConfigEntry, TopicDescription
from mirror_lib.groups.survey import group_names
from mirror_lib.topics.filters import subscribe_pattern
from mirror_lib.topics.plan import TopicFacts, TopicPlan, plan_topics
from mirror_lib.topics.policy import DefaultReplicationPolicy
from tests.lab.checkout import ROOT
from tests.unit.configs import FLOW, IN_YAML, YAML, read, refusal

Flows = Callable[..., ReplicationFlow]

CLASSES = """\
from mirror_lib.topics.policy import DefaultReplicationPolicy

class Plain(DefaultReplicationPolicy):
    def __init__(self, flow, properties):
        super().__init__(flow.separator)

class Moody(Plain):
    def format_remote_topic(self, alias, topic):
        if topic == "b":
            raise KeyError("no name for b")
        return {"c": None, "d": "not legal", "e": "__consumer_offsets"}.get(topic, alias + "." + topic)

class Splitting(Plain):
    def is_internal_topic(self, topic):
        return topic.split(".")[1] == "internal"

class Greedy(Plain):
    def is_internal_topic(self, topic):
        return False

    def is_mm2_internal_topic(self, topic):
        return False

class YesOrNo:
    def __init__(self, flow, properties):
        self.properties = properties

    def why_not(self, name):
        if name == "raises":
            raise ValueError("cannot say")
        return name != "good"

class Only:
    def __init__(self, flow, properties):
        self.only = properties["only"]

    def why_not(self, name):
        return None if name == self.only else "not " + self.only

class Unwilling:
    def __init__(self, flow, properties):
        raise OSError("no such table")

class Numbers:
    def __init__(self, flow, properties):
        pass

    def excludes(self, key):
        return 1
"""


@pytest.fixture
def flow_with(tmp_path: Path) -> Flows:
    """Load a file with these settings of its flow, next to a module of custom classes."""
    module = f"mine_{tmp_path.name}".replace("-", "_").replace("[", "_").replace("]", "_")
    (tmp_path / f"{module}.py").write_text(CLASSES)
    (tmp_path / f"{module}_broken.py").write_text("import there_is_no_such_module\n")

    def flow(**settings: str) -> ReplicationFlow:
        lines = [f"A->B.{key.replace('_', '.')} = {value.replace('mine', module)}\n" for key, value in settings.items()]
        return read(tmp_path, FLOW + "A->B.replication.factor = 1\n" + "".join(lines)).flows[0]

    return flow


def planned(flow: ReplicationFlow, *names: str, target: Optional[Dict[str, TopicDescription]] = None) -> TopicPlan:
    topics = {name: TopicDescription(name, "", 1) for name in names}
    return plan_topics(flow, TopicFacts(topics, target or {}))


def test_a_policy_is_not_asked_for_names_of_topics_that_the_flow_has_nothing_to_do_with(flow_with: Flows) -> None:
    plan = planned(flow_with(replication_policy_class="mine:Moody", topics="a"), "a", "b", "__x")
    assert [(each.source.name, each.remote_topic) for each in plan.copied] == [("a", "A.a")]
    assert [each.name for each in plan.skipped] == ["__x", "b"] and plan.blocked == ()
    asked_for = planned(flow_with(replication_policy_class="mine:Moody", topics="a,b"), "b")
    assert [each.name for each in asked_for.blocked] == ["b"]


def test_an_acl_that_a_policy_cannot_translate_is_reported_and_the_others_are_copied(flow_with: Flows) -> None:
    flow = flow_with(replication_policy_class="mine:Moody", topics="bills", sync_topic_acls_delete="true")
    read = AclBinding("bills", LITERAL, "User:alice", "*", "READ", "ALLOW")
    prefixed, ours = replace(read, topic="b", pattern_type=PREFIXED), replace(read, topic="A.old")
    selected = {"bills": "A.bills"}
    changes = acl_changes(flow, [prefixed, read], [ours], selected, frozenset([ours]))
    assert changes.create == (replace(read, topic="A.bills"),)
    assert [each.acl for each in changes.failed] == [prefixed] == [each.acl for each in changes.skipped]
    assert "format_remote_topic('A', 'b') failed" in changes.failed[0].reason
    # It may be the original of any of ours.
    assert changes.delete == ()
    assert acl_changes(flow, [read], [ours], selected, frozenset([ours])).delete == (ours,)


def test_no_acl_is_deleted_while_the_policy_fails_on_a_topic_that_the_flow_selects(flow_with: Flows) -> None:
    selected, ours = {"team.orders": "A.team.orders"}, AclBinding("A.fo", PREFIXED, "User:alice", "*", "READ", "ALLOW")
    for topics in ("team.orders", "team.orders,foo"):
        flow = flow_with(replication_policy_class="mine:Splitting", topics=topics, sync_topic_acls_delete="true")
        plan = planned(flow, "team.orders", "foo")
        (skipped,) = plan.skipped
        assert [each.source.name for each in plan.copied] == ["team.orders"]
        assert skipped.name == "foo" and skipped.unnamed == bool(plan.blocked) == ("foo" in topics)
        changes = acl_changes(flow, [], [ours], selected, frozenset([ours]), unnamed=skipped.unnamed)
        assert changes.delete == (() if skipped.unnamed else (ours,))


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("nowhere:Plain", "No module named 'nowhere'; install it, or put its file next to"),
        ("mine_broken:Plain", "cannot be imported: ModuleNotFoundError: No module named 'there_is_no_such_module'"),
        ("mine:Missing", "has no class Missing"),
        ("mine:Numbers", "has no method format_remote_topic, topic_source"),
        ("mine:Unwilling", "cannot be made, it is called as Unwilling(flow, properties): OSError: no such table"),
        ("com.example.Policy", "names a Java class, and Java cannot run here"),
    ],
)
def test_a_class_that_cannot_be_used_is_refused_in_one_sentence_with_its_line(
    value: str, sentence: str, flow_with: Flows
) -> None:
    with pytest.raises(ConfigError) as refused:
        flow_with(replication_policy_class=value)
    reported = str(refused.value)
    assert sentence in reported and "\n" not in reported
    assert "replication.policy.class" in reported and reported.endswith("mm2.properties:6)")


def test_keys_below_the_class_are_given_to_it_and_refused_for_a_built_in_class(
    flow_with: Flows, tmp_path: Path
) -> None:
    flow = flow_with(topic_filter_class="mine:Only", topic_filter_class_only="orders")
    assert [each.source.name for each in planned(flow, "orders", "payments").copied] == ["orders"]
    assert flow_with(topic_filter_class="DefaultTopicFilter", topic_filter_class_only="orders").custom_properties == {}
    for key, words in (
        ("topic.filter.class.only", "topic.filter.class.only is for a class of your own, and topic.filter.class names"),
        ("topic.filter.clas.only", "topic.filter.clas.only is not a setting"),
    ):
        assert words in refusal(tmp_path, f"{IN_YAML}    {key}: orders\n", YAML)


def test_a_plan_for_executors_is_read_where_the_class_is_not_installed(flow_with: Flows) -> None:
    flow = flow_with(replication_policy_class="mine:Plain", topic_filter_class="mine:Only", topic_filter_class_only="a")
    assert planned(flow, "a").copied
    shipped = pickle.dumps((flow, planned(flow, "a")))
    code = "import sys, pickle; flow, plan = pickle.load(sys.stdin.buffer); print(plan.copied[0].remote_topic)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, input=shipped, capture_output=True)
    assert done.stdout == b"A.a\n", done.stderr


def test_a_topic_that_a_class_cannot_name_or_judge_is_blocked_and_the_others_are_copied(flow_with: Flows) -> None:
    internal = {"__consumer_offsets": TopicDescription("__consumer_offsets", "", 50, internal=True)}
    named = planned(flow_with(replication_policy_class="mine:Moody"), "a", "b", "c", "d", "e", target=internal)
    assert [each.source.name for each in named.copied] == ["a"]
    judged = planned(flow_with(topic_filter_class="mine:YesOrNo"), "good", "raises")
    own = {"orders": {"retention.ms": TopicConfigEntry("1", "DYNAMIC_TOPIC_CONFIG", is_default=False)}}
    facts = TopicFacts({"orders": TopicDescription("orders", "", 1)}, {}, source_configs=own)
    configured = plan_topics(flow_with(config_property_filter_class="mine:Numbers"), facts)
    words = {
        "b": "failed: KeyError: 'no name for b'",
        "c": "returned None; it must return str",
        "d": "is not a legal topic name",
        "e": "would be written into __consumer_offsets, an internal topic",
        "good": "returned False; it must return str or None",
        "raises": "failed: ValueError: cannot say",
        "orders": ":Numbers.excludes('retention.ms') returned 1; it must return bool",
    }
    reasons = {each.name: each.reason for plan in (named, judged, configured) for each in plan.blocked}
    assert reasons.keys() == words.keys() and all(words[name] in reason for name, reason in reasons.items())


def test_topics_of_kafka_itself_are_not_copied_with_any_policy(flow_with: Flows) -> None:
    plan = planned(flow_with(replication_policy_class="mine:Greedy", topics_exclude=""), "__consumer_offsets", "orders")
    assert [each.source.name for each in plan.copied] == ["orders"]


def test_a_group_filter_that_raises_ends_the_translation_with_a_sentence(flow_with: Flows) -> None:
    flow = flow_with(group_filter_class="mine:YesOrNo")
    cluster: Any = SimpleNamespace(group_names=lambda: ("raises",))
    with pytest.raises(CustomClassError, match=r"why_not\('raises'\) failed: ValueError: cannot say \(.*:6\)"):
        group_names(flow, cluster)


def test_spark_watches_every_topic_where_only_a_class_knows_which_are_copied(flow_with: Flows) -> None:
    own_filter = flow_with(topic_filter_class="mine:Only", topic_filter_class_only="a", topics="b")
    assert subscribe_pattern(own_filter) == ".*"
    # Which topics are heartbeats is the policy's to say.
    own_policy = {"replication_policy_class": "mine:Plain", "topics": "b"}
    assert subscribe_pattern(flow_with(**own_policy)) == ".*"
    assert subscribe_pattern(flow_with(**own_policy, heartbeats_replication_enabled="false")) == "(?:b)"


def test_search_for_cycles_ends_where_a_policy_names_no_upstream_topic() -> None:
    class Forgetful(DefaultReplicationPolicy):
        def upstream_topic(self, topic: str) -> Optional[str]:
            return None

    for topic, cycle in ((".b", False), ("other.target.b", False), ("target.b", True)):
        assert Forgetful().is_cycle(topic, "source", "target") is cycle


