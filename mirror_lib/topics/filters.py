"""A flow in, its filters out: which topics and groups it takes and which topic configs it leaves alone. Pure.

Custom classes (`module:Class`) are called as `Class(flow, properties)` and have the methods of these protocols.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Mapping, Optional, Protocol, Sequence, Tuple

from mirror_lib.config.custom_classes import (
    CONFIG_FILTER_KEY,
    GROUP_FILTER_KEY,
    POLICY_KEY,
    TOPIC_FILTER_KEY,
    CustomClass,
    custom_class,
    named_class,
)
from mirror_lib.config.model import ReplicationFlow
from mirror_lib.config.settings import INTERNAL_UP_TO_3_9, TOPICS_EXCLUDE
from mirror_lib.config.values import is_entry_point
from mirror_lib.topics.policy import HEARTBEATS

_UP_TO_3_9 = ", MirrorMaker's default up to 3.9; 4.x copies it: set topics.exclude"


class TopicFilter(Protocol):
    """Which source topics a flow takes. Internal topics and cycles are left out whatever it says."""

    def why_not(self, topic: str) -> Optional[str]:
        """Why `topic` is not to be copied, a phrase; `None` where it is to be copied."""


class GroupFilter(Protocol):
    """Whose committed offsets a flow translates."""

    def why_not(self, group: str) -> Optional[str]:
        """Why the consumer group is left out, a phrase; `None` where its offsets are to be translated."""


class ConfigPropertyFilter(Protocol):
    """Which topic configs are not copied to remote topics."""

    def excludes(self, key: str) -> bool:
        """Whether the topic config `key`, e.g. `retention.ms`, is left alone."""


@dataclass(frozen=True)
class PatternFilter:
    """A list and its `.exclude` list: names or regexes that must match the whole name. Exclude beats include.

    `remarks` follow an exclude pattern where it is named as the reason.
    """

    include: Tuple[str, ...]
    exclude: Tuple[str, ...] = ()
    remarks: Mapping[str, str] = field(default_factory=dict)

    def included_by(self, name: str) -> Optional[str]:
        """The first include pattern that matches, or `None`."""
        return first_match(self.include, name)

    def excluded_by(self, name: str) -> Optional[str]:
        """The first exclude pattern that matches, or `None`."""
        return first_match(self.exclude, name)

    def why_not(self, name: str) -> Optional[str]:
        """Why `name` is left out, naming the pattern that decides; `None` where it is taken."""
        excluded_by = self.excluded_by(name)
        if excluded_by is not None:
            return f"excluded by `{excluded_by}`{self.remarks.get(excluded_by, '')}"
        return "no include pattern matches" if self.included_by(name) is None else None

    def spark_pattern(self, *also: str) -> str:
        """One Java regex for Spark's `subscribePattern` that matches at least every name that is taken.

        `also` are regexes of names that are taken whatever the filter says.
        """
        patterns = (*self.include, *also)
        return "|".join(f"(?:{pattern})" for pattern in patterns) if patterns else "(?!)"


@dataclass(frozen=True)
class PatternConfigFilter:
    """`config.properties.exclude`: names or regexes that must match the whole key."""

    exclude: Tuple[str, ...]

    def excludes(self, key: str) -> bool:
        """Whether a pattern matches."""
        return first_match(self.exclude, key) is not None


@dataclass(frozen=True)
class CustomNameFilter:
    """A user's topic or group filter. Each method raises CustomClassError where the class does not answer properly."""

    custom: CustomClass

    def why_not(self, name: str) -> Optional[str]:
        """Its reason, and who says so."""
        reason = self.custom.ask("why_not", name, answers=(str, type(None)))
        return None if reason is None else f"{reason or 'left out'} ({self.custom.name})"


@dataclass(frozen=True)
class CustomConfigFilter:
    """A user's filter of topic configs. Raises CustomClassError where the class does not answer properly."""

    custom: CustomClass

    def excludes(self, key: str) -> bool:
        """What the class says."""
        return bool(self.custom.ask("excludes", key, answers=(bool,)))


def topic_filter_for(flow: ReplicationFlow) -> TopicFilter:
    """The topic filter that `flow` is configured with."""
    if is_entry_point(flow.topic_filter):
        return CustomNameFilter(custom_class(flow, TOPIC_FILTER_KEY))
    by_default = TOPICS_EXCLUDE not in flow.places
    return PatternFilter(flow.topics, flow.topics_exclude, {INTERNAL_UP_TO_3_9: _UP_TO_3_9} if by_default else {})


def group_filter_for(flow: ReplicationFlow) -> GroupFilter:
    """The group filter that `flow` is configured with."""
    if is_entry_point(flow.group_filter):
        return CustomNameFilter(custom_class(flow, GROUP_FILTER_KEY))
    return PatternFilter(flow.groups, flow.groups_exclude)


def config_property_filter_for(flow: ReplicationFlow) -> ConfigPropertyFilter:
    """The filter of topic configs that `flow` is configured with."""
    if is_entry_point(flow.config_property_filter):
        return CustomConfigFilter(custom_class(flow, CONFIG_FILTER_KEY))
    return PatternConfigFilter(flow.config_properties_exclude)


def subscribe_pattern(flow: ReplicationFlow) -> str:
    """The Java regex that Spark subscribes to for `flow`: its include list, and heartbeats where these are copied.

    What a user's class takes is only known by asking it, so Spark then watches every topic.
    """
    deciding = [TOPIC_FILTER_KEY, *([POLICY_KEY] if flow.heartbeats_replication else [])]
    if any(is_entry_point(named_class(flow, key)) for key in deciding):
        return ".*"
    also = (".*" + HEARTBEATS,) if flow.heartbeats_replication else ()
    return PatternFilter(flow.topics).spark_pattern(*also)


def first_match(patterns: Sequence[str], name: str) -> Optional[str]:
    """The first of `patterns` that matches the whole `name`, or `None`."""
    return next((pattern for pattern in patterns if re.fullmatch(pattern, name)), None)
