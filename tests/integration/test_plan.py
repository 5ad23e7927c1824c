"""`mirror plan` on real clusters, and the example of custom classes in a run of its own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Iterator, List

import pytest

from mirror_lib.config.model import ClusterConfig
from mirror_lib.kafka.admin import KafkaCluster
from tests.integration.conftest import Command, Names
from tests.lab.brokers import KafkaBroker
from tests.lab.checkout import ROOT
from tests.lab.group_lab import commit
from tests.lab.readers import differences, read_topic

EXAMPLE = ROOT / "conf" / "examples" / "custom"
# The clusters are shared with other tests, whose flows would copy heartbeats.
QUIET = "    emit.heartbeats.enabled: false\n    heartbeats.replication.enabled: false\n"
SYNC = "    sync.group.offsets.enabled: true\n    admin.timeout.ms: 20000\n"


class Mirrored:
    """The example with clusters and a team of its own: `config` copies topics `TEAM.…` and groups `TEAM-…`."""

    def __init__(self, source: KafkaBroker, target: KafkaBroker, directory: Path, team: str) -> None:
        self.source, self.target, self.team, self.alias = source, target, team, f"from{team}"
        text = (EXAMPLE / "mirror.yaml").read_text().replace("primary", self.alias)
        text = text.replace("localhost:9092", source.bootstrap).replace("localhost:9192", target.bootstrap)
        text = text.replace("sales, billing", team).replace("sales", team).replace("./mirror-state", str(directory))
        path = directory / "mirror.yaml"
        path.write_text(text.replace("    replication.factor: 1\n", f"    replication.factor: 1\n{QUIET}{SYNC}"))
        shutil.copy(EXAMPLE / "house_rules.py", directory)
        self.config = str(path)

    def clusters(self) -> Iterator[KafkaCluster]:
        for broker in (self.source, self.target):
            with KafkaCluster(ClusterConfig(broker.name, {"bootstrap.servers": broker.bootstrap})) as cluster:
                yield cluster

    def everything(self) -> List[Any]:
        """Topics, their configs, groups and committed offsets of both clusters, as far as the team's name is in them:
        other tests use the clusters meanwhile."""
        found: List[Any] = []
        for cluster in self.clusters():
            topics = {name: topic for name, topic in cluster.topics().items() if self.team in name}
            groups = [name for name in cluster.group_names() if self.team in name]
            found += [topics, cluster.topic_configs(sorted(topics)), cluster.committed_offsets(groups)]
        return found


@pytest.fixture
def mirrored(
    source_cluster: KafkaBroker, target_cluster: KafkaBroker, tmp_path: Path, topic_name: Names
) -> Mirrored:
    made = Mirrored(source_cluster, target_cluster, tmp_path, topic_name("team").replace("-", ""))
    topic = source_cluster.create_topic(f"{made.team}.orders", 1, retention_ms="99999999999", segment_ms="7000000")
    source_cluster.write(topic, *(b"record %d" % number for number in range(20)))
    commit(source_cluster, f"{made.team}-app", topic, 7)
    return made


def test_plan_changes_nothing_after_a_run_nothing_is_left_and_it_is_refused_where_a_run_would_be(
    mirrored: Mirrored, command: Command
) -> None:
    def shown(*words: str) -> str:
        done = command(*words)
        assert done.code == 0, done.err
        return done.out

    topic, group, config = f"{mirrored.team}.orders", f"{mirrored.team}-app", mirrored.config
    remote, checkpoints = f"{topic}.from-{mirrored.alias}", f"{mirrored.alias}.checkpoints.internal"
    before = mirrored.everything()
    assert json.loads(shown("plan", config, "--json"))["changes"] == {"topics created": 1, "internal topics created": 1}
    created = f"  +  {topic}  {remote}  1           create, replication.factor 1, segment.ms=7000000"
    assert created in shown("plan", config)
    assert "__consumer_offsets" in shown("plan", config, "--all")
    rule = f"topic {topic} is copied to {remote}: house_rules:TeamTopics takes it (topic.filter.class, {config}:11)\n"
    assert shown("plan", config, "--topic", topic).endswith(rule)
    assert f"group {group} is translated for {topic}, committed on backup" in shown("plan", config, "--group", group)
    assert mirrored.everything() == before

    shown("run", config, "--once")
    assert mirrored.everything() != before

    copied = read_topic(mirrored.target, remote)
    assert differences(read_topic(mirrored.source, topic), copied) == []
    *_, target = mirrored.everything()[3:]
    assert {place: each.offset for place, each in target[group].items()} == {(remote, 0): 8}
    assert json.loads(shown("plan", config, "--json"))["changes"] == {}
    lines = shown("plan", config).splitlines()
    assert f"     {group}" in lines and not [line for line in lines if line.startswith(("  +", "  ~", "  -"))]
    assert checkpoints in shown("plan", config, "--all")

    # By what the state folder recorded: another cluster under the same alias, and another partitioning mode.
    path, here, there = Path(config), mirrored.source.bootstrap, mirrored.target.bootstrap
    text = path.read_text()
    swapped = text.replace(here, "elsewhere").replace(there, here).replace("elsewhere", there)
    repartitioned = text.replace(QUIET, f"{QUIET}    partitioner: key\n")
    for changed, code in ((swapped, "MIR-304"), (repartitioned, "MIR-317")):
        path.write_text(changed)
        refused = command("plan", config)
        assert refused.code == 3 and code in refused.err
