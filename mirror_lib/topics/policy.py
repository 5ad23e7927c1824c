"""Names remote topics as MirrorMaker 2's replication policies do, and reads the source out of a name. Pure.

A custom policy class of the user has the methods of `DefaultReplicationPolicy`. `None` as a source or upstream topic:
the topic is local.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterable, Iterator, Optional, Set, Tuple, cast

from mirror_lib.config.custom_classes import METHODS, POLICY_KEY, CustomClass, custom_class
from mirror_lib.config.model import IDENTITY_POLICY, MM1_POLICY, ReplicationFlow
from mirror_lib.config.values import is_entry_point

HEARTBEATS = "heartbeats"
# What MM2 put between the parts of an internal name before 3.1, whatever the separator of remote topics was.
OLD_INTERNAL_SEPARATOR = "."
# What brokers write themselves. A user's `__debezium-heartbeat.shop` is not among them.
OF_BROKERS = ("__consumer_offsets", "__transaction_state", "__share_group_state", "__remote_log_metadata")


def remote_topic(flow: ReplicationFlow, topic: str) -> str:
    renamed = None if flow.change is None else flow.change.renamed(topic)
    return renamed or policy_for(flow).format_remote_topic(flow.naming_alias, topic)


def counts(flow: ReplicationFlow, topic: str, flows: Iterable[ReplicationFlow]) -> bool:
    """Whether a copied source topic counts in lag, health, tables and metrics: every topic that `topics` lists by name,
    and every other one but heartbeats, which mirrors write each second. Raises `CustomClassError`."""
    return topic in flow.topics or not written_by_mirrors(flow, topic, flows)


def written_by_mirrors(flow: ReplicationFlow, topic: str, flows: Iterable[ReplicationFlow]) -> bool:
    """Whether a source topic has heartbeats. A name such as `plant.heartbeats` is theirs only if `plant` is a cluster
    of `flows`, which are all of the file: else an application may write it. Raises `CustomClassError`."""
    policy = policy_for(flow)
    clusters = {alias for each in (flow, *flows) for alias in (each.naming_alias, each.target.alias)}
    return policy.is_heartbeats_topic(topic) and clusters.issuperset(copied_through(policy, topic))


@dataclass(frozen=True)
class DefaultReplicationPolicy:
    """Remote topics carry the source's alias: `orders` of A is `A.orders` on B.

    As in MM2 a local topic whose name has the separator in it is taken for a copy: `B.orders` on A came from B.
    """

    separator: str = "."
    internal_separator: str = "."

    def format_remote_topic(self, alias: str, topic: str) -> str:
        """The name on the target of `topic` from the cluster `alias`."""
        return alias + self.separator + topic

    def topic_source(self, topic: str) -> Optional[str]:
        """The alias of the cluster that `topic` was copied from: what stands before the first separator. `None` where
        nothing else follows (`a.` is a local topic), and where no separator tells an alias from a topic."""
        if not self.separator:
            return None
        head, _, rest = topic.partition(self.separator)
        return head if rest.replace(self.separator, "") else None

    def upstream_topic(self, topic: str) -> Optional[str]:
        """The name that `topic` has on the cluster it was copied from."""
        source = self.topic_source(topic)
        return None if source is None else topic[len(source) + len(self.separator):]

    def original_topic(self, topic: str) -> str:
        """The name that `topic` has where it was first written, without any alias: walks upstream until the name is
        local or changes no more."""
        upstream = self.upstream_topic(topic)
        return topic if upstream is None or upstream == topic else self.original_topic(upstream)

    def heartbeats_topic(self) -> str:
        """The name of the local heartbeats topic."""
        return HEARTBEATS

    def checkpoints_topic(self, alias: str) -> str:
        """The topic, on the target, that holds checkpoints of groups of `alias`."""
        return f"{alias}{self.internal_separator}checkpoints{self.internal_separator}internal"

    def offset_syncs_topic(self, alias: str) -> str:
        """The topic that holds MM2's offset syncs; `alias` is the cluster that it does not lie on."""
        return f"mm2-offset-syncs{self.internal_separator}{alias}{self.internal_separator}internal"

    def is_heartbeats_topic(self, topic: str) -> bool:
        """Whether `topic` is a heartbeats topic or a copy of one."""
        return self.original_topic(topic) == HEARTBEATS

    def is_mm2_internal_topic(self, topic: str) -> bool:
        """KIP-1074's rule: `mm2*.internal` or a checkpoints topic. A user's `orders.internal` is not.

        Names of other versions and settings of MM2 count as well, since its topics stay when these change.
        """
        known = dict.fromkeys((self.internal_separator, self.separator, OLD_INTERNAL_SEPARATOR))
        suffixes = [each + "internal" for each in (*known, "-")]
        is_mm2_state = topic.startswith("mm2") and topic.endswith(tuple(suffixes))
        return is_mm2_state or topic.endswith(tuple(f"{each}checkpoints{each}internal" for each in known))

    def is_internal_topic(self, topic: str) -> bool:
        """Whether `topic` is never copied, whatever the filter says."""
        return topic.startswith(("__", ".")) or self.is_mm2_internal_topic(topic)

    def is_cycle(self, topic: str, source_alias: str, target_alias: str) -> bool:
        """Whether either alias is among the clusters that `topic` was copied through (KAFKA-9914)."""
        return not {source_alias, target_alias}.isdisjoint(copied_through(self, topic))


