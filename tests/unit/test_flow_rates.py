"""A flow's bounds as files say them, and its tasks' shares: they add up to the bound, and what was taken is paid."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import pytest

from mirror_lib.config.loader import load
from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.config.values import SIZE, TOPIC_RATES, TopicRate
from mirror_lib.plan.terms import terms
from mirror_lib.replication.flow_rates import CHECK_SECONDS, FlowRates
from mirror_lib.replication.messages import PartitionTask, TaskPlan, TaskReport
from mirror_lib.replication.quotas import FLOW, NO_RATES, Fetching, FetchQuota, RateQuota
from tests.unit.logs import task_of

MB = 1_000_000
FLOW_AB = ReplicationFlow(ClusterConfig("A", {}), ClusterConfig("B", {}))


class Clock:
    """Stands still until it is moved."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def plan(number: int, *partitions: PartitionTask) -> TaskPlan:
    return TaskPlan(number, "A->B", {}, {}, partitions, "A", "B", {}, {})


def plans(*loads: Mapping[str, int]) -> List[TaskPlan]:
    """One plan for each task: bytes to copy by topic. One record is a byte."""
    return [
        plan(number, *(task_of(topic=topic, partition=number, end=nbytes) for topic, nbytes in load.items()))
        for number, load in enumerate(loads)
    ]


def bytes_of(task: PartitionTask) -> int:
    return task.end - task.upstream_offset


def report(nbytes: Mapping[int, int], held: Optional[Mapping[int, float]] = None) -> TaskReport:
    return TaskReport(0, {}, False, (), (), 0, 0, 0, 0, 1.0, Fetching(nbytes, held or {}))


