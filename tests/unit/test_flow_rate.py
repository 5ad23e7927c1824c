"""A flow's rate as files say it, its tasks' shares and a fetcher's part of them: what was fetched is paid."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, List, Sequence, Tuple

import pytest

from mirror_lib.config.values import SIZE
from mirror_lib.kafka.fetch_quota import FETCH_BYTES, FetchQuota, RateQuota
from mirror_lib.replication.messages import TaskPlan, nothing_copied
from mirror_lib.replication.task_plans import FlowRate

MB = 1_000_000


class Clock:
    """Stands still until it is moved."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def plans(tasks: int) -> List[TaskPlan]:
    return [TaskPlan(number, "A->B", {}, {}, (), "A", "B", {}, {}) for number in range(tasks)]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *(("none", None), ("50000000", 50_000_000), ("50 MB", 50_000_000), ("50mb", 50_000_000)),
        *(("1.5 GB", 1_500_000_000), ("512 KiB", 524_288), ("1 B", 1)),
        *((text, ...) for text in ("", "0", "-1", "5 M", "5 megabytes", "5 MB/s", "many", "0.0001 KB")),
    ],
)
def test_sizes_are_read_or_refused(text: str, size: Any) -> None:
    if size is ...:
        with pytest.raises(ValueError, match="must be"):
            SIZE.parse(text)
    else:
        assert SIZE.parse(text) == size


def test_tasks_have_equal_shares_of_the_rate_and_of_one_saved_second() -> None:
    assert FlowRate(None).shared(plans(2)) == plans(2)
    clock = Clock()
    rate = FlowRate(10 * MB, clock)
    clock.now += 60
    shares = [each.rate for each in rate.shared(plans(4))]
    assert [(each.rate, each.balance) for each in shares if each] == [(2.5 * MB, 2.5 * MB)] * 4


class Stages:
    """Stages of tasks with the quotas of a flow, over a source that always has more, in steps of a simulated clock.

    `arrivals` are the times and sizes of all answers.
    """

    def __init__(self, tasks: int, rate: int, batch: int = 64_000, step: float = 0.02) -> None:
        self.clock = Clock()
        self.rate = FlowRate(rate, self.clock)
        self.plans = plans(tasks)
        self.batch, self.step = batch, step
        self.arrivals: List[Tuple[float, int]] = []

    def run(self, seconds: float, starting: float = 0.0, fails: bool = False, idle: Sequence[int] = ()) -> None:
        """One stage; its tasks start late by `starting`, none reports if it fails, and some have nothing to do."""
        shared = self.rate.shared(self.plans)
        self.clock.now += starting
        quotas = [FetchQuota(each.rate, False, self.clock) for each in shared]
        until = self.clock.now + seconds
        while self.clock.now < until:
            for quota in (quota for number, quota in enumerate(quotas) if number not in idle):
                granted = quota.grant(1)
                if granted:
                    nbytes = granted // self.batch * self.batch or self.batch
                    quota.settle(granted, nbytes)
                    self.arrivals.append((self.clock.now, nbytes))
            self.clock.now += self.step
        if not fails:
            self.rate.learn([replace(nothing_copied(0), balance=quota.balance()) for quota in quotas])

    def mean(self) -> float:
        return sum(nbytes for _, nbytes in self.arrivals) / (self.clock.now - Clock.now)

    def most_above(self, rate: float) -> float:
        """The most bytes that arrived in any span beyond `rate` times its length."""
        above = lowest = most = 0.0
        for at, nbytes in self.arrivals:
            lowest = min(lowest, above - rate * at)
            above += nbytes
            most = max(most, above - rate * at - lowest)
        return most


@pytest.mark.parametrize("tasks", [1, 2, 5])
@pytest.mark.parametrize("rate", [MB, 20 * MB, 100 * MB])
def test_stages_one_after_the_other_fetch_what_the_rate_allows_and_no_more(tasks: int, rate: int) -> None:
    """A flow got about half of its rate: a stage of ten seconds was paid for out of one second of the rate."""
    stages = Stages(tasks, rate)
    for _ in range(12):
        stages.run(10.0, starting=0.3)
        stages.clock.now += 0.4  # the commit
    assert stages.mean() >= 0.9 * min(rate, tasks * 16 * 1024 * 1024 / stages.step)
    assert stages.most_above(rate) <= rate + tasks * stages.batch


def test_idle_tasks_and_failed_stages_keep_the_rate() -> None:
    rate = 10 * MB
    idle, failing = Stages(4, rate), Stages(2, rate)
    for number in range(10):
        idle.run(10.0, idle=[1, 2, 3] if number < 5 else [])
        failing.run(2.0, fails=number % 2 == 0)
    assert idle.most_above(rate) <= rate + 4 * idle.batch
    assert failing.mean() >= 0.8 * rate and failing.most_above(rate) <= rate + 20 * failing.batch


def test_batch_larger_than_a_second_of_the_rate_is_paid_for_by_the_next_stages() -> None:
    stages = Stages(1, MB, batch=30 * MB)
    for _ in range(30):
        stages.run(2.0)
    assert len(stages.arrivals) == 2


def quota_of(clock: Clock, rate: float, balance: float = 0.0, retried: bool = False) -> FetchQuota:
    return FetchQuota(RateQuota(rate, balance), retried, clock)


def test_attempt_after_a_failed_one_has_nothing_saved_up_but_owes_what_was_owed() -> None:
    assert quota_of(Clock(), MB, balance=MB).grant(1) > 0
    assert quota_of(Clock(), MB, balance=MB, retried=True).grant(1) == 0
    clock = Clock()
    owing = quota_of(clock, MB, balance=-2.0 * MB, retried=True)
    clock.now += 2
    assert owing.grant(1) == 0


def test_broker_that_has_nothing_does_not_keep_the_rate_from_another() -> None:
    clock = Clock()
    quota, brought = quota_of(clock, MB), 0
    clock.now += 10
    assert quota.grant(2)  # asked, and not answered
    for _ in range(200):
        granted = quota.grant(2)
        if granted:
            quota.settle(granted, granted)
            brought += granted
        clock.now += 0.05
    assert brought >= 9 * MB


def test_request_over_a_broken_connection_reserves_nothing_and_without_a_rate_answers_have_their_full_size() -> None:
    clock = Clock()
    quota = quota_of(clock, MB)
    clock.now += 10
    assert quota.grant(1) and not quota.grant(1)
    quota.forget_asked()
    assert quota.grant(1)
    unlimited = FetchQuota(None, False, Clock())
    assert unlimited.grant(3) == unlimited.grant(3) == FETCH_BYTES


def test_quota_reports_how_long_it_delayed_the_task_and_what_is_left() -> None:
    clock = Clock()
    quota = quota_of(clock, 100_000)
    assert not quota.grant(1)
    clock.now += 10
    quota.settle(quota.grant(1), 500_000)  # one batch of them
    assert (quota.held_seconds(), quota.balance()) == (10, -400_000)
    assert not quota.grant(1)
    clock.now += 2
    assert quota.held_seconds() == 12
