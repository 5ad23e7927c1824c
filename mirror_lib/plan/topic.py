"""A topic's name, a flow and facts about both clusters in; every rule that was asked, and the one that decided, out.

The verdict is the plan's own; the steps say how it came about, and a test holds both together. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Iterator, Optional, Sequence, Tuple

from mirror_lib.config.custom_classes import POLICY_KEY, TOPIC_FILTER_KEY
from mirror_lib.config.model import ReplicationFlow
from mirror_lib.config.record_change import RECORDS
from mirror_lib.config.settings import ENGINE
from mirror_lib.config.values import is_entry_point
from mirror_lib.errors import CustomClassError
from mirror_lib.facts import TopicDescription
from mirror_lib.plan.explain import ALWAYS, Explanation, Step, pattern_step, place_of
from mirror_lib.text import counted
from mirror_lib.topics.filters import topic_filter_for
from mirror_lib.topics.plan import CopiedTopic, SkippedTopic, TopicFacts, plan_topics
from mirror_lib.topics.policy import policy_for, remote_topic, renamed
from mirror_lib.topics.selection import copied_back, why_cycle

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
    steps = _until_decided(_steps(described, exists, flow, flows), skipped)
    if copied:
        steps += _target_steps(copied, flow, known, asked=facts is not None)
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


def _steps(
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
    yield from _filter_steps(name, flow, policy.is_heartbeats_topic(name))
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


def _filter_steps(name: str, flow: ReplicationFlow, is_heartbeats: bool) -> Iterator[Step]:
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


def _target_steps(
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
