"""A topic that is created again under a fetch, and a broker that holds answers back: the lane looks before it writes.

`make faults` has the brokers that are killed or stand still.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import List

import pytest

from mirror_lib.kafka.fetcher import MAX_WAIT_MS
from mirror_lib.replication.messages import NO_END
from tests.lab.brokers import KafkaBroker
from tests.lab.one_flow import NewFlow, until
from tests.lab.one_lane import LaneProcess, task_plans

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    "known, broken",
    [(True, True), (True, False), (False, True)],
    ids=["known", "between-two-fetches", "where-brokers-tell-no-ids"],
)
def test_records_of_a_topic_that_was_created_again_are_taken_for_the_next_ones_only_where_topics_have_no_ids(
    pair: List[KafkaBroker], new_flow: NewFlow, tmp_path: Path, known: bool, broken: bool
) -> None:
    flow = new_flow("again", source=pair[0], target=pair[1], partitions=1, records=400, remote=True)
    (plan,) = task_plans(flow)
    source_id = flow.source_topic_id() if known else ""
    tasks = tuple(replace(task, end=NO_END, source_topic_id=source_id) for task in plan.tasks)
    lane = LaneProcess(replace(plan, tasks=tasks, tails=True, max_seconds=60.0), tmp_path)
    try:
        until(lambda: flow.copies() == 400)
        os.kill(lane.process.pid, signal.SIGSTOP)
        time.sleep(2 * MAX_WAIT_MS / 1000)  # an answer that there is nothing new waits to be read by then
        flow.create_source_anew(600)
        if broken:
            flow.source.kill()
            flow.source.restart()
        os.kill(lane.process.pid, signal.SIGCONT)
        (part,) = lane.report(180.0).partitions
    finally:
        lane.end()
    assert flow.copies() == (400 if known else 600)
    assert ("was deleted and created again" in str(part.stopped)) == known
