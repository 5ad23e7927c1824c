"""A real MirrorMaker 2 copies B->A while this product copies A->B: no cycle, both directions complete."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator, List

import pytest
from pyspark.sql import SparkSession

from mirror_lib.config.model import ClusterConfig
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.takeover.origin import may_copy
from tests.lab.brokers import KafkaBroker
from tests.lab.flow_lab import values
from tests.lab.group_lab import JobLab, commit
from tests.lab.mirrormaker import MirrorMaker
from tests.lab.readers import differences, read_if_there, read_topic

pytestmark = pytest.mark.long

# Of the worker that copies from the alias, or only beats for it.
MM2S = {
    alias: {f"mm2-{kind}.{alias}.internal" for kind in ("offsets", "status", "configs")}
    for alias in ("source", "target")
}


@pytest.fixture(scope="module")
def mirrormaker(pair: List[KafkaBroker], tmp_path_factory: pytest.TempPathFactory) -> Iterator[MirrorMaker]:
    started = MirrorMaker(
        tmp_path_factory.mktemp("mm2"),
        {each.name: each for each in pair},
        {"target->source.enabled": "true", "refresh.groups.interval.seconds": "2"},
    ).start()
    yield started
    started.kill()


def equal(here: KafkaBroker, topic: str, there: KafkaBroker, copy: str) -> bool:
    """Whether the copy is there and whole."""
    return not differences(read_topic(here, topic), read_if_there(there, copy))


def wait_for_its_assignment(mirrormaker: MirrorMaker, target: KafkaBroker) -> None:
    """Its connectors start one by one, and until each has its tasks a run refuses to start beside it."""
    looks: List[bool] = []
    with KafkaCluster(ClusterConfig("target", {"bootstrap.servers": target.bootstrap})) as cluster:

        def rests() -> bool:
            looks.append(may_copy(cluster.describe_groups(["source-mm2"])["source-mm2"]))
            return len(looks) >= 30 and not any(looks[-30:])

        mirrormaker.wait_until(rests, "assigning its work")


def test_both_directions_are_complete_and_nothing_goes_round(
    pair: List[KafkaBroker], mirrormaker: MirrorMaker, spark: SparkSession, tmp_path: Path
) -> None:
    source, target = pair
    lab = JobLab(source, target, spark, tmp_path, "alongside")
    # Everything that MirrorMaker's defaults take, and the internal topics of both.
    lab.settings.update({"topics": '[".*"]', "groups": '["workers"]'})
    source.create_topic("orders")
    target.create_topic("orders")
    target.create_topic("source.orders")  # by an operator: its workers for this direction only write heartbeats
    for round_ in ("first", "second"):
        lab.write_to(source, "orders", values(50, f"{round_} of source"))
        lab.write_to(target, "orders", values(70, f"{round_} of target"))
        mirrormaker.wait_until(lambda: equal(target, "orders", source, "target.orders"), "copying records")
        commit(source, "workers", "orders", 40)
        wait_for_its_assignment(mirrormaker, target)
        lab.copy()
        lab.pass_once()
    # What was made last is seen by MirrorMaker's next look at the topics; a topic made now shows that it has looked.
    target.create_topic("late")
    mirrormaker.wait_until(lambda: "target.late" in source.topics, "looking at the topics")
    lab.copy()

    assert equal(target, "orders", source, "target.orders") and equal(source, "orders", target, "source.orders")
    ours, theirs = "source.checkpoints.internal", "target.checkpoints.internal"
    local = {"orders", "heartbeats"}
    on_target = {*local, "late", "source.orders", "source.heartbeats", ours, "mm2-offset-syncs.source.internal"}
    assert target.topics == {*on_target, *MM2S["source"]}
    on_source = {*local, "target.late", "target.orders", "target.heartbeats", theirs}
    assert source.topics == {*on_source, *MM2S["target"]}
