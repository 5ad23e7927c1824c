"""A lane that continues writing after its successor started: what it writes then is refused, wherever it stood still.

Without the fence the same scene doubles records; that is tested too, or the other tests would prove nothing. A target
forgets producers by the age of their records, so that it would take a fenced lane's write again: records of 2023 make
it forget at its next look. Behind such records a lane fences again at the end of its pass.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Iterator, List, Sequence, Set, Tuple

import pytest
from kafka import KafkaAdminClient, TopicPartition

from mirror_lib.config.model import ClusterConfig
from mirror_lib.kafka import producer as append
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.kafka.producer import ProduceRequest
from mirror_lib.replication import copier
from mirror_lib.replication.copier import copy_lanes
from mirror_lib.replication.messages import NO_END, TaskPlan, TaskReport
from mirror_lib.replication.partition import PartitionCopy
from tests.lab.brokers import KafkaBroker, clusters
from tests.lab.crash import CrashPoint
from tests.lab.one_flow import ABOUT_TO_WRITE, RECORDS_PER_BATCH, NewFlow, OneFlow, until
from tests.lab.one_lane import LaneProcess, next_pass, next_plan, standing_still, task_plans, up_to
from tests.lab.stops import Drained, stop_of

# Copied by the successor before the zombie wakes up, and after that.
EARLY, LATE = 400, 200
END = EARLY + LATE


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    return new_flow("zombie", records=EARLY, remote=True)


@pytest.fixture
def plan(flow: OneFlow) -> TaskPlan:
    (only,) = task_plans(flow)
    return only


def resumed(plan: TaskPlan, report: TaskReport, end: int) -> TaskPlan:
    """What a new driver plans from the positions that the report gave to the ledger."""
    after = next_plan(plan, report, end)
    return replace(after, producers={}, tasks=tuple(replace(task, sequence=None) for task in after.tasks))


def test_zombie_is_refused_once_its_successor_has_copied_whatever_its_tasks_max(flow: OneFlow, plan: TaskPlan) -> None:
    with standing_still(plan, flow.directory, *ABOUT_TO_WRITE) as wake:
        successors = [copy_lanes(each, 1) for each in task_plans(flow, tasks=2)]
        zombie = wake().report()
    assert zombie.fenced and not any(report.fenced for report in successors)
    assert sum(report.recovered for report in successors) > 0
    assert flow.differences() == []


@pytest.mark.parametrize("exactly_once", [False, pytest.param(True, id="another mirror", marks=pytest.mark.long)])
def test_zombie_without_a_fence_and_one_of_a_mirror_with_another_name_double_records(
    flow: OneFlow, exactly_once: bool
) -> None:
    (plan,) = task_plans(flow, exactly_once=exactly_once)
    other = {lane: f"other-{name}" for lane, name in plan.transactional_ids.items()}
    with standing_still(replace(plan, transactional_ids=other), flow.directory, *ABOUT_TO_WRITE) as wake:
        assert not copy_lanes(plan, 1).fenced
        wake().process.wait(90)
    assert "which is a duplicate of" in flow.differences()[0]


FENCING = "mirror_lib.kafka.fencing:"
ROUND = f"{FENCING}_SideBySide.__call__"
# With its first epochs, its markers written, its fence up.
RARE = [(ROUND, "after", 1), (ROUND, "after", 3), (f"{FENCING}fence", "after", 1)]


@pytest.mark.parametrize(
    "point", [ABOUT_TO_WRITE, (ROUND, "after", 2), *(pytest.param(each, marks=pytest.mark.long) for each in RARE)]
)
def test_zombie_between_two_passes_of_its_successor_does_not_write(
    flow: OneFlow, plan: TaskPlan, point: Tuple[str, str, int]
) -> None:
    with standing_still(up_to(plan, END), flow.directory, *point) as wake:
        first = copy_lanes(plan, 1)
        flow.fill(LATE)
        zombie = wake().report()
        second = next_pass(plan, first, flow.written)
    # While fencing it may have fenced lanes of its own by then; what it had fenced before is lost to it.
    assert zombie.fenced
    if point == ABOUT_TO_WRITE:
        # One epoch further: the lane fenced behind its old records, and not before them.
        onwards = {lane: replace(producer, epoch=producer.epoch + 1) for lane, producer in first.producers.items()}
        assert not second.fenced and second.producers == onwards
    assert not copy_lanes(up_to(plan, END), 1).fenced
    assert flow.differences() == []


def test_two_lanes_that_fence_at_once_never_both_write(flow: OneFlow, plan: TaskPlan) -> None:
    for folder in ("one", "other"):
        (flow.directory / folder).mkdir()
    after_markers = (f"{FENCING}_abort", "after", 1)
    with standing_still(plan, flow.directory / "one", *after_markers) as wake_one, standing_still(
        plan, flow.directory / "other", *after_markers
    ) as wake_other:
        one, other = wake_one(), wake_other()
        reports = [one.report(), other.report()]
    assert any(report.fenced for report in reports)
    assert sum(report.records > 0 for report in reports) <= 1
    finished = copy_lanes(plan, 1)
    assert not finished.fenced
    assert flow.differences() == []


def test_driver_that_lost_a_lane_does_not_take_it_back_for_a_new_partition(plan: TaskPlan) -> None:
    ours = replace(plan, tasks=plan.tasks[:2])
    before = copy_lanes(ours, 0)
    assert not copy_lanes(ours, 1).fenced  # another driver, which takes the lane over
    after = copy_lanes(replace(next_plan(ours, before, EARLY), tasks=plan.tasks), 0)
    assert after.fenced and not after.records


def test_sequences_go_on_past_the_largest_number(flow: OneFlow) -> None:
    (plan,) = task_plans(flow, exactly_once=False)
    (producer,) = copy_lanes(replace(plan, tasks=plan.tasks[:1]), 0).producers.values()
    # To a partition that never saw this producer the broker takes any first sequence.
    tasks = tuple(replace(task, sequence=2**31 - 50) for task in plan.tasks[1:])
    report = copy_lanes(replace(plan, producers={task.lane: producer for task in tasks}, tasks=tasks), 0)
    assert [part.sequence for part in report.partitions] == [EARLY - 50] * len(tasks)
    assert flow.differences() == []


def test_partition_that_stays_refused_gets_no_marker(
    flow: OneFlow, plan: TaskPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = copy_lanes(plan, 0)
    flow.target.write(flow.remote_topic, b"foreign", partition=1)
    flow.fill(LATE)
    start = resumed(plan, first, flow.written)

    def end() -> int:
        with KafkaCluster(ClusterConfig("target", {"bootstrap.servers": flow.target.bootstrap})) as cluster:
            return cluster.offsets([(flow.remote_topic, 1)], "read_uncommitted")[flow.remote_topic, 1].end

    def run() -> int:
        """How many offsets the remote partition grew by."""
        before, report = end(), copy_lanes(start, 0)
        parts = {part.partition: part for part in report.partitions}
        assert [stop_of(parts[number]).code for number in range(3)] == ["", "MIR-313", ""] and stop_of(parts[1]).refused
        assert [parts[number].position for number in range(3)] == [END, EARLY, END]
        return end() - before

    assert [run(), run()] == [0, 0]
    # Where the rest of the log is too long to be read twice.
    monkeypatch.setattr(copier, "LOOK_OFFSETS", 0)
    assert run() == 1
    monkeypatch.undo()
    assert run() == 0


# --- lanes that tail ---------------------------------------------------------------------------------------------

TAIL_SECONDS = 8.0


def tailing(flow: OneFlow, exactly_once: bool = True) -> TaskPlan:
    (plan,) = task_plans(flow, exactly_once=exactly_once)
    tasks = tuple(replace(task, end=NO_END) for task in plan.tasks)
    return replace(plan, tails=True, tasks=tasks, max_seconds=TAIL_SECONDS)


@pytest.mark.long
@pytest.mark.parametrize("fence", [True, False], ids=["fence", "negative control: no fence"])
def test_lane_that_stood_still_while_it_tailed_is_refused_once_another_has_its_place(
    flow: OneFlow, fence: bool
) -> None:
    with standing_still(tailing(flow, fence), flow.directory, *ABOUT_TO_WRITE) as wake:
        assert not copy_lanes(task_plans(flow, exactly_once=fence)[0], 1).fenced
        assert wake().report().fenced == fence
    found = flow.differences()
    assert found == [] if fence else "which is a duplicate of" in found[0]


# --- a driver that is fenced in the middle of its writes by one that is killed then --------------------------------

FENCED_AND_NO_MORE = "mirror_lib.replication.partition:RemotePartition.fenced"


def fenced_at_the_last_request(monkeypatch: pytest.MonkeyPatch, plan: TaskPlan, directory: Path) -> None:
    """Another driver's lane fences when the last batches are about to be sent, and is killed before it reads the
    remote log. Before that moment a partition has more to send, and cannot be taken for one that is done."""
    request = append._produce_request
    done: List[bool] = []

    def build(chosen: Sequence[PartitionCopy]) -> ProduceRequest:
        if not done and all(each.acknowledged and len(each._queue) == 1 and not each._in_flight for each in chosen):
            done.append(True)
            other = LaneProcess(plan, directory, CrashPoint(FENCED_AND_NO_MORE))
            assert other.process.wait(60) == -9
        return request(chosen)

    monkeypatch.setattr(append, "_produce_request", build)


@pytest.mark.long
@pytest.mark.parametrize("kind", [PartitionCopy, Drained])
def test_lane_that_was_fenced_while_it_wrote_reports_no_record_as_copied_that_is_not(
    kind: type, new_flow: NewFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = new_flow("fenced")
    for _ in range(2):  # the first batch goes alone, the second is the last request
        flow.fill(RECORDS_PER_BATCH)
    flow.create_remote_topic()
    (plan,) = task_plans(flow)
    monkeypatch.setattr(copier, "PartitionCopy", kind)
    with monkeypatch.context() as meanwhile:
        fenced_at_the_last_request(meanwhile, plan, flow.directory)
        report = copy_lanes(plan, 0)
    assert report.fenced
    assert not copy_lanes(resumed(plan, report, flow.written), 0).fenced
    assert bool(flow.differences()) == (kind is Drained)


# --- targets that forget -----------------------------------------------------------------------------------------

# The broker looks for what it may forget this often, not every 10 minutes.
LOOKS_OFTEN = {"producer.id.expiration.check.interval.ms": "200"}


@pytest.fixture(scope="module")
def forgetful_cluster(lab_directory: Path) -> Iterator[KafkaBroker]:
    with clusters(["target-that-forgets"], lab_directory, LOOKS_OFTEN) as (broker,):
        yield broker


@pytest.fixture
def old(new_flow: NewFlow, forgetful_cluster: KafkaBroker) -> OneFlow:
    """A flow of old records to that target."""
    return new_flow("forgetful", target=forgetful_cluster, records=EARLY, remote=True)


def known_epochs(flow: OneFlow) -> List[Set[int]]:
    """The producer epochs that the target remembers, of each remote partition."""
    admin = KafkaAdminClient(bootstrap_servers=flow.target.bootstrap)
    try:
        asked = [TopicPartition(flow.remote_topic, number) for number in range(flow.partitions)]
        reported = admin.describe_producers(asked)
        return [{each.producer_epoch for each in reported[partition].active_producers} for partition in asked]
    finally:
        admin.close()


def forgotten(flow: OneFlow) -> bool:
    return not any(known_epochs(flow))


@pytest.mark.long
def test_zombie_is_refused_after_a_pass_over_old_records(old: OneFlow) -> None:
    (plan,) = task_plans(old)
    with standing_still(up_to(plan, END), old.directory, *ABOUT_TO_WRITE) as wake:
        first = copy_lanes(plan, 1)
        old.fill(LATE)
        time.sleep(0.5)  # the target looks for what it may forget
        assert all(known_epochs(old))
        zombie = wake().report()
        second = next_pass(plan, first, old.written)
    assert zombie.fenced and not first.fenced and not second.fenced
    assert second.recovered == 0
    assert old.differences() == []


@pytest.mark.long
def test_zombie_of_a_lane_that_does_not_fence_behind_old_records_doubles_them(
    old: OneFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    (plan,) = task_plans(old)
    monkeypatch.setattr("mirror_lib.replication.lane.EPOCH_KEPT_SECONDS", math.inf)
    with standing_still(plan, old.directory, *ABOUT_TO_WRITE) as wake:
        assert not copy_lanes(plan, 1).fenced
        until(lambda: forgotten(old))
        wake().process.wait(90)
    assert "which is a duplicate of" in old.differences()[0]


@pytest.mark.long
def test_lane_that_was_taken_over_before_it_fences_again_tells_what_it_wrote(old: OneFlow) -> None:
    (plan,) = task_plans(old)
    with standing_still(plan, old.directory, f"{FENCING}refresh", "before", 1) as wake:
        other = copy_lanes(plan, 1)
        first = wake().report()
    assert first.fenced and not first.producers and not other.fenced
    assert first.records == other.recovered == old.everything
    assert {part.source: part.syncs for part in first.partitions} == {p.source: p.syncs for p in other.partitions}
    assert old.differences() == []


# The fence of the start takes the first four.
@pytest.mark.long
@pytest.mark.parametrize("call", [5, 6, 7], ids=["partitions-added", "marker-asked-for", "fence-up"])
def test_copy_is_exact_after_a_lane_killed_while_it_fences_again(old: OneFlow, call: int) -> None:
    (plan,) = task_plans(old)
    crash = CrashPoint(ROUND, "after", call, old.directory / "died")
    assert LaneProcess(plan, old.directory, crash).process.wait(90) == -9
    next_life = copy_lanes(plan, 1)
    old.fill(LATE)
    next_pass(plan, next_life, old.written)
    assert next_life.recovered == EARLY * old.partitions
    assert old.differences() == []


@pytest.mark.long
@pytest.mark.parametrize("asks", [True, False], ids=["asks-first", "relies-on-it"])
def test_driver_that_stood_still_until_it_was_forgotten(new_flow: NewFlow, tmp_path: Path, asks: bool) -> None:
    soon = {**LOOKS_OFTEN, "producer.id.expiration.ms": "1000"}
    with clusters(["target-that-forgets-soon"], tmp_path, soon) as (target,):
        flow = new_flow("stood-still", target=target, records=EARLY, remote=True)
        (plan,) = task_plans(flow)
        before = copy_lanes(plan, 0)
        flow.fill(LATE)
        assert not copy_lanes(up_to(plan, END), 1).fenced  # another driver, which takes the lanes over
        until(lambda: forgotten(flow))
        then = next_plan(plan, before, flow.written)
        report = copy_lanes(replace(then, confirmed_at=0.0) if asks else then, 0)
        assert report.fenced == asks
        assert (flow.differences() == []) == asks
