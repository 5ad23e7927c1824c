"""A flow's rates and what each of its tasks has to copy in, each task's share of the rates out. Pure.

The shares of the tasks of a stage add up to the bound, so it holds however many of them run at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

# A task with next to nothing to do gets this part of an equal share all the same: records may come.
LEAST_SHARE = 0.05

# The flow's own rate, among the numbers of topic rates.
FLOW = -1

# Bytes to copy, by topic rate; `None` is for topics without one.
Load = Mapping[Optional[int], float]


@dataclass(frozen=True)
class RateShare:
    """Bytes a second, and what may be fetched at once; a negative balance is paid back first."""

    rate: float
    balance: float = 0.0


@dataclass(frozen=True)
class TaskRates:
    """A task's shares: of the flow's rate, of the rate of each topic rate, and of the bytes of a pass.

    `rate_of` holds the number of the topic rate for each source topic that has one.
    """

    flow: Optional[RateShare] = None
    topics: Mapping[int, RateShare] = field(default_factory=dict)
    rate_of: Mapping[str, int] = field(default_factory=dict)
    pass_bytes: Optional[int] = None


NO_RATES = TaskRates()


@dataclass(frozen=True)
class Fetching:
    """What was fetched since it was last told, by topic rate and in all (`FLOW`), and for how long a rate held back.

    A batch is counted as it came, also a part of one that has to be fetched again.
    """

    nbytes: Mapping[int, int] = field(default_factory=dict)
    held_seconds: Mapping[int, float] = field(default_factory=dict)


def weights(loads: Sequence[Load], rates: Sequence[float], seconds: float) -> List[float]:
    """Which part of the flow's rate each task gets; they add up to 1.

    What a topic rate lets through in `seconds` counts, and not all that waits behind it.
    """
    passing: Dict[Optional[int], float] = {None: 1.0}
    for number, rate in enumerate(rates):
        waiting = sum(load.get(number, 0.0) for load in loads)
        passing[number] = min(1.0, rate * seconds / waiting) if waiting else 1.0
    return _parts([sum(nbytes * passing[number] for number, nbytes in load.items()) for load in loads])


def parts_of_rate(loads: Sequence[Load], number: int) -> List[float]:
    """Which part of a topic rate each task gets; tasks without such topics get none, the others add up to 1."""
    having = [load[number] for load in loads if number in load]
    parts = iter(_parts(having))
    return [next(parts) if number in load else 0.0 for load in loads]


def _parts(amounts: Sequence[float]) -> List[float]:
    if not amounts:
        return []
    mean = sum(amounts) / len(amounts)
    raised = [amount + LEAST_SHARE * mean for amount in amounts] if mean else [1.0] * len(amounts)
    return [amount / sum(raised) for amount in raised]

NOTHING_FETCHED = Fetching()


def fetching_from(fields: Mapping[str, Mapping[str, float]]) -> Fetching:
    """A `Fetching` that was JSON meanwhile, which has no numbers as keys."""
    nbytes, held = fields["nbytes"], fields["held_seconds"]
    return Fetching(
        {int(number): int(count) for number, count in nbytes.items()},
        {int(number): float(seconds) for number, seconds in held.items()},
    )


def joined(parts: Sequence[Tuple[int, Fetching]]) -> Tuple[Dict[int, int], Dict[int, float]]:
    """Bytes by rate of all that tasks told, each with its number; and how long the task was held back that was so
    longest."""
    nbytes: Dict[int, int] = {}
    by_task: Dict[Tuple[int, int], float] = {}
    for task, part in parts:
        for number, count in part.nbytes.items():
            nbytes[number] = nbytes.get(number, 0) + count
        for number, seconds in part.held_seconds.items():
            by_task[(task, number)] = by_task.get((task, number), 0.0) + seconds
    held: Dict[int, float] = {}
    for (_, number), seconds in by_task.items():
        held[number] = max(held.get(number, 0.0), seconds)
    return nbytes, held
