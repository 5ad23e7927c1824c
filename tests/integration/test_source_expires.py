"""The source's log starts after the ledger's position, and a killed lane wrote what it could not report."""

from __future__ import annotations

from dataclasses import replace
from typing import List

import pytest

from mirror_lib.replication.copier import copy_lanes
from mirror_lib.replication.messages import TaskPlan
from tests.lab.one_flow import NewFlow, OneFlow
from tests.lab.one_lane import next_plan, task_plans
from tests.lab.readers import Log, read_topic
from tests.lab.stops import stop_of

pytestmark = pytest.mark.long

COPIED, ALL = 200, 300


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    """Of one partition; a lane copied the first records and did not report them."""
    flow = new_flow("expires", partitions=1, records=COPIED, remote=True)
    copy_lanes(plan(flow), 0)
    flow.fill(ALL - COPIED)
    return flow


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
