"""ACLs of topics on both clusters in, what `sync.topic.acls` creates and deletes on the target out, with reasons. Pure.

MM2's rules for single topics; prefixed and wildcard patterns, which it drops or breaks, are translated too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Tuple

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.facts import EVERY_TOPIC, LITERAL, PREFIXED, AclBinding
from mirror_lib.topics.naming import remote_topic
from mirror_lib.topics.policy import policy_for
from mirror_lib.topics.selection import copied_back, why_skipped


@dataclass(frozen=True)
class SkippedAcl:
    """An ACL of the source that has no counterpart on the target, and why."""

    acl: AclBinding
    reason: str


@dataclass(frozen=True)
class AclChanges:
    """What to create and delete on the target, each in order; nothing of it is there already, or gone already."""

    create: Tuple[AclBinding, ...]
    delete: Tuple[AclBinding, ...]
    skipped: Tuple[SkippedAcl, ...]


def acl_changes(
    flow: ReplicationFlow,
    source: Iterable[AclBinding],
    remote: Iterable[AclBinding],
    selected: Mapping[str, str],
    made: FrozenSet[AclBinding] = frozenset(),
    flows: Sequence[ReplicationFlow] = (),
) -> AclChanges:
    """Compare all ACLs of topics on both clusters. `selected` has the remote name of each topic that is copied now.

    `made` are the ACLs on the target that this flow created: only they are ever deleted, and only if the flow has
    `sync.topic.acls.delete` and still copies something. `flows` are all flows of the file.
    """
    translator = _Translator(flow, selected, flows)
    wanted: Dict[AclBinding, None] = {}
    skipped: List[SkippedAcl] = []
    for acl in sorted(source, key=_order):
        translated, reason = translator.translate(acl)
        if translated is None:
            skipped.append(SkippedAcl(acl, reason))
        else:
            wanted[translated] = None
    there = frozenset(remote)
    # A source that shows no topic at all has more likely lost a right than its topics.
    deleting = flow.sync_topic_acls_delete and bool(selected)
    return AclChanges(
        create=tuple(sorted(wanted.keys() - there, key=_order)),
        delete=tuple(sorted((made & there) - wanted.keys(), key=_order)) if deleting else (),
        skipped=tuple(skipped),
    )


def _order(acl: AclBinding) -> Tuple[str, ...]:
    return (acl.topic, acl.pattern_type, acl.principal, acl.host, acl.operation, acl.permission)


class _Translator:
    """One flow's way from an ACL on A to the one on B that means the same for the copies."""

    def __init__(
        self, flow: ReplicationFlow, selected: Mapping[str, str], flows: Sequence[ReplicationFlow]
    ) -> None:
        self._flow, self._flows = flow, flows
        self._policy = policy_for(flow)
        # Heartbeats are named by a rule of their own under the identity policy.
        heartbeats = self._policy.is_heartbeats_topic
        self._copied = {name: remote for name, remote in selected.items() if not heartbeats(name)}

    def translate(self, acl: AclBinding) -> Tuple[Optional[AclBinding], str]:
        """The ACL on the target, or `None` and why there is none."""
        if (acl.permission, acl.operation) == ("ALLOW", "WRITE"):
            return None, "who may write to a topic may not write to its copy"
        # MM2's downgrade: ALL would bring WRITE along.
        reads_only = (acl.permission, acl.operation) == ("ALLOW", "ALL")
        operation = "READ" if reads_only else acl.operation
        if acl.pattern_type == LITERAL and acl.topic != EVERY_TOPIC:
            name, reason = self._one_topic(acl.topic)
            pattern_type = LITERAL
        else:
            name, reason = self._prefix("" if acl.pattern_type == LITERAL else acl.topic)
            pattern_type = PREFIXED if name else LITERAL
        if name is None:
            return None, reason
        return replace(acl, topic=name or EVERY_TOPIC, pattern_type=pattern_type, operation=operation), ""

    def _one_topic(self, topic: str) -> Tuple[Optional[str], str]:
        # By name alone, as in MM2: rights may be granted before there is a topic.
        reason = why_skipped(topic, self._flow)
        if reason is None and copied_back(topic, self._flow, self._flows) is not None:
            reason = "its copy would come back: cycle"
        return (None, reason) if reason else (remote_topic(self._flow, topic), "")

    def _prefix(self, prefix: str) -> Tuple[Optional[str], str]:
        """The prefix on B, `""` for every topic. Only if it fits: a policy may do more than put something before."""
        copies = [remote for name, remote in self._copied.items() if name.startswith(prefix)]
        if not copies:
            return None, "no topic that is copied begins so"
        translated = self._policy.format_remote_topic(self._flow.source.alias, prefix)
        if not all(remote.startswith(translated) for remote in copies):
            return None, "the replication policy does not keep prefixes"
        return translated, ""
