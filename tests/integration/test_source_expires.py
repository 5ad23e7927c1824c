"""The source's log starts after the ledger's position, or was compacted, and a killed lane wrote what it could not
report."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Sequence

import pytest
from confluent_kafka import Producer

from mirror_lib.ledger.intervals import Runs
from mirror_lib.replication.copier import copy_lanes
from mirror_lib.replication.messages import TaskPlan, TaskReport
from tests.lab.brokers import KafkaBroker
from tests.lab.dataset import COMPACT_QUICKLY, set_configs, wait_compacted
from tests.lab.one_flow import NewFlow, OneFlow
from tests.lab.one_lane import next_plan, task_plans
from tests.lab.readers import Log, read_topic
from tests.lab.stops import stop_of

pytestmark = pytest.mark.long

COPIED, ALL = 200, 300


@pytest.fixture
def copied(new_flow: NewFlow) -> OneFlow:
    """Of one partition; a lane copied all records and did not report them."""
    flow = new_flow("expires", partitions=1)
    flow.fill(COPIED)
    flow.create_remote_topic()
    copy_lanes(plan(flow), 0)
    return flow


@pytest.fixture
def flow(copied: OneFlow) -> OneFlow:
    """It got more records since."""
    copied.fill(ALL - COPIED)
    return copied


def plan(flow: OneFlow, on_data_loss: str = "fail") -> TaskPlan:
    return replace(task_plans(flow)[0], on_data_loss=on_data_loss)


def values(log: Log) -> List[object]:
    return [record.value for record in log.values()]


def copies(flow: OneFlow) -> List[object]:
    return values(read_topic(flow.target, flow.remote_topic)[0])


def test_nothing_is_lost_where_all_that_expired_was_copied(flow: OneFlow) -> None:
    everything = values(read_topic(flow.source, flow.topic)[0])
    flow.source.expire(flow.topic, {0: COPIED - 70})
    report = copy_lanes(plan(flow), 1)
    assert (report.recovered, report.records) == (COPIED, ALL - COPIED)
    assert report.partitions[0].stopped is None and not report.partitions[0].incidents
    assert copies(flow) == everything


def test_what_was_not_copied_is_refused_or_reported_before_anything_after_it_is_copied(flow: OneFlow) -> None:
    flow.source.expire(flow.topic, {0: COPIED + 50})
    (part,) = copy_lanes(plan(flow), 1).partitions
    assert stop_of(part).refused and flow.copies() == COPIED
    assert "offsets 200 to 249 left the source's log before they were copied" in str(part.stopped)
    going_on = plan(flow, "continue")
    report = copy_lanes(going_on, 1)
    (part,) = report.partitions
    assert part.stopped is None and report.records == 0 and flow.copies() == COPIED
    [lost] = part.incidents
    assert (lost.kind, lost.from_offset, lost.until_offset) == ("data lost", COPIED, COPIED + 50)
    assert part.position == COPIED + 50
    after = copy_lanes(next_plan(going_on, report, flow.written), 0)
    assert after.records == ALL - COPIED - 50
    assert copies(flow)[COPIED:] == values(read_topic(flow.source, flow.topic)[0])


LATER = [b"later %d" % number for number in range(5)]


@pytest.fixture
def cleaned(copied: OneFlow) -> OneFlow:
    """The cleaner took most of the records since."""
    set_configs(copied.source, copied.topic, {"cleanup.policy": "compact", **COMPACT_QUICKLY})
    append(copied.source, copied.topic, LATER)
    assert wait_compacted(copied.source, copied.topic) < 20
    return copied


def append(broker: KafkaBroker, topic: str, written: Sequence[bytes]) -> None:
    """Under keys that the topic had before, with the present time: a new segment, which the cleaner leaves alone."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number, value in enumerate(written):
        producer.produce(topic, value, b"key %d" % number, 0)
    assert producer.flush(60) == 0


def next_life(flow: OneFlow) -> TaskReport:
    (plan,) = task_plans(flow)
    tasks = tuple(replace(task, end=COPIED + len(LATER)) for task in plan.tasks)
    return copy_lanes(replace(plan, tasks=tasks), 1)


def test_source_that_was_cleaned_behind_a_crash_is_gone_on_with(cleaned: OneFlow) -> None:
    before = copies(cleaned)
    report = next_life(cleaned)
    (part,) = report.partitions
    assert part.stopped is None and not part.incidents
    assert (report.recovered, report.records, part.position) == (COPIED, len(LATER), COPIED + len(LATER))
    assert copies(cleaned) == [*before, *LATER]
    assert sum(run.record_count for each in report.partitions for run in Runs(each.syncs)) == len(copies(cleaned))


def test_stranger_on_the_remote_log_of_a_cleaned_source_is_refused(cleaned: OneFlow) -> None:
    append(cleaned.target, cleaned.remote_topic, [b"stranger"])
    (part,) = next_life(cleaned).partitions
    assert stop_of(part).refused and "is not the source's next one" in str(part.stopped)
    assert copies(cleaned)[COPIED:] == [b"stranger"]
