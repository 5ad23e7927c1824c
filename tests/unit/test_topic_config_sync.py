"""What `sync.topic.configs` does about each config in which a remote topic differs from its source."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

import pytest

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.config.values import TOPIC_CONFIGS
from mirror_lib.control.topic_configs import DELETE, KEEP, SET, config_changes, config_decisions
from mirror_lib.facts import TopicConfigEntry, TopicConfigs

NO_LIMIT = "9223372036854775807"


def flow(**settings: Any) -> ReplicationFlow:
    return ReplicationFlow(ClusterConfig("A", {}), ClusterConfig("B", {}), **settings)


def own(value: Optional[str], **more: bool) -> TopicConfigEntry:
    return TopicConfigEntry(value, "DYNAMIC_TOPIC_CONFIG", is_default=False, **more)


def default(value: str) -> TopicConfigEntry:
    return TopicConfigEntry(value, "DEFAULT_CONFIG", is_default=True)


def of_brokers(value: str, source: str = "STATIC_BROKER_CONFIG") -> TopicConfigEntry:
    return TopicConfigEntry(value, source, is_default=False)


def changes(source: TopicConfigs, remote: TopicConfigs, **settings: Any) -> Mapping[str, Optional[str]]:
    return config_changes(flow(**settings), source, remote)


def one(source: TopicConfigEntry, remote: TopicConfigEntry, key: str = "retention.ms", **settings: Any) -> Any:
    return changes({key: source}, {key: remote}, **settings).get(key, "left alone")


def test_config_set_on_the_source_is_set_on_the_remote_topic() -> None:
    assert one(own("1000"), default("604800000")) == "1000"
    assert one(own("1000"), own("2000")) == "1000"


def test_tiered_storage_of_an_existing_topic_is_left_to_the_operator() -> None:
    tiered = {"remote.storage.enable": own("true"), "local.retention.ms": own("5")}
    bare = {"remote.storage.enable": default("false"), "local.retention.ms": default("-2")}
    both = {**tiered, "local.retention.ms": default("-2")}
    assert changes(tiered, bare) == changes(bare, tiered) == {}
    assert changes(tiered, both) == {"local.retention.ms": "5"}


def test_what_is_equal_already_is_not_sent_again() -> None:
    assert one(own("1000"), own("1000")) == "left alone"
    assert one(own("1000"), of_brokers("1000")) == "left alone"
    assert changes({"a.b": default("1"), "c.d": own("x")}, {"a.b": default("2"), "c.d": own("x")}) == {}


def test_config_that_the_flow_chooses_counts_before_the_sources() -> None:
    configs = TOPIC_CONFIGS.parse("retention.ms=5000, cleanup.policy=compact,delete")
    chosen: Dict[str, Any] = {"remote_topic_configs": configs}
    assert one(own("1000"), own("1000"), **chosen) == "5000"
    assert one(own("1000"), own("5000"), **chosen) == "left alone"
    # Also where the brokers' default is the same now, or the source does not know the config.
    assert one(own("1000"), default("5000"), **chosen) == "5000"
    assert changes({}, {"cleanup.policy": default("delete")}, **chosen)["cleanup.policy"] == "compact,delete"


@pytest.mark.parametrize(
    "text", ["retention.ms", "retention.ms=", "=1", "Retention=1", "message.timestamp.type=LogAppendTime", "a=1, a=2"]
)
def test_configs_that_cannot_be_chosen_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be|cannot have|twice"):
        TOPIC_CONFIGS.parse(text)


def test_override_removed_on_the_source_is_removed_from_the_remote_topic() -> None:
    assert one(default("604800000"), own("1000")) is None


def test_override_removed_on_a_source_whose_brokers_files_set_the_config_is_removed_too() -> None:
    # MirrorMaker 2 is blind there and keeps the old value for ever.
    assert one(of_brokers("5"), own("1000")) is None


def test_source_default_is_set_where_defaults_come_from_the_source() -> None:
    assert one(default("604800000"), of_brokers("-1"), use_defaults_from="source") == "604800000"
    assert one(default("604800000"), own("1000"), use_defaults_from="source") == "604800000"
    assert one(default("604800000"), default("604800000"), use_defaults_from="source") == "left alone"


def test_what_only_the_files_of_the_sources_brokers_say_is_not_copied() -> None:
    assert one(of_brokers("5"), default("7"), use_defaults_from="source") == "left alone"


def test_default_that_all_brokers_of_the_source_share_is_set_as_mirrormaker_does() -> None:
    assert one(of_brokers("5", "DYNAMIC_DEFAULT_BROKER_CONFIG"), default("7")) == "5"


def test_excluded_config_set_by_hand_on_the_remote_topic_survives() -> None:
    for source in (own("3"), default("1")):
        assert one(source, own("2"), "min.insync.replicas") == "left alone"
    assert one(own("1"), own("2"), "delete.retention.ms", config_properties_exclude=(r"delete\.retention.*",)) == (
        "left alone"
    )


@pytest.mark.parametrize(
    "key",
    [
        "message.timestamp.type",
        "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
        "message.timestamp.difference.max.ms",
    ],
)
def test_what_lets_the_remote_topic_keep_and_admit_timestamps_is_never_undone(key: str) -> None:
    for source in (own("1000"), default("1000")):
        for defaults in ("source", "target"):
            nothing_excluded: Dict[str, Any] = {"config_properties_exclude": (), "use_defaults_from": defaults}
            assert one(source, own(NO_LIMIT), key, **nothing_excluded) == "left alone"


def test_limit_for_batches_is_raised_with_the_sources_and_never_lowered() -> None:
    limit = "max.message.bytes"
    assert one(own("3000000"), default("1048588"), limit) == "3000000"
    assert one(of_brokers("3000000"), default("1048588"), limit) == "3000000"
    assert one(own("1000"), own("3000000"), limit) == "left alone"
    assert one(default("1048588"), own("3000000"), limit) == "left alone"
    assert one(own("3000000"), own("10"), limit, config_properties_exclude=(limit,)) == "left alone"


def test_read_only_and_secret_configs_are_not_looked_at() -> None:
    for source in (own("1", is_read_only=True), own(None, is_sensitive=True)):
        assert config_decisions(flow(), {"a.b": source}, {"a.b": own("2")}) == ()


def test_config_that_the_target_does_not_know_is_named_and_not_sent() -> None:
    (decision,) = config_decisions(flow(), {"new.config": own("1"), "other": default("2")}, {})
    assert (decision.key, decision.action, decision.reason) == ("new.config", KEEP, "B does not know this config")


def test_every_difference_has_an_action_and_a_reason() -> None:
    source = {"a": own("1"), "b": default("2"), "min.insync.replicas": own("2"), "same": own("x")}
    remote = {"a": default("0"), "b": own("3"), "min.insync.replicas": own("1"), "same": own("x")}
    assert [(each.key, each.action, each.reason) for each in config_decisions(flow(), source, remote)] == [
        ("a", SET, "set on the source topic"),
        ("b", DELETE, "not set on the source topic, and use.defaults.from is target"),
        ("min.insync.replicas", KEEP, "config.properties.exclude"),
    ]
