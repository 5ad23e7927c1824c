"""Tails the partitions of a continuous flow: decides on its number of task slots, and when a tail yields its slot.

Executors disappear: a spot machine, a full queue, an autoscaler. If the ledger's commit then waits for a slot, first a
tail ends, and at last the flow.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import Callable, Collection, Iterable, List, Optional

from mirror_lib.errors import StalledError
from mirror_lib.ledger.records import PartitionKey
from mirror_lib.log_lines import of_this_flow
from mirror_lib.metrics import WAITING_FOR_SLOT, FlowMetrics
from mirror_lib.replication.copy_ranges import Range
from mirror_lib.replication.messages import NO_END

# How often tasks that tail report, at least; their offset syncs are committed every `batch.max.seconds`.
CYCLE_SECONDS = 2.0
# Spark commits its own progress between two batches, which delays records by some seconds: about once in this time.
BATCH_SECONDS = 3600.0
# How soon the tasks of a job that must end are notified.
CHECK_SECONDS = 0.1
# How long stopped partitions, and partitions without a leader at the start, wait for the next attempt.
LEFT_OUT_SECONDS = 60.0
# Checks and commits take at most a tenth of the driver's time, unless its tasks would have to wait for them.
REST, LONGEST_REST_SECONDS = 9, 10.0
# The trigger of a flow that tails: only the first record after a start waits for it.
TAIL_TRIGGER = "1 second"


@dataclass(frozen=True)
class Tail:
    """Limits of a flow that tails. Each of `flows` flows tails with its part of Spark's slots.

    Tasks report every `cycle_seconds`. The driver commits the reports every `commit_seconds`, and Spark's batch ends
    after `batch_seconds`.
    """

    flows: int = 1
    cycle_seconds: float = CYCLE_SECONDS
    commit_seconds: float = CYCLE_SECONDS
    batch_seconds: float = BATCH_SECONDS


def tail_tasks(slots: int, flows: int, tasks_max: int) -> int:
    """How many of Spark's `slots` a flow may occupy permanently, when `flows` share them; 0 if there are too few.

    One slot stays free for the ledger's commits and the other queries.
    """
    return max(0, min(tasks_max, (slots - 1) // max(1, flows)))


def tailed(ranges: Iterable[Range], stopped: Collection[PartitionKey], ahead: Callable[[Range], Range]) -> List[Range]:
    """The ranges of a tailing cycle: all partitions that are not stopped, from their positions, without an end."""
    going = [each for each in ranges if each.refused is None and each.key not in stopped]
    return [replace(ahead(each), end=NO_END) for each in going]


class BatchClock:
    """Decides when Spark's batch ends. It never ends before something was copied: Spark starts the next batch only for
    records newer than the start of this one, and the first records must not wait for its trigger."""

    def __init__(self, tail: Tail) -> None:
        self.tail = tail
        self._reported_at = time.monotonic()
        self._until = self._reported_at + tail.batch_seconds
        self._copied = False

    def copied(self, records: int) -> float:
        """Count the copied records, and return the seconds since the last call."""
        before, self._reported_at = self._reported_at, time.monotonic()
        self._copied = self._copied or records > 0
        return self._reported_at - before

    def over(self) -> bool:
        """True when the batch has lasted long enough."""
        return self._copied and time.monotonic() >= self._until


def falls_behind(tasks: int, tasks_max: int, records: int, left: int) -> bool:
    """Whether a flow that tails with fewer tasks than it may have must catch up with all of them: in the last interval
    more records came than were copied."""
    return tasks < tasks_max and left > records


def rest_after(seconds: float, took: float) -> float:
    """How long to wait for the next turn, which is due every `seconds`, after one that took `took` seconds."""
    return max(seconds, min(REST * took, LONGEST_REST_SECONDS))


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


class PeriodicTask:
    """Calls `turn` about every `seconds` in its own thread while the block runs.

    `often` is called several times a second. An error of either ends the turns and calls `failed`; leaving the block
    raises it. At its end the block waits for a running turn, unless `stalled` raises.
    """

    def __init__(
        self,
        turn: Callable[[], None],
        often: Callable[[], None],
        failed: Callable[[], None],
        seconds: float,
        stalled: Callable[[], None] = lambda: None,
    ):
        self._turn, self._often, self._failed, self._seconds = turn, often, failed, seconds
        self._stalled = stalled
        self._over = threading.Event()
        self._error: Optional[BaseException] = None
        self._thread = threading.Thread(target=of_this_flow(self._run), name="during a stage", daemon=True)

    def __enter__(self) -> PeriodicTask:
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._over.set()
        while self._thread.is_alive():
            self._thread.join(CHECK_SECONDS)
            self._stalled()
        if kind is None and self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            due = time.monotonic() + self._seconds
            while not self._over.wait(CHECK_SECONDS):
                self._often()
                if time.monotonic() >= due:
                    began = time.monotonic()
                    self._turn()
                    due = time.monotonic() + rest_after(self._seconds, time.monotonic() - began)
        except BaseException as error:
            self._error = error
            self._failed()


# A commit takes 0.3 s, and some seconds alongside a compaction. After this time the tail ends its tasks, and leaves one
# more slot to others for a while.
GIVE_WAY_SECONDS, SMALLER_SECONDS = 15.0, 600.0
# After this time the flow ends with an error: Spark has lost its slots for good.
STALL_SECONDS = 600.0
# The interval of snapshots that report the wait.
REPORT_SECONDS = 15.0


class TailLimit:
    """Limits the tasks that may tail after the tail yielded to a commit: one fewer, for `SMALLER_SECONDS`."""

    def __init__(self) -> None:
        self._most = 0
        self._until = 0.0

    def gave_way(self, tasks: int, now: float) -> None:
        """The commit waited while `tasks` tasks tailed."""
        self._most, self._until = max(0, tasks - 1), now + SMALLER_SECONDS

    def of(self, tasks: int, now: float) -> int:
        """How many of `tasks` tasks may tail; 0: the flow copies once per trigger."""
        return tasks if now >= self._until else min(tasks, self._most)


def refuse_stalled(flow: str, waited: float) -> None:
    """Raise `StalledError` if the commit has waited `STALL_SECONDS`."""
    if waited >= STALL_SECONDS:
        raise StalledError(
            f"{flow}: the ledger's commit got no task slot of Spark for {waited:.0f} s. No data is lost: the next run "
            "finds on the remote topics what is not in the ledger",
            "check whether the application lost its executors, and start it again",
        )


class CommitWatch:
    """Watches how long the ledger's commit of a flow has waited, and notifies the watcher and the tail.

    `watcher` gets the flow's snapshots through `show`, so that a snapshot about a wait keeps the last values.
    """

    def __init__(self, flow: str, watcher: Callable[[FlowMetrics], None]) -> None:
        self._watcher = watcher
        self._last = _nothing_copied(flow)
        self._shown = False
        self._reported_at: Optional[float] = None

    def show(self, snapshot: FlowMetrics) -> None:
        """Pass a snapshot of the flow on to the watcher."""
        self._last, self._shown = snapshot, True
        self._watcher(snapshot)

    @property
    def last(self) -> Optional[FlowMetrics]:
        """The last snapshot; `None` before the first cycle."""
        return self._last if self._shown else None

    def check(self, waited: float, give_way: Callable[[], None]) -> None:
        """Check the wait; the commit has waited `waited` seconds. Call it often during a batch. Raises
        `StalledError`."""
        now = time.monotonic()
        if waited < GIVE_WAY_SECONDS:
            return
        give_way()
        if self._reported_at is None or now - self._reported_at >= REPORT_SECONDS:
            self._reported_at = now
            self._watcher(stalled_snapshot(self._last, waited))
        refuse_stalled(self._last.flow, waited)


def stalled_snapshot(last: FlowMetrics, waited: float) -> FlowMetrics:
    """The snapshot to show while the ledger's commit has waited `waited` seconds for Spark. `last` was shown before.
    Pure."""
    return replace(
        _nothing_copied(last.flow),
        seconds=waited,
        behind_records=last.behind_records,
        behind_seconds=max(waited, last.behind_seconds or 0.0),
        stopped=last.stopped,
        commit_waits_seconds=waited,
        topics=tuple(each.idle() for each in last.topics),
        next_offsets=last.next_offsets,
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
        waiting=WAITING_FOR_SLOT,
    )
