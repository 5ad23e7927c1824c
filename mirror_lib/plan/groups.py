"""Groups on both clusters in, what translation would do with each and why out. Pure.

Whether it would, not where to: for that the ledger is needed, and `mirror groups plan` reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Sequence, Tuple

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.facts import CommittedOffset, ConsumerGroup, TopicPartition
from mirror_lib.topics.filters import group_filter_for

TRANSLATED, LEFT_ALONE, SKIPPED = "translated", "left alone", "skipped"

Committed = Mapping[str, Mapping[TopicPartition, CommittedOffset]]


@dataclass(frozen=True)
class GroupFacts:
    """What is known about groups. The committed offsets and groups are those of the groups that the filter takes.

    `selected` has the remote name of each topic that is copied.
    """

    names: Sequence[str]
    committed: Committed
    selected: Mapping[str, str]
    there: Mapping[str, ConsumerGroup]
    there_committed: Committed


@dataclass(frozen=True)
class GroupPlan:
    """One group of the source. `status` is TRANSLATED, LEFT_ALONE (not committed on the target now) or SKIPPED.

    `reason` says why; where it is translated it is a condition, or `""`. `partitions` are those with a committed offset
    that the flow copies.
    """

    group: str
    status: str
    reason: str
    partitions: Tuple[TopicPartition, ...] = ()


def plan_groups(flow: ReplicationFlow, facts: GroupFacts) -> Tuple[GroupPlan, ...]:
    """Decide on every group of the source, in the order of names. CustomClassError where the user's filter fails."""
    return tuple(_planned(flow, group, facts) for group in sorted(facts.names))


def _planned(flow: ReplicationFlow, group: str, facts: GroupFacts) -> GroupPlan:
    unwanted = group_filter_for(flow).why_not(group)
    if unwanted is not None:
        return GroupPlan(group, SKIPPED, unwanted)
    partitions = tuple(sorted(at for at in facts.committed.get(group, {}) if at[0] in facts.selected))
    if not partitions:
        return GroupPlan(group, SKIPPED, "no committed offset on a topic that is copied")
    there = facts.there.get(group)
    if there is None or flow.sync_group_offsets_interval is None:
        return GroupPlan(group, TRANSLATED, "", partitions)
    if there.has_members:
        return GroupPlan(group, LEFT_ALONE, f"active on {flow.target.alias}: it has members there", partitions)
    present = facts.there_committed.get(group, {})
    stands_there = any((facts.selected[topic], number) in present for topic, number in partitions)
    # Who put it there only the state tells, and for that Spark would have to be started.
    is_told = there.simple and stands_there and flow.groups_simple == "exclude"
    return GroupPlan(group, TRANSLATED, _CONDITION.format(flow.target.alias) if is_told else "", partitions)


_CONDITION = "moved only where this mirror put it: it has offsets on {} and never had members there"
