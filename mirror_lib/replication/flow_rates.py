"""Shares a flow's rates among the tasks of each cycle, and carries over what a cycle fetched beyond its quota."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Callable, Dict, Iterable, List, Mapping, Optional, Sequence

from mirror_lib.config.model import ReplicationFlow
from mirror_lib.config.values import rate_of
from mirror_lib.metrics import RATE_LIMITED
from mirror_lib.replication.messages import PartitionTask, TaskPlan, TaskReport
from mirror_lib.replication.quotas import FLOW, Load, RateQuota, TaskRates, TokenBucket, joined, parts_of_rate, weights
from mirror_lib.text import size

# A flow that was delayed for this fraction of the time counts as rate-limited.
AT_LIMIT = 0.2
# Interval between checks of the shares. They are bad if a task was delayed most of the time and the rate not used up.
CHECK_SECONDS = 30.0
HELD_PART, USED_PART = 0.5, 0.7


class FlowRates:
    """Divides one flow's rates among its tasks. Not thread-safe. Without rates it changes nothing. The caller gives the
    clock."""

    def __init__(self, flow: ReplicationFlow, clock: Callable[[], float] = time.monotonic) -> None:
        self._flow = flow
        self._clock = clock
        rates = {number: each.bytes_per_second for number, each in enumerate(flow.max_bytes_per_second_topics)}
        if flow.max_bytes_per_second is not None:
            rates[FLOW] = flow.max_bytes_per_second
        self._accounts: Dict[int, TokenBucket] = {
            number: TokenBucket(rate, 0.0, clock()) for number, rate in rates.items()
        }
        # By rate and task, the last balance that a task of the latest stage reported.
        self._lent: Dict[int, Dict[int, float]] = {}
        self._checked_at = clock()
        self._nbytes: Dict[int, int] = {}
        self._held: Dict[int, float] = {}

    @property
    def has_rates(self) -> bool:
        """Whether a rate limits the flow."""
        return bool(self._accounts)

    @property
    def counts_bytes(self) -> bool:
        """Whether the flow has a rate, or a limit of bytes for a cycle."""
        return self.has_rates or self._flow.batch_max_bytes is not None

    def tasks(self, slots: int) -> int:
        """The number of tasks to plan when Spark runs `slots` at a time: a task that waits would waste its share."""
        return min(self._flow.tasks_max, max(1, slots)) if self.has_rates else self._flow.tasks_max

    def reported(self, plans: Sequence[TaskPlan], bytes_of: Callable[[PartitionTask], int]) -> List[TaskPlan]:
        """The plans of one stage, each with its share. `bytes_of` returns the bytes to copy of a partition."""
        if not self.counts_bytes:
            return list(plans)
        self._recheck()
        known = self._numbers({task.topic for plan in plans for task in plan.tasks})
        loads = [_load(plan, known, bytes_of) for plan in plans]
        rates = [each.bytes_per_second for each in self._flow.max_bytes_per_second_topics]
        parts = weights(loads, rates, self._flow.batch_max_seconds)
        of_topics = {number: parts_of_rate(loads, number) for number in set(known.values())}
        shared = [
            replace(plan, rates=self._rates_of(part, {n: found[i] for n, found in of_topics.items()}, known))
            for i, (plan, part) in enumerate(zip(plans, parts))
        ]
        self._lend(shared)
        return shared

    def standing(self, topics: Iterable[str]) -> TaskRates:
        """The whole amount that may be fetched now of these topics, for a caller that fetches alone."""
        known = self._numbers(topics)
        return self._rates_of(1.0, dict.fromkeys(known.values(), 1.0), known)

    def learn(self, reports: Sequence[TaskReport]) -> None:
        """Take back the unused parts of the latest stage's shares.

        The tasks' buckets have counted every second and every byte, so nothing is counted twice. A task that did not
        report returns nothing, and its debt remains.
        """
        nbytes, held = joined([(report.task, report.fetching) for report in reports])
        for number, count in nbytes.items():
            self._nbytes[number] = self._nbytes.get(number, 0) + count
        for number, seconds in held.items():
            self._held[number] = self._held.get(number, 0.0) + seconds
        for report in reports:
            for number, left in report.fetching.left.items():
                if report.task in self._lent.get(number, {}):
                    self._lent[number][report.task] = left
        now = self._clock()
        for number, of_tasks in self._lent.items():
            self._accounts[number] = TokenBucket(self._accounts[number].rate, sum(of_tasks.values()), now)

    def pay(self, nbytes: Mapping[int, int]) -> None:
        """Deduct the bytes, by rate, that were read since `standing` was last called."""
        now = self._clock()
        for number, count in nbytes.items():
            if number in self._accounts:
                self._accounts[number].spend_over_time(count, now)

    def badly_shared(self) -> bool:
        """Whether long tasks should end, so that the next ones get other shares."""
        now = self._clock()
        seconds = now - self._checked_at
        if seconds < CHECK_SECONDS:
            return False
        bad = any(
            self._held.get(number, 0.0) > HELD_PART * seconds
            and self._nbytes.get(number, 0) < USED_PART * seconds * account.rate
            for number, account in self._accounts.items()
        )
        self._recheck()
        return bad

    def word(self, reports: Sequence[TaskReport], seconds: float) -> Optional[str]:
        """The rate that delayed a cycle of `seconds`, for the status; `None` if no rate did."""
        _, held = joined([(report.task, report.fetching) for report in reports])
        at_limit = [number for number in sorted(held) if held[number] > AT_LIMIT * seconds and number in self._accounts]
        if not at_limit:
            return None
        number = at_limit[0]
        topics = "" if number == FLOW else f" for {self._flow.max_bytes_per_second_topics[number].pattern}"
        return f"{RATE_LIMITED} {size(self._accounts[number].rate)}/s{topics}"

    def _recheck(self) -> None:
        self._checked_at, self._nbytes, self._held = self._clock(), {}, {}

    def _numbers(self, topics: Iterable[str]) -> Dict[str, int]:
        found = {topic: rate_of(self._flow.max_bytes_per_second_topics, topic) for topic in topics}
        return {topic: number for topic, number in found.items() if number is not None}

    def _rates_of(self, part: float, of_topics: Mapping[int, float], known: Mapping[str, int]) -> TaskRates:
        most = self._flow.batch_max_bytes
        return TaskRates(
            flow=self._share(FLOW, part) if FLOW in self._accounts else None,
            topics={number: self._share(number, mine) for number, mine in of_topics.items() if mine},
            rate_of=known,
            cycle_bytes=None if most is None else max(1, round(part * most)),
        )

    def _lend(self, plans: Sequence[TaskPlan]) -> None:
        self._lent = {}
        for plan in plans:
            rates = plan.rates
            shares = dict(rates.topics) if rates.flow is None else {FLOW: rates.flow, **rates.topics}
            for number, share in shares.items():
                self._lent.setdefault(number, {})[plan.task] = min(share.balance, 0.0)

    def _share(self, number: int, part: float) -> RateQuota:
        account = self._accounts[number]
        return RateQuota(part * account.rate, part * account.balance(self._clock()))


def _load(plan: TaskPlan, known: Mapping[str, int], bytes_of: Callable[[PartitionTask], int]) -> Load:
    found: Dict[Optional[int], float] = {}
    for task in plan.tasks:
        number = known.get(task.topic)
        found[number] = found.get(number, 0.0) + bytes_of(task)
    return found
