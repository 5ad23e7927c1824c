"""Whether another replication tool may still write to a flow's remote topics, from two reads of the target."""

from __future__ import annotations

from dataclasses import replace
from typing import Collection, Dict, List

import pytest

from mirror_lib.config.record_change import RecordChange
from mirror_lib.errors import EXIT_REFUSED
from mirror_lib.facts import TopicDescription, TopicPartition
from mirror_lib.ledger.records import PartitionKey, TopicPair
from mirror_lib.replication.start_rules import Writer
from mirror_lib.takeover.signs import OtherWriter, settle_seconds, unrecorded
from tests.unit.configs import AB

FLOW = replace(AB, topics=("orders",))
ALONE = OtherWriter("B", 2, "A-mm2")
MM2 = ("mm2-offsets.A.internal",)


@pytest.mark.parametrize(
    ("found", "state"),
    [
        pytest.param(ALONE, Writer.NONE, id="no-sign"),
        pytest.param(replace(ALONE, hosts=("/10.0.0.1",)), Writer.RUNNING, id="members"),
        pytest.param(replace(ALONE, heartbeats=1), Writer.RUNNING, id="heartbeats"),
        pytest.param(replace(ALONE, moved=("A.orders-0",)), Writer.RUNNING, id="a-log-that-grows"),
        pytest.param(replace(ALONE, topics=MM2), Writer.ENDED, id="its-topics-alone"),
        pytest.param(replace(ALONE, topics=MM2, heartbeats=1), Writer.RUNNING, id="its-topics-and-a-sign"),
        pytest.param(replace(ALONE, hosts=None, heartbeats=None), Writer.NONE, id="nothing-readable"),
        pytest.param(replace(ALONE, hosts=None, topics=MM2), Writer.ENDED, id="an-unreadable-group"),
        pytest.param(replace(ALONE, hosts=None, moved=("A.orders-0",)), Writer.RUNNING, id="unreadable-and-grows"),
    ],
)
def test_any_sign_refuses_the_flow_and_an_unreadable_one_is_named(found: OtherWriter, state: Writer) -> None:
    assert found.state is state and found.reason
    assert bool(found.unknown) == (None in (found.hosts, found.heartbeats))
    refusal = found.refusal("A->B")
    assert (refusal is None) == (state is not Writer.RUNNING)
    if refusal is not None:
        assert (refusal.code, refusal.exit_code) == ("MIR-340", EXIT_REFUSED)
        assert all(each in refusal.message for each in (*(found.hosts or ()), *found.moved))


def topics(**partitions: int) -> Dict[str, TopicDescription]:
    return {
        name.replace("_", "."): TopicDescription(name.replace("_", "."), f"id of {name}", count)
        for name, count in partitions.items()
    }


def rows(*numbers: int, source_id: str = "id of orders", remote_id: str = "id of A_orders") -> List[PartitionKey]:
    return [PartitionKey(source_id, remote_id, "orders", number) for number in numbers]


@pytest.mark.parametrize(
    ("kept", "pairs", "left"),
    [
        pytest.param([], [], [0, 1], id="an-empty-ledger"),
        pytest.param(rows(0), [], [1], id="one-of-two"),
        pytest.param(rows(0, 1), [], [], id="all"),
        pytest.param(rows(0, 1, source_id="another"), [], [], id="the-source-was-created-again"),
        pytest.param(rows(0, 1, remote_id="another"), [], [0, 1], id="the-remote-topic-was-created-again"),
        pytest.param([], [TopicPair("orders", "id of orders", "A.orders", "id of A_orders")], [], id="ranges"),
    ],
)
def test_partitions_without_rows_are_found(
    kept: Collection[PartitionKey], pairs: Collection[TopicPair], left: List[int]
) -> None:
    found = unrecorded(FLOW, [FLOW], topics(orders=2), topics(A_orders=3, other=1), lambda: (kept, pairs))
    assert found == [("A.orders", number) for number in left]


def test_every_remote_partition_of_a_repartitioning_flow_counts() -> None:
    flow = replace(FLOW, change=RecordChange(partitioner="key"))
    found: List[TopicPartition] = unrecorded(flow, [flow], topics(orders=1), topics(A_orders=2), lambda: ((), ()))
    assert found == [("A.orders", 0), ("A.orders", 1)]


def test_wait_lasts_as_long_as_a_heartbeat_takes_and_no_longer_than_an_operator_waits() -> None:
    waits = [settle_seconds(replace(FLOW, emit_heartbeats_interval=each)) for each in (None, 1.0, 4.0, 600.0)]
    assert waits == [2.0, 2.0, 6.0, 15.0]
