"""Kafka releases from 2.4 on, each as source and as target: what this product promises, with real brokers of both.

`make compat` runs every row; a plain run of the long tests has one quick row. COMPAT_ROWS chooses rows. Brokers without
topic ids, from before Kafka 2.8, have tests of their own: a re-created topic is seen by its records.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

import pytest
from pyspark.sql import SparkSession

from mirror_lib.cli import main
from mirror_lib.facts import TopicPartition
from mirror_lib.groups.mm2_format import Heartbeat, encode_heartbeat
from tests.integration.conftest import handlers_of_signals as handlers_of_signals
from tests.lab import dataset
from tests.lab.brokers import java_command
from tests.lab.checkout import ROOT
from tests.lab.crash import CrashPoint, run_mirror
from tests.lab.flow_lab import write_config
from tests.lab.group_lab import Read, committed, faults_of_move, read_on
from tests.lab.jvm import QUICK
from tests.lab.mirrormaker import beat
from tests.lab.one_flow import ABOUT_TO_WRITE, OneFlow, until
from tests.lab.readers import differences, read_topic
from tests.lab.releases import ReleaseCluster, release, releases

pytestmark = pytest.mark.long

GROUP, GROUP_TOPICS, GROUP_STOPS_AFTER = "billing", ("compacted", "json.zstd", "odd.records", "transactions"), 3500
# Part of the bulk topics: many rows are run, and their number proves nothing about a release.
SCALE = 0.02
FIRST_EXACT_TARGET = (2, 5)
# From 3.0 on every log is written in message format 2.
FIRST_WITHOUT_OLD_FORMATS = (3, 0)

# Each release is a source once and a target once, in so many brokers. Three mean replication factor 3 and min ISR 2.
ROWS = {
    "2.4.1->3.2.0": (1, 1),
    "2.8.2->3.6.2": (1, 1),
    "3.2.0->2.4.1": (1, 1),
    "3.6.2->4.3.1": (1, 3),
    "3.9.1->2.8.2": (3, 3),
    "4.0.0->3.9.1": (1, 1),
    "4.3.1->4.0.0": (1, 1),
}


def chosen_rows() -> List[str]:
    """What COMPAT_ROWS names (`all`, or `2.4.1->3.2.0,4.3.1->4.0.0`), else the quick row."""
    asked = os.environ.get("COMPAT_ROWS", "2.8.2->3.6.2").replace("all", ",".join(ROWS))
    return [name.strip() for name in asked.split(",") if name.strip() != "hdinsight"]  # test_hdinsight.py


@dataclass
class Pair:
    """Two running clusters of one row, and what was found on them so far."""

    source: ReleaseCluster
    target: ReleaseCluster
    directory: Path
    made: Sequence[dataset.MadeTopic] = ()
    before: Read = field(default_factory=dict)
    checkpointed: Dict[TopicPartition, int] = field(default_factory=dict)

    @property
    def config(self) -> str:
        return str(self.directory / "mirror.yaml")

    def write_config(self) -> None:
        exact = release(self.target.version) >= FIRST_EXACT_TARGET
        replicas = self.target.size
        settings = {
            "topics": [".*"],
            "topics.exclude": [r"mm2.*\.internal", r".*\.replica", "__.*", *dataset.EXCLUDED],
            "tasks.max": 2,
            "replication.factor": replicas,
            "delivery": "exactly-once" if exact else "at-least-once",
            "groups": [GROUP],
            "emit.heartbeats.enabled": "true",
            "emit.checkpoints.enabled": "true",
            "checkpoints.topic.replication.factor": replicas,
            "heartbeats.topic.replication.factor": replicas,
        }
        servers = {"source": self.source.bootstrap, "target": self.target.bootstrap}
        ends = {"state": self.directory / "state", "trigger": "availableNow"}
        write_config(Path(self.config), "compat", servers, ["source->target"], settings, **ends)

    def copied(self) -> List[str]:
        return [topic.name for topic in self.made if topic.copied]


@pytest.fixture(scope="module", params=chosen_rows())
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> Iterator[Pair]:
    """The row's clusters, with the hard data set on the source and a group that has read a part of it."""
    versions, sizes = request.param.split("->"), ROWS[request.param]
    directory = tmp_path_factory.mktemp("compat")
    with releases(directory, source=(versions[0], sizes[0]), target=(versions[1], sizes[1])) as (source, target):
        pair = Pair(source, target, directory)
        pair.write_config()
        yield pair


def documents(capsys: pytest.CaptureFixture[str], *arguments: str) -> List[Dict[str, Any]]:
    """Run `mirror` in this process, which must succeed; the JSON documents that it prints."""
    capsys.readouterr()
    code = main(list(arguments))
    printed = capsys.readouterr()
    assert code == 0, printed.err
    return [json.loads(line) for line in printed.out.splitlines() if line.startswith("{")]


