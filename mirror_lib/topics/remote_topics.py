"""Plans the topics of two clusters and carries the plan out: creates and grows remote topics and sets their configs."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.errors import RefusedError
from mirror_lib.facts import NewTopic, TopicDescription, readable, unreadable
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.topics.plan import (
    CopiedTopic,
    SkippedTopic,
    TopicFacts,
    TopicPlan,
    missing_dead_letters,
    plan_topics,
    select_topics,
)
from mirror_lib.topics.remote_configs import ADMISSION_CONFIGS, REMOTE_STORAGE, is_tiered

log = logging.getLogger(__name__)

VISIBLE_SECONDS = 10.0


def plan_flow(
    flow: ReplicationFlow, source: KafkaCluster, target: KafkaCluster, flows: Sequence[ReplicationFlow] = ()
) -> TopicPlan:
    """Read both clusters and plan `flow`; changes nothing. `flows` are all flows of the file, to find loops in.

    Raises ClusterError where a cluster cannot be read, RefusedError where a flow would copy a topic onto itself.
    """
    return plan_and_facts(flow, source, target, flows)[0]


def plan_and_facts(
    flow: ReplicationFlow, source: KafkaCluster, target: KafkaCluster, flows: Sequence[ReplicationFlow] = ()
) -> Tuple[TopicPlan, TopicFacts]:
    facts = _read_facts(flow, source, target, flows)
    plan = plan_topics(flow, facts, flows)
    same_name = next((each.remote_topic for each in plan.copied if each.remote_topic == each.source.name), None)
    if same_name is not None and source.cluster_id() == target.cluster_id():
        raise RefusedError(
            f"{flow.name}: both are the same cluster, and {flow.replication_policy} would copy {same_name} onto itself",
            hint="check bootstrap.servers of both clusters",
            code="MIR-303",
        )
    return plan, facts


def _read_facts(
    flow: ReplicationFlow, source: KafkaCluster, target: KafkaCluster, flows: Sequence[ReplicationFlow] = ()
) -> TopicFacts:
    """Everything a plan is made from. Full configs are read only of topics whose remote topic has to be created."""
    source_topics, target_topics = source.topics(), target.topics()
    selected, _ = select_topics(flow, source_topics, flows)
    created = sorted(name for name, remote in selected.items() if remote not in target_topics)
    existing = selected.keys() - set(created)
    dead_letters = missing_dead_letters(flow, target_topics)
    new_topics = [*(selected[name] for name in created), *([dead_letters] if dead_letters is not None else [])]
    creation_configs = source.topic_configs(created)
    deleted_meanwhile = set(created) - creation_configs.keys()
    known = target.topic_config_keys(new_topics[0]) if new_topics else frozenset()
    tiered = [name for name, configs in readable(creation_configs).items() if is_tiered(configs)]
    return TopicFacts(
        source_topics={name: topic for name, topic in source_topics.items() if name not in deleted_meanwhile},
        target_topics=target_topics,
        source_configs={**creation_configs, **source.topic_configs(sorted(existing), ADMISSION_CONFIGS)},
        target_configs=target.topic_configs(sorted(selected[name] for name in existing), ADMISSION_CONFIGS),
        target_config_keys=known,
        target_broker_count=target.broker_count(),
        target_tiered=not (tiered and REMOTE_STORAGE in known and _refuses_tiers(target, selected[tiered[0]])),
    )


def _refuses_tiers(target: KafkaCluster, name: str) -> bool:
    """Whether the brokers would create the topic `name`, but not in tiered storage. Creates nothing."""
    bare = NewTopic(name, 1, -1)
    (stored, _), (plain, _) = (
        target.check_creation([each])[name] for each in (replace(bare, configs={REMOTE_STORAGE: "true"}), bare)
    )
    return stored is not None and plain is None


def apply_plan(plan: TopicPlan, target: KafkaCluster) -> TopicPlan:
    """Create and grow remote topics; the plan comes back with nothing left to do and every remote topic's id.

    A topic that the target refuses is skipped with its reason, and the others are copied. Repeating does no harm.
    """
    if plan.dead_letters is None and not any(each.create or each.grow_to for each in plan.copied):
        return plan
    failures: Dict[str, str] = {}
    new = {each.remote_topic: each.create for each in plan.copied if each.create}
    failures.update(_failed(target.create_topics([*new.values(), *([plan.dead_letters] if plan.dead_letters else [])])))
    going = [each for each in plan.copied if each.remote_topic not in failures]
    topics = _visible(target, dict.fromkeys((each.remote_topic for each in going), 1))
    # Also a topic that another client created in the meantime, perhaps a broker by itself, with too few partitions.
    short = [each for each in going if _size(topics, each) < each.remote_partitions and each.keyed_over is None]
    growing = {each.remote_topic: each.remote_partitions for each in short}
    if growing:
        failures.update(_failed(target.create_partitions(growing)))
        topics = _visible(target, {name: size for name, size in growing.items() if name not in failures})
    for each in going:
        if each.remote_topic not in failures and _size(topics, each) < each.remote_partitions:
            failures[each.remote_topic] = f"not visible with {each.remote_partitions} partitions yet"
    done = [each for each in plan.copied if each.remote_topic not in failures]
    created, grown = sum(each.create is not None for each in done), sum(each.grow_to is not None for each in done)
    log.info("%s: created %d remote topics, grew %d, failed on %d", target.alias, created, grown, len(failures))
    for name, reason in sorted(failures.items()):
        log.warning("%s: remote topic %s is left out: %s", target.alias, name, reason)
    return _carried_out(plan, failures, topics, target.alias)


def _failed(outcomes: Mapping[str, Optional[str]]) -> Mapping[str, str]:
    return {name: reason for name, reason in outcomes.items() if reason is not None}


def _size(topics: Mapping[str, TopicDescription], topic: CopiedTopic) -> int:
    return topics[topic.remote_topic].partitions if topic.remote_topic in topics else 0


def _visible(target: KafkaCluster, sizes: Mapping[str, int]) -> Mapping[str, TopicDescription]:
    """The target's topics, once the topics of `sizes` are that large: each broker learns of them in its own time."""
    patient_until = time.monotonic() + VISIBLE_SECONDS
    while True:
        topics = target.topics()
        late = [name for name, size in sizes.items() if name not in topics or topics[name].partitions < size]
        if not late or time.monotonic() > patient_until:
            return topics
        time.sleep(0.1)


