"""A flow and both its clusters in, a `FlowPreview` out: what a run would change, and what it leaves and why.

Only reads. A cluster that keeps configs, ACLs or groups to itself does not hide the rest of the plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Dict, FrozenSet, List, Mapping, Optional, Protocol, Sequence, Tuple, TypeVar

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.control.heartbeats import beating_pairs
from mirror_lib.control.sync import NOT_ONE_TO_ONE
from mirror_lib.control.topic_acls import AclChanges, acl_changes
from mirror_lib.control.topic_configs import ConfigDecision, config_decisions
from mirror_lib.errors import ClusterError, CustomClassError, RefusedError
from mirror_lib.facts import AclBinding, AclCluster, Cluster, GroupCluster
from mirror_lib.plan.engine import EngineNote
from mirror_lib.plan.groups import GroupFacts, GroupPlan, plan_groups
from mirror_lib.plan.internal_topics import InternalTopicPlan, plan_internal_topics
from mirror_lib.topics.filters import group_filter_for
from mirror_lib.topics.plan import TopicFacts, TopicPlan, select_topics
from mirror_lib.topics.remote_topics import plan_and_facts
from mirror_lib.topics.selection import matchless_patterns

CONFIGS, ACLS, GROUPS, INTERNAL = "configs", "acls", "groups", "internal topics"

Decided = TypeVar("Decided")
# Config decisions by remote topic.
Configs = Mapping[str, Tuple[ConfigDecision, ...]]


class PreviewedCluster(Cluster, GroupCluster, AclCluster, Protocol):
    """A cluster that tells of topics, groups and ACLs."""


@dataclass(frozen=True)
class FlowPreview:
    """What a run of `flow` would find and do. Where a part is `None`, `silent` says why, by the part's name.

    `warning` says what the target does not guarantee, `refusal` why the run would end before it copies.
    """

    flow: ReplicationFlow
    facts: TopicFacts
    topics: TopicPlan
    configs: Optional[Configs]
    acls: Optional[AclChanges]
    groups: Optional[Tuple[GroupPlan, ...]]
    internal: Optional[Tuple[InternalTopicPlan, ...]]
    silent: Mapping[str, str]
    engine: Optional[EngineNote] = None
    warning: str = ""
    refusal: Optional[RefusedError] = None


def matchless(preview: FlowPreview) -> List[str]:
    """The names and patterns of `topics` that match no topic of the source: perhaps misspelt."""
    return matchless_patterns(preview.flow, preview.facts.source_topics)


class _Silent(Exception):
    """A part that has nothing to say, and why."""


def preview(
    flow: ReplicationFlow,
    source: PreviewedCluster,
    target: PreviewedCluster,
    config: Optional[MirrorConfig] = None,
    made_acls: FrozenSet[AclBinding] = frozenset(),
    engine: Optional[EngineNote] = None,
) -> FlowPreview:
    """Read both clusters and decide. `config` is the flow's file, `made_acls` what the flow created and may delete,
    `engine` what Spark said of a flow that changes records.

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
        except (ClusterError, CustomClassError) as error:
            silent[name] = f"not known: {error}"
        return None

    topics = (facts.source_topics, facts.target_topics)
    return FlowPreview(
        flow=flow,
        facts=facts,
        topics=plan if flow.copied else TopicPlan((), ()),
        configs=part(CONFIGS, lambda: _configs(flow, plan, source, target)),
        acls=part(ACLS, lambda: _acls(flow, flows, facts, made_acls, source, target)),
        groups=part(GROUPS, lambda: _groups(flow, plan, source, target)),
        internal=part(INTERNAL, lambda: plan_internal_topics(flow, *topics, pairs)),
        silent=silent,
        engine=engine,
    )


def _configs(flow: ReplicationFlow, plan: TopicPlan, source: Cluster, target: Cluster) -> Configs:
    if flow.sync_topic_configs_interval is None:
        raise _Silent("off: sync.topic.configs.enabled is false")
    existing = {each.remote_topic: each.source.name for each in reversed(plan.copied) if each.create is None}
    ours = source.topic_configs(sorted(set(existing.values())))
    theirs = target.topic_configs(sorted(existing))
    return {
        remote: config_decisions(flow, ours[name], theirs[remote])
        for remote, name in sorted(existing.items())
        if name in ours and remote in theirs
    }


def _acls(
    flow: ReplicationFlow,
    flows: Sequence[ReplicationFlow],
    facts: TopicFacts,
    made: FrozenSet[AclBinding],
    source: AclCluster,
    target: AclCluster,
) -> AclChanges:
    if flow.sync_topic_acls_interval is None:
        raise _Silent("off: sync.topic.acls.enabled is false")
    if not flow.one_to_one:
        raise _Silent(NOT_ONE_TO_ONE)
    ours, theirs = source.topic_acls(), target.topic_acls()
    if ours is None or theirs is None:
        raise _Silent(f"none: {flow.source.alias if ours is None else flow.target.alias} has no authorizer")
    # By name, as the sync has it: rights may be there before their topics are.
    selected, skipped = select_topics(flow, facts.source_topics, flows)
    unnamed = any(each.unnamed for each in skipped)
    return acl_changes(flow, ours, theirs, selected, made, flows, facts.target_topics, unnamed)


def _groups(
    flow: ReplicationFlow, plan: TopicPlan, source: GroupCluster, target: GroupCluster
) -> Tuple[GroupPlan, ...]:
    if not flow.translates:
        raise _Silent("off: sync.group.offsets.enabled and emit.checkpoints.enabled are false")
    selected = {each.source.name: each.remote_topic for each in plan.copied}
    names, chosen = source.group_names(), group_filter_for(flow)
    taken = [name for name in names if chosen.why_not(name) is None]
    committed = source.committed_offsets(taken)
    going = [name for name in taken if any(topic in selected for topic, _ in committed.get(name, {}))]
    is_committing = flow.sync_group_offsets_interval is not None
    existing = existing_groups(target, going) if is_committing else []
    return plan_groups(
        flow,
        GroupFacts(
            names, committed, selected, target.describe_groups(existing), target.committed_offsets(existing)
        ),
    )


def existing_groups(cluster: GroupCluster, groups: Sequence[str]) -> Sequence[str]:
    """Those of `groups` that `cluster` has.

    To ask for a group that it does not have could make a cluster create `__consumer_offsets`.
    """
    listed = set(cluster.group_names()) if groups else set()
    return [group for group in groups if group in listed]