def test_hard_data_set_is_copied_over_a_kill(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    pair.made, transaction = dataset.fill(pair.source, pair.target, ("source", "target"), SCALE)
    if release(pair.source.version) < FIRST_WITHOUT_OLD_FORMATS:
        pair.made = [*pair.made, *dataset.old_formats(pair.source)]
    pair.before = read_on(pair.source, GROUP, GROUP_TOPICS, GROUP_STOPS_AFTER)
    # MirrorMaker's client finds sources by their copies.
    beat(pair.target, pair.source)
    crash = CrashPoint(*ABOUT_TO_WRITE, pair.directory / "died", "kill driver")
    assert run_mirror(Path(pair.config), crash=crash, seconds=400) == -9
    assert crash.reached
    documents(capsys, "run", pair.config, "--json")
    transaction.abort_transaction(30)


def test_verify_finds_every_topic_equal(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    *_, report = [each for each in documents(capsys, "verify", pair.config, "--json") if "topics" in each]
    verdicts = {topic["topic"]: topic["verdict"] for topic in report["topics"]}
    assert set(pair.copied()) <= set(verdicts)
    assert {name: verdict for name, verdict in verdicts.items() if verdict != "equal"} == {}


def test_an_ordinary_reader_finds_the_same_records(pair: Pair) -> None:
    for topic in pair.copied():
        ours = read_topic(pair.source, topic, "read_committed")
        assert differences(ours, read_topic(pair.target, f"source.{topic}")) == []


def test_plan_of_a_copied_flow_changes_nothing(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    (plan,) = documents(capsys, "plan", pair.config, "--json")
    assert {each["source"]["name"] for each in plan["topics"]["copied"]} >= set(pair.copied())
    assert plan["changes"] == {}


def on_target(pair: Pair) -> Mapping[TopicPartition, Tuple[int, str]]:
    partitions = {f"source.{each.name}": each.partitions for each in pair.made if each.name in GROUP_TOPICS}
    return {(at[0], at[1]): found for at, found in committed(pair.target, GROUP, partitions).items()}


def test_group_is_moved_undone_and_goes_on(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    moving = ["groups", "plan", pair.config, "--group", GROUP, "--execute", "--json"]
    (moved,) = documents(capsys, *moving)
    expected = {
        (each["to_topic"], each["to_partition"]): each["to_offset"]
        for each in moved["positions"]
        if each["action"] == "committed"
    }
    assert {at: offset for at, (offset, _) in on_target(pair).items()} == expected
    assert {topic for topic, _ in expected} == {f"source.{topic}" for topic, _ in pair.before}
    pair.checkpointed = expected
    documents(capsys, "groups", "rollback", pair.config, "--run", moved["run_id"], "--execute", "--json")
    assert on_target(pair) == {}
    documents(capsys, *moving)
    remote_topics = {topic: f"source.{topic}" for topic in GROUP_TOPICS}
    after = read_on(pair.target, GROUP, list(remote_topics.values()))
    assert faults_of_move(pair.target, remote_topics, pair.before, after) == []


def test_heartbeats_are_written(pair: Pair) -> None:
    records = read_topic(pair.target, "heartbeats")[0].values()
    assert {each.key for each in records} == {encode_heartbeat(Heartbeat("source", "target", 0))[0]}


def test_mirrormakers_client_of_the_release_reads_them(pair: Pair) -> None:
    answers = java_answers(pair)
    assert {words[1] for words in answers if words[0] == "upstream"} == {"source"}
    assert {words[1] for words in answers if words[0] == "heartbeats"} == {"heartbeats", "source.heartbeats"}
    assert {words[1] for words in answers if words[0] == "checkpoints"} == {"source.checkpoints.internal"}
    assert [words[1] for words in answers if words[0] == "hops"] == ["1"]
    offsets = {(words[1], int(words[2])): int(words[3]) for words in answers if words[0] == "offset"}
    assert offsets == pair.checkpointed


def java_answers(pair: Pair) -> List[List[str]]:
    program = str(ROOT / "tests" / "lab" / "RemoteClusters.java")
    command = [java_command(), *QUICK, "-cp", str(pair.target.jars / "*"), program, pair.target.bootstrap]
    done = subprocess.run([*command, "source", GROUP], capture_output=True, encoding="utf-8", timeout=180)
    assert done.returncode == 0, done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]


Sites = Tuple[ReleaseCluster, ReleaseCluster]


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    """A source without topic ids, and a target that has some."""
    with releases(tmp_path_factory.mktemp("ids"), source=("2.4.1", 1), target=("3.2.0", 1)) as (source, target):
        yield source, target


@pytest.mark.parametrize("spared", [0, 1])
def test_re_created_topic_is_refused_as_a_whole(sites: Sites, spark: SparkSession, tmp_path: Path, spared: int) -> None:
    """`spared`: as many partitions have no record, so that the ledger has none to compare."""
    flow = OneFlow(*sites, f"recreated-{spared}", tmp_path, partitions=2)
    flow.fill(300)
    assert flow.run(spark).error is None
    flow.source.delete_topic(flow.topic)
    flow.partitions, flow.written = 2 + spared, 0
    until(lambda: created(flow), what="the deletion to end")
    flow.first_timestamp += 1_000_000
    flow.fill(900)
    copied = flow.copies()
    for _ in range(2):
        error = flow.run(spark).error
        assert error is not None and error.code == "MIR-316"
        assert flow.copies() == copied
    flow.settings["on.data.loss"] = "continue"
    assert flow.run(spark).error is None
    flow.fill(50)
    assert flow.run(spark).error is None
    assert flow.copies() == copied + (2 + spared) * 950


def test_topic_that_is_the_same_goes_on_over_gaps_in_its_log(sites: Sites, spark: SparkSession, tmp_path: Path) -> None:
    flow = OneFlow(*sites, "kept", tmp_path, partitions=2)
    for _ in range(3):
        flow.fill(100)
        assert flow.run(spark).error is None
    flow.assert_exact(spark)


def created(flow: OneFlow) -> bool:
    """The old broker still deletes the log's folder for a moment."""
    try:
        flow.source.create_topic(flow.topic, flow.partitions, retention_ms="-1")
    except Exception:
        return False
    return True
