"""The controls: a mirror without one of its guards, under the same faults, must be found out by the same judge."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Callable, Dict, List, Tuple

import pytest

from tests.faults.cases import CASES, succeeded
from tests.faults.cluster import Cluster
from tests.faults.conftest import SEED
from tests.faults.engines import Mirror
from tests.faults.load import Load
from tests.faults.scene import PARTITIONS, Act, Case, Scene

pytestmark = pytest.mark.faults


def woken_unfenced(scene: Scene) -> None:
    """What a zombie has on its way is written next to its successor's records. Both notice it, and stop."""
    succeeded(scene)
    time.sleep(15)
    scene.refusal = "both stop"


def killed_often(scene: Scene) -> None:
    """A kill between two micro-batches leaves nothing to be copied twice, so a few kills may prove nothing."""
    for _ in range(4):
        CASES["process-killed"].act(scene)


CONTROLS: Dict[str, Tuple[Dict[str, str], Act]] = {
    "no fence": ({"delivery": "at-least-once"}, woken_unfenced),
    "no origins": ({"where": "true", "provenance": "off"}, killed_often),
}


@pytest.mark.parametrize("name", CONTROLS)
def test_mirror_without_a_guard_doubles_records_and_the_judge_says_so(
    both: List[Cluster], topic_name: Callable[[str], str], tmp_path: Path, name: str
) -> None:
    source, target = both
    settings, act = CONTROLS[name]
    topic = source.create_topic(topic_name(f"control-{name.replace(' ', '-')}"), PARTITIONS)
    replicator = Mirror(source, target, topic, tmp_path, settings)
    load = Load(source, topic, PARTITIONS)
    outcome = Scene(Case(name, name, act), source, target, replicator, load, SEED).play()
    print(f"\n{outcome}")
    assert not outcome.exact
    assert outcome.uncommitted.doubled and not outcome.uncommitted.lost
