"""The producer ids that tell a flow's own batches in shared remote topics: reports in, ids for the next plans out.

Order of effects: a lane is given an id, the id is written down, and only then is anything appended under it. So a
driver knows its flow's batches also where the target has forgotten the lane and gives it another id.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, FrozenSet, List, Mapping, Optional, Protocol, Sequence, Tuple

from mirror_lib.errors import FencedError
from mirror_lib.replication.messages import TaskPlan, TaskReport


class IdTable(Protocol):
    """Where a flow's ids are kept."""

    def producer_ids(self) -> Mapping[int, FrozenSet[int]]:
        """By lane."""

    def add_producer_ids(self, ids: Sequence[Tuple[int, int]]) -> None:
        """Add pairs of lane and producer id."""


class LaneIds:
    """One flow's ids in one driver's life; without a `table` its remote topics have no other writer, and none count."""

    def __init__(self, flow: str, table: Optional[IdTable]) -> None:
        self._flow = flow
        self._table = table
        self._known: Dict[int, FrozenSet[int]] = dict(table.producer_ids()) if table is not None else {}

    def told(self, plans: Sequence[TaskPlan]) -> List[TaskPlan]:
        """`plans` with the ids of their lanes."""
        if self._table is None:
            return list(plans)
        return [
            replace(plan, known_ids={task.lane: self._known.get(task.lane, frozenset()) for task in plan.tasks})
            for plan in plans
        ]

    def learn(self, reports: Sequence[TaskReport]) -> None:
        """Write down the ids that lanes were given. To be called before anything is planned with them.

        Raises `FencedError` where another driver was given ids since: what was appended under those is not known here.
        """
        given = {(lane, each.producer_id) for report in reports for lane, each in report.producers.items()}
        new = sorted((lane, number) for lane, number in given if number not in self._known.get(lane, frozenset()))
        if self._table is None or not new:
            return
        written = self._table.producer_ids()
        if any(written.get(lane, frozenset()) - self._known.get(lane, frozenset()) for lane, _ in new):
            raise FencedError(f"{self._flow}: another driver copies this flow", "let one driver run each flow")
        self._table.add_producer_ids(new)
        for lane, number in new:
            self._known[lane] = self._known.get(lane, frozenset()) | {number}
