"""The producer ids that a flow's lanes append under are written down once, and no one continues who does not know
all."""

from __future__ import annotations

from typing import Dict, FrozenSet, Mapping, Optional, Sequence, Tuple

import pytest

from mirror_lib.errors import FencedError
from mirror_lib.kafka.record_batch import Producer
from mirror_lib.replication.flow import LaneIds
from mirror_lib.replication.journal import Journal
from mirror_lib.replication.messages import LANES, TaskPlan, TaskReport, lane_of
from tests.unit.logs import task_of


class Table(Journal):
    """Keeps ids of one flow, and counts the times that it was written to."""

    def __init__(self) -> None:
        self.kept: Dict[int, FrozenSet[int]] = {}
        self.writes = 0

    def producer_ids(self) -> Dict[int, FrozenSet[int]]:
        return dict(self.kept)

    def add_producer_ids(self, ids: Sequence[Tuple[int, int]]) -> None:
        self.writes += 1
        for lane, number in ids:
            self.kept[lane] = self.kept.get(lane, frozenset()) | {number}


def report(**producers: int) -> TaskReport:
    given = {int(lane[4:]): Producer(number, 0) for lane, number in producers.items()}
    return TaskReport(0, given, False, (), 0.0)


def reported(ids: LaneIds, lane: int = 3) -> Optional[Mapping[int, FrozenSet[int]]]:
    """What the plan of a task with that lane gets."""
    partition = next(number for number in range(LANES) if lane_of("A.orders", number) == lane)
    [plan] = ids.reported([TaskPlan(0, "A->B", {}, {}, (task_of(partition=partition),), "A", "B", {}, {})])
    return plan.known_ids


def test_new_ids_are_written_down_once_and_known_to_later_lives() -> None:
    table = Table()
    ids = LaneIds("A->B", table)
    assert reported(ids) == {3: frozenset()}
    ids.learn([report(lane3=70), report(lane5=71)])
    ids.learn([report(lane3=70), report(lane5=71)])
    ids.learn([report(lane3=80)])
    assert reported(ids) == reported(LaneIds("A->B", table)) == {3: frozenset([70, 80])}
    assert reported(ids, 5) == {5: frozenset([71])}
    assert table.writes == 2


def test_driver_that_was_overtaken_by_another_ends_before_it_believes_its_own_look() -> None:
    table = Table()
    ids = LaneIds("A->B", table)
    LaneIds("A->B", table).learn([report(lane3=70)])
    with pytest.raises(FencedError):
        ids.learn([report(lane3=80)])
    assert table.kept == {3: frozenset([70])}


def test_flow_with_remote_topics_of_its_own_keeps_no_ids() -> None:
    ids = LaneIds("A->B", None)
    ids.learn([report(lane3=70)])
    assert reported(ids) is None
