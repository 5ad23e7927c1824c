"""The source's cleaner runs between a lane's death and the next one's look at what it could not report."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Sequence

import pytest
from confluent_kafka import Producer

from mirror_lib.ledger.intervals import Runs
from mirror_lib.replication.copier import copy_lanes
from mirror_lib.replication.messages import TaskReport
from tests.lab.brokers import KafkaBroker
from tests.lab.dataset import COMPACT_QUICKLY, set_configs, wait_compacted
from tests.lab.one_flow import NewFlow, OneFlow
from tests.lab.one_lane import task_plans
from tests.lab.readers import read_topic
from tests.lab.stops import stop_of

pytestmark = pytest.mark.long

COPIED = 200
LATER = [b"later %d" % number for number in range(5)]


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    """Of one partition; a lane copied the first records and did not report them. Then the cleaner took most of them."""
    flow = new_flow("cleaned", partitions=1)
    flow.fill(COPIED)
    flow.create_remote_topic()
    copy_lanes(task_plans(flow)[0], 0)
    set_configs(flow.source, flow.topic, {"cleanup.policy": "compact", **COMPACT_QUICKLY})
    append(flow.source, flow.topic, LATER)
    assert wait_compacted(flow.source, flow.topic) < 20
    return flow


def append(broker: KafkaBroker, topic: str, values: Sequence[bytes]) -> None:
    """Under keys that the topic had before, with the present time: a new segment, which the cleaner leaves alone."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number, value in enumerate(values):
        producer.produce(topic, value, b"key %d" % number, 0)
    assert producer.flush(60) == 0


def next_life(flow: OneFlow) -> TaskReport:
    (plan,) = task_plans(flow)
    tasks = tuple(replace(task, end=COPIED + len(LATER)) for task in plan.tasks)
    return copy_lanes(replace(plan, tasks=tasks), 1)


def copies(flow: OneFlow) -> List[object]:
    return [record.value for record in read_topic(flow.target, flow.remote_topic)[0].values()]


def test_source_that_was_cleaned_behind_a_crash_is_gone_on_with(flow: OneFlow) -> None:
    before = copies(flow)
    report = next_life(flow)
    (part,) = report.partitions
    assert part.stopped is None and not part.incidents
    assert (report.recovered, report.records, part.position) == (COPIED, len(LATER), COPIED + len(LATER))
    assert copies(flow) == [*before, *LATER]
    assert sum(run.record_count for each in report.partitions for run in Runs(each.syncs)) == len(copies(flow))


def test_stranger_on_the_remote_log_of_a_cleaned_source_is_refused(flow: OneFlow) -> None:
    append(flow.target, flow.remote_topic, [b"stranger"])
    (part,) = next_life(flow).partitions
    assert stop_of(part).refused and "is not the source's next one" in str(part.stopped)
    assert copies(flow)[COPIED:] == [b"stranger"]
