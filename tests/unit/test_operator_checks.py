"""What operators are told: which permission is missing by name, which steps of a cut-over are left, when it goes on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, FrozenSet, List, Optional

import pytest

from mirror_lib.config.model import MirrorConfig
from mirror_lib.cutover.flow import Cutover, Options
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
    ends_text,
    is_complete,
    last_cutover,
    not_copied,
    to_undo,
)
from mirror_lib.doctor.checks import BLOCKING, OK, WARNING, collisions, missing_operations
from mirror_lib.errors import RefusedError
from mirror_lib.facts import TopicDescription
from mirror_lib.groups.translation import TO_DOWNSTREAM
from mirror_lib.ledger.records import CutoverStep
from mirror_lib.topics.plan import CopiedTopic, TopicPlan
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
    found = last_cutover(again, OVER)
    assert found is not None and set(found.done) == {SILENCE}
    assert last_cutover([], OVER) is None
    newer = [*rows(*ALL), *rows(SILENCE, cutover="two")]
    second = last_cutover(newer, OVER)
    assert second is not None and (second.cutover_id, set(second.done)) == ("two", {SILENCE})
    assert is_complete(last_cutover(rows(*ALL), OVER), OVER) and not is_complete(second, OVER)
    back = rows(CHECK, GROUPS, direction=BACK, cutover="back")
    assert is_complete(last_cutover([*newer, *back], BACK), BACK)
    assert last_cutover([*rows(CHECK), *back, *rows(SILENCE, cutover="three")], BACK) is None


def test_way_back_undoes_every_cutover_since_the_last_way_back() -> None:
    """A cut-over that is called again after its end perhaps has no end."""
    first, again = rows(*ALL), rows(SILENCE, cutover="two")
    begun = rows(CHECK, direction=BACK, cutover="back")
    assert to_undo([*first, *begun, *again]) == [*first, *again]
    ended = [*first, *begun, *rows(GROUPS, direction=BACK, cutover="back")]
    assert to_undo(ended) == to_undo([*ended, *begun]) == first
    assert to_undo([*ended, *again]) == again and to_undo(begun) == []


def test_what_a_cluster_does_not_answer_forbids_to_go_on() -> None:
    """A partition without a leader may have records of applications, a group that is not described members."""
    copied = CopiedTopic(TopicDescription("orders", "o", 1), "A.orders", "r", 1)
    cluster: Any = SimpleNamespace(
        alias="B",
        topics=lambda: {"A.orders": TopicDescription("A.orders", "r", 1)},
        offsets=lambda places, _: {},
        describe_groups=lambda names: {},
        undescribed_groups=lambda: ["billing"],
    )
    cutover: Any = object.__new__(Cutover)
    cutover._flow, cutover._config, cutover._topics = flow_of(), MirrorConfig((), "state"), ["orders"]
    cutover._source = cutover._target = cluster
    cutover._options = Options(1.0, 1.0, leave_groups=False, take_over=False)
    cutover._plan = lambda: TopicPlan((copied,), ())
    ended = CutoverStep("A->B", "one", OVER, CHECK, DONE, "", ends_text({("A.orders", 0): 5}))
    with pytest.raises(RefusedError, match=r"A\.orders-0 has no leader"):
        cutover._check_target([ended])
    with pytest.raises(RefusedError, match="billing may still read on B"):
        cutover._refuse_consumers({"billing"}, TO_DOWNSTREAM)


def test_not_copied_counts_from_what_the_source_still_has() -> None:
    place = ("orders", 0)
    for position, start, left in ((10, 0, {}), (9, 0, {place: 1}), (11, 0, {})):
        assert not_copied({place: 10}, {place: start}, {place: position}) == left
    for start, left in ((0, {place: 10}), (10, {}), (4, {place: 6})):
        assert not_copied({place: 10}, {place: start}, {}) == left
