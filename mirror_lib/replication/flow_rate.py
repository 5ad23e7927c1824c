"""Splits a flow's rate evenly over the tasks of a stage, and carries what a stage saved or owes to the next. Pure."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Callable, List, Optional, Sequence

from mirror_lib.kafka.fetch_quota import RateQuota, TokenBucket
from mirror_lib.metrics import RATE_LIMITED
from mirror_lib.replication.messages import TaskPlan, TaskReport
from mirror_lib.text import size

# A flow that was delayed for this fraction of the time counts as rate-limited.
AT_LIMIT = 0.2


class FlowRate:
    """One flow's rate in one driver process; without a `rate` it changes nothing. Not thread-safe. The caller gives the
    clock."""

    def __init__(self, rate: Optional[int], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._bucket = None if rate is None else TokenBucket(rate, 0.0, clock())

    def shared(self, plans: Sequence[TaskPlan]) -> List[TaskPlan]:
        """The plans of one stage, each with an equal share. The shares add up to the rate, so it holds however many of
        the tasks run at a time."""
        if self._bucket is None or not plans:
            return list(plans)
        rate, balance = self._bucket.rate, self._bucket.balance(self._clock())
        # The tasks' buckets fill meanwhile. If the tasks fail, they have spent all that they were given.
        self._bucket = TokenBucket(rate, min(balance, 0.0), math.inf)
        share = RateQuota(rate / len(plans), balance / len(plans))
        return [replace(plan, rate=share) for plan in plans]

    def learn(self, reports: Sequence[TaskReport]) -> None:
        """Take over what the tasks of the latest stage left or owe: their buckets have counted each second and byte."""
        if self._bucket is not None and reports:
            balance = sum(report.balance for report in reports)
            self._bucket = TokenBucket(self._bucket.rate, balance, self._clock())


def rate_limited(rate: Optional[int], held_seconds: float, seconds: float) -> Optional[str]:
    """The rate, for the status, if it delayed a cycle of `seconds` for a good part of it."""
    return f"{RATE_LIMITED} {size(rate)}/s" if rate is not None and held_seconds > AT_LIMIT * seconds else None
