"""Decides which ACLs `sync.topic.acls` creates and deletes on the target."""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Dict, FrozenSet, Iterable, List, Mapping, Sequence, Tuple

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.errors import CustomClassError
from mirror_lib.facts import EVERY_TOPIC, LITERAL, PREFIXED, AclBinding, TopicDescription
from mirror_lib.topics.filters import PatternFilter, copied_back, may_be_wanted, topic_filter_for, why_skipped
from mirror_lib.topics.plan import why_closed
from mirror_lib.topics.policy import policy_for, remote_topic

NO_TOPICS: Mapping[str, TopicDescription] = {}
# What an ACL is for: a name or a prefix, and which of them it is.
Pattern = Tuple[str, str]
_order = attrgetter(*AclBinding.__dataclass_fields__)


@dataclass(frozen=True)
class SkippedAcl:
    """An `acl` of the source without a counterpart on the target, and the `reason`."""

    acl: AclBinding
    reason: str


@dataclass(frozen=True)
class AclChanges:
    """What to `create` and `delete` on the target, each in order; nothing of it is done already. `failed` are the ones
    in `skipped` that a custom class cannot translate."""

    create: Tuple[AclBinding, ...]
    delete: Tuple[AclBinding, ...]
    skipped: Tuple[SkippedAcl, ...]
    failed: Tuple[SkippedAcl, ...] = ()


def acl_changes(
    flow: ReplicationFlow,
    source: Iterable[AclBinding],
    remote: Iterable[AclBinding],
    selected: Mapping[str, str],
    made: FrozenSet[AclBinding] = frozenset(),
    flows: Sequence[ReplicationFlow] = (),
    target_topics: Mapping[str, TopicDescription] = NO_TOPICS,
    unnamed: bool = False,
) -> AclChanges:
    """Compare all ACLs of topics on both clusters. `selected` has the remote name of each topic that is copied now.
    `made` are the ACLs on the target that this flow created: only they are ever deleted, and only if the flow has
    `sync.topic.acls.delete` and still copies something. `flows` are all flows of the file. Of `target_topics` those
    that the flow must not write to keep the ACLs that they have. `unnamed`: some are not in `selected`, as a class of
    the user's failed on them; nothing is deleted then.
    """
    translator = _Translator(flow, selected, flows)
    wanted: Dict[AclBinding, None] = {}
    skipped: List[SkippedAcl] = []
    failed: List[SkippedAcl] = []
    for acl in sorted(source, key=_order):
        try:
            translated, reason = translator.translate(acl)
        except CustomClassError as error:
            translated, reason = (), error.message
            by_name = acl.pattern_type == LITERAL and acl.topic != EVERY_TOPIC
            failed += [SkippedAcl(acl, reason)] if not by_name or may_be_wanted(acl.topic, flow) else []
        for each in translated:
            wanted[each] = None
            reason = reason or why_closed(each.topic, flow, target_topics) or ""
        if reason:
            skipped.append(SkippedAcl(acl, reason))
    there = frozenset(remote)
    opened = (acl for acl in wanted.keys() - there if why_closed(acl.topic, flow, target_topics) is None)
    # A source that shows no topic at all has more likely lost a right than its topics; and what could not be translated
    # may be the original of any ACL.
    deleting = flow.sync_topic_acls_delete and bool(selected) and not (failed or unnamed)
    return AclChanges(
        create=tuple(sorted(opened, key=_order)),
        delete=tuple(sorted((made & there) - wanted.keys(), key=_order)) if deleting else (),
        skipped=tuple(skipped),
        failed=tuple(failed),
    )


class _Translator:
    """One flow's way from an ACL on A to the one on B that means the same for the copies."""

    def __init__(self, flow: ReplicationFlow, selected: Mapping[str, str], flows: Sequence[ReplicationFlow]) -> None:
        self._flow, self._flows = flow, flows
        self._policy = policy_for(flow)
        # Heartbeats are named by a rule of their own under the identity policy.
        heartbeats = self._policy.is_heartbeats_topic
        self._copied = {name: remote for name, remote in selected.items() if not heartbeats(name)}
        taken = topic_filter_for(flow)
        # MM2's question: a filter of names takes the wildcard itself where it takes every name.
        self._takes_all = isinstance(taken, PatternFilter) and taken.why_not(EVERY_TOPIC) is None

    def translate(self, acl: AclBinding) -> Tuple[Tuple[AclBinding, ...], str]:
        if (acl.permission, acl.operation) == ("ALLOW", "WRITE"):
            return (), "who may write to a topic may not write to its copy"
        # MM2's downgrade: ALL would bring WRITE along.
        reads_only = (acl.permission, acl.operation) == ("ALLOW", "ALL")
        operation = "READ" if reads_only else acl.operation
        if acl.permission == "ALLOW" and operation not in self._flow.sync_topic_acls_operations:
            return (), f"sync.topic.acls.operations does not name {operation}"
        if acl.pattern_type == LITERAL and acl.topic != EVERY_TOPIC:
            names, reason = self._one_topic(acl.topic)
        else:
            prefix = "" if acl.pattern_type == LITERAL else acl.topic
            names, reason = self._pattern(prefix, early=acl.permission == "DENY")
        return tuple(replace(acl, topic=name, pattern_type=kind, operation=operation) for name, kind in names), reason

    def _one_topic(self, topic: str) -> Tuple[Sequence[Pattern], str]:
        # By name alone, as in MM2: rights may be granted before there is a topic.
        reason = why_skipped(topic, self._flow)
        if reason is None and copied_back(topic, self._flow, self._flows) is not None:
            reason = "its copy would come back: cycle"
        return ((), reason) if reason else ([(remote_topic(self._flow, topic), LITERAL)], "")

    def _pattern(self, prefix: str, early: bool) -> Tuple[Sequence[Pattern], str]:
        """What a prefix, `""` for every topic, is on B. With `early` it is there before the first copy of a
        flow that takes every topic.

        A policy may do more than put words before a name. And where a prefix is the same there it may cover topics that
        are B's own, unless `sync.topic.acls.wildcards` asks for it and the flow takes every topic. Copies are named one
        by one in both cases.
        """
        copies = [remote for name, remote in self._copied.items() if name.startswith(prefix)]
        translated = self._policy.format_remote_topic(self._flow.naming_alias, prefix)
        if not copies and not (early and self._takes_all and translated != prefix):
            return (), "no topic that is copied begins so"
        own = translated == prefix and not (self._takes_all and self._flow.sync_topic_acls_wildcards)
        if own or not all(remote.startswith(translated) for remote in copies):
            return [(remote, LITERAL) for remote in copies], ""
        return [(translated, PREFIXED) if translated else (EVERY_TOPIC, LITERAL)], ""
