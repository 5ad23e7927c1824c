"""What operators are told: which permission is missing by name, which steps of a cut-over are left, when it goes on."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field, replace
from threading import Event
from types import SimpleNamespace
from typing import Any, Dict, FrozenSet, List, Optional, Tuple

import pytest

from mirror_lib.config.model import MirrorConfig
from mirror_lib.control.topic_acls import AclChanges
from mirror_lib.cutover.failover import Failover, _topics, failover_lines
from mirror_lib.cutover.flow import Cutover, Options
from mirror_lib.cutover.gates import _of_groups, _of_plan
from mirror_lib.cutover.steps import (
    BACK,
    CHECK,
    COPY,
    DONE,
    FAILED,
    GROUPS,
    OVER,
    SILENCE,
    STARTED,
    STEPS,
    VERIFY,
    ends_text,
    not_copied,
    to_resume,
    to_undo,
)
from mirror_lib.doctor.checks import BLOCKING, OK, WARNING, collisions, missing_operations
from mirror_lib.errors import RefusedError
from mirror_lib.facts import AclBinding, CommittedOffset, ConsumerGroup, GroupMember, OffsetRange, TopicDescription
from mirror_lib.groups.decisions import Decision, Known, Outcome, PositionsAhead, decide
from mirror_lib.groups.map import FlowMaps
from mirror_lib.groups.survey import Pair, Survey
from mirror_lib.ledger.records import CutoverStep, PartitionKey
from mirror_lib.status.facts import GroupStatus
from mirror_lib.topics.plan import CopiedTopic, SkippedTopic, TopicPlan
from tests.lab.flows import flow_of

READ = frozenset({"READ", "DESCRIBE"})


@pytest.mark.parametrize(
    ("granted", "level", "said"),
    [
        (READ | {"ALTER_CONFIGS"}, OK, "granted on 1 topic"),
        (frozenset({"ALL"}), OK, "granted on 1 topic"),
        (READ, BLOCKING, "DescribeConfigs is not granted on 1 of 1 topics: orders"),
        (None, WARNING, "do not report"),
    ],
)
def test_missing_operation_is_named_with_the_command_that_grants_it(
    granted: Optional[FrozenSet[str]], level: str, said: str
) -> None:
    (check,) = missing_operations("A->B", "topic", {"orders": ("READ", "DESCRIBE_CONFIGS")}, {"orders": granted})
    assert check.level == level and said in check.detail
    if level == BLOCKING:
        operation = check.detail.split()[0]
        assert f"kafka-acls --add --allow-principal PRINCIPAL --operation {operation} --topic orders" == check.remedy


def test_topic_that_may_not_be_described_lacks_every_operation() -> None:
    wanted = {"orders": ("READ",), "audit": ("READ",)}
    (check,) = missing_operations("A->B", "topic", wanted, {"orders": READ})
    assert check.detail == "Read is not granted on 1 of 2 topics: audit"
    assert list(missing_operations("A->B", "topic", {}, {})) == []


def test_remote_topic_of_two_flows_blocks_the_flow_that_does_not_share() -> None:
    both = {"C: orders": ["A->C", "B->C"], "C: audit": ["A->C"]}
    assert [each.subject for each in collisions(both, frozenset())] == ["A->C"]
    assert [each.subject for each in collisions(both, frozenset({"A->C"}))] == ["B->C"]
    assert list(collisions(both, frozenset({"A->C", "B->C"}))) == []


ENDS = {("orders", 0): 10, ("orders", 1): 7}
ALL = list(STEPS)


def rows(*steps: str, status: str = DONE, cutover: str = "one", direction: str = OVER) -> List[CutoverStep]:
    facts = {SILENCE: ends_text(ENDS)}
    return [CutoverStep("A->B", cutover, direction, step, status, "", facts.get(step, "")) for step in steps]


def test_last_row_of_a_step_counts_and_each_direction_has_its_own() -> None:
    again = [*rows(SILENCE, COPY), *rows(COPY, status=STARTED), *rows(COPY, status=FAILED)]
    assert set(to_resume(again, OVER)[1]) == {SILENCE}
    newer = [*rows(*ALL), *rows(SILENCE, cutover="two")]
    cutover_id, done = to_resume(newer, OVER)
    assert (cutover_id, set(done)) == ("two", {SILENCE})
    begun, back = (rows(*steps, direction=BACK, cutover="back") for steps in ((CHECK,), (CHECK, GROUPS)))
    assert to_resume([*newer, *begun], BACK)[0] == "back"
    ended = (rows(*ALL), OVER), ([*newer, *back], BACK)
    for made, direction in (*ended, (rows(), OVER), ([*newer, *begun], OVER), ([*begun, *rows(SILENCE)], BACK)):
        cutover_id, done = to_resume(made, direction)
        assert cutover_id not in ("one", "two", "back") and not done


def test_way_back_undoes_every_cutover_since_the_last_way_back() -> None:
    """A cut-over that is called again after its end perhaps has no end."""
    first, again = rows(*ALL), rows(SILENCE, cutover="two")
    begun = rows(CHECK, direction=BACK, cutover="back")
    assert to_undo([*first, *begun, *again]) == [*first, *again]
    ended = [*first, *begun, *rows(GROUPS, direction=BACK, cutover="back")]
    assert to_undo(ended) == to_undo([*ended, *begun]) == first
    assert to_undo([*ended, *again]) == again and to_undo(begun) == []


ORDERS = TopicDescription("orders", "o", 1)


def cutover_of(plan: TopicPlan, leave_groups: bool = False, **settings: Any) -> Any:
    """A cut-over of A->B whose clusters have `orders` and `A.orders`, and give no other answer."""
    cluster: Any = SimpleNamespace(
        alias="B",
        topics=lambda: {"orders": ORDERS, "A.orders": TopicDescription("A.orders", "r", 1)},
        offsets=lambda places, _: {},
        describe_groups=lambda names: {},
        undescribed_groups=lambda: ["billing"],
        group_names=lambda: [],
        committed_offsets=lambda names: {},
    )
    cutover: Any = object.__new__(Cutover)
    cutover._flow, cutover._config = flow_of(**settings), MirrorConfig((), "state")
    cutover._source = cutover._target = cluster
    cutover._topics = [each.source.name for each in plan.copied]
    cutover._options = Options(1.0, 1.0, leave_groups=leave_groups, take_over=False)
    cutover._plan = lambda: plan
    cutover._events = SimpleNamespace(cutover_steps=lambda flow: [], add_cutover_step=lambda row: None)
    cutover._print, cutover._stop = (lambda line: None), Event()
    return cutover


COPIED = TopicPlan((CopiedTopic(ORDERS, "A.orders", "r", 1),), ())
LOOP, BLOCKED = SkippedTopic("pay", "cycle", wanted=True), SkippedTopic("pay", "no legal name", wanted=True)


@pytest.mark.parametrize(
    ("plan", "topics", "reason"),
    [
        (TopicPlan((), ()), ("ord.*",), "it copies no topic of applications"),
        (COPIED, ("orders", "order"), r"no topic of A matches `order` \(did you mean orders\?\)"),
        (replace(COPIED, skipped=(LOOP,)), (".*",), f"pay: {LOOP.reason}"),
        (replace(COPIED, skipped=(BLOCKED,)), (".*",), "pay: no legal name"),
    ],
)
def test_cutover_is_refused_where_a_selected_topic_is_not_copied(
    plan: TopicPlan, topics: Tuple[str, ...], reason: str
) -> None:
    """It reported that the target had every record, also of a flow that copied nothing."""
    with pytest.raises(RefusedError, match=f"topics are not copied, nothing was changed: {reason}"):
        list(cutover_of(plan, topics=topics).over())


def test_signal_during_a_step_ends_a_cutover_before_the_next_one() -> None:
    """Ctrl-C was swallowed, and the groups were moved all the same."""
    cutover = cutover_of(COPIED)
    acts = {VERIFY: lambda: (cutover._stop.set(), ("", ""))[1], GROUPS: lambda: pytest.fail("the groups are moved")}
    with pytest.raises(RefusedError, match="stopped before the step groups"):
        list(cutover._make("one", OVER, acts))


KEY, WHOLE = PartitionKey("o", "r", "orders", 0), OffsetRange(0, 1000)


@dataclass
class Translation:
    """In place of `FlowTranslation`: `billing` is at `offset` of `orders`, of which 1,000 records are copied."""

    offset: int = 100
    remote: OffsetRange = WHOLE
    first: int = 0
    own: OffsetRange = WHOLE
    run_id: str = "run"
    committed: List[Decision] = field(default_factory=list)

    def survey(self) -> Survey:
        pair = Pair(("orders", 0), ("A.orders", 0), KEY)
        at = {"billing": {pair.here: CommittedOffset(self.offset)}}
        own = {pair.here: self.own}
        return Survey({pair.here: pair}, at, {"billing": {}}, {}, {pair.there: self.remote}, own_logs=own)

    def decide(self, found: Survey) -> List[Decision]:
        return decide(found, Known(FlowMaps({KEY: array("q", (self.first, 0, 1000))}), {}, "B"), PositionsAhead())

    def unreadable(self, found: Survey) -> List[str]:
        return []

    def execute(self, decisions: List[Decision], own_rows: bool) -> List[Outcome]:
        self.committed += decisions
        return [Outcome(each, "committed") for each in decisions]

    def close(self) -> None:
        pass


def translated(cutover: Any, made: Translation, monkeypatch: pytest.MonkeyPatch) -> Tuple[str, str]:
    """The step `groups`."""
    monkeypatch.setattr("mirror_lib.cutover.flow.FlowTranslation", lambda *_: made)
    cutover._spark, cutover._source.undescribed_groups = None, lambda: []
    return cutover._groups()  # type: ignore[no-any-return]


def test_offset_that_a_consumer_commits_as_it_leaves_is_the_one_that_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The offsets were read before the members, and with --leave-groups any members were accepted."""
    made, cutover = Translation(), cutover_of(COPIED, leave_groups=True)

    def leaves(names: List[str]) -> Dict[str, ConsumerGroup]:
        made.offset = 150
        return {}

    cutover._source.describe_groups = leaves
    translated(cutover, made, monkeypatch)
    assert [each.translation.new_offset for each in made.committed] == [150]
    reads = ConsumerGroup("billing", "Stable", False, (GroupMember("/host"),))
    cutover._source.describe_groups = lambda names: {"billing": reads}
    with pytest.raises(RefusedError, match="billing still read on B"):
        translated(cutover, made, monkeypatch)


