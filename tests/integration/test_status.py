"""`mirror status`, `mirror failover` and `mirror plan` on real clusters: what they say of a flow before, while and
after it runs, and of what is broken."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Tuple

import pytest
from confluent_kafka import Producer

from mirror_lib.config.model import ClusterConfig
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.status import facts
from tests.integration.conftest import Command, Ground, Names
from tests.lab.brokers import KafkaBroker
from tests.lab.checkout import ROOT
from tests.lab.damage import commits
from tests.lab.flow_lab import NOON, FlowLab, values
from tests.lab.group_lab import commit
from tests.lab.one_flow import NewFlow, until
from tests.lab.readers import differences, read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def lab(ground: Ground, topic_name: Names) -> FlowLab:
    return FlowLab(*ground, topic_name("status"))


Printed = Callable[..., Tuple[int, Dict[str, Any]]]


@pytest.fixture
def printed(lab: FlowLab, command: Command) -> Printed:
    """The exit code of a command, and its last JSON document."""

    def run(*words: str, config: Optional[Path] = None) -> Tuple[int, Dict[str, Any]]:
        done = command(*words, config or lab.config, "--json")
        return done.code, done.documents[-1]

    return run


def codes(found: Dict[str, Any]) -> List[str]:
    return [each["code"] for each in found["problems"]]


def test_status_of_a_flow_before_and_after_its_runs(lab: FlowLab, command: Command, printed: Printed) -> None:
    # Ten hours are left until the source deletes what is not copied then.
    kept = (time.time() - NOON / 1000 + 36_000) * 1000
    lab.create("orders", 2, retention_ms=str(round(kept)))
    lab.write("orders", values(100))
    code, found = printed("status")
    assert (code, codes(found), found["lag"]) == (2, ["never ran", "retention"], 100)

    # `order` matches nothing, and a pattern may be for later topics.
    lab.settings["topics"] = f'["{lab.name}.order", "{lab.name}.orders", "{lab.name}[.]pay.*"]'
    outcome = lab.copy()
    assert f"`{lab.name}.order` (did you mean {lab.name}.orders?)" in outcome.note and "pay" not in outcome.note
    code, found = printed("status")
    assert (code, codes(found)) == (1, ["no such topic"])
    del lab.settings["topics"]
    assert command("verify", lab.config).code == 0
    code, found = printed("status")
    assert (code, found["state"], found["lag"], codes(found)) == (0, "healthy", 0, [])
    assert (found["run"]["outcome"], found["run"]["running"]) == ("ok", False)
    assert (found["verified"]["verdict"], found["verified"]["records"]) == ("equal", 100)
    at = {each["partition"]: (each["position"], each["log_end"], each["lag"]) for each in found["partitions"]}
    assert at == {0: (100, 100, 0), 1: (0, 0, 0)} or at == {0: (100, 100, 0), 1: (None, 0, 0)}

    lab.write("orders", values(7, "later"), partition=1)
    code, found = printed("status")
    assert (code, found["lag"], codes(found)) == (1, 7, ["retention"])
    assert 35_000 < found["kept_seconds"] <= 36_000 and found["lag_seconds"] > 86_400
    assert f"! the source may delete records of {lab.name}.orders-1 in " in command("status", lab.config).out
    assert [each["code"] for each in printed("plan")[1]["problems"]] == ["retention"]
    doctor = command("doctor", lab.config, "--no-spark", "--json").documents
    assert [each["level"] for each in doctor if each["code"] == "retention"] == ["warning"]
    # No Spark is started.
    python = [sys.executable, "-X", "importtime", "-m", "mirror_lib.cli", "status", str(lab.config)]
    done = subprocess.run(python, capture_output=True, text=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert (done.returncode, done.stdout.count("\n") > 1) == (1, True)
    assert "pyspark" not in loaded and "deltalake" in loaded


def test_records_that_wait_for_an_open_transaction_are_named_by_every_command(
    lab: FlowLab, printed: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.create("orders")
    producer = Producer({"bootstrap.servers": lab.source.bootstrap, "transactional.id": lab.name, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    yesterday = round((time.time() - 86_400) * 1000)
    for number in range(3):
        producer.produce(f"{lab.name}.orders", b"%d" % number, partition=0, timestamp=yesterday)
    producer.flush(30)
    lab.write("orders", values(10))
    (waiting,) = lab.copy().waiting
    assert waiting.startswith(f"13 offsets of {lab.name}.orders-0 ")
    # The transaction is seconds old, whatever its records say.
    code, found = printed("status")
    assert (code, codes(found), found["lag"]) == (0, [], 0)
    (left,) = found["transactions"]
    assert (left["producer"], left["since"], left["held"]) == (f"transactional id {lab.name}", 0, 13)
    assert 0 <= time.time() - left["started"] < 300
    with monkeypatch.context() as patch:
        patch.setattr(facts, "HANGING_SECONDS", 0.0)
        assert codes(printed("status")[1]) == ["hanging transaction"]
    assert (printed("verify")[0], printed("verify", "--complete")[0]) == (0, 1)
    assert len(printed("verify")[1]["waiting"]) == len(printed("plan")[1]["waiting"]) == 1
    code, found = printed("cutover", "plan")
    assert code == 1 and [each["code"] for each in found["gates"] if "orders-0" in each["detail"]] == ["transactions"]
    producer.abort_transaction(30)
    assert lab.copy().waiting == ()
    assert [printed(*each)[0] for each in (["status"], ["verify", "--complete"], ["cutover", "plan"])] == [0, 0, 0]
    assert len(lab.remote_values("orders")) == 10


def away(lab: FlowLab) -> Path:
    """The configuration with a source that does not answer."""
    path = lab.directory / "away.yaml"
    path.write_text(lab.config.read_text().replace(lab.source.bootstrap, "127.0.0.1:9"))
    return path


def test_groups_and_topics_of_a_dead_source_are_told_from_the_target_and_the_tables(
    lab: FlowLab, command: Command, printed: Printed
) -> None:
    topic, group = lab.create("orders", 2), f"{lab.name} of the dead"
    lab.settings.update({"sync.group.offsets.enabled": "true", "groups": [group], "groups.simple": "include"})
    lab.write("orders", values(100))
    commit(lab.source, group, topic, 40)
    assert command("run", lab.config, "--once").code == 0
    code, found = printed("failover", config=away(lab))
    (copied,), (moved,) = found["topics"], found["groups"]
    assert (code, copied["topic"], copied["remote_topic"], copied["here"]) == (0, topic, lab.remote("orders"), True)
    assert 100 <= copied["offsets"] <= 110
    assert (moved["group"], moved["verdict"], moved["active"]) == (group, "exact", False)
    assert copied["without_offset"] == []
    assert 60 <= moved["target_lag"] <= 65 and found["seen_at"] <= found["at"]
    done = command("failover", away(lab))
    assert done.code == 0 and "cannot be known" in done.out


def test_topic_that_the_target_refuses_to_create_is_named_while_the_run_goes_on(
    new_flow: NewFlow, spark: SparkSession, command: Command
) -> None:
    flow = new_flow("refused", settings={"remote.topic.configs": "retention.ms=soon"})
    flow.trigger = "1 second"
    with flow.running(spark):
        until(lambda: codes(command("status", flow.config, "--json").documents[-1]) == ["topic blocked"])


def test_status_names_what_cannot_be_read(lab: FlowLab, printed: Printed) -> None:
    lab.create("orders")
    lab.write("orders", values(10))
    lab.copy()
    code, found = printed("status", config=away(lab))
    assert (code, codes(found), found["run"]["outcome"]) == (2, ["unreadable"], "ok")
    assert "cannot reach" in found["problems"][0]["what"]

    commits(lab.directory / "state" / "offset_syncs")[-1].write_text("{")
    code, found = printed("status")
    assert (code, codes(found)) == (2, ["unreadable"])
    assert "offset_syncs" in found["problems"][0]["what"]


# --- mirror plan, and the example of custom classes in a run of its own -----------------------------------------------

EXAMPLE = ROOT / "conf" / "examples" / "custom"
# The clusters are shared with other tests, whose flows would copy heartbeats.
NO_BEATS = "    emit.heartbeats.enabled: false\n    heartbeats.replication.enabled: false\n"
SYNC = "    sync.group.offsets.enabled: true\n    admin.timeout.ms: 20000\n"


class Mirrored:
    """The example with clusters and a team of its own: `config` copies topics `TEAM.…` and groups `TEAM-…`."""

    def __init__(self, source: KafkaBroker, target: KafkaBroker, directory: Path, team: str) -> None:
        self.source, self.target, self.team, self.alias = source, target, team, f"from{team}"
        text = (EXAMPLE / "mirror.yaml").read_text().replace("primary", self.alias)
        text = text.replace("localhost:9092", source.bootstrap).replace("localhost:9192", target.bootstrap)
        text = text.replace("sales, billing", team).replace("sales", team).replace("./mirror-state", str(directory))
        path = directory / "mirror.yaml"
        path.write_text(text.replace("    replication.factor: 1\n", f"    replication.factor: 1\n{NO_BEATS}{SYNC}"))
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
def mirrored(source_cluster: KafkaBroker, target_cluster: KafkaBroker, tmp_path: Path, topic_name: Names) -> Mirrored:
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
    repartitioned = text.replace(NO_BEATS, f"{NO_BEATS}    partitioner: key\n")
    for changed, code in ((swapped, "MIR-304"), (repartitioned, "MIR-317")):
        path.write_text(changed)
        refused = command("plan", config)
        assert refused.code == 3 and code in refused.err
