"""The ledger's commit never starves: a tail whose Spark loses slots for good continues with those that are left."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Dict, List

import pytest
from pyspark.sql.utils import AnalysisException  # type: ignore[attr-defined]  # Spark 3.3 has no pyspark.errors

from mirror_lib.errors import EXIT_OK
from tests.integration.conftest import Ground
from tests.lab.one_flow import NewFlow, OneFlow, until
from tests.lab.processes import kill_tree
from tests.lab.standalone import SMALL, Standalone, standalone
from tests.lab.submitted import JOB, environment, submitted

pytestmark = pytest.mark.long

SECONDS = 240.0


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    return new_flow("slots", settings={"tasks.max": 2}, trigger="1 second", records=100)


def log_of(flow: OneFlow) -> Path:
    """Spark merges the driver's streams."""
    return flow.directory / "submitted.log"


def progress(flow: OneFlow) -> List[Dict[str, object]]:
    lines = log_of(flow).read_text().splitlines(keepends=True)
    documents = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}\n")]
    return [each for each in documents if "behind_records" in each]


def in_the_ledger(flow: OneFlow, ground: Ground) -> bool:
    # Not `isDeltaTable`, which remembers for an hour that a folder had no first commit yet.
    try:
        rows = flow.ledger(ground[2])
    except AnalysisException:
        return False
    return sum(row[3] for row in rows) == flow.everything


def lose_a_worker(flow: OneFlow, cluster: Standalone) -> None:
    """Once the flow tails, with both of its tasks on either executor."""
    until(flow.all_copied, SECONDS)
    flow.fill(20)
    until(lambda: any(each["waiting"] == "waiting for records" for each in progress(flow)), SECONDS)
    kill_tree(cluster.processes[-1].pid)
    flow.fill(100)


def test_tail_goes_on_where_a_worker_is_lost_and_not_replaced(flow: OneFlow, ground: Ground, tmp_path: Path) -> None:
    with standalone(tmp_path / "spark") as cluster, submitted(
        log_of(flow), "--master", cluster.master, *SMALL, JOB, str(flow.config), "--json", env=environment()
    ) as running:
        lose_a_worker(flow, cluster)
        until(flow.all_copied, SECONDS)
        until(lambda: in_the_ledger(flow, ground), SECONDS)
        flow.fill(100)
        until(lambda: flow.all_copied() and in_the_ledger(flow, ground), SECONDS)
        running.send_signal(signal.SIGTERM)
        assert running.wait(120) == EXIT_OK
    flow.assert_exact(ground[2])
