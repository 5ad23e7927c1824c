"""The lanes of passes that place records anew: a plan in; the same with their transactional ids, and the producer ids
that tell their batches apart, out.

Beside an engine that keeps partitions, lanes have numbers of their own: two producers under one id fence each other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, FrozenSet, Mapping, Sequence, Tuple

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.replicate.lane_ids import IdTable, LaneIds
from mirror_lib.replicate.lanes import LANES, TaskPlan, nothing_copied, transactional_id


class PassLanes:
    """One flow's. `table` is where its producer ids are kept, if its remote topics have other writers; `beside`:
    another engine has lanes of this flow too."""

    def __init__(self, name: str, flow: ReplicationFlow, table: IdTable, beside: bool) -> None:
        self._name = name
        self._flow = flow
        self._first = LANES if beside else 0
        self._ids = LaneIds(flow.name, _Numbered(table, self._first) if flow.shared_remote_topics else None)

    def told(self, plan: TaskPlan) -> TaskPlan:
        """`plan` with the ids of its lanes."""
        (known,) = self._ids.told([plan])
        lanes = sorted({task.lane for task in plan.tasks}) if self._flow.delivery == "exactly-once" else []
        names = {lane: transactional_id(self._name, self._flow.name, self._first + lane) for lane in lanes}
        return replace(known, transactional_ids=names)

    def learn(self, plan: TaskPlan) -> bool:
        """Write down the producer ids that lanes of a plan were given; whether there was a new one, under which nothing
        is appended yet. Raises `FencedError`."""
        new = plan.has_new_ids(plan.producers)
        if new:
            self._ids.learn([replace(nothing_copied(0), producers=plan.producers)])
        return new


class _Numbered:
    """The rows of a table whose lanes have numbers from `first` on, counted from 0."""

    def __init__(self, table: IdTable, first: int) -> None:
        self._table = table
        self._first = first

    def producer_ids(self) -> Mapping[int, FrozenSet[int]]:
        ids: Dict[int, FrozenSet[int]] = {}
        for lane, own in self._table.producer_ids().items():
            if self._first <= lane < self._first + LANES:
                ids[lane - self._first] = own
        return ids

    def add_producer_ids(self, ids: Sequence[Tuple[int, int]]) -> None:
        self._table.add_producer_ids([(self._first + lane, number) for lane, number in ids])
