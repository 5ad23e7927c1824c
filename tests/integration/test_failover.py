"""`mirror failover` after the source died: what is on the target, and where its groups can start."""

from __future__ import annotations

from pathlib import Path
from typing import List

from pyspark.sql import SparkSession

from tests.integration.conftest import Command
from tests.lab.brokers import KafkaBroker
from tests.lab.flow_lab import FlowLab, values
from tests.lab.group_lab import commit

GROUPS = {"sync.group.offsets.enabled": "true", "groups": "[billing]", "groups.simple": "include"}


def test_groups_and_topics_of_a_dead_source_are_told_from_the_target_and_the_tables(
    pair: List[KafkaBroker], spark: SparkSession, tmp_path: Path, command: Command
) -> None:
    lab = FlowLab(pair[0], pair[1], spark, tmp_path, "dead", dict(GROUPS))
    topic = lab.create("orders", 2)
    lab.write("orders", values(100))
    commit(pair[0], "billing", topic, 40)
    assert command("run", lab.config, "--once").code == 0
    pair[0].kill()
    done = command("failover", lab.config, "--json")
    (found,) = done.documents
    assert done.code == 0
    (copied,) = found["topics"]
    assert (copied["topic"], copied["remote_topic"], copied["here"]) == (topic, lab.remote("orders"), True)
    assert 100 <= copied["offsets"] <= 110
    (group,) = found["groups"]
    assert (group["group"], group["verdict"], group["active"]) == ("billing", "exact", False)
    assert 60 <= group["target_lag"] <= 65 and found["seen_at"] <= found["at"]
    done = command("failover", lab.config)
    assert done.code == 0 and "cannot be known" in done.out
    assert command("status", lab.config).code == 2
