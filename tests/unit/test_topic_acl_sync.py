"""What `sync.topic.acls` makes of each ACL of the source, and what it deletes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Tuple, cast

import pytest

from mirror_lib.config.model import IDENTITY_POLICY
from mirror_lib.config.record_change import RecordChange
from mirror_lib.control.sync import Synced, sync_topic_acls
from mirror_lib.control.topic_acls import acl_changes
from mirror_lib.errors import ClusterError
from mirror_lib.facts import EVERY_TOPIC, LITERAL, PREFIXED, AclBinding, TopicDescription
from tests.lab.flows import flow_of as flow

READ = AclBinding("orders", LITERAL, "User:alice", "*", "READ", "ALLOW")
COPIED = {"orders": "A.orders", "payments": "A.payments", "heartbeats": "A.heartbeats"}
WIDE: Mapping[str, Any] = {"replication_policy": IDENTITY_POLICY, "sync_topic_acls_wildcards": True}
UNCHANGED = {"orders": "orders", "payments": "payments", "heartbeats": "A.heartbeats"}


def created(acl: AclBinding, selected: Mapping[str, str] = COPIED, **settings: Any) -> Tuple[AclBinding, ...]:
    return acl_changes(flow(**settings), [acl], [], selected).create


PREFIX, EVERY = replace(READ, topic="ord", pattern_type=PREFIXED), replace(READ, topic=EVERY_TOPIC)
WRITERS = "who may write to a topic may not write to its copy"
CHANGING = ("ALTER", "DELETE", "CREATE", "ALTER_CONFIGS")


@pytest.mark.parametrize(
    ("acl", "settings", "reason"),
    [
        *((replace(each, operation="WRITE"), {}, WRITERS) for each in (READ, PREFIX, EVERY)),
        (replace(READ, operation="WRITE"), {"sync_topic_acls_operations": ("WRITE",)}, WRITERS),
        *((replace(READ, operation=each), {}, f"sync.topic.acls.operations does not name {each}") for each in CHANGING),
        (READ, {"sync_topic_acls_operations": CHANGING}, "sync.topic.acls.operations does not name READ"),
        (replace(READ, topic="__consumer_offsets"), {}, "internal topic"),
        (replace(READ, topic="B.orders"), {}, "would be copied back to B: cycle"),
        (READ, {"topics": ("payments",)}, "no include pattern matches"),
        (replace(READ, topic="inv", pattern_type=PREFIXED), {}, "no topic that is copied begins so"),
    ],
)
def test_acl_is_left_out_for_a_reason(acl: AclBinding, settings: Dict[str, Any], reason: str) -> None:
    changes = acl_changes(flow(**settings), [acl], [], COPIED)
    assert (changes.create, [each.reason for each in changes.skipped]) == ((), [reason])


def doing(operation: str, acl: AclBinding = READ, **more: str) -> AclBinding:
    return replace(acl, operation=operation, **more)


ALLOWED = (READ, doing("DESCRIBE"), doing("DESCRIBE_CONFIGS"), PREFIX)
DENIED = [doing(each, permission="DENY") for each in ("ALL", "WRITE", "READ", "DESCRIBE", *CHANGING)]


@pytest.mark.parametrize(
    ("acl", "settings", "topic"),
    [
        *((each, {}, f"A.{each.topic}") for each in (*ALLOWED, *DENIED)),
        # Before its topic.
        (replace(READ, topic="tomorrow"), {}, "A.tomorrow"),
        (replace(PREFIX, topic="tom", permission="DENY"), {}, "A.tom"),
        # The right to change a topic is copied only if it is asked for.
        *((doing(each), {"sync_topic_acls_operations": (each,)}, "A.orders") for each in CHANGING),
        # Names are kept, and wildcards are asked for.
        *((each, WIDE, each.topic) for each in (READ, PREFIX, EVERY)),
    ],
)
def test_acl_becomes_one_of_the_copy(acl: AclBinding, settings: Dict[str, Any], topic: str) -> None:
    selected = UNCHANGED if settings is WIDE else COPIED
    assert created(acl, selected, **settings) == (replace(acl, topic=topic),)
    assert created(EVERY) == (replace(EVERY, topic="A.", pattern_type=PREFIXED),)
    # The right to everything becomes the right to read.
    assert created(doing("ALL")) == created(READ) and created(doing("ALL", PREFIX)) == created(PREFIX)


def test_topic_that_another_flow_would_bring_back_has_no_rights_downstream() -> None:
    there = flow(replication_policy=IDENTITY_POLICY)
    back = replace(there, source=there.target, target=there.source)
    changes = acl_changes(there, [READ], [], UNCHANGED, flows=(there, back))
    assert [each.reason for each in changes.skipped] == ["its copy would come back: cycle"]


def test_topic_that_the_flow_must_not_write_to_gets_no_rights_and_keeps_those_it_has() -> None:
    onto_internal = RecordChange(rename=(("orders", "internal"),))
    renaming = flow(change=onto_internal, sync_topic_acls_delete=True)
    there = {"internal": TopicDescription("internal", "", 50, internal=True)}
    before = replace(READ, topic="internal", operation="DESCRIBE")
    source, made = [READ, replace(READ, operation="DESCRIBE")], frozenset([before])
    changes = acl_changes(renaming, source, [before], {"orders": "internal"}, made, target_topics=there)
    assert (changes.create, changes.delete) == ((), ())
    assert {each.reason for each in changes.skipped} == {"would be written into internal, an internal topic of B"}


@pytest.mark.parametrize("pattern", [PREFIX, EVERY])
@pytest.mark.parametrize("permission", ["ALLOW", "DENY"])
def test_pattern_covers_only_copies_unless_the_targets_own_topics_are_asked_for(
    pattern: AclBinding, permission: str
) -> None:
    acl = replace(pattern, permission=permission)
    only = {"orders": "orders", "ordinary": "ordinary"}
    copies = [replace(acl, topic=name, pattern_type=LITERAL) for name in ("orders", "ordinary")]
    assert {*created(acl, only, replication_policy=IDENTITY_POLICY)} == {*copies}
    # Wildcards are asked for, and not all topics are copied.
    assert {*created(acl, only, **WIDE, topics=("ord.*",))} == {*copies}
    assert created(acl, only, **WIDE, topics=("a", ".*")) == (acl,)
    assert [each.pattern_type for each in created(acl, {"orders": "A.orders"}, topics=("orders",))] == [PREFIXED]
    # A copy that is renamed does not keep the prefix.
    renamed = created(acl, {"orders": "audit", "ordinary": "A.ordinary"})
    assert [(each.topic, each.pattern_type) for each in renamed] == [("A.ordinary", LITERAL), ("audit", LITERAL)]


OURS, BOBS = replace(READ, topic="A.orders"), AclBinding("A.orders", LITERAL, "User:bob", "*", "READ", "ALLOW")


@pytest.mark.parametrize(
    ("made", "selected", "asked", "gone"),
    [
        pytest.param([OURS], COPIED, True, (OURS,), id="ours"),
        pytest.param([OURS], COPIED, False, (), id="not asked"),
        pytest.param([], COPIED, True, (), id="not ours"),
        pytest.param([replace(READ, topic="A.payments")], COPIED, True, (), id="gone already"),
        pytest.param([OURS], {}, True, (), id="the source shows no topic at all"),
    ],
)
def test_acl_whose_original_is_gone_is_deleted_only_if_asked_and_only_if_it_is_ours(
    made: List[AclBinding], selected: Mapping[str, str], asked: bool, gone: Tuple[AclBinding, ...]
) -> None:
    deleting = flow(sync_topic_acls_delete=asked)
    changes = acl_changes(deleting, [], [BOBS, OURS], selected, frozenset(made))
    assert (changes.create, changes.delete) == ((), gone)
    assert acl_changes(deleting, [READ], [BOBS, OURS], selected, frozenset(made)).delete == (), "still there"


class Guarded:
    """A cluster with a topic and ACLs, which may be `away` when it is asked to delete some, or for more than `room`."""

    alias = "B"
    away, room = False, 1_000_000

    def __init__(self, topic: str, acls: Iterable[AclBinding]) -> None:
        self.topic, self.acls = topic, list(acls)

    def topics(self) -> Mapping[str, TopicDescription]:
        return {self.topic: TopicDescription(self.topic, "its id", 1)}

    def topic_acls(self) -> List[AclBinding]:
        return self.acls

    def create_topic_acls(self, acls: Iterable[AclBinding]) -> Mapping[AclBinding, Optional[str]]:
        if len(self.acls) >= self.room:
            raise ClusterError("B: no broker answers")
        self.acls += acls
        return dict.fromkeys(acls)

    def delete_topic_acls(self, acls: Iterable[AclBinding]) -> Mapping[AclBinding, Optional[str]]:
        if self.away:
            raise ClusterError("B: no broker answers")
        self.acls = [each for each in self.acls if each not in acls]
        return dict.fromkeys(acls)


class Book:
    """Remembers what a flow created, as the table does."""

    def __init__(self) -> None:
        self.acls: List[AclBinding] = []

    def made(self, flow: str) -> FrozenSet[AclBinding]:
        return frozenset(self.acls)

    def created(self, flow: str, acls: Iterable[AclBinding]) -> None:
        self.acls += acls

    def given_up(self, flow: str, acls: Iterable[AclBinding]) -> None:
        self.acls = [each for each in self.acls if each not in acls]


def turn(source: Guarded, target: Guarded, book: Book) -> Synced:
    deleting = flow(sync_topic_acls_delete=True)
    return sync_topic_acls(deleting, (deleting,), cast(Any, source), cast(Any, target), book)


def test_acl_that_could_not_be_deleted_now_is_deleted_at_a_later_turn() -> None:
    book, source, target = Book(), Guarded("orders", [READ]), Guarded("A.orders", [])
    assert turn(source, target, book).changed == 1 and target.acls == [OURS]
    source.acls, target.away = [], True
    with pytest.raises(ClusterError):
        turn(source, target, book)
    assert len(target.acls) == 1
    target.away = False
    assert turn(source, target, book).deleted == 1 and target.acls == []
    # What is gone is not the flow's any more: another client's, given later, stays.
    target.acls = [OURS]
    assert turn(source, target, book).deleted == 0 and len(target.acls) == 1


def test_acls_that_were_created_before_the_target_went_away_are_the_flows_to_delete() -> None:
    book, source, target = Book(), Guarded("orders", []), Guarded("A.orders", [])
    source.acls = [replace(READ, principal=f"User:{number}") for number in range(2500)]
    target.room = 2000
    with pytest.raises(ClusterError):
        turn(source, target, book)
    source.acls, target.room = [], 1_000_000
    assert (turn(source, target, book).deleted, target.acls) == (2000, [])
