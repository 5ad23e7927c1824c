"""`make bench-start`: what a scheduled run costs from its command on, through spark-submit.sh: a first run with 1,000
records in two partitions, a second one with as many, and one with nothing to copy.

ROUNDS=5. Round 0 is not timed: it counts Spark's jobs and SQL executions, by Spark's event log.

`make bench-verify`: how fast `mirror verify` compares a copy, next to the copy itself. CASES=bytes1000.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Dict, List, NamedTuple, Sequence

from mirror_lib.text import aligned, grouped
from tests.bench.cases import Case, chosen, fill
from tests.bench.engines import BROKER_JVM, config_of, job
from tests.bench.mm2 import RemoteTopic
from tests.lab.brokers import KafkaBroker, clusters
from tests.lab.checkout import CACHE, LabError, ended
from tests.lab.crash import driver
from tests.lab.dataset import write
from tests.lab.flow_lab import QUIET, write_config
from tests.lab.submitted import environment

RECORDS, PARTITIONS = 1000, 2
RUNS = ("first", "second", "nothing to copy")

# One text file a run, with Spark 3 and 4.
EVENT_LOG = [
    *("--conf", "spark.eventLog.enabled=true"),
    *("--conf", "spark.eventLog.rolling.enabled=false"),
    *("--conf", "spark.eventLog.compress=false"),
]


class Cost(NamedTuple):
    """Of one command: seconds, and CPU seconds of all of its processes."""

    seconds: float
    cpu_seconds: float


def start() -> int:
    """Every round on two clusters; prints one table."""
    costs: Dict[str, List[Cost]] = {name: [] for name in RUNS}
    with tempfile.TemporaryDirectory(prefix="bench-", dir=CACHE) as folder, clusters(
        ["source", "target"], Path(folder), java_options=BROKER_JVM
    ) as (source, target):
        for number in range(int(os.environ.get("ROUNDS", "5")) + 1):
            own = Path(folder) / f"round-{number}"
            (own / "events").mkdir(parents=True)
            topic = f"events.{number}"
            source.create_topic(topic, PARTITIONS)
            servers = {"source": source.bootstrap, "target": target.bootstrap}
            config = config_of(own, servers, [topic], "availableNow", **{"tasks.max": 1})
            for name in RUNS:
                if name != RUNS[-1]:
                    write(source.producer(), topic, [b"x" * 100] * RECORDS, PARTITIONS, keyed=False)
                if number:
                    costs[name].append(_measured(config, []))
                else:
                    _measured(config, [*EVENT_LOG, "--conf", f"spark.eventLog.dir=file:{own}/events"])
            if RemoteTopic(target, f"source.{topic}", PARTITIONS).end() < 2 * RECORDS:
                raise LabError(f"round {number} did not copy all records")
            if not number:
                # The last one writes no log: it starts no Spark.
                counts = dict(zip(RUNS, [*_counted(own / "events"), Counter()]))
    head = ("RUN", "SECONDS", "CPU SECONDS", "SPARK JOBS", "SQL EXECUTIONS")
    rows = [head, *(_row(name, costs[name], counts[name]) for name in RUNS)]
    print("\n".join(aligned(rows, right=[1, 2, 3, 4])))
    print(f"\nMedians of {len(costs[RUNS[0]])} rounds; {os.cpu_count()} cores; load average {os.getloadavg()[0]:.1f}")
    return 0


def _measured(config: Path, options: Sequence[str]) -> Cost:
    began = time.monotonic()
    with job(config.parent, config, options=options) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise LabError(f"the run ended with {process.returncode}: {(config.parent / 'out.log').read_text()}")
    return Cost(time.monotonic() - began, used.ru_utime + used.ru_stime)


def _counted(folder: Path) -> List[Counter[str]]:
    """How often each event came in each run, by the order of the runs."""
    logs = sorted((path for path in folder.iterdir() if path.suffix != ".crc"), key=lambda path: path.stat().st_mtime)
    return [Counter(json.loads(line)["Event"] for line in path.read_text().splitlines()) for path in logs]


def _row(name: str, costs: Sequence[Cost], counts: Counter[str]) -> Sequence[str]:
    seconds, cpu = (median(column) for column in zip(*costs)) if costs else (0.0, 0.0)
    executions = sum(number for event, number in counts.items() if event.endswith("SparkListenerSQLExecutionStart"))
    return name, f"{seconds:.1f}", f"{cpu:.1f}", str(counts["SparkListenerJobStart"]), str(executions)


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
    """How fast `mirror verify` compares a copy, next to the copy itself."""
    rows = [["CASE", "COPIED/S", "VERIFIED/S", "RATIO"]]
    with tempfile.TemporaryDirectory(prefix="verify-", dir=CACHE) as name, clusters(["A", "B"], Path(name)) as both:
        for case in chosen((os.environ.get("CASES") or "bytes1000").split(), big=True):
            rows.append(measured(both[0], both[1], case, Path(name)))
    print("\n".join(aligned(rows, right={1, 2, 3})))
    return 0


if __name__ == "__main__":
    (what,) = sys.argv[1:]
    ended(f"bench-{what}", {"start": start, "verify": verify}[what])
