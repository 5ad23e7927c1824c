"""How a continuous flow tails its partitions: one stage after the other, each for `tail.seconds`."""

from __future__ import annotations

import time
from typing import Iterable

from mirror_lib.errors import StalledError
from mirror_lib.replication.messages import TaskReport

# How soon a stage ends that must end.
CHECK_SECONDS = 0.1
# The first stage of a run is short: Java compiles meanwhile what passes from one stage to the next.
FIRST_STAGE_SECONDS = 2.0
# After this time of a stage the ledger gets what the one before copied: no record waits for that commit.
COMMIT_SECONDS = 1.0
# How often a running stage, or a query that reads rows, looks for new topics, and what part of the time that may take:
# of many partitions a look takes long.
TOPICS_SECONDS = 2.0
TOPICS_SHARE = 0.05
# How long stopped partitions, and partitions without a leader at the start, wait for the next attempt.
LEFT_OUT_SECONDS = 60.0
# The trigger of a flow that tails: only the first record after a start waits for it.
TAIL_TRIGGER = "1 second"
# After this time without a task slot the flow ends with an error: Spark has lost its slots for good.
STALL_SECONDS = 600.0


def tail_tasks(slots: int, flows: int, tasks_max: int) -> int:
    """How many of Spark's `slots` a flow may occupy permanently, when `flows` share them; 0 if there are too few.

    One slot stays free for the ledger's commits and the other queries, unless each flow has just one.
    """
    shared = (slots - 1) // max(1, flows)
    return min(tasks_max, shared if shared or slots < flows else 1)


def falls_behind(tasks: int, tasks_max: int, reports: Iterable[TaskReport]) -> bool:
    """Whether a flow that tails with fewer tasks than it may have must catch up with all of them: in the last stage
    more records came than were copied."""
    reports = list(reports)
    left = sum(max(0, part.source_end - part.position) for report in reports for part in report.partitions)
    return tasks < tasks_max and left > sum(report.records for report in reports)


class Every:
    """A timer: due once in `seconds`, for the first time `seconds` after construction."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due = time.monotonic() + seconds

    def due(self) -> bool:
        """Whether the interval is over. If so, the next one starts."""
        now = time.monotonic()
        if now < self._due:
            return False
        self._due = now + self._seconds
        return True

    def done(self, share: float) -> None:
        """What was due since the last `due` is done: the next time comes so late that it takes at most this `share`."""
        now = time.monotonic()
        began = self._due - self._seconds
        self._due = max(self._due, began + (now - began) / share)


def refuse_stalled(flow: str, what: str, waited: float) -> None:
    """Raise `StalledError` if `what` has waited `STALL_SECONDS` for Spark."""
    if waited >= STALL_SECONDS:
        raise StalledError(
            f"{flow}: {what} got no task slot of Spark for {waited:.0f} s. No data is lost: the next run finds on the "
            "remote topics what is not in the ledger",
            "check whether the application lost its executors, and start it again",
        )
