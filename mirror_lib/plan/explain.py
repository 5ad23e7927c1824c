"""Explains which rule decides about one topic or one group, and every rule that was checked before it. Pure.

The verdict is the plan's own; the steps show how it came about, and a test holds both together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from mirror_lib.config.custom_classes import GROUP_FILTER_KEY, POLICY_KEY, TOPIC_FILTER_KEY
from mirror_lib.config.model import ReplicationFlow
from mirror_lib.config.record_change import RECORDS
from mirror_lib.config.settings import ENGINE
from mirror_lib.config.values import is_entry_point
from mirror_lib.errors import CustomClassError
from mirror_lib.facts import TopicDescription
from mirror_lib.plan.preview import TRANSLATED, GroupFacts, GroupPlan, plan_groups
from mirror_lib.text import aligned, counted
from mirror_lib.topics.filters import copied_back, first_match, group_filter_for, topic_filter_for, why_cycle
from mirror_lib.topics.plan import CopiedTopic, SkippedTopic, TopicFacts, plan_topics
from mirror_lib.topics.policy import policy_for, remote_topic, renamed

ALWAYS = "always"
DEFAULT = "default"


@dataclass(frozen=True)
class Step:
    """One rule and what it says. `place` is `file:line` of its key, DEFAULT, or ALWAYS for a rule without a key.

    `tried` are the patterns that were held against the name, in order; only the last of them can match, and does where
    `matched`. `stops` is the reason that it gives where it decides against; no rule is asked after that.
    """

    rule: str
    place: str
    says: str
    tried: Tuple[str, ...] = ()
    matched: bool = False
    stops: Optional[str] = None


@dataclass(frozen=True)
class Explanation:
    """Why `subject`, a topic or a group of the flow, is taken or not. `verdict` is a phrase; `steps` are in order."""

    flow: str
    subject: str
    name: str
    exists: Optional[bool]
    taken: bool
    verdict: str
    steps: Tuple[Step, ...]

    @property
    def decided_by(self) -> Optional[Step]:
        """The step that decided against; `None` where nothing did."""
        return next((step for step in self.steps if step.stops is not None), None)


def place_of(flow: ReplicationFlow, key: str) -> str:
    """`file:line` of the setting, or DEFAULT where the file does not have it."""
    return flow.places.get(key, DEFAULT)


def pattern_step(flow: ReplicationFlow, key: str, patterns: Sequence[str], name: str) -> Step:
    """The patterns of `key` held against `name` up to the first that matches; decides nothing yet."""
    matching = first_match(patterns, name)
    if matching is None:
        says = "no pattern matches" if patterns else "the list is empty"
        return Step(key, place_of(flow, key), says, tuple(patterns))
    tried = tuple(patterns[: list(patterns).index(matching) + 1])
    return Step(key, place_of(flow, key), f"`{matching}` matches", tried, matched=True)


def explanation_lines(found: Explanation, columns: Optional[int] = None) -> List[str]:
    """The rules in order as an aligned table, the patterns that were tried below theirs; the verdict last."""
    rows: List[Tuple[str, str, str]] = [("RULE", "SAYS", "WHERE")]
    for step in found.steps:
        rows.append((step.rule, step.says, step.place))
        for number, pattern in enumerate(step.tried, start=1):
            matches = step.matched and number == len(step.tried)
            rows.append(("", f"  {'matches' if matches else 'no     '}  `{pattern}`", ""))
    decided_by = found.decided_by
    by = "" if decided_by is None or decided_by.place == ALWAYS else f" ({decided_by.rule}, {decided_by.place})"
    head = f"{found.flow}, {found.subject} {found.name}"
    return [head, *aligned(rows, (), columns, "  "), f"verdict: {found.verdict}{by}"]


def explanation_json(found: Explanation) -> Dict[str, object]:
    """The same for programs. `exists` is `null` where its cluster was not reached."""
    decided_by = found.decided_by
    return {
        "flow": found.flow,
        found.subject: found.name,
        "exists": found.exists,
        "taken": found.taken,
        "verdict": found.verdict,
        "decided_by": decided_by and decided_by.rule,
        "place": decided_by and decided_by.place,
        "steps": [_step(each) for each in found.steps],
    }


def _step(step: Step) -> Dict[str, object]:
    last = len(step.tried)
    return {
        "rule": step.rule,
        "place": step.place,
        "says": step.says,
        "tried": [
            {"pattern": pattern, "matches": step.matched and number == last}
            for number, pattern in enumerate(step.tried, start=1)
        ],
        "stops": step.stops is not None,
    }


HEARTBEATS_KEY = "heartbeats.replication.enabled"


def explain_topic(
    topic: str, flow: ReplicationFlow, facts: Optional[TopicFacts], flows: Sequence[ReplicationFlow] = ()
) -> Explanation:
    """Why `flow` copies `topic` or does not. A topic that does not exist is decided on as if it did.

    `facts` is `None` where the clusters were not reached: then names alone decide.
    """
    known = TopicFacts({}, {}, target_broker_count=max(flow.replication_factor, 1)) if facts is None else facts
    exists = None if facts is None else topic in facts.source_topics
    described = known.source_topics.get(topic, TopicDescription(topic, "", 1))
    known = replace(known, source_topics={**known.source_topics, topic: described})
    plan = plan_topics(flow, known, flows)
    copied = [each for each in plan.copied if each.source.name == topic]
    skipped = next((each for each in plan.skipped if each.name == topic), None)
    steps = _until_decided(_topic_steps(described, exists, flow, flows), skipped)
    if copied:
        steps += _topic_target_steps(copied, flow, known, asked=facts is not None)
    return Explanation(
        flow=flow.name,
        subject="topic",
        name=topic,
        exists=exists,
        taken=bool(copied),
        verdict=_verdict(copied, skipped, exists),
        steps=steps,
    )


def _verdict(copied: Sequence[CopiedTopic], skipped: Optional[SkippedTopic], exists: Optional[bool]) -> str:
    if copied:
        return f"{'would be ' * (exists is False)}copied to {' and '.join(each.remote_topic for each in copied)}"
    return f"not copied: {skipped.reason if skipped else 'not planned'}"


def _until_decided(steps: Iterator[Step], skipped: Optional[SkippedTopic]) -> Tuple[Step, ...]:
    """The steps up to the one that decides; where none of them did it was what is on the target, or a user's class."""
    asked = []
    try:
        for step in steps:
            asked.append(step)
            if step.stops is not None:
                return tuple(asked)
    except CustomClassError as error:
        return (*asked, Step("custom class", error.hint or ALWAYS, "failed", stops=error.message))
    if skipped is not None:
        asked.append(Step("remote topic", ALWAYS, "cannot be written", stops=skipped.reason))
    return tuple(asked)


