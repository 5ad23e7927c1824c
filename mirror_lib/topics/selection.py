"""Names in, reasons out: what a flow copies by name, which names Kafka refuses, which flows close a loop. Pure."""

from __future__ import annotations

import re
from typing import Collection, List, Optional, Sequence, Set, Tuple

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.config.refusals import nearest
from mirror_lib.config.values import is_entry_point
from mirror_lib.errors import CustomClassError
from mirror_lib.topics.filters import first_match, topic_filter_for
from mirror_lib.topics.policy import copied_through, policy_for, remote_topics

LONGEST_NAME = 249

# One or two letters of a name.
ALIKE = 0.75
TOLD = 5


def matchless_patterns(flow: ReplicationFlow, names: Collection[str]) -> List[str]:
    """The names and patterns that match no topic: perhaps misspelt."""
    if is_entry_point(flow.topic_filter):
        return []
    return [pattern for pattern in flow.topics if not any(first_match([pattern], name) for name in names)]


def matchless_words(flow: ReplicationFlow, names: Collection[str]) -> str:
    """`no topic of primary matches "salse" (did you mean sales?)`; empty where each of them matches one."""
    found = matchless_patterns(flow, names)
    told = [_word(pattern, names) for pattern in found[:TOLD]]
    if len(found) > TOLD:
        told.append(f"{len(found) - TOLD} more")
    return f"no topic of {flow.source.alias} matches {', '.join(told)}" if told else ""


def _word(pattern: str, names: Collection[str]) -> str:
    like = nearest(pattern, names, ALIKE)
    return f"`{pattern}`" if like is None else f"`{pattern}` (did you mean {like}?)"


def why_skipped(topic: str, flow: ReplicationFlow) -> Optional[str]:
    """Why `flow` does not copy `topic`, in one phrase; `None` where it does. Only names decide here."""
    policy = policy_for(flow)
    if policy.is_mm2_internal_topic(topic):
        return "is an MM2 internal topic"
    if policy.is_internal_topic(topic):
        return "internal topic"
    filtered = topic_filter_for(flow).why_not(topic)
    if filtered is not None and not (flow.heartbeats_replication and policy.is_heartbeats_topic(topic)):
        return filtered
    return why_cycle(topic, flow)


def may_be_wanted(topic: str, flow: ReplicationFlow) -> bool:
    """Whether the filter of `flow` takes `topic`, or cannot tell: a question about names that the policy failed on."""
    try:
        return topic_filter_for(flow).why_not(topic) is None
    except CustomClassError:
        return True


def why_cycle(topic: str, flow: ReplicationFlow) -> Optional[str]:
    """Why a copy of `topic` would be one of what the flow's clusters have already, by its name alone; else `None`."""
    policy, source, target = policy_for(flow), flow.source.alias, flow.target.alias
    if not policy.is_cycle(topic, source, target):
        return None
    through = list(copied_through(policy, topic))
    if source in through and target not in through:
        return f"its name says that it came from {source} itself: cycle; if not, give another alias or separator"
    return f"would be copied back to {target}: cycle"


def name_fault(name: str) -> Optional[str]:
    """Why Kafka refuses `name` as a topic's name, or `None`."""
    if len(name) > LONGEST_NAME:
        return f"remote name longer than {LONGEST_NAME} characters"
    if name in (".", "..") or not re.fullmatch(r"[a-zA-Z0-9._-]+", name):
        return f"remote name `{name}` is not a legal topic name: only letters, digits, `.`, `_` and `-` are"
    return None


def copied_back(topic: str, flow: ReplicationFlow, flows: Sequence[ReplicationFlow]) -> Optional[str]:
    """The last flow of a way on which the copy of `topic` comes back to the source under the same name, or `None`.

    Only `flows` are known: a loop that another file closes is not seen.
    """
    waiting = [(flow.target.alias, remote) for remote in remote_topics(flow, topic)]
    reached: Set[Tuple[str, str]] = set(waiting)
    while waiting:
        alias, name = waiting.pop()
        for onward in flows:
            # Flows with unlike separators can prefix a name again and again: only its length ends that.
            if onward.source.alias != alias or len(name) > LONGEST_NAME or why_skipped(name, onward) is not None:
                continue
            arrived = {(onward.target.alias, remote) for remote in remote_topics(onward, name)}
            if (flow.source.alias, topic) in arrived:
                return onward.name
            waiting += sorted(arrived - reached)
            reached |= arrived
    return None
