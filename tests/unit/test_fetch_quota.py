"""What a task may fetch under its rate: never more than the rate lets through and one answer, and never nothing."""

from __future__ import annotations

import pytest

from mirror_lib.kafka.fetch_quota import FETCH_BYTES, FetchQuota, RateQuota

MB = 1_000_000


class Clock:
    """Stands still until it is moved."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Log:
    """A source that answers at once: as much as it may, but one whole batch at least."""

    def __init__(self, quota: FetchQuota, batch: int = 16_000) -> None:
        self.quota, self.batch = quota, batch
        self.brought = 0

    def ask(self, brokers: int = 1) -> int:
        """Bytes that came for one request; 0 where the quota held it back."""
        granted = self.quota.grant(brokers)
        if not granted:
            return 0
        came = granted // self.batch * self.batch or self.batch
        self.quota.settle(granted, came)
        self.brought += came
        return came


def quota_of(clock: Clock, rate: float, balance: float = 0.0, retried: bool = False) -> FetchQuota:
    return FetchQuota(RateQuota(rate, balance), retried, clock)


def run(clock: Clock, log: Log, seconds: float, step: float = 0.01) -> None:
    until = clock.now + seconds
    while clock.now < until:
        while log.ask():
            pass
        clock.now += step


def test_without_a_rate_an_answer_may_be_as_large_as_ever() -> None:
    quota = FetchQuota(None, False, Clock())
    assert quota.grant(3) == quota.grant(3) == FETCH_BYTES


def test_no_more_than_a_second_is_saved_up() -> None:
    clock = Clock()
    log = Log(quota_of(clock, MB), batch=10_000)
    assert log.ask() == 0
    clock.now += 3600
    log.ask()
    run(clock, log, 1)
    assert log.brought <= 2 * MB + log.batch


def test_what_was_fetched_too_much_before_the_cycle_is_paid_for_in_it() -> None:
    clock = Clock()
    log = Log(quota_of(clock, MB, balance=-5.0 * MB))
    run(clock, log, 5)
    assert log.brought == 0
    run(clock, log, 5)
    assert 4 * MB <= log.brought <= 5 * MB + log.batch


def test_attempt_after_a_failed_one_has_nothing_saved_up_but_owes_what_was_owed() -> None:
    assert Log(quota_of(Clock(), MB, balance=MB)).ask() > 0
    assert Log(quota_of(Clock(), MB, balance=MB, retried=True)).ask() == 0
    clock = Clock()
    log = Log(quota_of(clock, MB, balance=-2.0 * MB, retried=True))
    run(clock, log, 2)
    assert log.brought == 0


def test_broker_that_has_nothing_does_not_keep_the_rate_from_another() -> None:
    clock = Clock()
    quota = quota_of(clock, MB)
    clock.now += 10
    assert quota.grant(2)  # asked, and not answered
    log = Log(quota)
    until = clock.now + 10
    while clock.now < until:
        log.ask(brokers=2)
        clock.now += 0.05
    assert log.brought >= 9 * MB


def test_what_was_asked_over_a_broken_connection_is_not_kept_reserved() -> None:
    clock = Clock()
    quota = quota_of(clock, MB)
    clock.now += 10
    assert quota.grant(1) and not quota.grant(1)
    quota.forget_asked()
    assert quota.grant(1)


def test_quota_reports_how_long_it_delayed_the_task_and_what_is_left() -> None:
    clock = Clock()
    log = Log(quota_of(clock, 100_000))
    run(clock, log, 10)
    assert 8 < log.quota.held_seconds() < 10.1
    assert log.quota.balance() == pytest.approx(10 * 100_000 - log.brought)
