"""Flows and topic configs made in memory, for decisions that need no broker."""

from __future__ import annotations

from typing import Any, Optional

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.facts import TopicConfigEntry


def flow_of(source: str = "A", target: str = "B", **settings: Any) -> ReplicationFlow:
    """A flow between clusters of these names, with `settings` by their field names."""
    return ReplicationFlow(ClusterConfig(source, {}), ClusterConfig(target, {}), **settings)


def own(value: Optional[str], **more: bool) -> TopicConfigEntry:
    return TopicConfigEntry(value, "DYNAMIC_TOPIC_CONFIG", is_default=False, **more)


def default(value: str) -> TopicConfigEntry:
    return TopicConfigEntry(value, "DEFAULT_CONFIG", is_default=True)


def of_brokers(value: str, source: str = "STATIC_BROKER_CONFIG") -> TopicConfigEntry:
    return TopicConfigEntry(value, source, is_default=False)
