"""When what is due: a flow's intervals in, yes or no out. Pure but for the clock."""

from __future__ import annotations

import time
from typing import Dict

from mirror_lib.config.model import ReplicationFlow

# With every interval off there is still the ledger to follow.
IDLE_SECONDS = 60.0

COMMIT, CHECKPOINTS, LEDGER = "commit", "checkpoints", "ledger"


class Timers:
    """What is due when, by the flow's intervals. `shortest` of them, in seconds, is the query's trigger."""

    def __init__(self, flow: ReplicationFlow) -> None:
        intervals = {
            COMMIT: flow.sync_group_offsets_interval,
            CHECKPOINTS: flow.emit_checkpoints_interval,
            LEDGER: flow.refresh_groups_interval,
        }
        self._intervals = {name: seconds for name, seconds in intervals.items() if seconds is not None}
        self._taken: Dict[str, float] = {LEDGER: time.monotonic()}
        self.shortest = min(self._intervals.values(), default=IDLE_SECONDS)

    def take(self, name: str) -> bool:
        """Whether `name` is due; if so its interval begins anew."""
        interval, now = self._intervals.get(name), time.monotonic()
        # A trigger comes a little early or late: half a trigger is not worth a whole one of waiting.
        if interval is None or now - self._taken.get(name, -interval) < interval - self.shortest / 2:
            return False
        self._taken[name] = now
        return True
