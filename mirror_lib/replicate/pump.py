"""From the source's brokers to the target's: partitions that can be appended to in, one pass over them done.

Nobody waits where something has come already, and everybody is asked again as soon as that is worth it.
"""

from __future__ import annotations

import math
import time
from typing import Callable, Mapping, Sequence, Tuple

from mirror_lib.log.append import Appender
from mirror_lib.log.connection import LogClient
from mirror_lib.log.fetch import ISOLATION, Fetcher
from mirror_lib.replicate.gate import Gate
from mirror_lib.replicate.lanes import TaskPlan
from mirror_lib.replicate.partition import PartitionCopy

# However many partitions a task has and however long their backlog is, its worker stays small.
MOST_QUEUED_BYTES = 32 * 1024 * 1024
# Behind a target that throttles the task: what is queued must be appended before a pass can end.
THROTTLED_QUEUE_BYTES = 1024 * 1024
WAIT_MS = 100.0


class Pump:
    """One task's, for as long as its connections last. `source` and `target` share one network."""

    def __init__(self, plan: TaskPlan, source: LogClient, target: LogClient, gate: Gate) -> None:
        self._most_syncs = plan.most_syncs
        self._tailing = plan.report_to is not None
        self._target = target
        self._gate = gate
        # Its questions may go on from pass to pass.
        self._fetcher = Fetcher(source, ISOLATION[plan.isolation_level], gate)

    def run(self, copies: Sequence[PartitionCopy], stop_at: float, shall_end: Callable[[], bool]) -> None:
        """Copy until the ranges are done, `stop_at` (`time.monotonic()`) is past, the pass is full or it `shall_end`,
        and all that was fetched is acknowledged. Raises `Disconnected`, `FencedError`."""
        fetcher, appender, runs = self._fetcher, Appender(self._target), 0
        by_source = {copy.source: copy for copy in copies}
        by_remote = {copy.remote: copy for copy in copies}
        self._gate.begin_pass()
        while True:
            # First of all: what came while somebody waited for another answer would not end the wait below.
            runs += self._take(by_source)
            for ack in appender.acknowledgements():
                by_remote[ack.remote].acknowledge(ack)
            now, rest = time.monotonic(), math.inf
            full = self._gate.pass_is_full() or runs >= self._most_syncs
            no_more = now >= stop_at or full or shall_end()
            if not no_more and self._has_room(copies):
                rest = fetcher.pump(copies)
            appender.pump(copies)
            if all(copy.finished(no_more) for copy in copies) and appender.idle() and not self._hears_first():
                return
            wait_ms = min(WAIT_MS, (stop_at - now) * 1000, rest * 1000)
            self._target.network.poll(WAIT_MS if no_more else wait_ms)

    def _has_room(self, copies: Sequence[PartitionCopy]) -> bool:
        # What stopped is not sent any more, and takes no room from the others.
        queued = sum(copy.queued_bytes for copy in copies if copy.stopped is None)
        return queued < (THROTTLED_QUEUE_BYTES if self._target.is_throttled() else MOST_QUEUED_BYTES)

    def _hears_first(self) -> bool:
        # Over a narrow line no pass would bring anything: the next one asks over connections of its own.
        return not self._tailing and self._fetcher.hears_first()

    def _take(self, by_source: Mapping[Tuple[str, int], PartitionCopy]) -> int:
        # A function of its own: when it is left nothing looks at the answer, and its memory takes the next one.
        return sum(by_source[of].take(at, gap, found) for of, at, gap, found in self._fetcher.answers())
