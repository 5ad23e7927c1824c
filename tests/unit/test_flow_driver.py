"""A running driver: what a lane could not report is decided on as at the start of a run, and what its group gets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set
from unittest.mock import Mock

import pytest

from mirror_lib.facts import CommittedOffset, OffsetRange, TopicPartition
from mirror_lib.ledger.records import PARTITION_STOPPED, Position
from mirror_lib.replication.copy_ranges import Range, noted
from mirror_lib.replication.driver import FlowDriver
from mirror_lib.replication.messages import CopiedPartition, PartitionReport, nothing_copied
from tests.unit.configs import AB

ORDERS = CopiedPartition("orders", "A.orders", 0, "source-1", "remote-1", 1_000_000)
NEW = CopiedPartition("payments", "A.payments", 0, "source-2", "remote-2", 1_000_000)
KEY = ORDERS.key
BOTH = {KEY: ORDERS, NEW.key: NEW}


class Logs:
    """A cluster with one partition, whose log can be changed. `stale` is what a broker says of it that was cut off from
    the others, `silent` that not all of them can be asked."""

    def __init__(self, log_start: int, end: int) -> None:
        self.log = OffsetRange(log_start, end)
        self.stale: Optional[OffsetRange] = None
        self.silent = False

    def offsets(self, partitions: Sequence[TopicPartition], _: str) -> Dict[TopicPartition, OffsetRange]:
        return dict.fromkeys(partitions, self.stale or self.log)

    def sure_offsets(self, partitions: Sequence[TopicPartition], _: str) -> Dict[TopicPartition, OffsetRange]:
        return {} if self.silent else dict.fromkeys(partitions, self.log)


class Group:
    """Keeps what it gets, and how."""

    def __init__(self) -> None:
        self.got: List[str] = []
        self._offered: Set[TopicPartition] = set()

    def __getattr__(self, how: str) -> Any:
        def get(offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
            self._offered.update(offsets)
            self.got += [f"{how} {topic}-{n} {at.offset} {at.metadata}" for (topic, n), at in offsets.items()]

        return get

    def offers(self, partition: TopicPartition) -> bool:
        return partition in self._offered

    def withdraw(self, partitions: Sequence[TopicPartition]) -> None:
        self._offered.difference_update(partitions)
        self.got += [f"withdraw {topic}-{n}" for topic, n in partitions]


def driver_of(
    source: Logs, remote_end: int, stood: Optional[Position], group: Any = None, **settings: Any
) -> FlowDriver:
    """Its ledger knows at most one partition, and takes everything."""
    rows = Mock(spec=["positions", "begin", "note", "append"], folder="/state")
    rows.positions.return_value, rows.begin.return_value = {KEY: stood} if stood else {}, {}
    parts: Any = (source, Logs(0, remote_end), rows, group)
    return FlowDriver(replace(AB, **settings), *parts)


def reported(driver: FlowDriver, position: int, downstream: int, sequence: Optional[int] = 1) -> None:
    """A cycle whose lane has read the remote log up to its end, if it knows its next `sequence`."""
    part = PartitionReport("orders", "A.orders", 0, position, downstream, sequence, -1, records=1)
    driver.commit(driver.state.apply([replace(nothing_copied(0), partitions=(part,))]))


def decided(driver: FlowDriver) -> Range:
    driver.begin({KEY: ORDERS})
    found = driver.state.of(KEY).range
    assert found is not None
    return found


@pytest.fixture
def source() -> Logs:
    return Logs(100, 500)


@pytest.fixture
def standing(source: Logs) -> FlowDriver:
    """A driver that has decided on the partition once, and moved it to 210."""
    driver = driver_of(source, 300, Position(200, 50))
    decided(driver)
    driver.state.change(KEY, position=Position(210, 60))
    return driver


def test_records_that_left_the_source_before_a_lane_could_report_are_searched_for(
    standing: FlowDriver, source: Logs
) -> None:
    reported(standing, 210, 60, sequence=None)
    source.log = OffsetRange(260, 500)
    assert decided(standing) == Range(KEY, Position(210, 60), 500, log_start=260)
    assert standing.state.of(KEY).position == Position(210, 60)


def test_report_of_a_lane_that_has_read_its_remote_log_counts(standing: FlowDriver, source: Logs) -> None:
    reported(standing, 210, 60, sequence=None)
    assert decided(standing) == Range(KEY, Position(210, 60), 500)
    reported(standing, 210, 60)
    source.log = OffsetRange(260, 500)
    assert decided(standing).refused is not None


def test_source_that_seems_to_be_cut_off_is_believed_only_where_all_brokers_agree_on_its_leader(
    standing: FlowDriver, source: Logs
) -> None:
    source.stale = OffsetRange(100, 150)
    assert decided(standing) == Range(KEY, Position(210, 60), 500)
    source.silent = True
    standing.begin({KEY: ORDERS})
    assert [each.code for each in standing.state.stopped()] == ["MIR-210"]
    source.silent, source.log = False, OffsetRange(100, 150)
    assert "it was truncated" in (decided(standing).refused or "")


def note(downstream: int, of: CopiedPartition = ORDERS) -> str:
    return noted(of.remote_topic, of.remote_topic_id, Position(0, downstream)).metadata


def test_group_gets_new_starts_before_anything_is_copied_and_the_progress_of_what_is_copied_now(source: Logs) -> None:
    group = Group()
    driver = driver_of(source, 0, Position(200, 0), group, auto_offset_reset="latest")
    driver.begin(BOTH)
    driver.begin(BOTH)
    reported(driver, 210, 57)
    starts = [f"commit payments-0 500 {note(0, NEW)}", f"offer orders-0 200 {note(0)}"]
    assert group.got == [*starts, f"offer orders-0 210 {note(57)}"]
    group.got.clear()
    driver.begin({NEW.key: NEW})
    driver.begin(BOTH)
    assert group.got == ["withdraw orders-0", f"offer orders-0 210 {note(57)}"]


def test_progress_of_a_refused_partition_is_not_offered_and_its_stop_is_recorded_once() -> None:
    group = Group()
    driver = driver_of(Logs(201, 500), 0, Position(600, 0), group)
    driver.begin({KEY: ORDERS})
    driver.begin({KEY: ORDERS})
    assert [each.refused for each in driver.state.stopped()] == [True]
    noted_stops = [each for call in driver._journal.note.call_args_list for each in call.args[0]]  # type: ignore[attr-defined]
    assert [(each.kind, each.from_offset) for each in noted_stops] == [(PARTITION_STOPPED, 600)]
    assert group.got == []


def test_group_does_not_get_a_start_until_the_remote_log_has_proved_it(source: Logs) -> None:
    group = Group()
    driver = driver_of(source, 300, None, group)
    for _ in range(2):
        assert decided(driver).unrecorded and group.got == []
    reported(driver, 210, 300)
    assert group.got == [f"offer orders-0 210 {noted('A.orders', 'remote-1', Position(210, 300)).metadata}"]
    assert not decided(driver).unrecorded
