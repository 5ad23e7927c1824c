"""Decides which topics a flow copies, under which names, and how remote topics are created or grown. Pure.

`mirror plan` shows the `TopicPlan`; `mirror_lib.topics.remote_topics` carries it out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from mirror_lib.config.model import REFUSE, ReplicationFlow
from mirror_lib.errors import CustomClassError
from mirror_lib.facts import NewTopic, TopicConfigs, TopicDescription, TopicPartition, unreadable
from mirror_lib.text import counted, some
from mirror_lib.topics.filters import came_from, copied_back, may_be_wanted, name_fault, topic_filter_for, why_skipped
from mirror_lib.topics.policy import counts, policy_for, remote_topic, written_by_mirrors
from mirror_lib.topics.remote_configs import TIERED_CONFIGS, admission_configs, admission_notes, creation_configs


@dataclass(frozen=True)
class TopicFacts:
    """The facts of a plan, read at one moment. `source_configs` and `target_configs` have effective values by topic
    name, of the topics to copy and of existing remote topics; `None` where they may not be read. `target_config_keys`
    are the configs that the target supports, empty if unknown. `target_tiered` is False if the target refuses topics
    with tiered storage."""

    source_topics: Mapping[str, TopicDescription]
    target_topics: Mapping[str, TopicDescription]
    source_configs: Mapping[str, Optional[TopicConfigs]] = field(default_factory=dict)
    target_configs: Mapping[str, Optional[TopicConfigs]] = field(default_factory=dict)
    target_config_keys: FrozenSet[str] = frozenset()
    target_broker_count: int = 1
    target_tiered: bool = True


@dataclass(frozen=True)
class CopiedTopic:
    """A topic to copy into `remote_topic`, after creating it (`create`) or growing it to `grow_to` partitions.

    `partitions` is the source's count; `remote_topic_id` is `""` until the remote topic exists. `keyed_over`: the
    remote topic's count if keys choose partitions, which must not grow; else `None`. `heartbeats`: a topic of
    heartbeats. `counted`: it counts in lag, health, tables and metrics.
    """

    source: TopicDescription
    remote_topic: str
    remote_topic_id: str
    partitions: int
    create: Optional[NewTopic] = None
    grow_to: Optional[int] = None
    notes: Tuple[str, ...] = ()
    keyed_over: Optional[int] = None
    heartbeats: bool = False
    counted: bool = True

    @property
    def led(self) -> Sequence[int]:
        return [number for number in range(self.partitions) if number not in self.source.leaderless]

    @property
    def remote_partitions(self) -> int:
        return self.partitions if self.keyed_over is None else self.keyed_over


@dataclass(frozen=True)
class SkippedTopic:
    """A source topic that is not copied. `wanted`: the flow selects it, but cannot copy it now. `unnamed`: a custom
    class failed on its name."""

    name: str
    reason: str
    wanted: bool = False
    unnamed: bool = False


@dataclass(frozen=True)
class TopicPlan:
    """Every source topic once, `copied` or `skipped`, in the order of names. `dead_letters` is to be created."""

    copied: Tuple[CopiedTopic, ...]
    skipped: Tuple[SkippedTopic, ...]
    dead_letters: Optional[NewTopic] = None

    def sources(self) -> List[TopicPartition]:
        return sorted({(each.source.name, number) for each in self.copied for number in each.led})

    def leaderless(self) -> List[TopicPartition]:
        return sorted({(each.source.name, number) for each in self.copied for number in each.source.leaderless})

    @cached_property
    def uncounted(self) -> FrozenSet[str]:
        return frozenset(each.source.name for each in self.copied if not each.counted)

    @property
    def blocked(self) -> Tuple[SkippedTopic, ...]:
        return tuple(topic for topic in self.skipped if topic.wanted)


def select_topics(
    flow: ReplicationFlow, source_topics: Mapping[str, TopicDescription], flows: Sequence[ReplicationFlow] = ()
) -> Tuple[Mapping[str, str], Tuple[SkippedTopic, ...]]:
    """Decide by name: the remote name by source topic, and the skipped topics with their reasons. `flows` are all flows
    of the file, which are searched for loops of identity flows."""
    selected: Dict[str, str] = {}
    claimed: Dict[str, str] = {}
    skipped: List[SkippedTopic] = []
    for name in sorted(source_topics):
        try:
            unwanted = "internal topic" if source_topics[name].internal else why_skipped(name, flow)
            # A policy of the user's is not asked about topics that the flow has nothing to do with.
            remote = remote_topic(flow, name) if unwanted is None else ""
            back = copied_back(name, flow, flows) if unwanted is None else None
            lost = unwanted == came_from(flow.naming_alias) and not policy_for(flow).is_heartbeats_topic(name)
        except CustomClassError as error:
            wanted = may_be_wanted(name, flow)
            skipped.append(SkippedTopic(name, error.message, wanted=wanted, unnamed=wanted))
            continue
        if unwanted is not None:
            skipped.append(SkippedTopic(name, unwanted, wanted=lost))
        elif back is not None:
            skipped.append(SkippedTopic(name, f"{back} would bring the copy back as {name}: cycle", wanted=True))
        elif remote in claimed:
            reason = f"another source topic of this flow maps to the same remote topic: {claimed[remote]}"
            skipped.append(SkippedTopic(name, reason, wanted=True))
        else:
            claimed[remote] = name
            selected[name] = remote
    return selected, tuple(skipped)


def plan_topics(flow: ReplicationFlow, facts: TopicFacts, flows: Sequence[ReplicationFlow] = ()) -> TopicPlan:
    selected, unwanted = select_topics(flow, facts.source_topics, flows)
    copied: List[CopiedTopic] = []
    skipped = list(unwanted)
    taken = {_metric_name(name): name for name in facts.target_topics}
    for name, remote in selected.items():
        topic = facts.source_topics[name]
        blocked = _why_not_written(topic, remote, flow, facts, taken)
        if blocked is not None:
            skipped.append(SkippedTopic(name, blocked, wanted=True))
            continue
        try:
            copied.append(_copied(flow, topic, remote, facts, flows))
        except CustomClassError as error:
            skipped.append(SkippedTopic(name, error.message, wanted=True))
            continue
        taken.setdefault(_metric_name(remote), remote)
    by_name = tuple(sorted(skipped, key=lambda each: each.name))
    return TopicPlan(tuple(copied), by_name, _dead_letters(flow, copied, facts))


def missing_dead_letters(flow: ReplicationFlow, target_topics: Mapping[str, TopicDescription]) -> Optional[str]:
    name = None if flow.change is None else flow.change.dead_letter_topic
    return None if name in target_topics else name


def _dead_letters(flow: ReplicationFlow, copied: Sequence[CopiedTopic], facts: TopicFacts) -> Optional[NewTopic]:
    name = missing_dead_letters(flow, facts.target_topics)
    if name is None:
        return None
    partitions = max((each.partitions for each in copied), default=1)
    configs = admission_configs(flow, {}, facts.target_config_keys)
    return NewTopic(name, partitions, flow.replication_factor, dict(sorted(configs.items())))


def _metric_name(topic: str) -> str:
    return topic.replace(".", "_")


def _why_counts_differ(topic: TopicDescription, existing: TopicDescription, flow: ReplicationFlow) -> Optional[str]:
    if flow.counts_differ != REFUSE or flow.repartitions or existing.partitions == topic.partitions:
        return None
    more = "add the missing ones to the remote topic, or " if existing.partitions < topic.partitions else ""
    return (
        f"{topic.name} has {topic.partitions} partitions and {existing.name} {existing.partitions}, so a key may lie "
        f"elsewhere there; {more}copy it by a file of its own with partitioner: key"
    )


def _why_not_written(
    topic: TopicDescription, remote: str, flow: ReplicationFlow, facts: TopicFacts, taken: Mapping[str, str]
) -> Optional[str]:
    closed = why_closed(remote, flow, facts.target_topics)
    existing = facts.target_topics.get(remote)
    if closed is not None:
        return closed
    if existing is not None:
        return _why_counts_differ(topic, existing, flow)
    if facts.source_configs.get(topic.name, {}) is None:
        return (
            f"cannot create {remote}: not allowed to read the configs of {topic.name} on {flow.source.alias}; grant "
            "DescribeConfigs on the topic"
        )
    fault = name_fault(remote)
    if fault is not None:
        return fault
    neighbour = taken.get(_metric_name(remote))
    if neighbour not in (None, remote):
        return f"collides with existing topic {neighbour}: Kafka treats . and _ alike in metric names"
    if flow.replication_factor > facts.target_broker_count:
        brokers = counted(facts.target_broker_count, "broker")
        return (
            f"cannot create {remote} with replication.factor {flow.replication_factor}: {flow.target.alias} has "
            f"{brokers}; lower replication.factor, or set -1 for the broker's default"
        )
    return None


def why_closed(remote: str, flow: ReplicationFlow, target_topics: Mapping[str, TopicDescription]) -> Optional[str]:
    """The reason why the flow must not write to `remote`, by its present state or its name; `None` if it may."""
    if flow.change is not None and remote == flow.change.dead_letter_topic:
        return f"would be written into {remote}, the flow's dead letter topic"
    existing = target_topics.get(remote)
    if existing is None:
        return None
    wanted = None if flow.change is None else flow.change.partitioner
    if isinstance(wanted, int) and wanted != existing.partitions:
        return f"{remote} has {existing.partitions} partitions, and partitioner asks for {wanted}"
    # Only rename, or a policy of the user's, can name such a topic.
    return f"would be written into {remote}, an internal topic of {flow.target.alias}" if existing.internal else None


def _copied(
    flow: ReplicationFlow, topic: TopicDescription, remote: str, facts: TopicFacts, flows: Sequence[ReplicationFlow]
) -> CopiedTopic:
    name, existing = topic.name, facts.target_topics.get(remote)
    keyed_over = _keyed_over(flow, topic.partitions if existing is None else existing.partitions)
    create: Optional[NewTopic] = None
    if existing is None:
        count = topic.partitions if keyed_over is None else keyed_over
        create, notes = _new_topic(flow, topic, remote, count, facts)
    else:
        notes = _notes_on_existing(flow, topic, remote, facts)
    if topic.leaderless:
        places = some([f"{name}-{number}" for number in topic.leaderless])
        notes = [f"no leader: {places}; records there are copied when there is one", *notes]
    if topic_filter_for(flow).why_not(name) is not None:
        what = "a heartbeats topic: copied because of heartbeats.replication.enabled"
        notes = [f"{what}, also where the filter excludes it", *notes]
    grows = existing is not None and keyed_over is None and existing.partitions < topic.partitions
    return CopiedTopic(
        source=topic,
        remote_topic=remote,
        remote_topic_id="" if existing is None else existing.topic_id,
        partitions=topic.partitions,
        create=create,
        grow_to=topic.partitions if grows else None,
        notes=tuple(notes),
        keyed_over=keyed_over,
        heartbeats=written_by_mirrors(flow, name, flows),
        counted=counts(flow, name, flows),
    )


def _notes_on_existing(flow: ReplicationFlow, topic: TopicDescription, remote: str, facts: TopicFacts) -> List[str]:
    configs = facts.source_configs.get(topic.name, {}), facts.target_configs.get(remote, {})
    sides = ((flow.source.alias, topic.name), (flow.target.alias, remote))
    closed = [unreadable(alias, {name: each}) for (alias, name), each in zip(sides, configs)]
    return [*admission_notes(configs[0] or {}, configs[1] or {}), *(each for each in closed if each is not None)]


def _keyed_over(flow: ReplicationFlow, present: int) -> Optional[int]:
    """How many partitions the flow spreads keys over, of a remote topic that has, or would have, `present`."""
    if flow.change is None or not flow.repartitions:
        return None
    return present if isinstance(flow.change.partitioner, str) else flow.change.partitioner


def _new_topic(
    flow: ReplicationFlow, topic: TopicDescription, remote: str, partitions: int, facts: TopicFacts
) -> Tuple[NewTopic, List[str]]:
    entries, known = facts.source_configs.get(topic.name) or {}, facts.target_config_keys
    chosen, wanted = dict(flow.remote_topic_configs), creation_configs(flow, entries)
    local = () if facts.target_tiered else tuple(key for key in TIERED_CONFIGS if key in wanted and key not in chosen)
    wanted = {key: value for key, value in wanted.items() if key not in local}
    # What the file asks for by name is refused by the broker, if it does not know it.
    configs = {key: value for key, value in wanted.items() if not known or key in known or key in chosen}
    configs.update(admission_configs(flow, entries, known))
    notes = [f"{flow.target.alias} does not know the config {key}" for key in sorted(wanted.keys() - configs.keys())]
    if local:
        without = f"{flow.target.alias} has no tiered storage: created without {', '.join(local)}"
        notes.append(f"{without}, so the brokers' disks hold all that its retention keeps")
    return NewTopic(remote, partitions, flow.replication_factor, dict(sorted(configs.items()))), notes
