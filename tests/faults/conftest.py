"""Two clusters of three brokers for each test file, and the file into which every outcome goes."""

from __future__ import annotations

import json
import os
from datetime import date
from pathlib import Path
from typing import Any, Iterator, List, Mapping

import pytest

from tests.faults.cases import seed_of
from tests.faults.cluster import Cluster, three_brokers
from tests.lab.checkout import CACHE

SEED = seed_of(os.environ.get("SEED"))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[List[Cluster]]:
    """The source and the target. Every case leaves them whole."""
    with three_brokers(["source", "target"], tmp_path_factory.mktemp("brokers"), SEED) as clusters:
        yield clusters


def keep(outcome: Mapping[str, Any]) -> None:
    """Append one, with its day, as a line of JSON to FAULTS_FILE, or `.cache/faults/outcomes.jsonl`."""
    file = Path(os.environ.get("FAULTS_FILE") or CACHE / "faults" / "outcomes.jsonl")
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as out:
        out.write(json.dumps({**outcome, "day": date.today().isoformat()}, sort_keys=True) + "\n")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed and "tests/faults" in report.nodeid:
        print(f"\n{report.nodeid}\n{report.longreprtext[-4000:]}", flush=True)