def _carried_out(
    plan: TopicPlan, failures: Mapping[str, str], topics: Mapping[str, TopicDescription], alias: str
) -> TopicPlan:
    copied: List[CopiedTopic] = []
    skipped = list(plan.skipped)
    for each in plan.copied:
        reason = failures.get(each.remote_topic)
        if reason is None:
            topic_id = topics[each.remote_topic].topic_id
            copied.append(replace(each, remote_topic_id=topic_id, create=None, grow_to=None))
        else:
            verb = "create" if each.create else "grow"
            explained = f"cannot {verb} {each.remote_topic} on {alias}: {reason}"
            skipped.append(SkippedTopic(each.source.name, explained, wanted=True))
    # A dead letter topic that is refused is requested again at the next check, and reported by the flow that needs it.
    left = plan.dead_letters if plan.dead_letters and plan.dead_letters.name in failures else None
    return TopicPlan(tuple(copied), tuple(sorted(skipped, key=lambda topic: topic.name)), left)


def compacted(cluster: KafkaCluster, topics: Sequence[str]) -> FrozenSet[str]:
    """By the topics' present `cleanup.policy`; a topic whose configs cannot be read counts as not compacted, which is
    the stricter comparison. Raises `ClusterError`."""
    configs = cluster.topic_configs(topics, ["cleanup.policy"])
    closed = unreadable(cluster.alias, configs)
    if closed is not None:
        log.warning("%s; compared as if not compacted", closed)
    policies = {topic: entries.get("cleanup.policy") for topic, entries in readable(configs).items()}
    return frozenset(topic for topic, entry in policies.items() if entry and "compact" in (entry.value or ""))
