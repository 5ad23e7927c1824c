"""A group's name, a flow and facts about the group in; every rule that was asked, and the one that decided, out. Pure.

Whether the group is translated, not where to: `mirror groups plan` says that, from the ledger.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Iterator, Mapping, Tuple

from mirror_lib.config.custom_classes import GROUP_FILTER_KEY
from mirror_lib.config.model import ReplicationFlow
from mirror_lib.config.values import is_entry_point
from mirror_lib.plan.explain import ALWAYS, Explanation, Step, pattern_step, place_of
from mirror_lib.plan.groups import TRANSLATED, GroupFacts, GroupPlan, plan_groups
from mirror_lib.text import counted
from mirror_lib.topics.filters import group_filter_for
from mirror_lib.topics.policy import policy_for

COMMIT_KEY, CHECKPOINTS_KEY = "sync.group.offsets.enabled", "emit.checkpoints.enabled"


def explain_group(
    group: str, flow: ReplicationFlow, facts: GroupFacts, skipped_topics: Mapping[str, str], exists: bool
) -> Explanation:
    """Why `flow` translates the offsets of `group` or does not. `skipped_topics` has the reason by topic.

    Raises CustomClassError where the user's filter fails.
    """
    (planned,) = plan_groups(flow, replace(facts, names=[group]))
    steps = []
    for step in _steps(group, flow, facts, skipped_topics, exists, planned):
        steps.append(step)
        if step.stops is not None:
            break
    stopped = steps[-1].stops
    taken = planned.status == TRANSLATED and stopped is None
    refused = f"{'left alone' if stopped == planned.reason and planned.partitions else 'not translated'}: {stopped}"
    verdict = _use(flow) if taken else refused
    return Explanation(flow.name, "group", group, exists, taken, verdict, tuple(steps))


def _use(flow: ReplicationFlow) -> str:
    if flow.sync_group_offsets_interval is None:
        by = "" if flow.translates_beside else " by mirror translate alone"
        topic = policy_for(flow).checkpoints_topic(flow.source.alias)
        return f"translated for {topic}{by}, not committed on {flow.target.alias}"
    return f"translated, and committed on {flow.target.alias}"


def _steps(
    group: str,
    flow: ReplicationFlow,
    facts: GroupFacts,
    skipped_topics: Mapping[str, str],
    exists: bool,
    planned: GroupPlan,
) -> Iterator[Step]:
    offsets = facts.committed.get(group, {})
    found = f"exists, {counted(len(offsets), 'committed offset')}" if exists else "does not exist as a consumer group"
    yield Step(f"on {flow.source.alias}", ALWAYS, found)
    yield from _filter_steps(group, flow)
    for topic in sorted({topic for topic, _ in offsets}):
        partitions = sum(each == topic for each, _ in offsets)
        copied = f"copied to {facts.selected[topic]}" if topic in facts.selected else _why_not(topic, skipped_topics)
        yield Step(f"topic {topic}", ALWAYS, f"{counted(partitions, 'partition')}, {copied}")
    if not planned.partitions:
        yield Step("topics of the group", ALWAYS, "none is copied", stops=planned.reason)
    intervals = {COMMIT_KEY: flow.sync_group_offsets_interval, CHECKPOINTS_KEY: flow.emit_checkpoints_interval}
    for key, interval in intervals.items():
        yield Step(key, place_of(flow, key), "off" if interval is None else f"on, every {interval:g} s")
    if not flow.translates:
        reason = f"{COMMIT_KEY} and {CHECKPOINTS_KEY} are false"
        yield Step("translation", place_of(flow, COMMIT_KEY), "nothing asks for it", stops=reason)
    if flow.sync_group_offsets_interval is not None:
        yield from _target_steps(group, flow, facts, planned)


def _why_not(topic: str, skipped_topics: Mapping[str, str]) -> str:
    return f"not copied: {skipped_topics.get(topic, 'there is no such topic')}"


def _filter_steps(group: str, flow: ReplicationFlow) -> Iterator[Step]:
    reason = group_filter_for(flow).why_not(group)
    if is_entry_point(flow.group_filter):
        says = "takes it" if reason is None else f"says: {reason}"
        yield Step(GROUP_FILTER_KEY, place_of(flow, GROUP_FILTER_KEY), says, stops=reason)
        return
    excluding = pattern_step(flow, "groups.exclude", flow.groups_exclude, group)
    yield replace(excluding, stops=reason) if excluding.matched else excluding
    including = pattern_step(flow, "groups", flow.groups, group)
    yield including if including.matched else replace(including, stops=reason)


def _target_steps(group: str, flow: ReplicationFlow, facts: GroupFacts, planned: GroupPlan) -> Tuple[Step, ...]:
    there, where = facts.there.get(group), f"on {flow.target.alias}"
    if there is None:
        return (Step(where, ALWAYS, "does not exist yet"),)
    kind = ", never had members" if there.simple else ""
    says = f"{there.state}, {counted(len(there.members), 'member')}{kind}"
    if planned.status != TRANSLATED:
        return (Step(where, ALWAYS, says, stops=planned.reason),)
    told = (Step("groups.simple", place_of(flow, "groups.simple"), planned.reason),) if planned.reason else ()
    return (Step(where, ALWAYS, says), *told)