def _topic_steps(
    topic: TopicDescription, exists: Optional[bool], flow: ReplicationFlow, flows: Sequence[ReplicationFlow]
) -> Iterator[Step]:
    """The rules that look at names, as `selection.why_skipped` asks them. May raise CustomClassError."""
    policy, name = policy_for(flow), topic.name
    yield _existence(topic, exists, flow)
    if topic.internal:
        yield Step("internal topic", ALWAYS, "Kafka says that it is its own", stops="internal topic")
    if policy.is_mm2_internal_topic(name):
        says = "its name is one of MirrorMaker's own: mm2*.internal or *.checkpoints.internal"
        yield Step("internal topic", ALWAYS, says, stops="is an MM2 internal topic")
    if policy.is_internal_topic(name):
        yield Step("internal topic", ALWAYS, "its name begins with __ or .", stops="internal topic")
    yield Step("internal topic", ALWAYS, "no")
    yield from _topic_filter_steps(name, flow, policy.is_heartbeats_topic(name))
    cycle = why_cycle(name, flow)
    if cycle is not None:
        said = f"its name says that it came from {flow.source.alias} or {flow.target.alias}"
        yield Step("cycle", ALWAYS, said, stops=cycle)
    closing = copied_back(name, flow, flows)
    if closing is not None:
        says = f"{closing} would bring the copy back as {name}"
        yield Step("cycle", ALWAYS, says, stops=f"{says}: cycle")
    yield Step("cycle", ALWAYS, "no")
    names = renamed(flow, name)
    if names:
        yield Step("rename", place_of(flow, "rename"), f"calls the copy {' and '.join(names)}")
    else:
        remote = remote_topic(flow, name)
        yield Step(POLICY_KEY, place_of(flow, POLICY_KEY), f"{flow.replication_policy} calls the copy {remote}")
    if flow.change is not None:
        key = next(iter(flow.change.places), ENGINE)
        yield Step(ENGINE, place_of(flow, key), f"{RECORDS}: they go through Spark's rows; `mirror plan` says more")


def _existence(topic: TopicDescription, exists: Optional[bool], flow: ReplicationFlow) -> Step:
    says = {
        None: "not asked; names alone decide",
        False: "does not exist; decided as if it did",
        True: f"exists, {counted(topic.partitions, 'partition')}",
    }[exists]
    return Step(f"on {flow.source.alias}", ALWAYS, says)


