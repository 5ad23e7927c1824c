"""A `FlowPreview` in, one JSON document out: everything, also what stays as it is and what is skipped."""

from __future__ import annotations

from typing import Dict, List

from mirror_lib.plan.look import FlowPreview, matchless
from mirror_lib.plan.render import changes
from mirror_lib.plan.terms import terms_json
from mirror_lib.topics.plan import CopiedTopic


def preview_json(preview: FlowPreview) -> Dict[str, object]:
    """The plan for programs. A part that is `null` has its reason under `silent`; so have absent actions `null`."""
    plan, acls, groups, internal = preview.topics, preview.acls, preview.groups, preview.internal
    return {
        "flow": preview.flow.name,
        "engine": preview.engine and vars(preview.engine),
        "copying": terms_json(preview.flow) if preview.flow.copied else None,
        "refused": None if preview.refusal is None else str(preview.refusal),
        "warning": preview.warning or None,
        "changes": changes(preview),
        "topics": [_topic(preview, each) for each in plan.copied],
        "dead_letters": plan.dead_letters and vars(plan.dead_letters),
        "skipped": [{"topic": each.name, "reason": each.reason, "wanted": each.wanted} for each in plan.skipped],
        "matchless": matchless(preview),
        "configs": None if preview.configs is None else _configs(preview),
        "acls": acls
        and {
            "create": [vars(each) for each in acls.create],
            "delete": [vars(each) for each in acls.delete],
            "skipped": [{**vars(each.acl), "reason": each.reason} for each in acls.skipped],
        },
        "groups": None if groups is None else [vars(each) for each in groups],
        "internal_topics": None if internal is None else [vars(each) for each in internal],
        "silent": dict(preview.silent),
    }


def _topic(preview: FlowPreview, topic: CopiedTopic) -> Dict[str, object]:
    create, remote = topic.create, preview.facts.target_topics.get(topic.remote_topic)
    return {
        "topic": topic.source.name,
        "topic_id": topic.source.topic_id,
        "partitions": topic.partitions,
        "remote_topic": topic.remote_topic,
        "remote_topic_id": topic.remote_topic_id,
        "remote_partitions": remote and remote.partitions,
        "create": create and {"replication_factor": create.replication_factor, "configs": dict(create.configs)},
        "grow_to": topic.grow_to,
        "notes": list(topic.notes),
    }


def _configs(preview: FlowPreview) -> List[Dict[str, object]]:
    return [
        {
            "remote_topic": topic,
            "config": each.key,
            "action": each.action,
            "from": each.remote_value,
            "to": each.source_value if each.action == "set" else None,
            "source_value": each.source_value,
            "reason": each.reason,
        }
        for topic, found in (preview.configs or {}).items()
        for each in found
    ]
