"""`make faults`: every case of `tests/faults/cases.py`, and what stands on the target afterwards.

CASES="zombie lines-cut", ENGINES="mirror mm2 mm2-exactly-once", SEED=7. `make soak` is the case `soak`. What this
mirror leaves must be exact for every reader. What MirrorMaker 2 leaves is only noted, but its case must have met its
faults too.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping

import pytest

from tests.faults.cases import CONTROLS, chosen
from tests.faults.cluster import Cluster, three_brokers
from tests.faults.engines import ENGINES, Engine, Mirror
from tests.faults.scene import FLOWS, PARTITIONS, Case, Group, Load, Outcome, Scene
from tests.lab.checkout import CACHE
from tests.lab.group_lab import EVERY_SECOND
from tests.lab.skips import shard_of
from tests.lab.small_disk import SmallDisk

SEED = int(os.environ.get("SEED") or int.from_bytes(os.urandom(3), "big"))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[List[Cluster]]:
    """The source and the target. Every case leaves them whole."""
    with three_brokers(["source", "target"], tmp_path_factory.mktemp("brokers"), SEED) as clusters:
        yield clusters


def keep(outcome: Mapping[str, Any]) -> None:
    """Append one, with its day, as a line of JSON to `.cache/faults/outcomes.jsonl`."""
    file = CACHE / "faults" / "outcomes.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as out:
        out.write(json.dumps({**outcome, "day": date.today().isoformat()}, sort_keys=True) + "\n")


def parameters() -> List[Any]:
    """Each case with each engine that was asked for and can meet it."""
    engines = (os.environ.get("ENGINES") or Mirror.name).split()
    number, count = shard_of(os.environ.get("SHARD") or "1/1")
    found = [
        pytest.param(engine, each, id=f"{name}-{engine}", marks=pytest.mark.long if each.quick else pytest.mark.faults)
        for name, each in chosen((os.environ.get("CASES") or "").split()).items()
        for engine in engines
        if each.mm2 or engine == Mirror.name
    ]
    return found[number - 1 :: count]


@pytest.mark.parametrize(("engine", "case"), parameters())
def test_copy_after_faults(
    both: List[Cluster],
    topic_name: Callable[[str], str],
    tmp_path: Path,
    engine: str,
    case: Case,
) -> None:
    try:
        outcome = played(both, topic_name(case.name), tmp_path, engine, case)
    except BaseException as error:
        keep({"case": case.name, "engine": engine, "seed": SEED, "error": str(error)[:500]})
        raise
    keep(asdict(outcome))
    print(f"\n{outcome}")
    assert outcome.strikes and all(each.copied for each in outcome.strikes), "a fault fell before the first record"
    if engine != Mirror.name:
        return
    again = f"SEED={SEED} CASES={case.name} make faults: {outcome}"
    assert not outcome.ended_by_itself, again
    if outcome.refusal:
        assert outcome.gone, f"the source lost nothing. {again}"
        for verdict in (outcome.committed, outcome.uncommitted):
            assert not (verdict.doubled or verdict.reordered or verdict.foreign or verdict.changed), again
    else:
        assert outcome.exact and outcome.whole_seconds is not None and outcome.exit_code == 0, again


def played(both: List[Cluster], topic: str, folder: Path, engine: str, case: Case) -> Outcome:
    source, target = both
    source.create_placed(topic, PARTITIONS, case.replicas, case.topic)
    disk = SmallDisk(folder / "disk", 96) if case.small_disk else None
    groups = {**EVERY_SECOND, "groups": f"group of {topic}"} if case.group else {}
    replicator: Engine
    if engine == Mirror.name:
        own: Dict[str, Any] = {"spark_options": case.spark_options, "disk": disk, "more_environment": case.environment}
        replicator = Mirror(source, target, topic, folder, {**FLOWS[case.flow], **groups}, **own)
    else:
        theirs = {f"source->target.{key}": str(each) for key, each in groups.items()}
        replicator = ENGINES[engine](source, target, topic, folder, theirs)
    if case.remote_replicas:
        target.create_placed(replicator.remote_topic, PARTITIONS, case.remote_replicas, case.remote)
    load = Load(source, topic, PARTITIONS, case.per_second, case.transactional, case.acks)
    group = Group(source, target, topic, replicator.remote_topic, f"group of {topic}") if case.group else None
    try:
        return Scene(case, source, target, replicator, load, SEED, group).play()
    finally:
        if disk is not None:
            disk.close()


@pytest.mark.faults
@pytest.mark.parametrize("case", CONTROLS, ids=lambda case: case.title)
def test_mirror_without_a_guard_doubles_records_and_the_judge_says_so(
    both: List[Cluster], topic_name: Callable[[str], str], tmp_path: Path, case: Case
) -> None:
    outcome = played(both, topic_name(case.name), tmp_path, Mirror.name, case)
    print(f"\n{outcome}")
    assert not outcome.exact
    assert outcome.uncommitted.doubled and not outcome.uncommitted.lost