def bounded(clock: Clock, topics: Sequence[TopicRate] = (), **settings: Any) -> FlowRates:
    return FlowRates(replace(FLOW_AB, max_bytes_per_second_topics=tuple(topics), **settings), clock)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("none", None), ("50000000", 50_000_000), ("50 MB", 50_000_000), ("50mb", 50_000_000),
        ("1.5 GB", 1_500_000_000), ("512 KiB", 524_288), ("1 B", 1),
    ],
)  # fmt: skip
def test_sizes(text: str, size: Optional[int]) -> None:
    assert SIZE.parse(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "5 M", "5 megabytes", "5 MB/s", "many", "0.0001 KB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        SIZE.parse(text)


def test_bounds_of_topics_are_a_list_and_the_first_that_matches_counts() -> None:
    bounds = TOPIC_RATES.parse(r"logs\..*=5MB, audit = 1 MB, .*=90 MB")
    assert bounds == (TopicRate(r"logs\..*", 5 * MB), TopicRate("audit", MB), TopicRate(".*", 90 * MB))
    assert TOPIC_RATES.parse(("logs-[0-9]{1,3}=1 KB",)) == (TopicRate("logs-[0-9]{1,3}", 1000),)
    reported = bounded(Clock(), bounds).reported(plans({"logs.a": 1, "audit": 1, "auditor": 1}), bytes_of)
    assert reported[0].rates.rate_of == {"logs.a": 0, "audit": 1, "auditor": 2}


@pytest.mark.parametrize("text", ["5MB", "=5MB", "logs=", "logs=fast", "*=5MB"])
def test_what_is_no_bound_of_topics_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must|cannot be used"):
        TOPIC_RATES.parse(text)


def test_flow_without_bounds_is_left_alone() -> None:
    made = plans({"orders": MB})
    assert bounded(Clock()).reported(made, bytes_of) == made
    assert made[0].rates == NO_RATES


def test_shares_add_up_to_the_bound_and_go_by_what_there_is_to_copy() -> None:
    clock = Clock()
    bounds = bounded(clock, max_bytes_per_second=10 * MB, batch_max_bytes=MB)
    clock.now += 60
    shares = [each.rates for each in bounds.reported(plans({"a": 30 * MB}, {"b": 10 * MB}, {"c": 0}), bytes_of)]
    rates = [each.flow.rate for each in shares if each.flow]
    assert sum(rates) == pytest.approx(10 * MB)
    assert rates[0] == pytest.approx(3 * rates[1], rel=0.1) and rates[2] > 0
    # Saved up is one second, of all tasks together.
    assert sum(each.flow.balance for each in shares if each.flow) == pytest.approx(10 * MB)
    assert sum(each.cycle_bytes or 0 for each in shares) == pytest.approx(MB, abs=2)


def test_shares_of_a_bound_of_topics_add_up_to_it_over_the_tasks_that_have_such_topics() -> None:
    bounds = bounded(Clock(), [TopicRate("logs.*", 2 * MB)])
    made = plans({"logs": 9 * MB}, {"logs2": 3 * MB, "a": MB}, {"a": MB})
    shares = [each.rates for each in bounds.reported(made, bytes_of)]
    assert sum(each.topics[0].rate for each in shares[:2]) == pytest.approx(2 * MB)
    assert not shares[2].topics and shares[0].flow is None


def test_backlog_behind_a_bound_of_topics_does_not_take_the_flow_s_rate_from_others() -> None:
    bounds = bounded(Clock(), [TopicRate("logs", 1000)], max_bytes_per_second=10 * MB, batch_max_seconds=10.0)
    shares = [each.rates.flow for each in bounds.reported(plans({"logs": 10**12}, {"orders": 5 * MB}), bytes_of)]
    assert shares[1] is not None and shares[1].rate > 9 * MB


class Stages:
    """Stages of tasks with the quotas of a flow, over a source that always has more, in steps of a simulated clock.

    `arrivals` are the times and sizes of all answers.
    """

    def __init__(self, tasks: int, batch: int = 64_000, step: float = 0.02, **settings: Any) -> None:
        self.clock = Clock()
        self.rates = FlowRates(replace(FLOW_AB, **settings), self.clock)
        self.plans = plans(*({f"topic-{number}": 10**12} for number in range(tasks)))
        self.batch, self.step = batch, step
        self.arrivals: List[Tuple[float, int]] = []

    def run(self, seconds: float, starting: float = 0.0, lost: Sequence[int] = ()) -> None:
        """One stage; its tasks start late by `starting`, and those in `lost` do not report."""
        shared = self.rates.reported(self.plans, bytes_of)
        self.clock.now += starting
        quotas = {each.task: FetchQuota(each.rates, False, self.clock) for each in shared}
        until = self.clock.now + seconds
        while self.clock.now < until:
            for number, quota in quotas.items():
                self._fetch(quota, (f"topic-{number}", 0))
            self.clock.now += self.step
        reported = {number: quota.taken() for number, quota in quotas.items() if number not in lost}
        self.rates.learn([replace(report({}), task=number, fetching=each) for number, each in reported.items()])

    def _fetch(self, quota: FetchQuota, partition: Tuple[str, int]) -> None:
        granted = quota.grant([partition], 1)
        if granted.each:
            nbytes = min(granted.total, granted.each[partition]) // self.batch * self.batch or self.batch
            quota.settle(granted, {partition: nbytes})
            self.arrivals.append((self.clock.now, nbytes))

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
    stages = Stages(tasks, max_bytes_per_second=rate)
    for _ in range(12):
        stages.run(10.0, starting=0.3)
        stages.clock.now += 0.4  # the commit
    assert stages.mean() >= 0.9 * rate
    assert stages.most_above(rate) <= rate + tasks * stages.batch


def test_stages_that_begin_late_and_end_early_save_up_no_more_than_a_second() -> None:
    rate = 10 * MB
    stages = Stages(2, max_bytes_per_second=rate)
    for seconds, starting in ((5.0, 3.0), (0.5, 0.0), (0.5, 2.0), (7.0, 0.0), (0.1, 0.0), (0.1, 5.0), (3.0, 0.0)):
        stages.run(seconds, starting)
    assert stages.most_above(rate) <= rate + 2 * stages.batch


def test_rate_is_kept_where_a_task_does_not_report() -> None:
    rate = 10 * MB
    stages = Stages(2, max_bytes_per_second=rate)
    for _ in range(10):
        stages.run(2.0, lost=[1])
    assert stages.mean() >= 0.9 * rate
    assert stages.most_above(rate) <= rate + 20 * stages.batch


def test_batch_larger_than_a_second_of_the_rate_is_paid_for_by_the_next_stages() -> None:
    stages = Stages(1, batch=30 * MB, max_bytes_per_second=MB)
    for _ in range(30):
        stages.run(2.0)
    assert len(stages.arrivals) == 2


def test_topic_rate_is_used_over_stages() -> None:
    stages = Stages(2, max_bytes_per_second_topics=(TopicRate("topic-1", MB),))
    stages.plans = stages.plans[1:]
    for _ in range(12):
        stages.run(10.0, starting=0.3)
    assert stages.mean() >= 0.9 * MB
    assert stages.most_above(MB) <= MB + stages.batch


def test_what_was_read_over_some_seconds_is_paid_for_out_of_all_of_them() -> None:
    clock = Clock()
    bounds = bounded(clock, max_bytes_per_second=MB)
    bounds.standing(["a"])
    clock.now += 4
    bounds.pay({FLOW: 5 * MB})
    assert bounds.standing(["a"]).flow == RateQuota(MB, -MB)
    clock.now += 60
    bounds.standing(["a"])
    clock.now += 60
    bounds.pay({FLOW: 5 * MB})
    assert bounds.standing(["a"]).flow == RateQuota(MB, MB)


def test_word_of_a_pass_names_the_bound_that_held_it_back() -> None:
    bounds = bounded(Clock(), [TopicRate("logs.*", MB)], max_bytes_per_second=5 * MB)
    assert bounds.word([report({}, {FLOW: 1.5})], 2.0) == "rate-limited to 5.0 MB/s"
    assert bounds.word([report({}, {0: 1.5})], 2.0) == "rate-limited to 1.0 MB/s for logs.*"
    assert bounds.word([report({}, {FLOW: 0.1})], 2.0) is None
    # A task that continues reports its time in pieces.
    assert bounds.word([report({}, {FLOW: 1.0})] * 5, 10.0) == "rate-limited to 5.0 MB/s"


@pytest.mark.parametrize(
    ("nbytes", "held", "bad"),
    [(0.4, 0.9, True), (1.0, 0.9, False), (0.4, 0.1, False)],
    ids=["held-back-and-unused", "used", "nothing-to-copy"],
)
def test_shares_of_tasks_that_go_on_are_bad_where_one_waits_and_the_bound_is_not_used(
    nbytes: float, held: float, bad: bool
) -> None:
    clock = Clock()
    bounds = bounded(clock, max_bytes_per_second=MB)
    for _ in range(int(CHECK_SECONDS)):
        assert not bounds.badly_shared()
        clock.now += 1
        bounds.learn([report({FLOW: int(nbytes * MB)}, {FLOW: held})])
    assert bounds.badly_shared() == bad
    assert not bounds.badly_shared()


def test_task_that_waited_is_not_stuck() -> None:
    assert report({}, {FLOW: 0.5}).was_held
    assert replace(report({}), target_throttled_seconds=0.1).was_held
    assert not report({FLOW: MB}).was_held


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({}, "1 task on 2 slots · cycles of 10 s · no rate limit · exactly-once, read_committed"),
        (
            {
                "tasks_max": 4,
                "batch_max_bytes": 256 * MB,
                "max_bytes_per_second": 5 * MB,
                "max_bytes_per_second_topics": TOPIC_RATES.parse("audit=1 MB"),
            },
            "4 tasks on 2 slots · cycles of 10 s or 256.0 MB · at most 5.0 MB/s, 1.0 MB/s for audit · "
            "exactly-once, read_committed",
        ),
    ],
)
def test_line_says_what_was_chosen(settings: Dict[str, Any], line: str) -> None:
    assert terms(replace(FLOW_AB, **settings), 2) == line


