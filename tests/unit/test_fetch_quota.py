"""What a task may fetch under its bounds: never more than the rate lets through and one answer, and never nothing."""

from __future__ import annotations

from typing import Dict, List, Optional

import pytest

from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.fetcher import FETCH_BYTES, PARTITION_FETCH_BYTES
from mirror_lib.replication.quotas import FLOW, FetchQuota, RateQuota, TaskRates

MB = 1_000_000
ORDERS: List[TopicPartition] = [("orders", number) for number in range(4)]
LOGS: List[TopicPartition] = [("logs", number) for number in range(4)]


class Clock:
    """Stands still until it is moved."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Log:
    """A source that answers at once: of `partitions` as much as it may, but whole batches of the first one at least."""

    def __init__(self, gate: FetchQuota, partitions: List[TopicPartition], batch: int = 16_000) -> None:
        self.gate, self.partitions, self.batch = gate, partitions, batch
        self.brought: Dict[str, int] = {}

    def ask(self, wanted: Optional[List[TopicPartition]] = None, brokers: int = 1) -> int:
        """Bytes that came for one request; 0 where the gate held it back."""
        granted = self.gate.grant(wanted or self.partitions, brokers)
        left = granted.total
        came: Dict[TopicPartition, int] = {}
        for each, most in granted.each.items():
            if each in self.partitions:
                came[each] = min(most, left) // self.batch * self.batch or (0 if came else self.batch)
                left = max(0, left - came[each])
        if granted.each:
            self.gate.settle(granted, came)
        for (topic, _), nbytes in came.items():
            self.brought[topic] = self.brought.get(topic, 0) + nbytes
        return sum(came.values())


def flow_gate(clock: Clock, rate: float, balance: float = 0.0, retried: bool = False) -> FetchQuota:
    return FetchQuota(TaskRates(flow=RateQuota(rate, balance)), retried, clock)


def logs_gate(clock: Clock, rate: float, flow: Optional[float] = None) -> FetchQuota:
    share = None if flow is None else RateQuota(flow)
    return FetchQuota(TaskRates(flow=share, topics={0: RateQuota(rate)}, rate_of={"logs": 0}), False, clock)


def run(clock: Clock, log: Log, seconds: float, step: float = 0.01) -> None:
    until = clock.now + seconds
    while clock.now < until:
        while log.ask():
            pass
        clock.now += step


def test_without_bounds_an_answer_may_be_as_large_as_ever() -> None:
    granted = FetchQuota(TaskRates(), False, Clock()).grant(ORDERS, 3)
    assert granted.total == FETCH_BYTES
    assert set(granted.each.values()) == {PARTITION_FETCH_BYTES}


@pytest.mark.parametrize("rate", [20_000, 300_000, 5 * MB, 80 * MB])
def test_rate_is_kept_and_used(rate: int) -> None:
    clock = Clock()
    log = Log(flow_gate(clock, rate), ORDERS)
    run(clock, log, 20)
    assert 0.9 * 20 * rate <= log.brought["orders"] <= 20 * rate + log.batch


def test_batches_larger_than_a_second_of_the_rate_come_whole_and_are_paid_for() -> None:
    clock = Clock()
    log = Log(flow_gate(clock, 100_000), ORDERS, batch=MB)
    run(clock, log, 60)
    assert 5 * MB <= log.brought["orders"] <= 60 * 100_000 + MB


def test_no_more_than_a_second_is_saved_up() -> None:
    clock = Clock()
    log = Log(flow_gate(clock, MB), ORDERS, batch=10_000)
    clock.now += 3600
    run(clock, log, 1)
    assert log.brought["orders"] <= 2 * MB + log.batch


def test_what_was_fetched_too_much_before_the_pass_is_paid_for_in_it() -> None:
    clock = Clock()
    log = Log(flow_gate(clock, MB, balance=-5.0 * MB), ORDERS)
    run(clock, log, 5)
    assert log.brought == {}
    run(clock, log, 5)
    assert 4 * MB <= log.brought["orders"] <= 5 * MB + log.batch


def test_attempt_after_a_failed_one_has_nothing_saved_up_but_owes_what_was_owed() -> None:
    assert Log(flow_gate(Clock(), MB, balance=MB), ORDERS).ask() > 0
    assert Log(flow_gate(Clock(), MB, balance=MB, retried=True), ORDERS).ask() == 0
    clock = Clock()
    log = Log(flow_gate(clock, MB, balance=-2.0 * MB, retried=True), ORDERS)
    run(clock, log, 2)
    assert log.brought == {}


def test_bound_of_topics_holds_these_and_no_others() -> None:
    clock = Clock()
    log = Log(logs_gate(clock, 200_000), LOGS + ORDERS)
    for _ in range(100):
        log.ask(LOGS + ORDERS)
        log.ask(ORDERS)
        clock.now += 0.1
    assert 0.7 * 10 * 200_000 <= log.brought["logs"] <= 10 * 200_000 + log.batch
    assert log.brought["orders"] > 100 * MB


def test_flow_is_held_to_its_own_bound_over_those_of_topics() -> None:
    clock = Clock()
    log = Log(logs_gate(clock, 10 * MB, flow=MB), LOGS + ORDERS)
    run(clock, log, 10)
    assert 8 * MB <= sum(log.brought.values()) <= 10 * MB + log.batch


def test_partitions_of_one_bound_get_no_more_than_it_together_even_when_all_bring_something_at_once() -> None:
    clock = Clock()
    gate = logs_gate(clock, MB)
    clock.now += 10
    granted = gate.grant(LOGS, 1)
    assert set(granted.each) == set(LOGS)
    assert sum(granted.each.values()) <= MB


def test_busy_partition_among_idle_ones_gets_most_of_its_bound() -> None:
    clock = Clock()
    gate = logs_gate(clock, MB)
    busy, many = LOGS[0], [("logs", number) for number in range(200)]
    log = Log(gate, [busy])
    clock.now += 10
    log.ask(many)
    clock.now += 10
    granted = gate.grant(many, 1)
    assert granted.each[busy] >= MB / 4
    assert sum(granted.each.values()) <= MB


def test_broker_that_has_nothing_does_not_keep_the_bound_from_another() -> None:
    clock = Clock()
    gate = flow_gate(clock, MB)
    clock.now += 10
    assert gate.grant(ORDERS[:1], 2).each  # asked, and not answered
    log = Log(gate, ORDERS[1:])
    until = clock.now + 10
    while clock.now < until:
        log.ask(brokers=2)
        clock.now += 0.05
    assert log.brought["orders"] >= 9 * MB


def test_what_was_asked_over_a_broken_connection_is_not_kept_reserved() -> None:
    clock = Clock()
    gate = flow_gate(clock, MB)
    clock.now += 10
    assert gate.grant(ORDERS, 1).each
    assert not gate.grant(ORDERS, 1).each
    gate.forget_asked()
    assert gate.grant(ORDERS, 1).each


def test_pass_is_full_when_its_bytes_have_come() -> None:
    clock = Clock()
    gate = FetchQuota(TaskRates(cycle_bytes=100_000), False, clock)
    log = Log(gate, ORDERS, batch=30_000)
    while log.ask():
        assert sum(log.brought.values()) < 100_000 + log.batch
    assert gate.cycle_is_full()
    gate.begin_cycle()
    assert not gate.cycle_is_full() and log.ask()


def test_gate_tells_once_what_came_and_how_long_it_was_shut() -> None:
    clock = Clock()
    log = Log(logs_gate(clock, 100_000, flow=10 * MB), LOGS)
    run(clock, log, 10)
    reported = log.gate.taken()
    assert reported.nbytes == {FLOW: log.brought["logs"], 0: log.brought["logs"]}
    assert reported.held_seconds[0] > 8 and reported.held_seconds.get(FLOW, 0.0) < 1
    assert log.gate.taken().nbytes == {}
