"""Positions of a running driver: what a lane could not report is decided on as at the start of a run."""

from __future__ import annotations

from typing import Dict, Mapping, Optional, Sequence, cast

import pytest

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.config.values import OffsetChoice
from mirror_lib.facts import Cluster, OffsetRange, TopicPartition
from mirror_lib.ledger.records import Incident, LedgerRow, PartitionKey, Position
from mirror_lib.replication.copied_topics import CopiedPartition
from mirror_lib.replication.copy_ranges import Range, SourceCluster
from mirror_lib.replication.journal import BatchRef, Journal
from mirror_lib.replication.positions import Positions

ORDERS = CopiedPartition("orders", "A.orders", 0, "source-1", "remote-1", 1_000_000)
KEY, STOOD = ORDERS.key, Position(200, 50)
BATCH = BatchRef("", -1)


class Logs:
    """A cluster with one partition, whose log can be changed. `stale` is what a broker says of it that was cut off from
    the others, `silent` that not all of them can be asked."""

    def __init__(self, log_start: int, end: int) -> None:
        self.log = OffsetRange(log_start, end)
        self.stale: Optional[OffsetRange] = None
        self.silent = False
        self.of_time: Dict[TopicPartition, int] = {}

    def offsets_at(
        self, partitions: Sequence[TopicPartition], timestamp: int, isolation_level: str
    ) -> Dict[TopicPartition, int]:
        return self.of_time

    def offsets(self, partitions: Sequence[TopicPartition], isolation_level: str) -> Dict[TopicPartition, OffsetRange]:
        return {each: self.stale or self.log for each in partitions}

    def sure_offsets(
        self, partitions: Sequence[TopicPartition], isolation_level: str
    ) -> Dict[TopicPartition, OffsetRange]:
        return {} if self.silent else {each: self.log for each in partitions}


class Rows:
    """A ledger that knows one partition, and takes everything."""

    folder = "/state"

    def positions(self) -> Mapping[PartitionKey, Position]:
        return {KEY: STOOD}

    def note(self, incidents: Sequence[Incident], batch: BatchRef) -> None:
        pass

    def append(self, rows: Sequence[LedgerRow], batch: BatchRef) -> None:
        pass

    def begin(self, rows: Sequence[LedgerRow], batch: BatchRef) -> Mapping[PartitionKey, Position]:
        return {}


class Standing:
    """Positions of a driver that has decided on the partition once, and moved it to 210."""

    def __init__(self) -> None:
        cluster = ClusterConfig("A", {"bootstrap.servers": "a:1"})
        flow = ReplicationFlow(cluster, ClusterConfig("B", {"bootstrap.servers": "b:1"}))
        self.source, target = Logs(100, 500), Logs(0, 300)
        clusters = cast(SourceCluster, self.source), cast(Cluster, target)
        self.positions = Positions(flow, *clusters, cast(Journal, Rows()))
        self.decide()
        self.positions.move(KEY, Position(210, 60))

    def decide(self) -> Range:
        (decided,) = self.positions.ranges({KEY: ORDERS}, BATCH)
        return decided


@pytest.fixture
def standing() -> Standing:
    return Standing()


def test_what_left_the_source_before_it_was_copied_is_refused_at_once(standing: Standing) -> None:
    standing.source.log = OffsetRange(260, 500)
    assert "offsets 210 to 259 left the source's log" in (standing.decide().refused or "")


def test_what_left_the_source_after_a_lane_could_not_report_is_looked_for_behind_the_fence(standing: Standing) -> None:
    standing.positions.doubt([KEY])
    standing.source.log = OffsetRange(260, 500)
    assert standing.decide() == Range(KEY, Position(210, 60), 500, log_start=260)
    assert standing.positions.at(KEY) == Position(210, 60)


def test_lane_that_has_looked_and_reported_is_believed(standing: Standing) -> None:
    standing.positions.doubt([KEY])
    assert standing.decide() == Range(KEY, Position(210, 60), 500)
    standing.positions.trust([KEY])
    standing.source.log = OffsetRange(260, 500)
    assert standing.decide().refused is not None


def test_source_that_seems_to_be_cut_off_is_believed_only_where_all_brokers_agree_on_its_leader(
    standing: Standing,
) -> None:
    standing.source.stale = OffsetRange(100, 150)
    assert standing.decide() == Range(KEY, Position(210, 60), 500)
    standing.source.silent = True
    assert standing.positions.ranges({KEY: ORDERS}, BATCH) == []
    standing.source.silent, standing.source.log = False, OffsetRange(100, 150)
    assert "it was truncated" in (standing.decide().refused or "")


BY_TIME = ReplicationFlow(ClusterConfig("A", {}), ClusterConfig("B", {}), start_position=OffsetChoice(timestamp=1))
NEW = CopiedPartition("payments", "A.payments", 0, "source-2", "remote-2", 1_000_000)


def test_partition_whose_leader_does_not_tell_where_a_time_is_begins_once_it_does_and_nowhere_else() -> None:
    source, target = Logs(100, 500), Logs(0, 0)
    positions = Positions(BY_TIME, cast(SourceCluster, source), cast(Cluster, target), cast(Journal, Rows()))
    assert positions.ranges({NEW.key: NEW}, BATCH) == []
    source.of_time = {NEW.source: 300}
    (begun,) = positions.ranges({NEW.key: NEW}, BATCH)
    assert begun.start.upstream_offset == 300
