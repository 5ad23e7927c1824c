"""`make soak`: one replicator for HOURS, random faults in turn under load, then the verdict over all that was copied.

HOURS=1, SEED=7. Each fault is a case of `tests/faults/cases.py` that needs nothing set up for it; the seed decides
which, in which order.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import List

from tests.faults.cases import CASES, seed_of
from tests.faults.cluster import three_brokers
from tests.faults.conftest import keep
from tests.faults.engines import Mirror
from tests.faults.load import Load
from tests.faults.scene import PARTITIONS, Case, Scene
from tests.lab.checkout import CACHE

# Over hours the judge holds every record in memory.
PER_SECOND = 400
REST_SECONDS = 5.0


def plain_cases() -> List[Case]:
    return [
        each
        for each in CASES.values()
        if each == Case(each.name, each.title, each.act, each.mm2, each.quick, fences_itself=each.fences_itself)
    ]


def soak(hours: float, seed: int) -> int:
    cases, end = plain_cases(), time.monotonic() + hours * 3600
    folder = Path(tempfile.mkdtemp(prefix="soak-", dir=CACHE))
    print(f"{hours} hours, seed {seed}, {len(cases)} kinds of faults; what runs writes to {folder}", flush=True)

    def act(scene: Scene) -> None:
        while time.monotonic() < end:
            case = scene.random.choice(cases)
            print(
                f"{time.strftime('%H:%M:%S')} {case.name} · {len(scene.load.acked)} written, "
                f"{len(scene.follower.seen)} seen",
                flush=True,
            )
            case.act(scene)
            for cluster in (scene.source, scene.target):
                cluster.heal()
            if not scene.engine.running and not scene.started_again():
                scene.ended_by_itself = True
                scene.engine.start()
            time.sleep(REST_SECONDS)
        scene.healed()

    with three_brokers(["source", "target"], folder / "brokers", seed) as (source, target):
        topic = source.create_topic("soak", PARTITIONS)
        replicator = Mirror(source, target, topic, folder)
        load = Load(source, topic, PARTITIONS, PER_SECOND)
        case = Case("soak", "soak", act, fences_itself=True)
        outcome = Scene(case, source, target, replicator, load, seed).play()
    keep(asdict(outcome))
    print(outcome)
    if not outcome.exact or outcome.ended_by_itself:
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(soak(float(os.environ.get("HOURS") or 1), seed_of(os.environ.get("SEED"))))
