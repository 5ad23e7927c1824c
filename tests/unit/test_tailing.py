"""Which flows tail, with how many tasks, and what follows from the reports of their stages."""

from __future__ import annotations

from array import array
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Optional

import pytest

from mirror_lib.kafka.record_batch import Producer
from mirror_lib.ledger.records import DATA_LOST, OFFSETS_SKIPPED, PARTITION_STOPPED, Incident, PartitionKey, Position
from mirror_lib.replication.copy_ranges import Range
from mirror_lib.replication.flow_state import FlowState, judged_by_topics
from mirror_lib.replication.messages import CopiedPartition, PartitionReport, Stop, TaskReport
from mirror_lib.replication.tail import falls_behind, tail_tasks
from mirror_lib.replication.totals import counted_as_copied

SYNCS = array("q", (9, 9, 1)).tobytes()
KEY, OTHER = PartitionKey("a", "b", "orders", 0), PartitionKey("a", "b", "orders", 1)


def report(stopped: Optional[str] = None) -> TaskReport:
    stop = None if stopped is None else Stop(stopped)
    part = PartitionReport("orders", "A.orders", 0, 10, 10, 1, -1, records=1, stopped=stop, syncs=SYNCS)
    other = PartitionReport("orders", "A.orders", 1, 20, 20, None, -1)
    return TaskReport(0, {1: Producer(4711, 0)}, False, (part, other), 2.0)


@pytest.mark.parametrize(
    ("slots", "flows", "tasks_max", "tasks"),
    [(2, 1, 1, 1), (2, 1, 8, 1), (6, 1, 2, 2), (6, 2, 4, 2), (6, 5, 4, 1), (3, 3, 1, 1), (1, 1, 8, 1), (2, 3, 1, 0)],
)
def test_flows_share_all_slots_but_one_or_have_one_each(slots: int, flows: int, tasks_max: int, tasks: int) -> None:
    assert tail_tasks(slots, flows, tasks_max) == tasks


def test_partition_whose_topic_was_deleted_has_not_failed() -> None:
    copied = [CopiedPartition("orders", "A.orders", number, "a", "b", 1000) for number in (0, 1)]
    partitions = {each.key: each for each in copied}
    stopped = report(stopped="orders-0 at offset 10: cannot fetch: OFFSET_OUT_OF_RANGE")
    assert judged_by_topics([stopped], partitions, partitions) == [stopped]
    (judged,) = judged_by_topics([stopped], partitions, {copied[1].key: copied[1]})
    assert judged.partitions[0].syncs == SYNCS
    assert [(part.stopped, part.sequence) for part in judged.partitions] == [(None, None), (None, None)]
    lost = Incident(DATA_LOST, "orders", 0, 3, 7, "offsets 3 to 6 left the source's log")
    reported = replace(report(), partitions=(replace(report().partitions[0], incidents=(lost,)),))
    (judged,) = judged_by_topics([reported], partitions, {})
    assert judged.partitions[0].incidents == (lost,)


@pytest.fixture
def state() -> FlowState:
    """Of a flow that skips refused records, and has just begun with two partitions."""
    copied = [CopiedPartition("orders", "A.orders", number, "a", "b", 1000) for number in (0, 1)]
    flow: Any = SimpleNamespace(name="A->B", on_error="skip")
    state = FlowState(flow, {KEY: Position(0, 0), OTHER: Position(0, 0)})
    state.begin({each.key: each for each in copied}, [Range(KEY, Position(0, 0), 7), Range(OTHER, Position(0, 0), 0)])
    return state


def test_reports_change_the_state_only_once_they_are_recorded(state: FlowState) -> None:
    """So a journal that cannot be written leaves a driver with what it knew."""
    refused = replace(report().partitions[0], stopped=Stop("too large", rejected=(10, 30)))
    stop = Incident(PARTITION_STOPPED, "orders", 1, 20, -1, "cannot fetch")
    stopped = replace(report().partitions[1], stopped=Stop("cannot fetch"), incidents=(stop,))
    reported, before = [replace(report(), partitions=(refused, stopped))], dict(state.partitions)
    first, second = (state.apply(reported, 5.0) for _ in range(2))
    assert first == second and state.partitions == before
    state.take(first)
    assert first.moves == {KEY: Position(10, 10), OTHER: Position(20, 20)}
    assert {key: each.position for key, each in state.partitions.items()} == first.moves
    assert (state.stopped(), state.of(KEY).isolate_until) == ([stopped.stopped], 30)
    again = state.apply(reported, 5.0)
    assert again.moves == {KEY: Position(30, 10)}, "the refused records are skipped once they were sent one by one"
    kinds = [[each.kind for each in commit.incidents] for commit in (first, again)]
    assert kinds == [[PARTITION_STOPPED], [OFFSETS_SKIPPED]], "a partition that stays stopped is reported once"


def test_partitions_that_have_not_stopped_are_copied_from_their_positions(state: FlowState) -> None:
    assert state.todo() == [Range(KEY, Position(0, 0), 7)]
    state.take(state.apply([report()], 5.0))
    assert state.todo() == []  # both are past the end of the batch
    assert state.going() == [Range(KEY, Position(10, 10), 7), Range(OTHER, Position(20, 20), 0)]
    state.take(state.apply([report("cannot fetch")], 5.0))
    assert state.going() == [Range(OTHER, Position(20, 20), 0)]


def test_refused_partition_stays_stopped_and_others_are_tried_again(state: FlowState) -> None:
    refused, failed = Stop("gone", refused=True), Stop("cannot fetch")
    parts = (replace(part, stopped=stop) for part, stop in zip(report().partitions, (refused, failed)))
    state.take(state.apply([replace(report(), partitions=tuple(parts))], 5.0))
    assert state.stopped() == [refused, failed] and state.some_may_resume()
    state.begin(state.copied, [Range(KEY, Position(10, 10), 7), Range(OTHER, Position(20, 20), 0)])
    assert state.stopped() == [refused] and not state.some_may_resume()
    assert [each.key for each in state.going()] == [OTHER]


@pytest.mark.parametrize(("tasks", "left", "behind"), [(1, 101, True), (1, 100, False), (4, 10_000, False)])
def test_flow_that_tails_with_few_tasks_catches_up_with_all_of_them(tasks: int, left: int, behind: bool) -> None:
    part = PartitionReport("orders", "A.orders", 0, 10, 10, 1, -1, records=100, source_end=10 + left)
    assert falls_behind(tasks, 4, [TaskReport(0, {}, False, (part,), 30.0)]) is behind


def test_what_a_cancelled_stage_had_appended_counts_as_copied_and_the_rest_as_found() -> None:
    found = PartitionReport("orders", "A.orders", 0, 10, 10, 1, -1, recovered=7, recovered_bytes=70, syncs=SYNCS)
    idle = replace(found, partition=1, recovered=0, recovered_bytes=0, syncs=b"")
    counted = counted_as_copied(TaskReport(0, {}, False, (found, idle), 0.1), 12.0)
    assert (counted.records, counted.bytes, counted.recovered, counted.partitions[0].syncs) == (7, 70, 0, SYNCS)
    assert [(each.records, each.bytes, each.seconds) for each in counted.partitions] == [(7, 70, 12.0), (0, 0, 0.0)]
