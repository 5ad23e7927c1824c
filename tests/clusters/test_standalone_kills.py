"""A standalone Spark with a master and two workers: continuous runs in client mode that lose executors and workers.

`tests/integration/test_standalone.py` has the worker that is lost and not replaced.
"""

from __future__ import annotations

import os
import signal
from typing import Callable, Iterator, List

import pytest

from mirror_lib.errors import EXIT_OK
from tests.clusters.conftest import DYNAMIC, continuous, goes_on
from tests.integration.conftest import Ground
from tests.lab.one_flow import OneFlow, until
from tests.lab.submitted import SMALL, Standalone, executors_of, standalone

DECOMMISSION = (
    *("--conf", "spark.decommission.enabled=true", "--conf", "spark.storage.decommission.enabled=true"),
    *("--conf", "spark.storage.decommission.shuffleBlocks.enabled=true"),
)


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("standalone")) as started:
        yield started


@pytest.fixture
def flow(ground: Ground, topic_name: Callable[[], str]) -> OneFlow:
    source, target, _, directory = ground
    return OneFlow(source, target, topic_name(), directory)


def executors(cluster: Standalone) -> List[int]:
    return [pid for worker in cluster.processes[1:] for pid in executors_of(worker.pid)]


@pytest.mark.parametrize("kind", ["fixed", "dynamic allocation", "local-cluster"])
def test_continuous_run_continues_after_a_killed_executor(
    request: pytest.FixtureRequest, flow: OneFlow, ground: Ground, kind: str
) -> None:
    cluster = None if kind == "local-cluster" else request.getfixturevalue("cluster")
    master = cluster.master if cluster else "local-cluster[2,2,1024]"
    where = ["--master", master, *SMALL, *(DYNAMIC if kind == "dynamic allocation" else ())]
    with continuous(flow, ground, *where) as job:
        os.kill((executors(cluster) if cluster else executors_of(job.pid))[0], signal.SIGKILL)
        goes_on(flow, job)
        job.send_signal(signal.SIGTERM)
        assert job.wait(120) == EXIT_OK


def test_continuous_run_continues_on_the_worker_that_is_not_decommissioned(
    cluster: Standalone, flow: OneFlow, ground: Ground
) -> None:
    where = ["--master", cluster.master, *SMALL, *DECOMMISSION]
    with continuous(flow, ground, *where) as job:
        leaving = cluster.processes[1]
        until(lambda: len(executors(cluster)) == 2)
        os.kill(leaving.pid, signal.SIGPWR)
        goes_on(flow, job)
        until(lambda: cluster.workers() == 1 and not executors_of(leaving.pid))
        job.send_signal(signal.SIGTERM)
        assert job.wait(120) == EXIT_OK
