"""A broker killed with `kill -9` mid-copy: the lane waits for it, looks at what is there, and goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Callable, Iterator, List

import pytest

from tests.lab.brokers import KafkaBroker, clusters
from tests.lab.crash import CrashPoint
from tests.lab.one_flow import ABOUT_TO_WRITE, OneFlow, stopped_process
from tests.lab.one_lane import LaneProcess, task_plans


@pytest.fixture(scope="module")
def own_clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[List[KafkaBroker]]:
    """A source and a target that may be killed."""
    with clusters(["mortal-source", "mortal-target"], tmp_path_factory.mktemp("brokers")) as brokers:
        yield brokers


@pytest.mark.parametrize("killed", [0, 1], ids=["source", "target"])
def test_copy_is_exact_after_a_broker_killed_and_restarted(
    own_clusters: List[KafkaBroker], topic_name: Callable[[str], str], tmp_path: Path, killed: int
) -> None:
    source, target = own_clusters
    flow = OneFlow(source, target, topic_name("broker"), tmp_path)
    flow.fill(400)
    flow.create_remote_topic()
    (plan,) = task_plans(flow)
    point = CrashPoint(*ABOUT_TO_WRITE, tmp_path / "stopped", "stop")
    lane = LaneProcess(plan, tmp_path, point)
    try:
        pid = stopped_process(tmp_path / "stopped")
        own_clusters[killed].kill()
        os.kill(pid, signal.SIGCONT)
        own_clusters[killed].restart()
        report = lane.report()
    finally:
        lane.end()
    assert (report.fenced, [part.stopped for part in report.partitions]) == (False, [None] * flow.partitions)
    assert flow.differences() == []
