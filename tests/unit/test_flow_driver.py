"""A running driver: what a lane could not report is decided on as at the start of a run, and what its group gets."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, cast

import pytest

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.facts import CommittedOffset, OffsetRange, TopicPartition
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.kafka.group_progress import GroupProgress
from mirror_lib.ledger.records import Incident, LedgerRow, PartitionKey, Position
from mirror_lib.replication.copy_ranges import Range, noted
from mirror_lib.replication.driver import FlowDriver
from mirror_lib.replication.journal import Journal
from mirror_lib.replication.messages import CopiedPartition, PartitionReport, nothing_copied
from tests.unit.configs import AB

ORDERS = CopiedPartition("orders", "A.orders", 0, "source-1", "remote-1", 1_000_000)
KEY, STOOD = ORDERS.key, Position(200, 50)


class Logs:
    """A cluster with one partition, whose log can be changed. `stale` is what a broker says of it that was cut off from
    the others, `silent` that not all of them can be asked."""

    def __init__(self, log_start: int, end: int) -> None:
        self.log = OffsetRange(log_start, end)
        self.stale: Optional[OffsetRange] = None
        self.silent = False

    def offsets(self, partitions: Sequence[TopicPartition], isolation_level: str) -> Dict[TopicPartition, OffsetRange]:
        return {each: self.stale or self.log for each in partitions}

    def sure_offsets(
        self, partitions: Sequence[TopicPartition], isolation_level: str
    ) -> Dict[TopicPartition, OffsetRange]:
        return {} if self.silent else {each: self.log for each in partitions}


class Rows:
    """A ledger that knows one partition, and takes everything."""

    folder = "/state"

    def __init__(self, stood: Position = STOOD) -> None:
        self._stood = stood

    def positions(self) -> Mapping[PartitionKey, Position]:
        return {KEY: self._stood}

    def note(self, incidents: Sequence[Incident]) -> None:
        pass

    def append(self, rows: Sequence[LedgerRow], runs: object = (), **how: bool) -> None:
        pass

    def begin(self, rows: Sequence[LedgerRow]) -> Mapping[PartitionKey, Position]:
        return {}


class Standing:
    """Positions of a driver that has decided on the partition once, and moved it to 210."""

    def __init__(self) -> None:
        cluster = ClusterConfig("A", {"bootstrap.servers": "a:1"})
        flow = ReplicationFlow(cluster, ClusterConfig("B", {"bootstrap.servers": "b:1"}))
        self.source, target = Logs(100, 500), Logs(0, 300)
        clusters = cast(KafkaCluster, self.source), cast(KafkaCluster, target)
        self.driver = FlowDriver(flow, *clusters, cast(Journal, Rows()))
        self.decide()
        self.driver.state.change(KEY, position=Position(210, 60))

    def decide(self) -> Range:
        self.driver.begin({KEY: ORDERS})
        decided = self.driver.state.of(KEY).range
        assert decided is not None
        return decided

    def report(self, sequence: Optional[int]) -> None:
        """A cycle whose lane has read the remote log up to its end, if it knows its next `sequence`."""
        part = PartitionReport("orders", "A.orders", 0, 210, 60, sequence, -1)
        state = self.driver.state
        state.take(state.apply([replace(nothing_copied(0), partitions=(part,))]))


@pytest.fixture
def standing() -> Standing:
    return Standing()


def test_records_that_left_the_source_before_a_lane_could_report_are_searched_for(standing: Standing) -> None:
    standing.report(sequence=None)
    standing.source.log = OffsetRange(260, 500)
    assert standing.decide() == Range(KEY, Position(210, 60), 500, log_start=260)
    assert standing.driver.state.of(KEY).position == Position(210, 60)


def test_report_of_a_lane_that_has_read_its_remote_log_counts(standing: Standing) -> None:
    standing.report(sequence=None)
    assert standing.decide() == Range(KEY, Position(210, 60), 500)
    standing.report(sequence=1)
    standing.source.log = OffsetRange(260, 500)
    assert standing.decide().refused is not None


def test_source_that_seems_to_be_cut_off_is_believed_only_where_all_brokers_agree_on_its_leader(
    standing: Standing,
) -> None:
    standing.source.stale = OffsetRange(100, 150)
    assert standing.decide() == Range(KEY, Position(210, 60), 500)
    standing.source.silent = True
    standing.driver.begin({KEY: ORDERS})
    assert [each.code for each in standing.driver.state.stopped()] == ["MIR-210"]
    standing.source.silent, standing.source.log = False, OffsetRange(100, 150)
    assert "it was truncated" in (standing.decide().refused or "")


NEW = CopiedPartition("payments", "A.payments", 0, "source-2", "remote-2", 1_000_000)


class Group(GroupProgress):
    """Records what it gets, and how."""

    def __init__(self) -> None:
        self.reported: List[str] = []
        self._offered: Dict[TopicPartition, CommittedOffset] = {}

    def offer(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        self._offered.update(offsets)
        self.reported += [f"offer {each}" for each in _shown(offsets)]

    def withdraw(self, partitions: Iterable[TopicPartition]) -> None:
        self.reported += [f"withdraw {each}" for each in _shown({each: self._offered.pop(each) for each in partitions})]

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        self._offered.update(offsets)
        self.reported += [f"commit {each}" for each in _shown(offsets)]


def _shown(offsets: Mapping[TopicPartition, CommittedOffset]) -> List[str]:
    return [f"{topic}-{number} {at.offset} {at.metadata}" for (topic, number), at in offsets.items()]


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def reporting(group: Group) -> FlowDriver:
    """A driver of a flow that starts new partitions at the end of their logs, and commits to `group`."""
    flow = replace(AB, auto_offset_reset="latest")
    clusters = cast(KafkaCluster, Logs(100, 500)), cast(KafkaCluster, Logs(0, 0))
    return FlowDriver(flow, *clusters, cast(Journal, Rows(Position(200, 0))), group)


BOTH = {KEY: ORDERS, NEW.key: NEW}


def note(downstream: int, of: CopiedPartition = ORDERS) -> str:
    return noted(of.remote_topic, of.remote_topic_id, Position(0, downstream)).metadata


def moved(driver: FlowDriver, position: int, downstream: int) -> None:
    part = PartitionReport("orders", "A.orders", 0, position, downstream, 1, -1, records=1)
    driver.commit(driver.state.apply([replace(nothing_copied(0), partitions=(part,))]))


def test_start_that_only_this_ledger_has_is_committed_before_anything_is_copied(
    reporting: FlowDriver, group: Group
) -> None:
    reporting.begin(BOTH)
    reporting.begin(BOTH)
    moved(reporting, 210, 57)
    assert group.reported == [
        f"commit payments-0 500 {note(0, NEW)}",
        f"offer orders-0 200 {note(0)}",
        f"offer orders-0 210 {note(57)}",
    ]


def test_progress_of_a_partition_that_is_no_longer_copied_is_withdrawn_and_offered_again_if_it_returns(
    reporting: FlowDriver, group: Group
) -> None:
    reporting.begin(BOTH)
    moved(reporting, 210, 57)
    group.reported.clear()
    reporting.begin({NEW.key: NEW})
    reporting.begin(BOTH)
    assert group.reported == [f"withdraw orders-0 210 {note(57)}", f"offer orders-0 210 {note(57)}"]


def test_progress_of_a_refused_partition_is_not_offered(group: Group) -> None:
    clusters = cast(KafkaCluster, Logs(201, 500)), cast(KafkaCluster, Logs(0, 0))
    driver = FlowDriver(AB, *clusters, cast(Journal, Rows(Position(600, 0))), group)
    driver.begin({KEY: ORDERS})
    assert [each.refused for each in driver.state.stopped()] == [True]
    assert group.reported == []
