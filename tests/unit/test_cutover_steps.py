"""Which steps of a cut-over are still to be made, and when a source is silent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, List

import pytest

from mirror_lib.config.model import MirrorConfig
from mirror_lib.cutover.failover import Failover, failover_lines
from mirror_lib.cutover.flow import Cutover, Options
from mirror_lib.cutover.gates import fastest
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
    Ends,
    Quiet,
    ends_text,
    is_complete,
    last_cutover,
    not_copied,
    to_go,
    to_undo,
)
from mirror_lib.errors import RefusedError
from mirror_lib.facts import TopicDescription
from mirror_lib.groups.translation import TO_DOWNSTREAM
from mirror_lib.ledger.records import CutoverStep
from mirror_lib.status.facts import RunStatus, Sign
from mirror_lib.topics.plan import CopiedTopic, TopicPlan
from tests.lab.flows import flow_of

ENDS = {("orders", 0): 10, ("orders", 1): 7}
ALL = list(STEPS)


def rows(*steps: str, status: str = DONE, cutover: str = "one", direction: str = OVER) -> List[CutoverStep]:
    facts = {SILENCE: ends_text(ENDS)}
    return [CutoverStep("A->B", cutover, direction, step, status, "", facts.get(step, "")) for step in steps]


@pytest.mark.parametrize(
    ("done", "ends", "left"),
    [
        ([], ENDS, ALL),
        ([SILENCE, COPY], ENDS, [VERIFY, GROUPS, CHECK]),
        # A group may have read on since its offset was committed.
        ([SILENCE, COPY, VERIFY, GROUPS], ENDS, [GROUPS, CHECK]),
        # The source was written to meanwhile.
        ([SILENCE, COPY, VERIFY], {**ENDS, ("orders", 1): 8}, ALL),
        (ALL, {**ENDS, ("orders", 2): 1}, ALL),
    ],
)
def test_interrupted_cutover_resumes_with_the_first_step_that_does_not_hold(
    done: List[str], ends: Ends, left: List[str]
) -> None:
    found = last_cutover([*rows("nothing", status=STARTED), *rows(*done)], OVER)
    assert found is not None
    assert to_go(found, ends) == left


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


def test_source_is_silent_since_the_last_check_that_found_it_grown() -> None:
    quiet = Quiet.first(ENDS, 100.0).seen(ENDS, 101.0).seen(ENDS, 105.0)
    assert (quiet.lasts(105.0), quiet.grew) == (5.0, {})
    grown = quiet.seen({**ENDS, ("orders", 0): 30, ("audit", 0): 5}, 106.0)
    assert (grown.lasts(106.0), grown.grew) == (0.0, {"orders": 20, "audit": 5})
    # What grew last is still named when a check finds nothing.
    assert grown.seen(grown.ends, 109.0) == grown and grown.lasts(109.0) == 3.0


def test_not_copied_counts_from_what_the_source_still_has() -> None:
    place = ("orders", 0)
    for position, start, left in ((10, 0, {}), (9, 0, {place: 1}), (11, 0, {})):
        assert not_copied({place: 10}, {place: start}, {place: position}) == left
    for start, left in ((0, {place: 10}), (10, {}), (4, {place: 6})):
        assert not_copied({place: 10}, {place: start}, {}) == left


def test_time_of_a_cutover_is_told_from_the_fastest_copy_not_from_what_producers_write() -> None:
    signs = (Sign(0.0, 0, 0), Sign(10.0, 50_000, 0), Sign(70.0, 50_060, 0))
    caught_up = RunStatus("run", 0.0, 70.0, 70.0, None, None, None, 1.0, signs=signs)
    assert fastest([caught_up]) == 5000.0 and fastest([]) is None


def test_failover_shows_how_the_last_run_and_the_last_verification_failed() -> None:
    found = Failover("A->B", 0.0, None, None, (), (), problems=("the last verification found: differs",))
    assert "  ! the last verification found: differs" in failover_lines(found)
