"""What happens where the ledger's commit waits for a task slot of Spark: first a tail gives way to it, at last the flow
ends.

Executors go: a spot machine, a queue at its capacity, an autoscaler. What is left may be held by tasks that tail.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Callable, Optional

from mirror_lib.errors import StalledError
from mirror_lib.metrics import FlowMetrics

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
    """Looks how long the ledger's commit of a flow has waited, and lets the watcher and the tail know.

    `watcher` gets the flow's snapshots through `show`, so that what is shown of a wait keeps what was known before.
    """

    def __init__(self, flow: str, watcher: Callable[[FlowMetrics], None]) -> None:
        self._watcher = watcher
        self._last = _nothing_copied(flow)
        self._told_at: Optional[float] = None

    def show(self, snapshot: FlowMetrics) -> None:
        """Pass a snapshot of the flow on to the watcher."""
        self._last = snapshot
        self._watcher(snapshot)

    def look(self, waited: float, give_way: Callable[[], None]) -> None:
        """To be called often while a batch runs; the commit has waited for so many seconds. Raises `StalledError`."""
        now = time.monotonic()
        if waited < GIVE_WAY_SECONDS:
            return
        give_way()
        if self._told_at is None or now - self._told_at >= TOLD_SECONDS:
            self._told_at = now
            self._watcher(stalled_snapshot(self._last, waited))
        refuse_stalled(self._last.flow, waited)


def stalled_snapshot(last: FlowMetrics, waited: float) -> FlowMetrics:
    """What is shown while the ledger's commit has waited so many seconds for Spark, after `last` was shown. Pure."""
    return replace(
        _nothing_copied(last.flow),
        seconds=waited,
        behind_records=last.behind_records,
        behind_seconds=max(waited, last.behind_seconds or 0.0),
        stopped=last.stopped,
        commit_waits_seconds=waited,
    )


def _nothing_copied(flow: str) -> FlowMetrics:
    return FlowMetrics(
        flow=flow,
        batch_id=-1,
        records=0,
        bytes=0,
        seconds=0.0,
        copy_seconds=0.0,
        behind_records=0,
        behind_seconds=None,
        recovered=0,
        stopped=0,
        waiting="waiting for a task slot of Spark",
    )
