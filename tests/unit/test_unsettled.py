"""Offset syncs of a comparison with holes wait for its end, and go into the ledger with it or not at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Tuple

import pytest

from mirror_lib.records.remainder import Unsettled
from mirror_lib.records.unsettled import UnsettledPartitions
from mirror_lib.replicate.lanes import PartitionTask, TaskReport, nothing_copied
from mirror_lib.replicate.partition import PartitionCopy
from mirror_lib.replicate.sync_runs import gathered
from tests.unit.logs import task_of

OTHER = replace(task_of(), topic="other", remote_topic="a.other")


def of_pass(task: PartitionTask, upstream: int, *, left: bool, refused: bool = False) -> TaskReport:
    """A pass that found one record."""
    copy = PartitionCopy(task)
    copy.recover(upstream, upstream, 1)
    part = replace(copy.report(), left=left, refused=refused)
    return replace(nothing_copied(0), partitions=(part,), syncs=gathered([copy.syncs]))


def told(unsettled: UnsettledPartitions, report: TaskReport, *left: Tuple[PartitionTask, bool]) -> Tuple[int, ...]:
    """The upstream offsets of what may go into the ledger; of `left` it is said whether they are holed."""
    unsettled.learn(report, [(task.remote, Unsettled(None, holed)) for task, holed in left])
    syncs = unsettled.told(report, [task_of(), OTHER]).syncs
    return tuple(sync.upstream_offset for each in syncs for sync in each)


def test_what_was_found_behind_missing_offsets_waits_for_the_end() -> None:
    unsettled = UnsettledPartitions()
    assert told(unsettled, of_pass(task_of(), 3, left=True), (task_of(), True)) == ()
    assert told(unsettled, of_pass(OTHER, 7, left=False)) == (7,)
    assert told(unsettled, of_pass(task_of(), 5, left=False)) == (3, 5)
    assert told(unsettled, of_pass(task_of(), 6, left=False)) == (6,)


def test_what_waited_is_told_also_where_the_partition_is_refused_behind_its_end() -> None:
    unsettled = UnsettledPartitions()
    told(unsettled, of_pass(task_of(), 3, left=True), (task_of(), True))
    assert told(unsettled, of_pass(task_of(), 5, left=False, refused=True)) == (3, 5)


def test_nothing_of_it_is_told_where_the_remote_log_lost_records() -> None:
    unsettled = UnsettledPartitions()
    told(unsettled, of_pass(task_of(), 3, left=True), (task_of(), True))
    lost = of_pass(task_of(), 5, left=False)
    lost = replace(lost, partitions=(replace(lost.partitions[0], lost_tail=True),), syncs=())
    assert told(unsettled, lost) == ()


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(replace(task_of(), upstream_offset=4, source_topic_id="new"), id="another topic of the name"),
        pytest.param(replace(task_of(), upstream_offset=4, remote_topic_id="new"), id="another remote topic"),
        pytest.param(replace(task_of(), upstream_offset=9), id="another place"),
    ],
)
def test_what_was_found_elsewhere_is_forgotten(other: PartitionTask) -> None:
    unsettled = UnsettledPartitions()
    told(unsettled, of_pass(task_of(), 3, left=True), (task_of(), True))
    unsettled.begin([replace(task_of(), upstream_offset=4), OTHER])
    assert task_of().remote in unsettled.left
    unsettled.begin([other, OTHER])
    assert unsettled.left == {} and told(unsettled, of_pass(other, 10, left=False)) == (10,)


def test_partition_that_was_passed_without_a_row_is_holed() -> None:
    unsettled = UnsettledPartitions()
    unsettled.pass_over([task_of().remote])
    assert unsettled.left == {task_of().remote: Unsettled(None, True)}


def test_what_others_write_to_does_not_wait() -> None:
    unsettled, shared = UnsettledPartitions(), replace(task_of(), shared=True)
    report = of_pass(shared, 3, left=True)
    unsettled.learn(report, [(shared.remote, Unsettled(None, True))])
    assert len(unsettled.told(report, [shared]).syncs) == 1


@pytest.mark.parametrize("left", [True, False])
def test_what_follows_without_a_gap_or_is_given_anew_each_time_does_not_wait(left: bool) -> None:
    unsettled = UnsettledPartitions()
    assert told(unsettled, of_pass(task_of(), 3, left=left), (task_of(), not left)) == (3,)


def test_offset_that_is_owed_is_known_until_its_partition_was_looked_at_again() -> None:
    unsettled = UnsettledPartitions()
    unsettled.learn(of_pass(task_of(), 3, left=True), [(task_of().remote, Unsettled(2, True))])
    unsettled.learn(of_pass(OTHER, 3, left=True), [(OTHER.remote, Unsettled(None, True))])
    assert unsettled.owed() == {task_of().remote: 2}
    unsettled.learn(of_pass(task_of(), 5, left=False), [])
    assert unsettled.owed() == {}
