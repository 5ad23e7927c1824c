"""Which topics a flow copies and what they are called on the target: names in, names and reasons out. Pure.

Names follow MirrorMaker 2's replication policies (KIP-382, KIP-690, KIP-949, KIP-1074).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterator, Optional, Protocol, Sequence, Set, Tuple

from mirror_lib.config.model import IDENTITY_POLICY, ReplicationFlow

HEARTBEATS = "heartbeats"
LONGEST_NAME = 249


class ReplicationPolicy(Protocol):
    """How topics are named across clusters. `None` as a source or upstream topic: the topic is local."""

    def format_remote_topic(self, alias: str, topic: str) -> str:
        """The name on the target of `topic` from the cluster `alias`."""

    def topic_source(self, topic: str) -> Optional[str]:
        """The alias of the cluster that `topic` was copied from."""

    def upstream_topic(self, topic: str) -> Optional[str]:
        """The name that `topic` has on the cluster it was copied from."""

    def original_topic(self, topic: str) -> str:
        """The name that `topic` has where it was first written."""

    def heartbeats_topic(self) -> str:
        """The name of the local heartbeats topic."""

    def checkpoints_topic(self, alias: str) -> str:
        """The topic, on the target, that holds checkpoints of groups of `alias`."""

    def offset_syncs_topic(self, alias: str) -> str:
        """The topic that holds MM2's offset syncs; `alias` is the cluster that it does not lie on."""

    def is_heartbeats_topic(self, topic: str) -> bool:
        """Whether `topic` is a heartbeats topic or a copy of one."""

    def is_mm2_internal_topic(self, topic: str) -> bool:
        """Whether MirrorMaker 2 keeps its own state in `topic`."""

    def is_internal_topic(self, topic: str) -> bool:
        """Whether `topic` is never copied, whatever the filter says."""

    def is_cycle(self, topic: str, source_alias: str, target_alias: str) -> bool:
        """Whether `topic` on `source_alias` is a copy of what `target_alias` or the source itself holds."""


@dataclass(frozen=True)
class DefaultReplicationPolicy:
    """Remote topics carry the source's alias: `orders` of A is `A.orders` on B.

    As in MM2 a local topic whose name has the separator in it is taken for a copy: `B.orders` on A came from B.
    """

    separator: str = "."
    internal_separator: str = "."

    def format_remote_topic(self, alias: str, topic: str) -> str:
        """`alias`, separator, `topic`."""
        return alias + self.separator + topic

    def topic_source(self, topic: str) -> Optional[str]:
        """What stands before the first separator; `None` where nothing else follows (`a.` is a local topic)."""
        head, _, rest = topic.partition(self.separator)
        return head if rest.replace(self.separator, "") else None

    def upstream_topic(self, topic: str) -> Optional[str]:
        """What stands behind the first separator."""
        source = self.topic_source(topic)
        return None if source is None else topic[len(source) + len(self.separator):]

    def original_topic(self, topic: str) -> str:
        """`topic` without any alias: walks upstream until the name is local or changes no more."""
        upstream = self.upstream_topic(topic)
        return topic if upstream is None or upstream == topic else self.original_topic(upstream)

    def heartbeats_topic(self) -> str:
        """Always `heartbeats`, whatever the separator."""
        return HEARTBEATS

    def checkpoints_topic(self, alias: str) -> str:
        """`A.checkpoints.internal`, with the internal separator."""
        return alias + self._checkpoints_suffix

    def offset_syncs_topic(self, alias: str) -> str:
        """`mm2-offset-syncs.A.internal`, with the internal separator."""
        return "mm2-offset-syncs" + self.internal_separator + alias + self._internal_suffix

    def is_heartbeats_topic(self, topic: str) -> bool:
        """True for `heartbeats`, `A.heartbeats`, `B.A.heartbeats` and so on."""
        return self.original_topic(topic) == HEARTBEATS

    def is_mm2_internal_topic(self, topic: str) -> bool:
        """KIP-1074's rule: `mm2*.internal` or a checkpoints topic. A user's `orders.internal` is not."""
        is_mm2_state = topic.startswith("mm2") and topic.endswith(self._internal_suffix)
        return is_mm2_state or topic.endswith(self._checkpoints_suffix)

    def is_internal_topic(self, topic: str) -> bool:
        """Kafka's (`__*`, and `.*` as MM2 has it) and MM2's internal topics."""
        return topic.startswith(("__", ".")) or self.is_mm2_internal_topic(topic)

    def is_cycle(self, topic: str, source_alias: str, target_alias: str) -> bool:
        """Whether either alias is among the clusters that `topic` was copied through (KAFKA-9914)."""
        return not {source_alias, target_alias}.isdisjoint(self._copied_through(topic))

    def _copied_through(self, topic: str) -> Iterator[str]:
        head, _, rest = topic.partition(self.separator)
        while rest.replace(self.separator, ""):
            yield head
            head, _, rest = rest.partition(self.separator)

    @property
    def _internal_suffix(self) -> str:
        return self.internal_separator + "internal"

    @property
    def _checkpoints_suffix(self) -> str:
        return self.internal_separator + "checkpoints" + self._internal_suffix


