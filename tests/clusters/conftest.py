"""Tests on whole clusters, which `make compat-clusters` runs: without CLUSTERS in the environment none is collected.

A continuous run of a flow on a cluster, with a producer that writes all the while, and the proof of the copy.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from functools import partial
from typing import Iterator, List, Sequence

from tests.integration.conftest import Ground
from tests.integration.conftest import ground as ground
from tests.lab.checkout import ROOT
from tests.lab.meanwhile import meanwhile
from tests.lab.one_flow import OneFlow, until
from tests.lab.submitted import JOB, environment, submit, submitted

collect_ignore_glob = [] if os.environ.get("CLUSTERS") else ["test_*.py"]
WAIT_SECONDS = 300.0
# Executors come and go with the tasks that wait for them. No shuffle service is needed.
DYNAMIC = (
    *("--conf", "spark.dynamicAllocation.enabled=true"),
    *("--conf", "spark.dynamicAllocation.shuffleTracking.enabled=true"),
    *("--conf", "spark.dynamicAllocation.maxExecutors=2"),
)
SETTLED_SECONDS = 30.0


def produce(flow: OneFlow, stop: threading.Event) -> List[None]:
    while not stop.wait(0.2):
        flow.fill(20)
    return []


@contextmanager
def continuous(flow: OneFlow, ground: Ground, *options: str, **changes: str) -> Iterator[subprocess.Popen[bytes]]:
    """A run that tails what is produced; its output is in `continuous.log` of the flow's folder. The next bounded run
    copies the rest. Both sides and the ledger then agree, and `mirror verify` reports equal."""
    flow.fill()
    flow.trigger = "2 seconds"
    log = flow.directory / "continuous.log"
    words = [*options, JOB, str(flow.config)]
    with submitted(log, *words, env=environment(**changes)) as job, meanwhile(partial(produce, flow)):
        until(lambda: job.poll() is not None or copied(flow) > 0, WAIT_SECONDS)
        assert job.poll() is None, log.read_text(errors="replace")
        yield job
    flow.trigger = "availableNow"
    ended = submit(flow.directory, *options, config=flow.config, **changes)
    assert ended.code == 0, ended.text
    flow.assert_exact(ground[2])
    command: Sequence[str] = [sys.executable, "-m", "mirror_lib.cli", "verify", str(flow.config)]
    assert subprocess.run(command, cwd=ROOT, check=False, timeout=300).returncode == 0


def goes_on(flow: OneFlow, job: subprocess.Popen[bytes]) -> None:
    """Records that are written from now on reach the target, and those that are written half a minute later."""

    def reached(wanted: int) -> bool:
        return job.poll() is not None or copied(flow) > wanted

    for _ in range(2):
        until(partial(reached, flow.everything), WAIT_SECONDS)
        assert job.poll() is None, f"the run ended with {job.returncode}"
        time.sleep(SETTLED_SECONDS)


def copied(flow: OneFlow) -> int:
    time.sleep(1)  # it reads the whole topic
    return flow.copies()
