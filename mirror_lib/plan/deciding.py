"""Names the rule by which a plan copies one topic or translates one group, or does not. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Optional, Sequence, Tuple

from mirror_lib.config.custom_classes import GROUP_FILTER_KEY, TOPIC_FILTER_KEY
from mirror_lib.config.model import ReplicationFlow
from mirror_lib.config.settings import HEARTBEATS_REPLICATION
from mirror_lib.facts import TopicDescription
from mirror_lib.plan.preview import COPIES_NOTHING, GROUPS, FlowPreview, plan_group
from mirror_lib.text import some
from mirror_lib.topics.filters import CustomNameFilter, first_match, group_filter_for, topic_filter_for
from mirror_lib.topics.plan import plan_topics

TOPIC, GROUP = "topic", "group"


@dataclass(frozen=True)
class Decided:
    """What the plan of `flow` decides about `name`, a topic or a group of the source (`kind`).

    `taken`: it is copied or translated. `verdict` has the reason. `key` is the key that decides, `place` its
    `file:line`, or `default`; both are empty if the rule has no key. `exists`: the source has it; `None` if the plan
    did not ask.
    """

    DERIVED: ClassVar[Sequence[str]] = ("place",)

    flow: ReplicationFlow
    kind: str
    name: str
    exists: Optional[bool]
    taken: bool
    verdict: str
    key: str = ""

    @property
    def place(self) -> str:
        return self.flow.places.get(self.key, "default") if self.key else ""

    def line(self) -> str:
        """`A->B: topic orders is copied to A.orders: `o.*` matches (topics, mirror.yaml:6)`."""
        by = f" ({self.key}, {self.place})" if self.key else ""
        absent = f"; {self.flow.source.alias} has no such {self.kind} now" if self.exists is False else ""
        return f"{self.flow.name}: {self.kind} {self.name} is {self.verdict}{by}{absent}"


def decided_topic(preview: FlowPreview, name: str, flows: Sequence[ReplicationFlow]) -> Decided:
    """A topic that the source lacks is planned as if it had one partition. `flows`: all of the file, for loops."""
    flow, facts, plan = preview.flow, preview.facts, preview.topics
    exists = name in facts.source_topics
    if not flow.copied:
        return Decided(flow, TOPIC, name, exists, False, f"not copied: the flow {COPIES_NOTHING}")
    if not exists:
        topics = {**facts.source_topics, name: TopicDescription(name, "", 1)}
        plan = plan_topics(flow, replace(facts, source_topics=topics), flows)
    remotes = [each.remote_topic for each in plan.copied if each.source.name == name]
    reason = next((each.reason for each in plan.skipped if each.name == name), None)
    said, key = _by_filter(flow, TOPIC, name, reason)
    verdict = f"copied to {' and '.join(remotes)}: {said}" if remotes else f"not copied: {said}"
    return Decided(flow, TOPIC, name, exists, bool(remotes), verdict, key)


def decided_group(preview: FlowPreview, name: str) -> Decided:
    """May raise CustomClassError."""
    flow = preview.flow
    if preview.groups is None:
        return Decided(flow, GROUP, name, None, False, f"not translated ({preview.silent[GROUPS]})")
    listed = next((each for each in preview.groups if each.group == name), None)
    group = listed or plan_group(flow, name)
    if group.reason:
        said, key = _by_filter(flow, GROUP, name, group.reason)
        return Decided(flow, GROUP, name, listed is not None, False, f"not translated: {said}", key)
    said, key = _by_filter(flow, GROUP, name, None)
    off = flow.sync_group_offsets_interval is None
    use = "not committed: sync.group.offsets.enabled is false" if off else f"committed on {flow.target.alias}"
    topics = some(sorted({topic for topic, _ in group.partitions}))
    return Decided(flow, GROUP, name, True, True, f"translated for {topics}, {use}: {said}", key)


def _by_filter(flow: ReplicationFlow, kind: str, name: str, reason: Optional[str]) -> Tuple[str, str]:
    """Why `name` is taken (`reason` is `None`) or left out, and the key that decides; `""` if no key does."""
    own_class, chosen = (
        (TOPIC_FILTER_KEY, topic_filter_for(flow)) if kind == TOPIC else (GROUP_FILTER_KEY, group_filter_for(flow))
    )
    if isinstance(chosen, CustomNameFilter):
        by_class = reason is None or chosen.custom.name in reason
        return reason or f"{chosen.custom.name} takes it", own_class if by_class else ""
    filtered, lists = chosen.why_not(name), f"{kind}s"
    if reason is None:
        pattern = first_match(flow.topics if kind == TOPIC else flow.groups, name)
        return ("a heartbeats topic", HEARTBEATS_REPLICATION) if filtered else (f"`{pattern}` matches", lists)
    if reason != filtered:
        return reason, ""
    excluded = first_match(flow.topics_exclude if kind == TOPIC else flow.groups_exclude, name)
    return reason, lists if excluded is None else f"{lists}.exclude"
