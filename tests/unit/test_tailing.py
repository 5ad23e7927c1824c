"""Which flows tail, with how many tasks, and how their tasks and their driver talk: nothing is lost on the way."""

from __future__ import annotations

import socket
import threading
from array import array
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Dict, Iterable, List, Optional, cast

import pytest

from mirror_lib.errors import StateError
from mirror_lib.kafka.record_batch import Producer
from mirror_lib.ledger.records import DATA_LOST, Incident, OffsetSyncs, PartitionKey, Position
from mirror_lib.replication.copied_topics import CopiedPartition
from mirror_lib.replication.copy_ranges import Range
from mirror_lib.replication.flow_state import FlowState, commit_of, judged_by_topics
from mirror_lib.replication.messages import NO_END, PartitionReport, ReportTo, TaskReport
from mirror_lib.replication.positions import Positions
from mirror_lib.replication.rejections import Rejections
from mirror_lib.replication.report_channel import PENDING_REPORTS, ReportClient, ReportServer
from mirror_lib.replication.tail import (
    BatchClock,
    Every,
    PeriodicTask,
    Tail,
    falls_behind,
    rest_after,
    tail_tasks,
    tailed,
)
from tests.lab.one_flow import until

SYNCS = OffsetSyncs("orders", 0, array("q", (9, 9, 1)).tobytes())
KEY, OTHER = PartitionKey("a", "b", "orders", 0), PartitionKey("a", "b", "orders", 1)


def report(stopped: Optional[str] = None) -> TaskReport:
    part = PartitionReport("orders", "A.orders", 0, 10, 10, 1, -1, records=1, stopped=stopped)
    other = PartitionReport("orders", "A.orders", 1, 20, 20, None, -1)
    return TaskReport(0, {1: Producer(4711, 0)}, False, (part, other), (SYNCS,), 1, 0, 0, 0, 2.0)


@pytest.mark.parametrize(
    ("slots", "flows", "tasks_max", "tasks"),
    [(2, 1, 1, 1), (2, 1, 8, 1), (6, 1, 2, 2), (6, 2, 4, 2), (6, 5, 4, 1), (3, 3, 1, 0), (1, 1, 1, 0), (0, 1, 1, 0)],
)
def test_flows_share_all_slots_but_one(slots: int, flows: int, tasks_max: int, tasks: int) -> None:
    assert tail_tasks(slots, flows, tasks_max) == tasks


def test_everything_that_can_go_on_is_tailed_from_where_it_stands() -> None:
    caught_up, refused = Range(KEY, Position(7, 9), 7), Range(OTHER, Position(0, 0), 5, refused="its log was truncated")
    assert tailed([caught_up, refused], (), lambda each: each) == [Range(KEY, Position(7, 9), NO_END)]
    assert tailed([caught_up], [KEY], lambda each: each) == []


def test_partition_whose_topic_was_deleted_has_not_failed() -> None:
    copied = [CopiedPartition("orders", "A.orders", number, "a", "b", 1000) for number in (0, 1)]
    partitions = {each.key: each for each in copied}
    stopped = report(stopped="orders-0 at offset 10: cannot fetch: OFFSET_OUT_OF_RANGE")
    assert judged_by_topics([stopped], partitions, partitions) == [stopped]
    (judged,) = judged_by_topics([stopped], partitions, {copied[1].key: copied[1]})
    assert judged.syncs == stopped.syncs
    assert [(part.stopped, part.sequence) for part in judged.partitions] == [(None, None), (None, None)]
    lost = Incident(DATA_LOST, "orders", 0, 3, 7, "offsets 3 to 6 left the source's log")
    reported = replace(report(), partitions=(replace(report().partitions[0], incidents=(lost,)),))
    (judged,) = judged_by_topics([reported], partitions, {})
    assert judged.partitions[0].incidents == (lost,)


def test_what_a_task_told_and_tells_again_at_its_end_is_one_row_and_its_last_position_counts() -> None:
    copied = [CopiedPartition("orders", "A.orders", number, "a", "b", 1000) for number in (0, 1)]
    partitions = {each.key: each for each in copied}
    said = report()
    last = replace(said, partitions=(replace(said.partitions[0], position=12, records=2), said.partitions[1]))
    outcome = commit_of([said, last], partitions, lambda key: Position(0, 0), Rejections(skips=False), {})
    assert outcome.moves == {copied[0].key: Position(12, 10), copied[1].key: Position(20, 20)}
    assert [len(each) for each in outcome.runs] == [1]
    assert [(row.partition, row.record_count) for row in outcome.rows] == [(0, 0), (1, 0)]
    assert sum(each.records for each in outcome.reports) == 2


def test_what_reports_come_to_is_known_only_once_it_is_recorded() -> None:
    """So a journal that cannot be written leaves a driver with what it knew."""
    copied = [CopiedPartition("orders", "A.orders", number, "a", "b", 1000) for number in (0, 1)]
    partitions, stands = {each.key: each for each in copied}, Stands()
    flow: Any = SimpleNamespace(name="A->B", on_error="skip")
    state = FlowState(flow, cast(Positions, stands))
    refused = replace(report("too large").partitions[0], rejected_from=10, rejected_until=30)
    stopped = replace(report().partitions[1], stopped="cannot fetch")
    reported = [replace(report(), partitions=(refused, stopped))]
    first, second = (state.apply(reported, partitions, reported, 5.0) for _ in range(2))
    assert first == second
    assert (stands.now, state.stopped.parts, state.isolate_until(copied[0].key)) == ({}, {}, -1)
    state.take(first)
    assert stands.now == {copied[0].key: Position(10, 10), copied[1].key: Position(20, 20)}
    assert (list(state.stopped.parts), state.isolate_until(copied[0].key)) == ([copied[1].key], 30)
    assert state.apply(reported, partitions, reported, 5.0).moves == {copied[0].key: Position(30, 10)}


