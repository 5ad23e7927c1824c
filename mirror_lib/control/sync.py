"""Brings topic configs and ACLs of the target in line with the source once, and returns what was changed."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Callable, Collection, Dict, FrozenSet, List, Mapping, Optional, Protocol, Sequence, Tuple

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.control.topic_acls import acl_changes
from mirror_lib.control.topic_configs import config_changes
from mirror_lib.errors import MirrorError
from mirror_lib.facts import AclBinding, readable, unreadable
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.text import some
from mirror_lib.topics.plan import CopiedTopic, TopicFacts, plan_topics, select_topics

log = logging.getLogger(__name__)

# A request to a cluster that is away undoes no earlier request, so each is reported separately.
BOOKED_AT_ONCE = 1000

# The ledger's topics: name, id, and id of the remote topic.
RecordedTopic = Tuple[str, str, str]
Changes = Mapping[str, Mapping[str, Optional[str]]]


@dataclass(frozen=True)
class Synced:
    """The result of one sync. `problems` are sentences about failed changes; `notes` are sentences with the reason why
    there was nothing to do. `refused`: the login or the flow was refused."""

    changed: int = 0
    deleted: int = 0
    problems: Tuple[str, ...] = ()
    notes: Tuple[str, ...] = ()
    refused: bool = False


class MadeAcls(Protocol):
    """Remembers the ACLs that flows created on their targets. Each method may raise StateError."""

    def made(self, flow: str) -> FrozenSet[AclBinding]:
        """The ACLs that the flow created and has not deleted since."""

    def created(self, flow: str, acls: Sequence[AclBinding]) -> None:
        """Record that the flow created these ACLs."""

    def given_up(self, flow: str, acls: Sequence[AclBinding]) -> None:
        """Record that these ACLs no longer belong to the flow."""


class WriterCheck(Protocol):
    """What the control asks of a flow that is copied. Each method may raise StateError."""

    def refuse(self, source: KafkaCluster, target: KafkaCluster) -> object:
        """Raise `RefusedError` if another tool may still write to the remote topics. May raise ClusterError."""

    def recorded_topics(self) -> Collection[RecordedTopic]:
        """The topics in the ledger."""


def sync_topic_configs(
    flow: ReplicationFlow,
    flows: Sequence[ReplicationFlow],
    source: KafkaCluster,
    target: KafkaCluster,
    recorded: Optional[Callable[[], Collection[RecordedTopic]]] = None,
) -> Synced:
    """Bring the configs of every remote topic that is there, and is written to, in line. `recorded`, of a flow that is
    copied, is asked only where something is to be changed. Raises ClusterError where they cannot be read, StateError.
    """
    facts = TopicFacts(source.topics(), target.topics(), target_broker_count=target.broker_count())
    topics = {each.remote_topic: each for each in plan_topics(flow, facts, flows).copied if each.create is None}
    names = {remote: each.source.name for remote, each in topics.items()}
    read = source.topic_configs(sorted(names.values())), target.topic_configs(sorted(names))
    closed = [unreadable(cluster.alias, configs) for cluster, configs in zip((source, target), read)]
    source_configs, remote_configs = map(readable, read)
    changes = {
        remote: config_changes(flow, source_configs[name], remote_configs[remote])
        for remote, name in sorted(names.items())
        # Deleted in the meantime, on either side.
        if name in source_configs and remote in remote_configs
    }
    changes = {remote: change for remote, change in changes.items() if change}
    changed = [topics[remote] for remote in changes]
    left = _before_the_copy(changed, recorded(), facts, target) if recorded and changes else ()
    synced = _alter(flow, target, {remote: change for remote, change in changes.items() if remote not in left})
    why = f"configs of {some(left)} stay until something is copied there: it has records of another topic or tool"
    problems = (*synced.problems, *(each for each in closed if each is not None))
    return replace(synced, problems=problems, notes=(why,) if left else ())


def _before_the_copy(
    topics: Sequence[CopiedTopic], recorded: Collection[RecordedTopic], facts: TopicFacts, target: KafkaCluster
) -> Sequence[str]:
    """The remote topics that hold records, and by the ledger none of the source topic: perhaps nothing else holds them,
    the copy may be refused, and retention of the source topic could delete them."""
    new = [each for each in topics if (each.source.name, each.source.topic_id, each.remote_topic_id) not in recorded]
    counts = {each.remote_topic: facts.target_topics[each.remote_topic].partitions for each in new}
    places = [(remote, number) for remote, count in counts.items() for number in range(count)]
    logs = target.offsets(places, "read_uncommitted") if places else {}
    return sorted({topic for (topic, _), log in logs.items() if log.end > log.log_start})


def _alter(flow: ReplicationFlow, target: KafkaCluster, changes: Changes) -> Synced:
    outcomes = target.alter_topic_configs(changes) if changes else {}
    changed = sum(len(change) for name, change in changes.items() if outcomes.get(name) is None)
    problems: List[str] = []
    for name, reason in outcomes.items():
        if reason is not None:
            # A broker takes all changes of a topic or none: one that it refuses would hold up the others for ever.
            alone = {key: target.alter_topic_configs({name: {key: new}})[name] for key, new in changes[name].items()}
            refused = {key: why for key, why in alone.items() if why is not None}
            changed += len(changes[name]) - len(refused)
            problems += [f"{target.alias} refuses {key} for {name}: {why}" for key, why in refused.items()]
    for name, change in changes.items():
        log.info("%s: configs of %s: %s", flow.name, name, dict(change))
    return Synced(changed, problems=tuple(problems))


def sync_topic_acls(
    flow: ReplicationFlow,
    flows: Sequence[ReplicationFlow],
    source: KafkaCluster,
    target: KafkaCluster,
    book: MadeAcls,
) -> Synced:
    """Create, and if asked delete, ACLs of remote topics. Raises ClusterError where they cannot be read, StateError."""
    theirs, ours = source.topic_acls(), target.topic_acls()
    if theirs is None or ours is None:
        unguarded = source.alias if theirs is None else target.alias
        return Synced(notes=(f"no ACLs are copied: {unguarded} has no authorizer",))
    selected, skipped = select_topics(flow, source.topics(), flows)
    unnamed = [each for each in skipped if each.unnamed]
    made = book.made(flow.name) if flow.sync_topic_acls_delete else frozenset()
    changes = acl_changes(flow, theirs, ours, selected, made, flows, target.topics(), bool(unnamed))
    created, refused = _created(flow, target, book, changes.create)
    deleted, kept = _deleted(flow, target, book, changes.delete)
    sentences = [f"{target.alias} refuses an ACL of {acl.topic}: {why}" for acl, why in {**refused, **kept}.items()]
    kept_all = "; no ACL is deleted meanwhile" if flow.sync_topic_acls_delete else ""
    sentences += [f"an ACL of {each.acl.topic} is not copied: {each.reason}{kept_all}" for each in changes.failed]
    sentences += [f"the ACLs of {each.name} are not copied: {each.reason}{kept_all}" for each in unnamed]
    return Synced(len(created), len(deleted), tuple(dict.fromkeys(sentences)))


def _created(
    flow: ReplicationFlow, target: KafkaCluster, book: MadeAcls, acls: Sequence[AclBinding]
) -> Tuple[Sequence[AclBinding], Mapping[AclBinding, str]]:
    created: List[AclBinding] = []
    refused: Dict[AclBinding, str] = {}
    for first in range(0, len(acls), BOOKED_AT_ONCE):
        # Recorded after they are created and before they are deleted: after a kill in between, an ACL stays that no run
        # deletes.
        done, why = _carried_out(target.create_topic_acls(acls[first : first + BOOKED_AT_ONCE]))
        if done:
            book.created(flow.name, done)
        for acl in done:
            log.info("%s: created %s", flow.name, acl)
        created += done
        refused.update(why)
    return created, refused


def _deleted(
    flow: ReplicationFlow, target: KafkaCluster, book: MadeAcls, acls: Sequence[AclBinding]
) -> Tuple[Sequence[AclBinding], Mapping[AclBinding, str]]:
    if acls:
        book.given_up(flow.name, acls)
    try:
        deleted, kept = _carried_out(target.delete_topic_acls(acls))
    except MirrorError:
        # It is unknown which of them are deleted. A row without an ACL does no harm.
        book.created(flow.name, acls)
        raise
    if kept:
        book.created(flow.name, list(kept))
    for acl in deleted:
        log.info("%s: deleted %s", flow.name, acl)
    return deleted, kept


def _carried_out(outcomes: Mapping[AclBinding, Optional[str]]) -> Tuple[Sequence[AclBinding], Mapping[AclBinding, str]]:
    done = [acl for acl, reason in outcomes.items() if reason is None]
    return done, {acl: reason for acl, reason in outcomes.items() if reason is not None}
