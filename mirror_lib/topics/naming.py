"""A flow and a source topic in, the name of its remote topic out: by `rename`, else by the replication policy. Pure."""

from __future__ import annotations

from typing import Tuple

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.topics.policy import policy_for


def remote_topic(flow: ReplicationFlow, topic: str) -> str:
    """The remote topic of `topic`, the first where `rename` gives several. CustomClassError where the policy fails."""
    names = renamed(flow, topic)
    return names[0] if names else policy_for(flow).format_remote_topic(flow.source.alias, topic)


def remote_topics(flow: ReplicationFlow, topic: str) -> Tuple[str, ...]:
    """Every remote topic of `topic`: several only where `rename` says so. CustomClassError where the policy fails."""
    return renamed(flow, topic) or (remote_topic(flow, topic),)


def renamed(flow: ReplicationFlow, topic: str) -> Tuple[str, ...]:
    """What `rename` gives `topic`; empty where the policy names it."""
    return () if flow.change is None else flow.change.renamed(topic)
