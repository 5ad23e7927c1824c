"""A flow and the topics of both clusters in, what becomes of MirrorMaker's internal topics out. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.facts import TopicDescription
from mirror_lib.topics.policy import checkpoints_topics, offset_syncs_topics, policy_for

CREATE, EXISTS, OFF, UNSEEN = "create", "exists", "off", "not known"
RUN = "written by mirror run"
TRANSLATE = "written by mirror translate, not by mirror run"

Topics = Mapping[str, TopicDescription]


@dataclass(frozen=True)
class InternalTopicPlan:
    """One internal topic on the cluster `alias`.

    `action` is what a run would do: CREATE it, or nothing, where it EXISTS or is OFF; UNSEEN of a cluster that was not
    looked at. `reason` says why, or who writes.

    `others` are topics there that MirrorMaker keeps the same in under other settings.
    """

    kind: str
    topic: str
    alias: str
    action: str
    reason: str
    others: Tuple[str, ...] = ()


def plan_internal_topics(
    flow: ReplicationFlow, source_topics: Topics, target_topics: Topics, pairs: Sequence[ReplicationFlow] = ()
) -> Tuple[InternalTopicPlan, ...]:
    """Checkpoints, offset syncs and heartbeats of `flow`; heartbeats of `pairs`, which its run writes besides.

    May raise CustomClassError.
    """
    here, there = (flow.source, source_topics), (flow.target, target_topics)
    at_source = flow.offset_syncs_topic_location == "source"
    other = flow.target if at_source else flow.source
    writers = f"{RUN} and mirror translate" if flow.translates_beside else TRANSLATE
    checkpoints = None if flow.emit_checkpoints_interval is None else writers
    syncs = writers if flow.emit_offset_syncs else None
    heartbeats = None if flow.emit_heartbeats_interval is None else RUN
    return (
        _planned("checkpoints", checkpoints_topics(flow), there, checkpoints),
        _planned("offset syncs", offset_syncs_topics(flow, other.alias), here if at_source else there, syncs),
        _planned("heartbeats", (policy_for(flow).heartbeats_topic(),), there, heartbeats),
        *_of_pairs(flow, {flow.source.alias: here, flow.target.alias: there}, pairs),
    )


def _of_pairs(
    flow: ReplicationFlow, seen: Mapping[str, Tuple[ClusterConfig, Topics]], pairs: Sequence[ReplicationFlow]
) -> Iterator[InternalTopicPlan]:
    """One for each topic; none for the one that the flow itself writes to."""
    names: Dict[Tuple[str, str], List[str]] = {}
    for pair in pairs:
        names.setdefault((pair.target.alias, policy_for(pair).heartbeats_topic()), []).append(pair.name)
    if flow.emit_heartbeats_interval is not None:
        names.pop((flow.target.alias, policy_for(flow).heartbeats_topic()), None)
    for (alias, topic), written in names.items():
        reason = f"{RUN} for {', '.join(written)}"
        if alias in seen:
            yield _planned("heartbeats", (topic,), seen[alias], reason)
        else:
            unseen = f"{reason}; created if it is missing, as {alias} was not asked"
            yield InternalTopicPlan("heartbeats", topic, alias, UNSEEN, unseen)


_SWITCHES = {
    "checkpoints": "emit.checkpoints.enabled",
    "offset syncs": "emit.offset-syncs.enabled",
    "heartbeats": "emit.heartbeats.enabled",
}


def _planned(
    kind: str, names: Tuple[str, ...], where: Tuple[ClusterConfig, Topics], writers: Optional[str]
) -> InternalTopicPlan:
    """`names` are the topic's own and those of other versions; without `writers` it is switched off."""
    cluster, topics = where
    others = tuple(name for name in names[1:] if name in topics)
    if writers is None:
        return InternalTopicPlan(kind, names[0], cluster.alias, OFF, f"{_SWITCHES[kind]} is false", others)
    missing = OFF if writers == TRANSLATE else CREATE
    action = EXISTS if names[0] in topics else missing
    return InternalTopicPlan(kind, names[0], cluster.alias, action, writers, others)
