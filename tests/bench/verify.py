"""`make bench-verify`: how fast `mirror verify` compares a copy, next to the copy itself. CASES=bytes1000."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import List

from mirror_lib.text import aligned, grouped
from tests.bench.cases import Case, chosen, fill
from tests.lab.brokers import KafkaBroker, clusters
from tests.lab.checkout import CACHE, LabError, ended
from tests.lab.crash import driver
from tests.lab.flow_lab import QUIET, write_config
from tests.lab.submitted import environment


def seconds_of(*words: str) -> float:
    began = time.monotonic()
    with driver(["-m", "mirror_lib.cli", *words], None, **environment()) as running:
        if running.wait(3600):
            raise LabError(f"mirror {words[0]} failed: {running.output[-2000:]}")
        return time.monotonic() - began


def measured(source: KafkaBroker, target: KafkaBroker, case: Case, folder: Path) -> List[str]:
    """A row of the table: records per second of both commands, each with its start."""
    fill(source, case)
    addresses = {"A": source.bootstrap, "B": target.bootstrap}
    flow = {"topics": [case.name], "replication.factor": 1, "consumer.isolation.level": case.isolation, **QUIET}
    state = folder / f"state-{case.name}"
    config = write_config(folder / f"{case.name}.yaml", case.name, addresses, ["A->B"], flow, state=state)
    copied, compared = seconds_of("run", str(config), "--once"), seconds_of("verify", str(config))
    rates = [case.records / seconds for seconds in (copied, compared)]
    return [case.name, *(grouped(round(rate)) for rate in rates), f"{rates[1] / rates[0]:.2f}"]


def verify() -> int:
    rows = [["CASE", "COPIED/S", "VERIFIED/S", "RATIO"]]
    with tempfile.TemporaryDirectory(prefix="verify-", dir=CACHE) as name, clusters(["A", "B"], Path(name)) as both:
        for case in chosen((os.environ.get("CASES") or "bytes1000").split(), big=True):
            rows.append(measured(both[0], both[1], case, Path(name)))
    print("\n".join(aligned(rows, right={1, 2, 3})))
    return 0


if __name__ == "__main__":
    ended("bench-verify", verify)
