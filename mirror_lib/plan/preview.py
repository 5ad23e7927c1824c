"""Collects the plan of a flow from both clusters: topics, configs, ACLs, groups and MirrorMaker's internal topics.

Only reads. If a cluster refuses to show configs, ACLs or groups, the rest of the plan is still complete. Whether a
group would be translated is decided here; to which offset, `mirror groups plan` reads from the ledger.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Callable, ClassVar, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple, TypeVar

from mirror_lib.config.model import MirrorConfig, ReplicationFlow
from mirror_lib.config.record_change import CHANGE_KEYS, RECORDS, RecordChange
from mirror_lib.control.heartbeats import beating_pairs
from mirror_lib.control.topic_acls import AclChanges, acl_changes
from mirror_lib.control.topic_configs import KEEP, ConfigDecision, config_decisions
from mirror_lib.errors import EXIT_FAILED, EXIT_OK, ClusterError, CustomClassError, RefusedError
from mirror_lib.facts import AclBinding, CommittedOffset, ConsumerGroup, TopicDescription, TopicPartition, readable
from mirror_lib.groups.translation import REPARTITIONED, WAYS_OUT
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.status.facts import Problem
from mirror_lib.text import UNPRINTED, counted, size
from mirror_lib.topics.filters import group_filter_for
from mirror_lib.topics.matchless import matchless_groups, matchless_patterns
from mirror_lib.topics.plan import TopicFacts, TopicPlan, select_topics
from mirror_lib.topics.policy import checkpoints_topics, policy_for
from mirror_lib.topics.remote_topics import plan_and_facts

AT_LEAST_ONCE = "at least once"
COPIES_NOTHING = "copies nothing: copy.enabled is false"


@dataclass(frozen=True)
class EnginePlan:
    """`engine` as in its setting; `changes`: the settings that change records; `reason`: why not exactly once."""

    engine: str
    changes: Tuple[str, ...]
    delivery: str
    reason: str

    def line(self) -> str:
        """`engine: records (where, select), at least once: provenance is off`."""
        changes = f" ({', '.join(self.changes)})" if self.changes else ""
        why = f": {self.reason}" if self.reason else ""
        return f"engine: {self.engine}{changes}, {self.delivery}{why}"


def engine_plan(flow: ReplicationFlow, refused: Optional[str] = None) -> Optional[EnginePlan]:
    """`None` where record batches are copied as they are. `refused`: why a flow that changes records will not run."""
    change = flow.change
    if change is None:
        return None
    untouched = RecordChange()
    changes = tuple(key for key, name in CHANGE_KEYS.items() if getattr(change, name) != getattr(untouched, name))
    if refused is not None:
        return EnginePlan(RECORDS, changes, "will not run", refused)
    if not change.provenance:
        return EnginePlan(RECORDS, changes, AT_LEAST_ONCE, "provenance is off")
    exact = flow.delivery == "exactly-once"
    why = "" if exact else f"delivery is {flow.delivery}"
    return EnginePlan(RECORDS, changes, "exactly once" if exact else AT_LEAST_ONCE, why)


def terms(flow: ReplicationFlow, slots: Optional[int] = None, repeatable: bool = True) -> str:
    """The settings of the copy in one line. `slots` is how many tasks Spark runs at a time, where that is known.
    `repeatable`: whether the flow makes the same of the same records each time, without which it is at least once."""
    if not flow.copied:
        return COPIES_NOTHING
    rate = flow.max_bytes_per_second
    tasks = counted(flow.tasks_max, "task")
    parts = [
        tasks if slots is None else f"{tasks} on {counted(slots, 'slot')}",
        f"cycles of {flow.batch_max_seconds:g} s",
        "no rate limit" if rate is None else f"at most {size(rate)}/s",
        f"{flow.delivery if repeatable else 'at-least-once'}, {flow.isolation_level}",
    ]
    return " · ".join(parts)


TRANSLATED, LEFT_ALONE, SKIPPED = "translated", "left alone", "skipped"

Committed = Mapping[str, Mapping[TopicPartition, CommittedOffset]]


@dataclass(frozen=True)
class GroupFacts:
    """What is known about groups. The committed offsets and groups are only of groups that the filter takes.

    `selected` has the remote name of each topic that is copied.
    """

    names: Sequence[str]
    committed: Committed
    selected: Mapping[str, str]
    there: Mapping[str, ConsumerGroup]
    there_committed: Committed


@dataclass(frozen=True)
class GroupPlan:
    """One group of the source. `status` is `translated`, `left alone` (not committed on the target) or `skipped`.

    `reason` says why; of a translated group it is a condition, or `""`. `partitions`: the flow copies them, and the
    group committed their offset.
    """

    group: str
    status: str
    reason: str
    partitions: Tuple[TopicPartition, ...] = ()


def plan_groups(flow: ReplicationFlow, facts: GroupFacts) -> Tuple[GroupPlan, ...]:
    """May raise CustomClassError."""
    return tuple(_group_plan(flow, group, facts) for group in sorted(facts.names))


def _group_plan(flow: ReplicationFlow, group: str, facts: GroupFacts) -> GroupPlan:
    unwanted = group_filter_for(flow).why_not(group)
    if unwanted is not None:
        return GroupPlan(group, SKIPPED, unwanted)
    partitions = tuple(sorted(at for at in facts.committed.get(group, {}) if at[0] in facts.selected))
    if not partitions:
        return GroupPlan(group, SKIPPED, "no committed offset on a topic that is copied")
    if flow.repartitions:
        return GroupPlan(group, LEFT_ALONE, f"{REPARTITIONED}; {WAYS_OUT[REPARTITIONED]}", partitions)
    there = facts.there.get(group)
    if there is None or flow.sync_group_offsets_interval is None:
        return GroupPlan(group, TRANSLATED, "", partitions)
    if there.has_members:
        return GroupPlan(group, LEFT_ALONE, f"it has members on {flow.target.alias}", partitions)
    present = facts.there_committed.get(group, {})
    already_there = any((facts.selected[topic], number) in present for topic, number in partitions)
    # Only the state shows which client committed it, and reading that would need Spark.
    conditional = there.simple and already_there and flow.groups_simple == "exclude"
    return GroupPlan(group, TRANSLATED, _CONDITION.format(flow.target.alias) if conditional else "", partitions)


_CONDITION = "moved only where this mirror or MirrorMaker put it: it has offsets on {} and never had members there"


CREATE, EXISTS, OFF, UNSEEN = "create", "exists", "off", "not known"
RUN = "written by mirror run"
TRANSLATE = "written by mirror translate, not by mirror run"

Topics = Mapping[str, TopicDescription]


@dataclass(frozen=True)
class InternalTopicPlan:
    """One internal topic on the cluster `alias`. `action`: a run would `create` it, or it `exists`, is `off`, or `not
    known` of a cluster that was not asked. `reason` says why, or which component writes it."""

    kind: str
    topic: str
    alias: str
    action: str
    reason: str


def plan_internal_topics(
    flow: ReplicationFlow, source_topics: Topics, target_topics: Topics, pairs: Sequence[ReplicationFlow] = ()
) -> Tuple[InternalTopicPlan, ...]:
    """Checkpoints and heartbeats of `flow`; heartbeats of `pairs`, which its run also writes. May raise
    CustomClassError."""
    seen = {flow.source.alias: source_topics, flow.target.alias: target_topics}
    beats, own = flow.emit_heartbeats_interval is not None, (policy_for(flow).heartbeats_topic(), flow.target.alias)
    translating = f"{RUN} and mirror translate" if flow.translates_in_run else TRANSLATE
    checkpoints = "" if flow.emit_checkpoints_interval is None else translating
    names: Dict[Tuple[str, str], List[str]] = {}
    for pair in pairs:
        place = policy_for(pair).heartbeats_topic(), pair.target.alias
        if not (beats and place == own):
            names.setdefault(place, []).append(pair.name)
    rows = [
        ("checkpoints", checkpoints_topics(flow)[0], flow.target.alias, checkpoints),
        ("heartbeats", *own, RUN if beats else ""),
        *(("heartbeats", *place, f"{RUN} for {', '.join(written)}") for place, written in names.items()),
    ]
    return tuple(_internal_topic(seen.get(alias), kind, topic, alias, writers) for kind, topic, alias, writers in rows)


def _internal_topic(
    there: Optional[Topics], kind: str, topic: str, alias: str, writers: str
) -> InternalTopicPlan:
    """`there`: the topics of the cluster, `None` if it was not asked. Without `writers` it is switched off."""
    plan = partial(InternalTopicPlan, kind, topic, alias)
    if not writers:
        return plan(OFF, f"emit.{kind}.enabled is false")
    if there is None:
        return plan(UNSEEN, f"{writers}; created if it is missing, as {alias} was not asked")
    if topic in there:
        return plan(EXISTS, writers)
    return plan(OFF if writers == TRANSLATE else CREATE, writers)


CONFIGS, ACLS, GROUPS, INTERNAL = "configs", "acls", "groups", "internal topics"
NOT_KNOWN = "not known"  # begins what is said of a part that cannot be read

Decided = TypeVar("Decided")
# Config decisions by remote topic.
Configs = Mapping[str, Tuple[ConfigDecision, ...]]


@dataclass(frozen=True)
class FlowPreview:
    """What a run of `flow` would find and do. If a part is `None`, `silent` says why, by the part's name.

    `warning`: what the target does not guarantee; `refusal`: why the run would end before it copies; `problems`: as in
    `mirror status`, about topics.
    """

    DERIVED: ClassVar[Sequence[str]] = ("code", "exit_code", "copying", "changes", "matchless", "matchless_groups")

    flow: ReplicationFlow
    facts: TopicFacts = field(metadata=UNPRINTED)
    topics: TopicPlan
    configs: Optional[Configs]
    acls: Optional[AclChanges]
    groups: Optional[Tuple[GroupPlan, ...]]
    internal: Optional[Tuple[InternalTopicPlan, ...]]
    silent: Mapping[str, str]
    engine: Optional[EnginePlan] = None
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
    def copying(self) -> str:
        """The settings of the copy: tasks, cycle length, limits."""
        return terms(self.flow, repeatable=self.engine is None or self.engine.delivery != AT_LEAST_ONCE)

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
            "internal topics created": sum(each.action == CREATE for each in self.internal or ()),
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
    made_acls: FrozenSet[AclBinding] = frozenset(),
    engine: Optional[EnginePlan] = None,
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
            silent[name] = f"{NOT_KNOWN}: {error}"
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
    made: FrozenSet[AclBinding],
    source: KafkaCluster,
    target: KafkaCluster,
) -> AclChanges:
    if flow.sync_topic_acls_interval is None:
        raise _Silent("off: sync.topic.acls.enabled is false")
    ours, theirs = source.topic_acls(), target.topic_acls()
    if ours is None or theirs is None:
        raise _Silent(f"none: {flow.source.alias if ours is None else flow.target.alias} has no authorizer")
    # By name, as the sync has it: rights may be there before their topics are.
    selected, skipped = select_topics(flow, facts.source_topics, flows)
    unnamed = any(each.unnamed for each in skipped)
    return acl_changes(flow, ours, theirs, selected, made, flows, facts.target_topics, unnamed)


def _groups(
    flow: ReplicationFlow, plan: TopicPlan, source: KafkaCluster, target: KafkaCluster
) -> Tuple[GroupPlan, ...]:
    if not flow.translates:
        raise _Silent("off: sync.group.offsets.enabled and emit.checkpoints.enabled are false")
    selected = {each.source.name: each.remote_topic for each in plan.copied}
    names, chosen = source.group_names(), group_filter_for(flow)
    taken = [name for name in names if chosen.why_not(name) is None]
    committed = source.committed_offsets(taken)
    going = [name for name in taken if any(topic in selected for topic, _ in committed.get(name, {}))]
    is_committing = flow.sync_group_offsets_interval is not None
    # To ask for a group that it does not have could make a cluster create `__consumer_offsets`.
    listed = set(target.group_names()) if is_committing and going else set()
    there = [name for name in going if name in listed]
    found = GroupFacts(names, committed, selected, target.describe_groups(there), target.committed_offsets(there))
    return plan_groups(flow, found)
