"""A flow and the topics of both clusters in, what becomes of MirrorMaker's internal topics out. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Optional, Sequence, Tuple

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.facts import TopicDescription
from mirror_lib.policy import checkpoints_topics, offset_syncs_topics, policy_for

CREATE, EXISTS, OFF = "create", "exists", "off"

Topics = Mapping[str, TopicDescription]


@dataclass(frozen=True)
class InternalTopicPlan:
    """One internal topic on the cluster `alias`. `action` is CREATE, EXISTS or OFF; `reason` says why, or who writes.

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
    """Checkpoints, offset syncs and heartbeats of `flow`; heartbeats of `pairs` that it reads. May raise
    CustomClassError."""
    at_source = flow.offset_syncs_topic_location == "source"
    here, other = (flow.source, flow.target) if at_source else (flow.target, flow.source)
    syncing = flow.sync_group_offsets_interval is not None
    writers = "written by mirror run and mirror translate" if syncing else "written by mirror translate"
    emits_checkpoints, emits_heartbeats = flow.emit_checkpoints_interval, flow.emit_heartbeats_interval
    return (
        _planned(
            "checkpoints",
            checkpoints_topics(flow),
            (flow.target, target_topics),
            _off("emit.checkpoints.enabled is false", emits_checkpoints is None),
            writers,
        ),
        _planned(
            "offset syncs",
            offset_syncs_topics(flow, other.alias),
            (here, source_topics if at_source else target_topics),
            _off("emit.offset-syncs.enabled is false", not flow.emit_offset_syncs),
            writers,
        ),
        _planned(
            "heartbeats",
            (policy_for(flow).heartbeats_topic(),),
            (flow.target, target_topics),
            _off("emit.heartbeats.enabled is false", emits_heartbeats is None),
            "written by mirror run",
        ),
        *(
            _planned(
                "heartbeats",
                (policy_for(pair).heartbeats_topic(),),
                (flow.source, source_topics),
                None,
                f"written by mirror run, as {pair.name}.emit.heartbeats.enabled asks",
            )
            for pair in pairs
            if pair.target.alias == flow.source.alias
        ),
    )


def _off(reason: str, is_off: bool) -> Optional[str]:
    return reason if is_off else None


def _planned(
    kind: str, names: Tuple[str, ...], where: Tuple[ClusterConfig, Topics], off: Optional[str], writers: str
) -> InternalTopicPlan:
    cluster, topics = where
    others = tuple(name for name in names[1:] if name in topics)
    if off is not None:
        return InternalTopicPlan(kind, names[0], cluster.alias, OFF, off, others)
    action = EXISTS if names[0] in topics else CREATE
    return InternalTopicPlan(kind, names[0], cluster.alias, action, writers, others)
