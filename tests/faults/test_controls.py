"""The controls: a mirror without its fences, under the same faults, must be found out by the same judge."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, List

import pytest

from tests.faults.cases import CASES
from tests.faults.cluster import Cluster
from tests.faults.conftest import SEED
from tests.faults.engines import Mirror
from tests.faults.load import Load
from tests.faults.scene import PARTITIONS, Scene

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("name", ["answers-lost", "zombie"])
def test_mirror_at_least_once_doubles_records_and_the_judge_says_so(
    both: List[Cluster], topic_name: Callable[[str], str], tmp_path: Path, name: str
) -> None:
    source, target = both
    topic = source.create_topic(topic_name(f"control-{name}"), PARTITIONS, {})
    replicator = Mirror(source, target, topic, tmp_path, {"delivery": "at-least-once"})
    scene = Scene(name, source, target, replicator, Load(source, topic, PARTITIONS), tmp_path, SEED)
    outcome = scene.play(CASES[name].act)
    print(f"\n{outcome}")
    assert not outcome.exact
    assert outcome.uncommitted.doubled and not outcome.uncommitted.lost
