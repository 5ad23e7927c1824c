"""Classes that mirror.yaml names. Each is made once a flow, as `Class(flow, properties)`, on the driver alone.

`flow` has the flow's settings as attributes, `properties` the keys that were given for this class.
"""

from __future__ import annotations

from typing import Mapping, Optional

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.topics.filters import PatternConfigFilter, PatternFilter
from mirror_lib.topics.policy import DefaultReplicationPolicy

MARK = ".from-"


class SuffixPolicy(DefaultReplicationPolicy):
    """`orders` of primary is called `orders.from-primary`, so that a copy is listed next to its topic.

    The rest comes from the class that it extends: cycles, heartbeats and internal topics follow from these three.
    """

    def __init__(self, flow: ReplicationFlow, properties: Mapping[str, str]) -> None:
        super().__init__(flow.separator, flow.internal_separator)

    def format_remote_topic(self, alias: str, topic: str) -> str:
        """The name on the target of `topic` from the cluster `alias`."""
        return topic + MARK + alias

    def topic_source(self, topic: str) -> Optional[str]:
        """The cluster that `topic` was copied from, `None` for a local topic."""
        return topic.rpartition(MARK)[2] if MARK in topic else None

    def upstream_topic(self, topic: str) -> Optional[str]:
        """The name that `topic` has there."""
        return topic.rpartition(MARK)[0] if MARK in topic else None


class TeamTopics:
    """Topics are called `team.something`; topics of the teams in `teams` are copied, unless `topics.exclude` says
    no."""

    def __init__(self, flow: ReplicationFlow, properties: Mapping[str, str]) -> None:
        self._teams = [team.strip() for team in properties.get("teams", "").split(",")]
        self._patterns = PatternFilter((".*",), flow.topics_exclude)

    def why_not(self, topic: str) -> Optional[str]:
        """Why `topic` is not copied, `None` where it is."""
        team = topic.partition(".")[0]
        return self._patterns.why_not(topic) if team in self._teams else f"{team} is not a team of ours"


class TeamGroups:
    """Consumer groups are called `team-something`; offsets of the teams in `teams` are translated."""

    def __init__(self, flow: ReplicationFlow, properties: Mapping[str, str]) -> None:
        self._teams = [team.strip() for team in properties.get("teams", "").split(",")]

    def why_not(self, group: str) -> Optional[str]:
        """Why the group is left out, `None` where it is not."""
        return None if group.partition("-")[0] in self._teams else "of another team"


class RetentionStays:
    """Leaves retention to the target, and all that `config.properties.exclude` names."""

    def __init__(self, flow: ReplicationFlow, properties: Mapping[str, str]) -> None:
        self._patterns = PatternConfigFilter(flow.config_properties_exclude)

    def excludes(self, key: str) -> bool:
        """Whether the topic config `key` is not copied."""
        return "retention" in key or self._patterns.excludes(key)