def _topic_filter_steps(name: str, flow: ReplicationFlow, is_heartbeats: bool) -> Iterator[Step]:
    reason = topic_filter_for(flow).why_not(name)
    saved = reason is not None and flow.heartbeats_replication and is_heartbeats
    stops = None if saved else reason
    if is_entry_point(flow.topic_filter):
        says = "takes it" if reason is None else f"says: {reason}"
        yield Step(TOPIC_FILTER_KEY, place_of(flow, TOPIC_FILTER_KEY), says, stops=stops)
    else:
        excluding = pattern_step(flow, "topics.exclude", flow.topics_exclude, name)
        yield replace(excluding, stops=stops) if excluding.matched else excluding
        if not excluding.matched:
            including = pattern_step(flow, "topics", flow.topics, name)
            yield including if including.matched else replace(including, stops=stops)
    if saved:
        yield Step(HEARTBEATS_KEY, place_of(flow, HEARTBEATS_KEY), "a heartbeats topic: copied all the same")


def _topic_target_steps(
    copied: Sequence[CopiedTopic], flow: ReplicationFlow, facts: TopicFacts, asked: bool
) -> Tuple[Step, ...]:
    where = f"on {flow.target.alias}"
    if not asked:
        return (Step(where, ALWAYS, "not asked"),)
    return tuple(_target_step(where, each, flow, facts, f"{each.remote_topic} " * (len(copied) > 1)) for each in copied)


def _target_step(where: str, copied: CopiedTopic, flow: ReplicationFlow, facts: TopicFacts, name: str) -> Step:
    remote = facts.target_topics.get(copied.remote_topic)
    if remote is None:
        factor = place_of(flow, "replication.factor")
        return Step(where, factor, f"{name}would be created, replication.factor {flow.replication_factor}")
    grown = "" if copied.grow_to is None else f", would be grown to {copied.grow_to}"
    return Step(where, ALWAYS, f"{name}exists, {counted(remote.partitions, 'partition')}{grown}")


COMMIT_KEY, CHECKPOINTS_KEY = "sync.group.offsets.enabled", "emit.checkpoints.enabled"


def explain_group(
    group: str, flow: ReplicationFlow, facts: GroupFacts, skipped_topics: Mapping[str, str], exists: bool
) -> Explanation:
    """Why `flow` translates the offsets of `group` or does not. `skipped_topics` has the reason by topic.

    Raises CustomClassError where the user's filter fails.
    """
    (planned,) = plan_groups(flow, replace(facts, names=[group]))
    steps = []
    for step in _group_steps(group, flow, facts, skipped_topics, exists, planned):
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
        by = "" if flow.translates_in_run else " by mirror translate alone"
        topic = policy_for(flow).checkpoints_topic(flow.naming_alias)
        return f"translated for {topic}{by}, not committed on {flow.target.alias}"
    return f"translated, and committed on {flow.target.alias}"


def _group_steps(
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
    yield from _group_filter_steps(group, flow)
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
        yield from _group_target_steps(group, flow, facts, planned)


def _why_not(topic: str, skipped_topics: Mapping[str, str]) -> str:
    return f"not copied: {skipped_topics.get(topic, 'there is no such topic')}"


def _group_filter_steps(group: str, flow: ReplicationFlow) -> Iterator[Step]:
    reason = group_filter_for(flow).why_not(group)
    if is_entry_point(flow.group_filter):
        says = "takes it" if reason is None else f"says: {reason}"
        yield Step(GROUP_FILTER_KEY, place_of(flow, GROUP_FILTER_KEY), says, stops=reason)
        return
    excluding = pattern_step(flow, "groups.exclude", flow.groups_exclude, group)
    yield replace(excluding, stops=reason) if excluding.matched else excluding
    including = pattern_step(flow, "groups", flow.groups, group)
    yield including if including.matched else replace(including, stops=reason)


def _group_target_steps(group: str, flow: ReplicationFlow, facts: GroupFacts, planned: GroupPlan) -> Tuple[Step, ...]:
    there, where = facts.there.get(group), f"on {flow.target.alias}"
    if there is None:
        return (Step(where, ALWAYS, "does not exist yet"),)
    kind = ", never had members" if there.simple else ""
    says = f"{there.state}, {counted(len(there.members), 'member')}{kind}"
    if planned.status != TRANSLATED:
        return (Step(where, ALWAYS, says, stops=planned.reason),)
    reported = (Step("groups.simple", place_of(flow, "groups.simple"), planned.reason),) if planned.reason else ()
    return (Step(where, ALWAYS, says), *reported)
