"""What was measured, in one JSON file that grows with each copy: a run of some cases replaces only those."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from tests.bench.figures import Observed
from tests.lab.brokers import KAFKA_VERSION
from tests.lab.checkout import CACHE

FILE = CACHE / "bench" / "results.json"


@dataclass(frozen=True)
class Run:
    """One copy of a case by an engine. `payload_bytes` are keys, values and headers; `ended_seconds` counts from the
    command to the end of the process, where it ends by itself; `own_copy_seconds` are the main job's own words."""

    case: str
    engine: str
    round: int
    payload_bytes: int
    figures: Observed
    ended_seconds: Optional[float] = None
    own_copy_seconds: Optional[float] = None
    load: float = 0.0


@dataclass(frozen=True)
class Results:
    """All runs of a machine."""

    machine: Mapping[str, str] = field(default_factory=dict)
    runs: Sequence[Run] = ()

    def with_run(self, run: Run) -> Results:
        """With this one in the place of an earlier one of the same case, engine and round."""
        kept = [each for each in self.runs if (each.case, each.engine, each.round) != (run.case, run.engine, run.round)]
        return Results(self.machine, [*kept, run])

    def without(self, case: str, engines: Sequence[str]) -> Results:
        """Without any round of these engines of a case."""
        kept = [each for each in self.runs if each.case != case or each.engine not in engines]
        return Results(self.machine, kept)

    def of(self, case: str, engine: str) -> Dict[int, Run]:
        """By round."""
        return {each.round: each for each in self.runs if each.case == case and each.engine == engine}


def loaded(file: Path) -> Results:
    """Empty where there is no file yet."""
    if not file.exists():
        return Results()
    document: Dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    runs = [Run(**{**each, "figures": Observed(**each["figures"])}) for each in document["runs"]]
    return Results(document["machine"], runs)


def save(results: Results, file: Path) -> None:
    """Whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    document = {"machine": dict(results.machine), "runs": [asdict(each) for each in results.runs]}
    part.write_text(json.dumps(document, indent=1), encoding="utf-8")
    part.replace(file)


def this_machine() -> Dict[str, str]:
    """What a reader must know to compare figures."""
    info = Path("/proc/cpuinfo").read_text()
    names: List[str] = [line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")]
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": f"{os.cpu_count()} cores{f' of {names[0]}' if names else ''}",
        "memory": f"{total / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "Kafka and MirrorMaker": KAFKA_VERSION,
        "Spark": version("pyspark"),
        "Delta": version("delta-spark"),
        "Python": platform.python_version(),
    }
