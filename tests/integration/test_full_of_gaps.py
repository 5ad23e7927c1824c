"""Logs with a gap after each record: a pass ends when it has enough of them to tell; nothing is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Sequence, Tuple

import pytest

from mirror_lib.ledger.intervals import Runs
from mirror_lib.replication.copier import copy_lanes
from mirror_lib.replication.messages import TaskReport
from tests.lab.one_flow import NewFlow, OneFlow
from tests.lab.one_lane import next_plan, task_plans
from tests.lab.readers import differences, lies, read_topic

pytestmark = pytest.mark.long

TRANSACTIONS, FEW = 300, 40
END = 2 * TRANSACTIONS  # each record has a marker behind it
# A pass writes what it has fetched, so what there is must be more than it fetches at once.
VALUE = b"v" * 100_000


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    flow = new_flow("gaps")
    flow.create_remote_topic()
    producer = flow.source.producer(transactional_id=flow.topic, linger_ms=0)
    producer.init_transactions(30)
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        producer.produce(flow.topic, b"%d " % number + VALUE, partition=0)
        producer.commit_transaction(30)
    return flow


def syncs_of(report: TaskReport) -> List[Tuple[int, int, int, int]]:
    return [
        (part.partition, *run) for part in report.partitions for run in Runs(part.syncs)
    ]


def passes_of(flow: OneFlow, most_syncs: int) -> List[TaskReport]:
    """The passes of a driver without a ledger, until all is done: of the partition with all records."""
    (plan,) = task_plans(flow)
    (task,) = (task for task in plan.tasks if task.partition == 0)
    plan = replace(plan, tasks=(replace(task, end=END),), most_syncs=most_syncs)
    passes: List[TaskReport] = []
    while not passes or passes[-1].partitions[0].position < END:
        passes.append(copy_lanes(plan, 0))
        assert passes[-1].records or passes[-1].recovered, passes[-1]
        plan = next_plan(plan, passes[-1], END)
    return passes


def assert_exact(flow: OneFlow, passes: Sequence[TaskReport]) -> None:
    source = read_topic(flow.source, flow.topic, "read_committed")
    remote = read_topic(flow.target, flow.remote_topic)
    syncs = [sync for report in passes for sync in syncs_of(report)]
    assert len(syncs) == len(source[0]) == TRANSACTIONS
    assert differences(source, remote) == [] and lies(syncs, source, remote) == []


@pytest.mark.parametrize("most", [FEW, TRANSACTIONS + 1], ids=["few", "unbounded"])
def test_passes_end_early_and_are_an_exact_copy_together_and_a_driver_without_a_ledger_finds_it_all(
    flow: OneFlow, most: int
) -> None:
    passes = passes_of(flow, most)
    reported = [len(syncs_of(report)) for report in passes]
    assert (len(passes) > 1) == (most == FEW) and all(most <= count < TRANSACTIONS for count in reported[:-1])
    assert sum(report.records for report in passes) == TRANSACTIONS
    assert_exact(flow, passes)
    first, *rest = passes_of(flow, most)
    assert (first.recovered, first.records, rest) == (TRANSACTIONS, 0, [])
    assert_exact(flow, [first])
