"""Collects the plan of a flow from both clusters: topics, configs, ACLs, groups and MirrorMaker's internal topics.

Only reads. If a cluster refuses to show configs, ACLs or groups, the rest of the plan is still complete.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, ClassVar, Collection, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple, TypeVar

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.config.record_change import CHANGE_KEYS, RECORDS, RecordChange
from mirror_lib.control.heartbeats import beating_pairs
from mirror_lib.control.topic_acls import AclChanges, acl_changes
from mirror_lib.control.topic_configs import KEEP, ConfigDecision, config_decisions
from mirror_lib.errors import (
    EXIT_FAILED,
    EXIT_OK,
    ClusterError,
    ConfigError,
    CustomClassError,
    RefusedError,
    StateError,
)
from mirror_lib.facts import AclBinding, TopicDescription, TopicPartition, readable
from mirror_lib.groups.translation import REPARTITIONED, WAYS_OUT
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.status.facts import Problem
from mirror_lib.text import UNPRINTED, counted, size
from mirror_lib.topics.filters import group_filter_for
from mirror_lib.topics.matchless import matchless_groups, matchless_patterns
from mirror_lib.topics.plan import TopicFacts, TopicPlan, select_topics
from mirror_lib.topics.policy import checkpoints_topics, policy_for
from mirror_lib.topics.remote_topics import plan_and_facts

COPIES_NOTHING = "copies nothing: copy.enabled is false"


def terms(flow: ReplicationFlow, slots: Optional[int] = None) -> str:
    """The settings of the copy in one line. `slots` is how many tasks Spark runs at a time, where that is known."""
    if not flow.copied:
        return COPIES_NOTHING
    rate = flow.max_bytes_per_second
    has_origins = flow.change is None or flow.change.provenance
    tasks = counted(flow.tasks_max, "task")
    parts = [
        tasks if slots is None else f"{tasks} on {counted(slots, 'slot')}",
        f"cycles of {flow.batch_max_seconds:g} s",
        "no rate limit" if rate is None else f"at most {size(rate)}/s",
        f"{flow.delivery if has_origins else 'at-least-once'}, {flow.isolation_level}",
    ]
    return " · ".join(parts)


@dataclass(frozen=True)
class GroupPlan:
    """One group of the source: `translated`, or `skipped` with a `reason`. `partitions`: the flow copies them, and the
    group committed their offset."""

    DERIVED: ClassVar[Sequence[str]] = ("status",)

    group: str
    reason: str = ""
    partitions: Tuple[TopicPartition, ...] = ()

    @property
    def status(self) -> str:
        return "skipped" if self.reason else "translated"


def plan_group(
    flow: ReplicationFlow, group: str, committed: Collection[TopicPartition] = (), selected: Collection[str] = ()
) -> GroupPlan:
    """`committed`: the partitions with an offset of the group, `selected`: the topics that are copied. May raise
    CustomClassError."""
    unwanted = group_filter_for(flow).why_not(group)
    if unwanted is not None:
        return GroupPlan(group, unwanted)
    partitions = tuple(sorted(at for at in committed if at[0] in selected))
    if not partitions:
        return GroupPlan(group, "no committed offset on a topic that is copied")
    return GroupPlan(group, f"{REPARTITIONED}; {WAYS_OUT[REPARTITIONED]}" if flow.repartitions else "", partitions)


Topics = Mapping[str, TopicDescription]


@dataclass(frozen=True)
class InternalTopicPlan:
    """A topic of checkpoints or heartbeats (`kind`) on the cluster `alias` that a run writes for `flows`. `exists`:
    `None` of a cluster that was not asked."""

    kind: str
    topic: str
    alias: str
    exists: Optional[bool]
    flows: Tuple[str, ...]


def internal_topics(
    flow: ReplicationFlow, source_topics: Topics, target_topics: Topics, pairs: Sequence[ReplicationFlow] = ()
) -> Tuple[InternalTopicPlan, ...]:
    """Checkpoints and heartbeats of `flow`; heartbeats of `pairs`, which its run also writes. May raise
    CustomClassError."""
    seen = {flow.source.alias: source_topics, flow.target.alias: target_topics}
    writers: Dict[Tuple[str, str, str], List[str]] = {}
    if flow.emit_checkpoints_interval is not None and flow.translates_in_run:
        writers["checkpoints", checkpoints_topics(flow)[0], flow.target.alias] = [flow.name]
    for each in (*([] if flow.emit_heartbeats_interval is None else [flow]), *pairs):
        place = ("heartbeats", policy_for(each).heartbeats_topic(), each.target.alias)
        writers.setdefault(place, []).append(each.name)
    return tuple(
        InternalTopicPlan(kind, topic, alias, topic in seen[alias] if alias in seen else None, tuple(names))
        for (kind, topic, alias), names in writers.items()
    )


CONFIGS, ACLS, GROUPS, INTERNAL = "configs", "acls", "groups", "internal topics"
ACLS_TO_DELETE = "acls to delete"
NOT_KNOWN = "not known"  # begins what is said of a part that cannot be read

Decided = TypeVar("Decided")
# Config decisions by remote topic.
Configs = Mapping[str, Tuple[ConfigDecision, ...]]


@dataclass(frozen=True)
class FlowPreview:
    """What a run of `flow` would find and do. If a part is `None`, `silent` says why, by the part's name.
    `acls to delete` is in it if the table `topic_acls` cannot be read here: none are planned then.

    `warning`: what the target does not guarantee or is not known; `refusal`: why the run would end before it copies;
    `problems`: as in `mirror status`, about topics.
    """

    DERIVED: ClassVar[Sequence[str]] = (
        *("code", "exit_code", "engine", "copying", "changes", "matchless", "matchless_groups"),
    )

    flow: ReplicationFlow
    facts: TopicFacts = field(metadata=UNPRINTED)
    topics: TopicPlan
    configs: Optional[Configs]
    acls: Optional[AclChanges]
    groups: Optional[Tuple[GroupPlan, ...]]
    internal: Optional[Tuple[InternalTopicPlan, ...]]
    silent: Mapping[str, str]
    warning: str = ""
    refusal: Optional[RefusedError] = None
    problems: Tuple[Problem, ...] = ()
    waiting: Tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        if self.refusal is not None:
            return self.refusal.exit_code
        return EXIT_FAILED if self.topics.blocked else EXIT_OK

    @property
    def code(self) -> Optional[str]:
        return None if self.refusal is None else self.refusal.code

    @property
    def engine(self) -> str:
        """`records`, with the keys that change records; empty where record batches are copied as they are."""
        change, untouched = self.flow.change, RecordChange()
        if change is None:
            return ""
        keys = [key for key, name in CHANGE_KEYS.items() if getattr(change, name) != getattr(untouched, name)]
        return RECORDS + (f" ({', '.join(keys)})" if keys else "")

    @property
    def copying(self) -> str:
        """The settings of the copy: tasks, cycle length, limits."""
        return terms(self.flow)

    @property
    def changes(self) -> Dict[str, int]:
        """How many topics, configs, ACLs and internal topics a run would change, by what it does; without zeros."""
        decided = [each for found in (self.configs or {}).values() for each in found if each.action != KEEP]
        numbers = {
            "topics created": sum(each.create is not None for each in self.topics.copied)
            + (self.topics.dead_letters is not None),
            "topics grown": sum(each.grow_to is not None for each in self.topics.copied),
            "configs changed": len(decided),
            "ACLs created": 0 if self.acls is None else len(self.acls.create),
            "ACLs deleted": 0 if self.acls is None else len(self.acls.delete),
            "internal topics created": sum(each.exists is False for each in self.internal or ()),
        }
        return {what: count for what, count in numbers.items() if count}

    @property
    def matchless(self) -> List[str]:
        """The names and patterns of `topics` that match no topic of the source."""
        return matchless_patterns(self.flow, self.facts.source_topics)

    @property
    def matchless_groups(self) -> List[str]:
        """Empty where the groups of the source are unknown."""
        return [] if self.groups is None else matchless_groups(self.flow, [each.group for each in self.groups])


class _Silent(Exception):
    """A part that has nothing to say, and why."""


def preview(
    flow: ReplicationFlow,
    source: KafkaCluster,
    target: KafkaCluster,
    config: Optional[MirrorConfig] = None,
    made_acls: Callable[[], FrozenSet[AclBinding]] = frozenset,
) -> FlowPreview:
    """Read both clusters and decide. `config` is the flow's file, `made_acls` reads the ACLs that the flow created.

    Raises ClusterError where the topics cannot be read, RefusedError where the flow would copy onto itself.
    """
    flows, pairs = ((), []) if config is None else (config.flows, beating_pairs(config, [flow]))
    plan, facts = plan_and_facts(flow, source, target, flows)
    silent: Dict[str, str] = {}

    def part(name: str, decide: Callable[[], Decided]) -> Optional[Decided]:
        try:
            return decide()
        except _Silent as why:
            silent[name] = str(why)
        except (ClusterError, CustomClassError, ConfigError, StateError) as error:
            silent[name] = f"{NOT_KNOWN}: {error}"
        return None

    topics = (facts.source_topics, facts.target_topics)
    return FlowPreview(
        flow=flow,
        facts=facts,
        topics=plan if flow.copied else TopicPlan((), ()),
        configs=part(CONFIGS, lambda: _configs(flow, plan, source, target)),
        acls=part(ACLS, lambda: _acls(flow, flows, facts, made_acls, source, target, silent)),
        groups=part(GROUPS, lambda: _groups(flow, plan, source)),
        internal=part(INTERNAL, lambda: internal_topics(flow, *topics, pairs)),
        silent=silent,
    )


def _configs(flow: ReplicationFlow, plan: TopicPlan, source: KafkaCluster, target: KafkaCluster) -> Configs:
    if flow.sync_topic_configs_interval is None:
        raise _Silent("off: sync.topic.configs.enabled is false")
    existing = {each.remote_topic: each.source.name for each in plan.copied if each.create is None}
    ours = readable(source.topic_configs(sorted(existing.values())))
    theirs = readable(target.topic_configs(sorted(existing)))
    return {
        remote: config_decisions(flow, ours[name], theirs[remote])
        for remote, name in sorted(existing.items())
        if name in ours and remote in theirs
    }


def _acls(
    flow: ReplicationFlow,
    flows: Sequence[ReplicationFlow],
    facts: TopicFacts,
    made: Callable[[], FrozenSet[AclBinding]],
    source: KafkaCluster,
    target: KafkaCluster,
    silent: Dict[str, str],
) -> AclChanges:
    if flow.sync_topic_acls_interval is None:
        raise _Silent("off: sync.topic.acls.enabled is false")
    ours, theirs = source.topic_acls(), target.topic_acls()
    if ours is None or theirs is None:
        raise _Silent(f"none: {flow.source.alias if ours is None else flow.target.alias} has no authorizer")
    # By name, as the sync has it: rights may be there before their topics are.
    selected, skipped = select_topics(flow, facts.source_topics, flows)
    unnamed = any(each.unnamed for each in skipped)
    own: FrozenSet[AclBinding] = frozenset()
    try:
        own = made() if flow.sync_topic_acls_delete else own
    except (ConfigError, StateError) as error:
        silent[ACLS_TO_DELETE] = f"{NOT_KNOWN}: {error}"
    return acl_changes(flow, ours, theirs, selected, own, flows, facts.target_topics, unnamed)


def _groups(flow: ReplicationFlow, plan: TopicPlan, source: KafkaCluster) -> Tuple[GroupPlan, ...]:
    if not flow.translates:
        raise _Silent("off: sync.group.offsets.enabled and emit.checkpoints.enabled are false")
    selected = {each.source.name for each in plan.copied}
    names, chosen = source.group_names(), group_filter_for(flow)
    committed = source.committed_offsets([name for name in names if chosen.why_not(name) is None])
    return tuple(plan_group(flow, name, committed.get(name, {}), selected) for name in sorted(names))
