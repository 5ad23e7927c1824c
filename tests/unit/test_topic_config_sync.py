"""What `sync.topic.configs` does about each config in which a remote topic differs from its source."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

import pytest

from mirror_lib.config.values import TOPIC_CONFIGS
from mirror_lib.control.topic_configs import config_changes, config_decisions
from mirror_lib.facts import TopicConfigEntry, TopicConfigs
from tests.lab.flows import default, of_brokers, own
from tests.lab.flows import flow_of as flow

NO_LIMIT = "9223372036854775807"


def changes(source: TopicConfigs, remote: TopicConfigs, **settings: Any) -> Mapping[str, Optional[str]]:
    return config_changes(flow(**settings), source, remote)


def one(source: TopicConfigEntry, remote: TopicConfigEntry, key: str = "retention.ms", **settings: Any) -> Any:
    return changes({key: source}, {key: remote}, **settings).get(key, LEFT)


LEFT = "left alone"
LIMIT, REPLICAS, FROM_SOURCE = "max.message.bytes", "min.insync.replicas", {"use_defaults_from": "source"}
OF_ALL_BROKERS = of_brokers("5", "DYNAMIC_DEFAULT_BROKER_CONFIG")


@pytest.mark.parametrize(
    ("source", "remote", "key", "settings", "sent"),
    [
        (own("1000"), default("604800000"), "retention.ms", {}, "1000"),
        (own("1000"), own("2000"), "retention.ms", {}, "1000"),
        (own("1000"), own("1000"), "retention.ms", {}, LEFT),
        (own("1000"), of_brokers("1000"), "retention.ms", {}, LEFT),
        # An override that was removed on the source.
        (default("604800000"), own("1000"), "retention.ms", {}, None),
        (of_brokers("1000"), own("5"), "retention.ms", {}, None),
        (of_brokers("-1"), own("1000"), "retention.ms", {}, None),
        (of_brokers("5"), own("1000"), "segment.ms", {}, None),
        # One that keeps longer than the files of the source's brokers.
        (of_brokers("5"), own("1000"), "retention.ms", {}, LEFT),
        (of_brokers("5"), own("-1"), "retention.bytes", {}, LEFT),
        (of_brokers("5"), of_brokers("1000"), "retention.ms", {}, LEFT),
        (of_brokers("compact"), own("compact"), "cleanup.policy", {}, LEFT),
        (default("604800000"), of_brokers("-1"), "retention.ms", FROM_SOURCE, "604800000"),
        (default("604800000"), own("1000"), "retention.ms", FROM_SOURCE, "604800000"),
        (default("604800000"), default("604800000"), "retention.ms", FROM_SOURCE, LEFT),
        (of_brokers("5"), default("7"), "retention.ms", FROM_SOURCE, LEFT),
        (OF_ALL_BROKERS, default("7"), "retention.ms", {}, "5"),
        # Excluded, and set by hand.
        (own("3"), own("2"), REPLICAS, {}, LEFT),
        (default("1"), own("2"), REPLICAS, {}, LEFT),
        (own("1"), own("2"), "delete.retention.ms", {"config_properties_exclude": (r"delete\.retention.*",)}, LEFT),
        # A limit for batches is never lowered.
        (own("3000000"), default("1048588"), LIMIT, {}, "3000000"),
        (of_brokers("3000000"), default("1048588"), LIMIT, {}, "3000000"),
        (own("1000"), own("3000000"), LIMIT, {}, LEFT),
        (default("1048588"), own("3000000"), LIMIT, {}, LEFT),
        (own("3000000"), own("10"), LIMIT, {"config_properties_exclude": (LIMIT,)}, LEFT),
        # A secret, and what no client may set.
        (own(None, is_sensitive=True), own("2"), "a.b", {}, LEFT),
        (own("1", is_read_only=True), own("2"), "a.b", {}, LEFT),
    ],
)
def test_config_is_sent_where_it_differs_by_the_sources_own_choice(
    source: TopicConfigEntry, remote: TopicConfigEntry, key: str, settings: Dict[str, Any], sent: Optional[str]
) -> None:
    assert one(source, remote, key, **settings) == sent


def test_tiered_storage_of_an_existing_topic_is_left_to_the_operator() -> None:
    tiered = {"remote.storage.enable": own("true"), "local.retention.ms": own("5")}
    bare = {"remote.storage.enable": default("false"), "local.retention.ms": default("-2")}
    both = {**tiered, "local.retention.ms": default("-2")}
    assert changes(tiered, bare) == changes(bare, tiered) == {}
    assert changes(tiered, both) == {"local.retention.ms": "5"}
    assert changes({"unknown.there": own("1")}, {}) == {}


def test_config_that_the_flow_chooses_counts_before_the_sources() -> None:
    chosen: Dict[str, Any] = {
        "remote_topic_configs": TOPIC_CONFIGS.parse("retention.ms=5000, cleanup.policy=compact,delete")
    }
    # Also where the brokers' default is the same now, or the source does not know the config.
    for remote, sent in ((own("1000"), "5000"), (own("5000"), LEFT), (default("5000"), "5000")):
        assert one(own("1000"), remote, **chosen) == sent
    assert changes({}, {"cleanup.policy": default("delete")}, **chosen)["cleanup.policy"] == "compact,delete"


@pytest.mark.parametrize(
    "text", ["retention.ms", "retention.ms=", "=1", "Retention=1", "message.timestamp.type=LogAppendTime", "a=1, a=2"]
)
def test_configs_that_cannot_be_chosen_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be|cannot have|twice"):
        TOPIC_CONFIGS.parse(text)


@pytest.mark.parametrize("key", ["type", "before.max.ms", "after.max.ms", "difference.max.ms"])
def test_what_lets_the_remote_topic_keep_and_admit_timestamps_is_never_undone(key: str) -> None:
    for source in (own("1000"), default("1000")):
        for defaults in ("source", "target"):
            nothing_excluded: Dict[str, Any] = {"config_properties_exclude": (), "use_defaults_from": defaults}
            assert one(source, own("500"), f"message.timestamp.{key}", **nothing_excluded) == LEFT
            # As the mirror itself creates the topic: no difference that a plan would show.
            made = own("CreateTime" if key == "type" else NO_LIMIT)
            ours, theirs = {f"message.timestamp.{key}": source}, {f"message.timestamp.{key}": made}
            assert config_decisions(flow(**nothing_excluded), ours, theirs) == ()