@dataclass(frozen=True)
class IdentityReplicationPolicy(DefaultReplicationPolicy):
    """Remote topics keep their names, except heartbeats, which stay prefixed.

    Heartbeats topics are exactly `heartbeats` and `<alias><separator>heartbeats`, the latter repeatedly. MM2 takes
    every name that ends so, and renames a user's `device-heartbeats`. An identity copy's name does not say
    where it came from, so this policy sees no cycles of ordinary topics: `copied_back` does, within one file.
    """

    source_alias: str = ""

    def format_remote_topic(self, alias: str, topic: str) -> str:
        """`topic` itself, or the prefixed name of a heartbeats topic."""
        return super().format_remote_topic(alias, topic) if self._looks_like_heartbeats(topic) else topic

    def topic_source(self, topic: str) -> Optional[str]:
        """The flow's source: every topic may have come from there."""
        return super().topic_source(topic) if self._looks_like_heartbeats(topic) else self.source_alias

    def upstream_topic(self, topic: str) -> Optional[str]:
        """`topic` itself."""
        return super().upstream_topic(topic) if self._looks_like_heartbeats(topic) else topic

    def is_cycle(self, topic: str, source_alias: str, target_alias: str) -> bool:
        """Heartbeats only: copies of them that went through the target."""
        return self._looks_like_heartbeats(topic) and target_alias in self._copied_through(topic)

    def _looks_like_heartbeats(self, topic: str) -> bool:
        return topic == HEARTBEATS or topic.endswith(self.separator + HEARTBEATS)


def policy_for(flow: ReplicationFlow) -> ReplicationPolicy:
    """The replication policy that `flow` is configured with."""
    if flow.replication_policy == IDENTITY_POLICY:
        return IdentityReplicationPolicy(flow.separator, flow.internal_separator, flow.source.alias)
    return DefaultReplicationPolicy(flow.separator, flow.internal_separator)


@dataclass(frozen=True)
class TopicFilter:
    """`topics` and `topics.exclude`: names or regexes that must match the whole topic name. Exclude beats include."""

    include: Tuple[str, ...]
    exclude: Tuple[str, ...] = ()

    def included_by(self, topic: str) -> Optional[str]:
        """The first include pattern that matches, or `None`."""
        return _first_match(self.include, topic)

    def excluded_by(self, topic: str) -> Optional[str]:
        """The first exclude pattern that matches, or `None`."""
        return _first_match(self.exclude, topic)

    def why_not(self, topic: str) -> Optional[str]:
        """Why `topic` is not to be copied, naming the pattern that decides; `None` where it is to be copied."""
        excluded_by = self.excluded_by(topic)
        if excluded_by is not None:
            return f"excluded by `{excluded_by}`"
        return "no include pattern matches" if self.included_by(topic) is None else None

    def spark_pattern(self, *also: str) -> str:
        """One Java regex for Spark's `subscribePattern` that matches at least every topic to be copied.

        `also` are regexes of topics that are copied whatever the filter says.
        """
        patterns = (*self.include, *also)
        return "|".join(f"(?:{pattern})" for pattern in patterns) if patterns else "(?!)"


def topic_filter_for(flow: ReplicationFlow) -> TopicFilter:
    """The filter that `flow` is configured with."""
    return TopicFilter(flow.topics, flow.topics_exclude)


def subscribe_pattern(flow: ReplicationFlow) -> str:
    """The Java regex that Spark subscribes to for `flow`: its include list, and heartbeats where these are copied."""
    also = (".*" + HEARTBEATS,) if flow.heartbeats_replication else ()
    return topic_filter_for(flow).spark_pattern(*also)


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
    if policy.is_cycle(topic, flow.source.alias, flow.target.alias):
        return f"would be copied back to {flow.target.alias}: cycle"
    return None


def name_fault(name: str) -> Optional[str]:
    """Why Kafka refuses `name` as a topic's name, or `None`."""
    if len(name) > LONGEST_NAME:
        return f"remote name longer than {LONGEST_NAME} characters"
    if name in (".", "..") or not re.fullmatch(r"[a-zA-Z0-9._-]+", name):
        return f"remote name `{name}` is not a legal topic name: only letters, digits, `.`, `_` and `-` are"
    return None


def copied_back(topic: str, flow: ReplicationFlow, flows: Sequence[ReplicationFlow]) -> Optional[str]:
    """The last flow of a way on which the copy of `topic` comes back to the source under the same name, or `None`.

    Only `flows` are known: a loop that another file closes is not seen.
    """
    start = (flow.target.alias, policy_for(flow).format_remote_topic(flow.source.alias, topic))
    reached: Set[Tuple[str, str]] = {start}
    waiting = [start]
    while waiting:
        alias, name = waiting.pop()
        for onward in flows:
            # Flows with unlike separators can prefix a name again and again: only its length ends that.
            if onward.source.alias != alias or len(name) > LONGEST_NAME or why_skipped(name, onward) is not None:
                continue
            arrived = (onward.target.alias, policy_for(onward).format_remote_topic(alias, name))
            if arrived == (flow.source.alias, topic):
                return onward.name
            if arrived not in reached:
                reached.add(arrived)
                waiting.append(arrived)
    return None


def _first_match(patterns: Sequence[str], topic: str) -> Optional[str]:
    return next((pattern for pattern in patterns if re.fullmatch(pattern, topic)), None)
