"""A topic that was copied with its partitions kept is not copied again by its keys, nor the other way round."""

from __future__ import annotations

from typing import Sequence

import pytest

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.config.record_change import KEY, RecordChange
from mirror_lib.errors import RefusedError
from mirror_lib.facts import TopicDescription
from mirror_lib.ledger.records import PartitionKey, RangePositions, TopicPair
from mirror_lib.replication.copy_ranges import refuse_other_mode
from mirror_lib.rows.flow import pairs_of, refuse_row_passes

PLAIN = ReplicationFlow(ClusterConfig("A", {}), ClusterConfig("B", {}))
SELECTED = ReplicationFlow(ClusterConfig("A", {}), ClusterConfig("B", {}), change=RecordChange(select="*"))
KEYED = ReplicationFlow(ClusterConfig("A", {}), ClusterConfig("B", {}), change=RecordChange(partitioner=KEY))
KEPT = [PartitionKey("s1", "r1", "orders", 0)]
NOTHING = RangePositions()
PLACED = RangePositions(pairs=frozenset([TopicPair("orders", "s1", "A.orders", "r1")]))


def start(
    flow: ReplicationFlow,
    kept: Sequence[PartitionKey] = (),
    ranges: RangePositions = NOTHING,
    source_id: str = "s1",
    remote_id: str = "r1",
) -> None:
    source = {"orders": TopicDescription("orders", source_id, 2)}
    target = {"A.orders": TopicDescription("A.orders", remote_id, 2)}
    refuse_other_mode(flow, pairs_of(flow, [flow], source, target), kept, ranges.pairs)


def test_topic_whose_partitions_were_kept_is_not_placed_anew() -> None:
    with pytest.raises(RefusedError, match="with records in their partitions, and would be copied there again"):
        start(KEYED, KEPT)


@pytest.mark.parametrize("flow", [PLAIN, SELECTED])
@pytest.mark.parametrize("kept", [[], KEPT])
def test_topic_that_was_placed_anew_does_not_keep_its_partitions(
    flow: ReplicationFlow, kept: Sequence[PartitionKey]
) -> None:
    with pytest.raises(RefusedError, match="with records repartitioned, and would be copied there again"):
        start(flow, kept, PLACED)


@pytest.mark.parametrize("ids", [("s2", "r1"), ("s1", "r2")], ids=["source re-created", "remote re-created"])
def test_topic_that_is_another_one_by_now_may_be_copied_either_way(ids: Sequence[str]) -> None:
    start(KEYED, KEPT, RangePositions(), *ids)
    start(PLAIN, [], PLACED, *ids)


def test_topic_goes_on_as_it_began_and_one_whose_remote_topic_is_not_there_begins_in_any_way() -> None:
    start(PLAIN, KEPT)
    start(KEYED, [], PLACED)
    start(KEYED, KEPT, PLACED)
    assert pairs_of(KEYED, [KEYED], {"orders": TopicDescription("orders", "s1", 2)}, {}) == []


def test_flow_whose_progress_an_earlier_release_kept_elsewhere_is_refused_until_the_ledger_has_ranges_of_it() -> None:
    with pytest.raises(RefusedError, match="row_passes") as refused:
        refuse_row_passes(KEYED, True, RangePositions())
    assert "another `name` and `state`, and the flow an empty remote topic" in str(refused.value)
    refuse_row_passes(KEYED, False, RangePositions())
    refuse_row_passes(KEYED, True, PLACED)
