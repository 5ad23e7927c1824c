"""The keys of a file that have no effect because what they are about is switched off. Pure."""

from __future__ import annotations

from typing import Callable, Dict, List, Mapping, Sequence, Tuple

from mirror_lib.config.document import Entry
from mirror_lib.config.model import ReplicationFlow

# Keys, whether a flow heeds them, and the switch that makes it.
_DEPENDENT: Sequence[Tuple[Sequence[str], Callable[[ReplicationFlow], bool], str]] = (
    (
        ("offset-syncs.topic.replication.factor", "offset-syncs.topic.location"),
        lambda flow: flow.emit_offset_syncs,
        "no offset-syncs topic is written; emit.offset-syncs.enabled = true writes it",
    ),
    (
        ("checkpoints.topic.replication.factor", "emit.checkpoints.interval.seconds"),
        lambda flow: flow.emit_checkpoints_interval is not None,
        "no checkpoints topic is written; emit.checkpoints.enabled = true writes it",
    ),
    (
        ("heartbeats.topic.replication.factor", "emit.heartbeats.interval.seconds"),
        lambda flow: flow.emit_heartbeats_interval is not None,
        "no heartbeats are written; emit.heartbeats.enabled = true writes them",
    ),
    (
        ("sync.group.offsets.interval.seconds",),
        lambda flow: flow.sync_group_offsets_interval is not None,
        "no group offsets are committed on the target; sync.group.offsets.enabled = true commits them",
    ),
    (
        ("sync.topic.configs.interval.seconds",),
        lambda flow: flow.sync_topic_configs_interval is not None,
        "configs of remote topics are set at creation alone; sync.topic.configs.enabled = true keeps them in step",
    ),
    (
        ("sync.topic.acls.interval.seconds", "sync.topic.acls.delete"),
        lambda flow: flow.sync_topic_acls_interval is not None,
        "no ACLs are copied; sync.topic.acls.enabled = true copies them",
    ),
    (
        ("refresh.topics.interval.seconds",),
        lambda flow: flow.refresh_topics_interval is not None,
        "no new topics are looked for; refresh.topics.enabled = true looks for them",
    ),
    (
        ("refresh.groups.interval.seconds",),
        lambda flow: flow.refresh_groups_interval is not None,
        "no new groups are looked for; refresh.groups.enabled = true looks for them",
    ),
    (
        ("commit.source.group.interval.seconds",),
        lambda flow: bool(flow.commit_source_group),
        "no progress is committed on the source; commit.source.group names the group to commit for",
    ),
    (
        ("copy.window.timezone",),
        lambda flow: bool(flow.copy_window),
        "the flow may always copy; copy.window limits when",
    ),
    (
        ("report.port",),
        lambda flow: flow.tails,
        "no task of the flow tails; tail.enabled = true and a flow that changes no records has such tasks",
    ),
)


def idle_keys(settings: Mapping[Tuple[str, str], Entry], flows: Sequence[ReplicationFlow]) -> List[str]:
    """One sentence for each such key in `settings` (by scope and name) that none of `flows` heeds, with its place."""
    found: Dict[str, None] = {}
    for (scope, name), entry in settings.items():
        for names, heeds, why in _DEPENDENT:
            concerned = [flow for flow in flows if scope in ("", flow.name)]
            if name in names and concerned and not any(map(heeds, concerned)):
                found[f"{entry.written} has no effect: {why} ({entry.place})"] = None
    return list(found)