@dataclass(frozen=True)
class IdentityReplicationPolicy(DefaultReplicationPolicy):
    """Remote topics keep their names, except heartbeats, which stay prefixed.

    Heartbeats topics are exactly `heartbeats` and `<alias><separator>heartbeats`, the latter repeatedly. MM2 takes
    every name that ends so, and renames a user's `device-heartbeats`. An identity copy's name does not say
    where it came from, so this policy sees no cycles of ordinary topics: `copied_back` does, within one file.
    """

    source_alias: str = ""

    def format_remote_topic(self, alias: str, topic: str) -> str:
        return super().format_remote_topic(alias, topic) if self._looks_like_heartbeats(topic) else topic

    def topic_source(self, topic: str) -> Optional[str]:
        """The flow's source: every topic may have come from there."""
        return super().topic_source(topic) if self._looks_like_heartbeats(topic) else self.source_alias

    def upstream_topic(self, topic: str) -> Optional[str]:
        return super().upstream_topic(topic) if self._looks_like_heartbeats(topic) else topic

    def is_cycle(self, topic: str, source_alias: str, target_alias: str) -> bool:
        """Heartbeats only: copies of them that went through the target."""
        return self._looks_like_heartbeats(topic) and target_alias in copied_through(self, topic)

    def _looks_like_heartbeats(self, topic: str) -> bool:
        return topic == HEARTBEATS or (self.separator != "" and topic.endswith(self.separator + HEARTBEATS))


@dataclass(frozen=True)
class MirrorMaker1Policy(IdentityReplicationPolicy):
    """Every topic keeps its name, and only Kafka's own are internal: MirrorMaker 1 knew nothing of MirrorMaker 2's."""

    def is_heartbeats_topic(self, topic: str) -> bool:
        return False

    def is_mm2_internal_topic(self, topic: str) -> bool:
        return False

    def is_internal_topic(self, topic: str) -> bool:
        return topic in OF_BROKERS

    def _looks_like_heartbeats(self, topic: str) -> bool:
        return False


def _custom_policy(custom: CustomClass) -> DefaultReplicationPolicy:
    """A user's policy. Each method raises CustomClassError where the class does not answer properly. Kafka's own topics
    are internal, whatever it says."""
    asked: Dict[str, Callable[..., Any]] = {name: partial(custom.ask, name) for name in METHODS[POLICY_KEY]}
    is_internal = asked.pop("is_internal_topic")
    return cast(
        DefaultReplicationPolicy,
        SimpleNamespace(**asked, is_internal_topic=lambda topic: topic.startswith("__") or is_internal(topic)),
    )


def copied_through(policy: DefaultReplicationPolicy, topic: str) -> Iterator[str]:
    """The clusters that `topic` was copied through by its name, the last first."""
    seen: Set[Optional[str]] = {None}
    upstream: Optional[str] = topic
    # A policy may call every topic its own copy, so a name that was met before ends the walk.
    while upstream is not None and upstream not in seen:
        seen.add(upstream)
        source, upstream = policy.topic_source(upstream), policy.upstream_topic(upstream)
        if source is not None:
            yield source


_KEEPING = {IDENTITY_POLICY: IdentityReplicationPolicy, MM1_POLICY: MirrorMaker1Policy}


def policy_for(flow: ReplicationFlow) -> DefaultReplicationPolicy:
    if is_entry_point(flow.replication_policy):
        return _custom_policy(custom_class(flow, POLICY_KEY))
    named = _KEEPING.get(flow.replication_policy)
    if named is not None:
        return named(flow.separator, flow.internal_separator, flow.source.alias)
    return DefaultReplicationPolicy(flow.separator, flow.internal_separator)


def checkpoints_topics(flow: ReplicationFlow) -> Tuple[str, ...]:
    """Where checkpoints of the flow's source may lie on its target: as `flow` names them, then as other versions did.

    Before 3.1 MM2 put a `.` there always, and since then the separator by default (KIP-949).
    """
    return _spellings(flow, lambda policy: policy.checkpoints_topic(flow.naming_alias))


def offset_syncs_topics(flow: ReplicationFlow, alias: str) -> Tuple[str, ...]:
    """The same for MM2's offset syncs; `alias` is the cluster that they do not lie on."""
    return _spellings(flow, lambda policy: policy.offset_syncs_topic(alias))


def _spellings(flow: ReplicationFlow, name: Callable[[DefaultReplicationPolicy], str]) -> Tuple[str, ...]:
    separators = (flow.internal_separator, OLD_INTERNAL_SEPARATOR, flow.separator)
    policies = [policy_for(flow), *(DefaultReplicationPolicy("", each) for each in separators)]
    return tuple(dict.fromkeys(map(name, policies)))