@pytest.mark.parametrize(
    ("made", "log_start", "reset", "skips"),
    [
        (Translation(), 0, "latest", False),
        (Translation(remote=OffsetRange(800, 1000)), 0, "earliest", True),  # the remote log has expired
        (Translation(remote=OffsetRange(800, 1000)), 800, "earliest", False),  # the source has them no longer
        (Translation(first=500), 0, "latest", True),  # the copy began later
        (Translation(first=500), 500, "latest", False),
        (Translation(first=500), 0, "earliest", False),  # compaction removed them
    ],
)
def test_group_that_would_skip_records_of_the_source_holds_up_a_cutover(
    made: Translation, log_start: int, reset: str, skips: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for leave_groups in (False, True):
        cutover = cutover_of(COPIED, leave_groups, auto_offset_reset=reset)
        made.own = OffsetRange(log_start, 1500)
        if skips and not leave_groups:
            with pytest.raises(RefusedError, match="no offset was changed: billing on orders-0 from offset"):
                translated(cutover, made, monkeypatch)
            assert not made.committed
        else:
            assert ("1 with a loss" in translated(cutover, made, monkeypatch)[0]) is skips


def test_what_a_cluster_does_not_answer_forbids_to_go_on() -> None:
    """A partition without a leader may have records of applications, a group that is not described members."""
    cutover = cutover_of(COPIED)
    ended = CutoverStep("A->B", "one", OVER, CHECK, DONE, "", ends_text({("A.orders", 0): 5}))
    with pytest.raises(RefusedError, match=r"A\.orders-0 has no leader"):
        cutover._check_target([ended])
    with pytest.raises(RefusedError, match="billing may still read on B"):
        cutover._refuse_consumers({"billing"}, cutover._source)


def test_gates_look_at_consumers_of_the_flow_and_at_no_acl_that_silences_the_source() -> None:
    """Groups that were not translated yet did not count; without one, any group of the cluster did."""
    own = {"billing": "orders", "shipping": "orders", "other": "audit"}
    member = (GroupMember("/host"),)
    source: Any = SimpleNamespace(
        group_names=lambda: sorted(own),
        committed_offsets=lambda names: {name: {(own[name], 0): CommittedOffset(1)} for name in names},
        describe_groups=lambda names: {each: ConsumerGroup(each, "Stable", False, member) for each in names},
    )
    state: Any = SimpleNamespace(groups=(GroupStatus("billing", 1, "exact", None, 2, 0.0),))
    denied = AclBinding("A.orders", "LITERAL", "User:*", "*", "WRITE", "DENY")
    found: Any = SimpleNamespace(flow=flow_of(), topics=COPIED, configs={}, acls=AclChanges((denied,), (), ()))
    assert "billing and 1 more still reads" in next(_of_groups(found, state, source)).detail
    assert [each.level for each in _of_plan(found)] == [OK, OK]
    own.update(billing="audit", shipping="audit")
    assert next(_of_groups(found, state, source)).level == OK


def test_failover_names_the_partitions_on_which_a_group_was_never_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It printed that the group skips no record. Partition 2 is empty, partition 3 has a marker alone."""
    monkeypatch.setattr(f"{_topics.__module__}.first_records", lambda *_: SimpleNamespace(without={("A.orders", 3)}))
    logs = {("A.orders", n): OffsetRange(5, end) for n, end in enumerate((9, 9, 5, 6))}
    own = {"billing": {("A.orders", 0): CommittedOffset(7)}, "other": {}}
    target: Any = SimpleNamespace(
        topics=lambda: {"A.orders": TopicDescription("A.orders", "r", 4)},
        offsets=lambda places, _: logs,
        committed_offsets=lambda groups: own,
    )
    row = {"source_topic": "orders", "remote_topic": "A.orders", "remote_topic_id": "r", "committed_at": 0.0}
    (topic,) = _topics(flow_of(), target, [row], ["billing", "other"])
    assert topic.without_offset == ("billing on A.orders-1",)
    groups = (GroupStatus("billing", 1, "exact", None, 2, 0.0),)
    for each, skips in ((topic, False), (replace(topic, without_offset=()), True)):
        said = " ".join(failover_lines(Failover("A->B", 0.0, 0.0, None, (each,), groups)))
        assert ("without an offset, billing on A" in said, "and skips no record" in said) == (not skips, skips)


def test_not_copied_counts_from_what_the_source_still_has() -> None:
    place = ("orders", 0)
    for position, start, left in ((10, 0, {}), (9, 0, {place: 1}), (11, 0, {})):
        assert not_copied({place: 10}, {place: start}, {place: position}) == left
    for start, left in ((0, {place: 10}), (10, {}), (4, {place: 6})):
        assert not_copied({place: 10}, {place: start}, {}) == left
