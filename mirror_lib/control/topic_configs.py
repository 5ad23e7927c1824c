"""Decides which configs `sync.topic.configs` changes on remote topics, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Mapping, Optional, Tuple

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.facts import TopicConfigEntry, TopicConfigs
from mirror_lib.topics.filters import config_excluded
from mirror_lib.topics.remote_configs import (
    KEEPS_TIMESTAMPS,
    MAX_MESSAGE_BYTES,
    NO_LIMIT,
    TIERED_CONFIGS,
    TIMESTAMP_CONFIGS,
    is_tiered,
)

SET, DELETE, KEEP = "set", "delete", "keep"
TOPIC_LEVEL, STATIC = "DYNAMIC_TOPIC_CONFIG", "STATIC_BROKER_CONFIG"
RETENTION = ("retention.ms", "retention.bytes")


@dataclass(frozen=True)
class ConfigDecision:
    """A config in which a remote topic differs from its source, or from `remote.topic.configs`, and what is done: SET
    to `chosen`, else to `source_value`; DELETE the override; or KEEP.

    Values are effective, defaults included; `remote_value` is `None` if the target does not know the key.
    """

    key: str
    action: str
    source_value: Optional[str]
    remote_value: Optional[str]
    reason: str
    chosen: Optional[str] = None

    @property
    def new_value(self) -> Optional[str]:
        return self.source_value if self.chosen is None else self.chosen


def config_decisions(flow: ReplicationFlow, source: TopicConfigs, remote: TopicConfigs) -> Tuple[ConfigDecision, ...]:
    """Every config that differs, by key. Both sides are a topic's effective configs, complete."""
    chosen, tiered = dict(flow.remote_topic_configs), is_tiered(source) and is_tiered(remote)
    found = (_decided(flow, key, source[key], remote.get(key), tiered) for key in sorted(source.keys() - chosen.keys()))
    own = (_chosen(key, value, source.get(key), remote.get(key)) for key, value in chosen.items())
    decided = [decision for decisions in (*found, *own) for decision in decisions]
    return tuple(sorted(decided, key=lambda each: each.key))


def _chosen(
    key: str, value: str, source: Optional[TopicConfigEntry], remote: Optional[TopicConfigEntry]
) -> Iterator[ConfigDecision]:
    if remote is None or remote.value != value or remote.source != TOPIC_LEVEL:
        at_source = None if source is None else source.value
        at_remote = None if remote is None else remote.value
        yield ConfigDecision(key, SET, at_source, at_remote, "remote.topic.configs", value)


def config_changes(flow: ReplicationFlow, source: TopicConfigs, remote: TopicConfigs) -> Mapping[str, Optional[str]]:
    """The new value by key, `None` where the remote topic's override is deleted."""
    decisions = config_decisions(flow, source, remote)
    return {each.key: each.new_value if each.action == SET else None for each in decisions if each.action != KEEP}


_BY_HAND = "a remote topic gets tiered storage when it is created, or by hand"


def _decided(
    flow: ReplicationFlow, key: str, source: TopicConfigEntry, remote: Optional[TopicConfigEntry], tiered: bool
) -> Iterator[ConfigDecision]:
    if source.is_read_only or source.is_sensitive or source.value is None:
        return
    if remote is None:
        if _set_there(source):
            yield ConfigDecision(key, KEEP, source.value, None, f"{flow.target.alias} does not know this config")
        return
    if key in TIMESTAMP_CONFIGS and remote.value in (NO_LIMIT, KEEPS_TIMESTAMPS):
        return  # as the mirror creates remote topics
    action, reason = _rule(flow, key, source, remote) if tiered or key not in TIERED_CONFIGS else (KEEP, _BY_HAND)
    if remote.value != source.value and (action != DELETE or remote.source == TOPIC_LEVEL):
        yield ConfigDecision(key, action, source.value, remote.value, reason)


def _rule(flow: ReplicationFlow, key: str, source: TopicConfigEntry, remote: TopicConfigEntry) -> Tuple[str, str]:
    if config_excluded(flow, key):
        return KEEP, "config.properties.exclude"
    if key in TIMESTAMP_CONFIGS:
        return KEEP, "the remote topic keeps timestamps, and admits whatever its source admitted"
    if key == MAX_MESSAGE_BYTES:
        # Batches that the source admitted under a higher limit may still be on their way.
        raised = int(source.value or 0) > int(remote.value or 0)
        return (SET, "the source admits larger batches") if raised else (KEEP, "never lowered")
    if _set_there(source):
        return SET, "set on the source topic" if source.source == TOPIC_LEVEL else "set on all brokers of the source"
    by_hand = source.source == STATIC and remote.source == TOPIC_LEVEL
    if by_hand and key in RETENTION and _keeps_longer(remote, source):
        # As in MM2. Without it, what was meant to stay on the target longer would be deleted there.
        return KEEP, "set by hand, and longer than what the files of the source's brokers have"
    if flow.use_defaults_from == "target":
        return DELETE, "not set on the source topic, and use.defaults.from is target"
    if source.source == STATIC:
        # As in MM2. Such a value speaks of the brokers' machines, not of the topic.
        return KEEP, "comes from the files of the source's brokers"
    return SET, "the source's default, and use.defaults.from is source"


def _keeps_longer(one: TopicConfigEntry, other: TopicConfigEntry) -> bool:
    limits = [int(each.value or 0) for each in (one, other)]
    return limits[1] >= 0 and (limits[0] < 0 or limits[0] > limits[1])


def _set_there(entry: TopicConfigEntry) -> bool:
    return not entry.is_default and entry.source != STATIC
