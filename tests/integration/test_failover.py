"""`mirror failover` after the source died: what is on the target, and where its groups can start."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.integration.conftest import Command
from tests.lab.brokers import KafkaBroker, clusters
from tests.lab.flow_lab import FlowLab, values
from tests.lab.group_lab import commit

GROUP = "billing of the dead"
SETTINGS = {"sync.group.offsets.enabled": "true", "groups": [GROUP], "groups.simple": "include"}


def test_groups_and_topics_of_a_dead_source_are_told_from_the_target_and_the_tables(
    target_cluster: KafkaBroker, spark: SparkSession, tmp_path: Path, command: Command
) -> None:
    with clusters(["source"], tmp_path) as (source,):
        lab = FlowLab(source, target_cluster, spark, tmp_path, "dead", dict(SETTINGS))
        topic = lab.create("orders", 2)
        lab.write("orders", values(100))
        commit(source, GROUP, topic, 40)
        assert command("run", lab.config, "--once").code == 0
    done = command("failover", lab.config, "--json")
    (found,) = done.documents
    assert done.code == 0
    (copied,) = found["topics"]
    assert (copied["topic"], copied["remote_topic"], copied["here"]) == (topic, lab.remote("orders"), True)
    assert 100 <= copied["offsets"] <= 110
    (group,) = found["groups"]
    assert (group["group"], group["verdict"], group["active"]) == (GROUP, "exact", False)
    assert 60 <= group["target_lag"] <= 65 and found["seen_at"] <= found["at"]
    done = command("failover", lab.config)
    assert done.code == 0 and "cannot be known" in done.out
    assert command("status", lab.config).code == 2