class Stands:
    def __init__(self) -> None:
        self.now: Dict[PartitionKey, Position] = {}

    def at(self, key: PartitionKey) -> Position:
        return self.now.get(key, Position(0, 0))

    def move(self, key: PartitionKey, position: Position) -> None:
        self.now[key] = position

    def trust(self, keys: Iterable[PartitionKey]) -> None:
        assert set(keys) <= set(self.now)


def test_flow_that_tails_with_few_tasks_catches_up_with_all_of_them() -> None:
    assert falls_behind(1, tasks_max=4, records=100, left=101)
    assert not falls_behind(1, tasks_max=4, records=100, left=100)
    assert not falls_behind(4, tasks_max=4, records=100, left=10_000)


def test_slow_turns_come_less_often_but_not_so_seldom_that_tasks_wait_for_them() -> None:
    assert rest_after(2.0, took=0.1) == 2.0
    assert rest_after(2.0, took=0.5) == 4.5
    assert rest_after(2.0, took=60.0) == 10.0


def test_spark_gets_its_batch_back_only_when_it_has_something_new_to_see() -> None:
    clock = BatchClock(Tail(batch_seconds=0.0))
    clock.copied(0)
    assert not clock.over()
    clock.copied(1)
    assert clock.over()
    patient = BatchClock(Tail())
    patient.copied(1)
    assert not patient.over()


def test_what_is_done_every_so_often_is_due_once_in_that_time() -> None:
    assert not Every(3600.0).due()
    often = Every(0.0)
    assert often.due() and often.due()


def test_turns_are_over_when_the_block_is() -> None:
    turns: List[str] = []
    with PeriodicTask(lambda: turns.append("turn"), lambda: None, lambda: turns.append("failed"), 0.0):
        until(lambda: bool(turns))
    known = len(turns)
    threading.Event().wait(0.3)
    assert set(turns) == {"turn"} and len(turns) == known


def test_what_fails_beside_the_block_is_said_at_once_and_raised_at_its_end() -> None:
    def failing() -> None:
        raise StateError("the ledger cannot be written")

    said = threading.Event()
    with pytest.raises(StateError, match="cannot be written"), PeriodicTask(failing, lambda: None, said.set, 0.0):
        assert said.wait(10)


def test_driver_hears_every_report_in_order_and_says_when_to_end() -> None:
    with ReportServer("127.0.0.1", "127.0.0.1", 2.0, 600.0) as listener:
        teller = ReportClient(listener.address)
        reported = [replace(report(), recovered=number) for number in range(3)]
        for each in reported:
            teller.send_report(each)
        heard: List[TaskReport] = []

        def all_heard() -> bool:
            heard.extend(listener.take())
            return len(heard) == len(reported)

        until(all_heard)
        assert heard == reported
        until(lambda: not teller.end_requested() and teller.unreported() == [])
        assert listener.whole(1)
        listener.end_all()
        until(teller.end_requested)
        late = ReportClient(listener.address)
        until(late.end_requested)
        assert late.connected
        teller.close()
        until(lambda: not listener.whole(1))


def test_task_waits_for_a_driver_that_takes_nothing() -> None:
    with ReportServer("127.0.0.1", "127.0.0.1", 2.0, 600.0) as listener:
        teller = ReportClient(listener.address)
        for _ in range(PENDING_REPORTS):
            assert not teller.crowded()
            teller.send_report(report())
        assert not teller.end_requested() and teller.crowded()
        heard: List[TaskReport] = []

        def heard_and_answered() -> bool:
            heard.extend(listener.take())
            return not (teller.end_requested() or teller.crowded())

        until(heard_and_answered)
        teller.close()


def test_stage_leaves_no_thread_and_no_port_behind() -> None:
    def reporting() -> List[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "reports"]

    with ReportServer("127.0.0.1", "127.0.0.1", 2.0, 600.0) as listener:
        teller = ReportClient(listener.address)
        until(lambda: len(reporting()) == 2)
    until(lambda: reporting() == [])
    assert not ReportClient(listener.address).connected
    until(teller.end_requested)


def test_a_task_that_tells_much_is_heard_before_it_waits_and_many_that_tell_little_are_not() -> None:
    few = PENDING_REPORTS // 2 - 1
    with ReportServer("127.0.0.1", "127.0.0.1", 2.0, 600.0) as listener:
        tellers = [ReportClient(listener.address) for _ in range(3)]
        for teller in tellers * few:
            teller.send_report(report())
        heard: List[TaskReport] = []

        def all_heard() -> bool:
            assert not listener.crowded()
            heard.extend(listener.take())
            return len(heard) == few * len(tellers)

        until(all_heard)
        for _ in range(few + 1):
            tellers[0].send_report(report())
        until(listener.crowded)
        assert not tellers[0].crowded() and len(listener.take()) == few + 1 and not listener.crowded()
        for teller in tellers:
            teller.close()


def test_without_a_driver_to_be_reached_a_task_ends_to_report() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    teller = ReportClient(ReportTo("127.0.0.1", port, "secret", 2.0, 600.0))
    assert not teller.connected and not teller.end_requested()
