"""A topic whose configs may not be read appears while a flow runs: topics that come with it and later are copied."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Sequence

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.control.sync import sync_topic_configs
from mirror_lib.facts import NewTopic, TopicConfigEntry, TopicDescription
from mirror_lib.replication.copied_topics import TopicWatch

LIMIT = "max.message.bytes"


class Topics:
    """A cluster of topics with a limit of 2000 bytes; the configs of the `closed` ones may not be read."""

    def __init__(self, alias: str, *names: str) -> None:
        self.alias = alias
        self.closed: Sequence[str] = ()
        self.listed: Dict[str, TopicDescription] = {}
        self.add(*names)

    def add(self, *names: str) -> None:
        self.listed.update({name: TopicDescription(name, f"id-{name}", 1) for name in names})

    def topics(self) -> Mapping[str, TopicDescription]:
        return dict(self.listed)

    def topic_configs(self, names: Sequence[str], keys: Any = None) -> Mapping[str, Any]:
        entries = {LIMIT: TopicConfigEntry("2000", "DYNAMIC_TOPIC_CONFIG", False)}
        return {name: None if name in self.closed else entries for name in names if name in self.listed}

    def topic_config_keys(self) -> Any:
        return frozenset()

    def broker_count(self) -> int:
        return 1

    def create_topics(self, specs: Sequence[NewTopic]) -> Mapping[str, Optional[str]]:
        self.add(*(each.name for each in specs))
        return {each.name: None for each in specs}


def test_closed_topic_is_blocked_and_hides_no_other() -> None:
    source, target = Topics("A", "orders"), Topics("B")
    flow = ReplicationFlow(ClusterConfig("A", {}), ClusterConfig("B", {}), replication_factor=1)
    watch = TopicWatch(flow, (flow,), source, target)  # type: ignore[arg-type]  # it is asked for topics alone
    assert {each.topic for each in watch.refresh().values()} == {"orders"}
    source.closed = ["closed"]
    source.add("closed", "payments")
    assert {each.topic for each in watch.present().values()} == {"orders", "payments"}
    source.add("later")
    assert {each.topic for each in watch.present().values()} == {"orders", "payments", "later"}
    assert [each.name for each in watch.plan.blocked] == ["closed"]
    source.closed = []
    watch._checked_at = -1e9  # the interval after which it plans without a change of the topic lists has passed
    assert "closed" in {each.topic for each in watch.present().values()}


def test_remote_topic_whose_configs_may_not_be_read_keeps_the_limit_that_was_read_before() -> None:
    source, target = Topics("A", "orders"), Topics("B", "A.orders")
    flow = ReplicationFlow(ClusterConfig("A", {}), ClusterConfig("B", {}), replication_factor=1)
    watch = TopicWatch(flow, (flow,), source, target)  # type: ignore[arg-type]
    assert [each.max_message_bytes for each in watch.refresh().values()] == [2000]
    target.closed = ["A.orders", "A.new"]
    source.add("new")
    limits = {each.topic: each.max_message_bytes for each in watch.refresh().values()}
    assert limits == {"orders": 2000, "new": 1048588}  # Kafka's default where none was ever read


def test_config_sync_names_what_it_may_not_read_and_goes_on() -> None:
    source, target = Topics("A", "orders", "closed"), Topics("B", "A.orders", "A.closed")
    source.closed = ["closed"]
    flow = ReplicationFlow(ClusterConfig("A", {}), ClusterConfig("B", {}))
    synced = sync_topic_configs(flow, (flow,), source, target)  # type: ignore[arg-type]
    assert (synced.changed, len(synced.problems)) == (0, 1) and "closed" in synced.problems[0]
