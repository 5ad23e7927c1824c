"""What happens where the ledger's commit waits for a task slot of Spark: first a tail gives way to it, at last the flow
ends.

Executors go: a spot machine, a queue at its capacity, an autoscaler. What is left may be held by tasks that tail.
"""

from __future__ import annotations

import time
from typing import Callable, Optional

from mirror_lib.errors import StalledError
from mirror_lib.progress import ProgressSnapshot

# A commit takes 0.3 s, and some seconds alongside a compaction. After so long the tail ends its tasks, and leaves one
# slot more to others for a while.
GIVE_WAY_SECONDS, SMALLER_SECONDS = 15.0, 600.0
# After so long the flow ends with an error: Spark has lost its slots for good.
STALL_SECONDS = 600.0
# How often a snapshot tells of it.
TOLD_SECONDS = 15.0


class TailLimit:
    """How many tasks may tail after the tail gave way to a commit: one less than it had, for `SMALLER_SECONDS`."""

    def __init__(self) -> None:
        self._most = 0
        self._until = 0.0

    def gave_way(self, tasks: int, now: float) -> None:
        """The commit waited while so many tasks tailed."""
        self._most, self._until = max(0, tasks - 1), now + SMALLER_SECONDS

    def of(self, tasks: int, now: float) -> int:
        """How many of so many tasks may tail; 0: the flow copies once per trigger."""
        return tasks if now >= self._until else min(tasks, self._most)


def refuse_stalled(flow: str, waited: float) -> None:
    """Raise `StalledError` where the commit has waited `STALL_SECONDS`."""
    if waited >= STALL_SECONDS:
        raise StalledError(
            f"{flow}: the ledger's commit got no task slot of Spark for {waited:.0f} s. No data is lost: the next run "
            "finds on the remote topics what is not in the ledger",
            "has the application lost its executors? Start it again where it gets some",
        )


class CommitWatch:
    """Looks how long the ledger's commit of a flow has waited, and lets the watcher and the tail know."""

    def __init__(self, flow: str, waited: Callable[[], float], watcher: Callable[[ProgressSnapshot], None]) -> None:
        self._flow, self._waited, self._watcher = flow, waited, watcher
        self._told_at: Optional[float] = None

    def look(self, give_way: Callable[[], None]) -> None:
        """To be called often, while a batch runs. Raises `StalledError`."""
        waited, now = self._waited(), time.monotonic()
        if waited < GIVE_WAY_SECONDS:
            return
        give_way()
        if self._told_at is None or now - self._told_at >= TOLD_SECONDS:
            self._told_at = now
            self._watcher(stalled_snapshot(self._flow, waited))
        refuse_stalled(self._flow, waited)


def stalled_snapshot(flow: str, waited: float) -> ProgressSnapshot:
    """What is shown while the ledger's commit has waited so many seconds for Spark. Pure."""
    return ProgressSnapshot(
        flow=flow,
        batch_id=-1,
        records=0,
        bytes=0,
        seconds=waited,
        copy_seconds=0.0,
        behind_records=0,
        behind_seconds=waited,
        recovered=0,
        stopped=0,
        waiting="waiting for a task slot of Spark",
        commit_waits_seconds=waited,
    )
