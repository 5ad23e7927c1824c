"""Selects topics, groups and topic configs by name, and says why a name is not selected. Pure.

Also which names Kafka refuses, and which flows would copy in a loop. A custom class (`module:Class`) is called as
`Class(flow, properties)`. A filter of topics or groups has `why_not` as `PatternFilter`, one of configs `excludes` as
`PatternConfigFilter`. Internal topics and cycles are left out whatever a filter says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Mapping, Optional, Sequence, Set, Tuple, Union

from mirror_lib.config.custom_classes import (
    CONFIG_FILTER_KEY,
    GROUP_FILTER_KEY,
    POLICY_KEY,
    TOPIC_FILTER_KEY,
    CustomClass,
    custom_class,
    named_class,
)
from mirror_lib.config.model import INTERNAL_UP_TO_3_9, ReplicationFlow
from mirror_lib.config.settings import TOPICS_EXCLUDE
from mirror_lib.config.values import is_entry_point
from mirror_lib.errors import CustomClassError
from mirror_lib.topics.policy import HEARTBEATS, copied_through, policy_for, remote_topic

_UP_TO_3_9 = ", MirrorMaker's default up to 3.9; 4.x copies it: set topics.exclude"


@dataclass(frozen=True)
class PatternFilter:
    """A list and its `.exclude` list: names or regexes that must match the whole name. Exclude beats include.

    `remarks` follow an exclude pattern where it is named as the reason.
    """

    include: Tuple[str, ...]
    exclude: Tuple[str, ...] = ()
    remarks: Mapping[str, str] = field(default_factory=dict)

    def why_not(self, name: str) -> Optional[str]:
        """Why `name` is left out, a phrase; `None` where it is selected."""
        excluded_by = first_match(self.exclude, name)
        if excluded_by is not None:
            return f"excluded by `{excluded_by}`{self.remarks.get(excluded_by, '')}"
        return "no include pattern matches" if first_match(self.include, name) is None else None


@dataclass(frozen=True)
class PatternConfigFilter:
    """`config.properties.exclude`: names or regexes that must match the whole key."""

    exclude: Tuple[str, ...]

    def excludes(self, key: str) -> bool:
        return first_match(self.exclude, key) is not None


@dataclass(frozen=True)
class CustomNameFilter:
    """A user's topic or group filter. Each method raises `CustomClassError` if the class gives no valid answer."""

    custom: CustomClass

    def why_not(self, name: str) -> Optional[str]:
        reason = self.custom.ask("why_not", name)
        return None if reason is None else f"{reason or 'left out'} ({self.custom.name})"


NameFilter = Union[PatternFilter, CustomNameFilter]


def topic_filter_for(flow: ReplicationFlow) -> NameFilter:
    if is_entry_point(flow.topic_filter):
        return CustomNameFilter(custom_class(flow, TOPIC_FILTER_KEY))
    by_default = TOPICS_EXCLUDE not in flow.places
    return PatternFilter(flow.topics, flow.topics_exclude, {INTERNAL_UP_TO_3_9: _UP_TO_3_9} if by_default else {})


def group_filter_for(flow: ReplicationFlow) -> NameFilter:
    if is_entry_point(flow.group_filter):
        return CustomNameFilter(custom_class(flow, GROUP_FILTER_KEY))
    return PatternFilter(flow.groups, flow.groups_exclude)


def config_excluded(flow: ReplicationFlow, key: str) -> bool:
    """Whether the topic config `key`, e.g. `retention.ms`, is not copied to remote topics. Raises
    `CustomClassError`."""
    if is_entry_point(flow.config_property_filter):
        return bool(custom_class(flow, CONFIG_FILTER_KEY).ask("excludes", key))
    return PatternConfigFilter(flow.config_properties_exclude).excludes(key)


def subscribe_pattern(flow: ReplicationFlow) -> str:
    """The Java regex that Spark subscribes to, for at least all topics that are copied. For a user's class it is every
    topic, because only the class can decide."""
    deciding = [TOPIC_FILTER_KEY, *([POLICY_KEY] if flow.heartbeats_replication else [])]
    if any(is_entry_point(named_class(flow, key)) for key in deciding):
        return ".*"
    patterns = (*flow.topics, *([".*" + HEARTBEATS] if flow.heartbeats_replication else []))
    return "|".join(f"(?:{pattern})" for pattern in patterns) if patterns else "(?!)"


def first_match(patterns: Sequence[str], name: str) -> Optional[str]:
    return next((pattern for pattern in patterns if re.fullmatch(pattern, name)), None)


LONGEST_NAME = 249


def why_skipped(topic: str, flow: ReplicationFlow) -> Optional[str]:
    """Why `flow` does not copy `topic`, in one phrase; `None` where it does. Only names decide here."""
    policy = policy_for(flow)
    if policy.is_mm2_internal_topic(topic):
        return "is an MM2 internal topic"
    if policy.is_internal_topic(topic):
        return "internal topic"
    filtered = topic_filter_for(flow).why_not(topic)
    if filtered is not None and not (flow.heartbeats_replication and policy.is_heartbeats_topic(topic)):
        return filtered
    source, target = flow.naming_alias, flow.target.alias
    if not policy.is_cycle(topic, source, target):
        return None
    through = list(copied_through(policy, topic))
    if source in through and target not in through:
        return came_from(source)
    return f"would be copied back to {target}: cycle"


def came_from(source: str) -> str:
    """Why a topic is skipped that a user may have named so."""
    return f"its name says that it came from {source} itself: exclude it, or give another alias or separator"


def may_be_wanted(topic: str, flow: ReplicationFlow) -> bool:
    """Whether the filter of `flow` selects `topic`, or fails on it. For names on which the policy failed."""
    try:
        return topic_filter_for(flow).why_not(topic) is None
    except CustomClassError:
        return True


def name_fault(name: str) -> Optional[str]:
    if len(name) > LONGEST_NAME:
        return f"remote name longer than {LONGEST_NAME} characters"
    if name in (".", "..") or not re.fullmatch(r"[a-zA-Z0-9._-]+", name):
        return f"remote name `{name}` is not a legal topic name: only a-z, A-Z, 0-9, `.`, `_` and `-` are"
    return None


def copied_back(topic: str, flow: ReplicationFlow, flows: Sequence[ReplicationFlow]) -> Optional[str]:
    """The last flow of a route on which the copy of `topic` returns to the source under the same name, or `None`. Only
    `flows` count: a loop through another file is not found."""
    waiting = [(flow.target.alias, remote_topic(flow, topic))]
    reached: Set[Tuple[str, str]] = set(waiting)
    while waiting:
        alias, name = waiting.pop()
        for onward in flows:
            # Flows with unlike separators can prefix a name again and again: only its length ends that.
            if onward.source.alias != alias or len(name) > LONGEST_NAME or why_skipped(name, onward) is not None:
                continue
            arrived = (onward.target.alias, remote_topic(onward, name))
            if arrived == (flow.source.alias, topic):
                return onward.name
            if arrived not in reached:
                waiting.append(arrived)
                reached.add(arrived)
    return None