YAML = """
clusters: {A: {bootstrap.servers: "a:9092"}, B: {bootstrap.servers: "b:9092"}}
max.bytes.per.second.topics: 'logs\\..*=5 MB, audit=1000'
flows: {A->B: {max.bytes.per.second: 50 MB, batch.max.bytes: 1 GB}}
"""
PROPERTIES = r"""
clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
A->B.enabled = true
A->B.max.bytes.per.second = 50000000
max.bytes.per.second.topics = logs\\..*=5 MB, audit=1000
A->B.batch.max.bytes = 1 GB
"""
CONNECTOR = r"""
{"name": "source", "config": {
  "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
  "source.cluster.alias": "A", "target.cluster.alias": "B",
  "source.cluster.bootstrap.servers": "a:9092", "target.cluster.bootstrap.servers": "b:9092",
  "max.bytes.per.second": "50 MB", "max.bytes.per.second.topics": "logs\\..*=5 MB, audit=1000",
  "batch.max.bytes": "1 GB"}}
"""


@pytest.mark.parametrize(
    ("name", "text"), [("mirror.yaml", YAML), ("mm2.properties", PROPERTIES), ("source.json", CONNECTOR)]
)
def test_bounds_are_said_in_every_dialect(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    (flow,) = load(str(tmp_path / name)).flows
    assert terms(flow) == (
        "1 task · cycles of 10 s or 1.0 GB · at most 50.0 MB/s, 5.0 MB/s for logs\\..*, 1.0 KB/s for audit · "
        "exactly-once, read_committed"
    )
