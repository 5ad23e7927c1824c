"""`mirror failover` after the source died: what is on the target, and where its groups can start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import List

import pytest
from pyspark.sql import SparkSession

from mirror_lib.cli import main
from tests.lab.brokers import KafkaBroker
from tests.lab.flow_lab import FlowLab, values
from tests.lab.group_lab import commit

GROUPS = {"sync.group.offsets.enabled": "true", "groups": "[billing]", "groups.simple": "include"}


def test_groups_and_topics_of_a_dead_source_are_told_from_the_target_and_the_tables(
    pair: List[KafkaBroker], spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = FlowLab(pair[0], pair[1], spark, tmp_path, "dead", dict(GROUPS))
    topic = lab.create("orders", 2)
    lab.write("orders", values(100))
    commit(pair[0], "billing", topic, 40)
    assert main(["run", str(lab.config), "--once"]) == 0
    pair[0].kill()
    capsys.readouterr()

    assert main(["failover", str(lab.config), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (copied,) = found["topics"]
    assert (copied["topic"], copied["remote_topic"], copied["here"]) == (topic, lab.remote("orders"), True)
    assert 100 <= copied["offsets"] <= 110
    (group,) = found["groups"]
    assert (group["group"], group["verdict"], group["active"]) == ("billing", "exact", False)
    assert 60 <= group["target_lag"] <= 65 and found["seen_at"] <= found["at"]
    assert main(["failover", str(lab.config)]) == 0
    assert "cannot be known" in capsys.readouterr().out
    assert main(["status", str(lab.config)]) == 2
