"""MirrorMaker's own Java clients and formatters read what this product writes, and find what it committed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Sequence, Set, Tuple

import pytest
from pyspark.sql import SparkSession

from tests.integration.conftest import Names
from tests.lab import dataset
from tests.lab.brokers import JARS, KafkaBroker, clusters, java_command
from tests.lab.checkout import ROOT
from tests.lab.group_lab import CHECKPOINTS, JobLab, commit, committed, read_on
from tests.lab.jvm import kafka_archive, quick_options
from tests.lab.mirrormaker import beat
from tools.kafka_names import LIST, list_of_jars

pytestmark = pytest.mark.long

HARD = {"transactions": 2, "compacted": 1, "json.zstd": 2}

# Group, topic, partition to offset and metadata.
Answers = Dict[Tuple[str, str, int], Tuple[int, str]]


def test_names_of_keys_that_the_loader_and_the_pages_go_by_are_those_of_kafkas_jars() -> None:
    assert LIST.read_text(encoding="utf-8") == list_of_jars(), "run: python -m tools.kafka_names"


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[List[KafkaBroker]]:
    """Three clusters of this file alone: which topics the source has is asked here."""
    with clusters(["source", "target", "third"], tmp_path_factory.mktemp("chain")) as brokers:
        yield brokers


def test_java_clients_answer_rightly_one_hop_and_two_hops_away(
    chain: List[KafkaBroker], spark: SparkSession, topic_name: Names, tmp_path: Path
) -> None:
    lab = JobLab(chain[0], chain[1], spark, tmp_path, topic_name("mm2"))
    later = dataset.to_be_compacted(lab.source, keys=100)
    dataset.compressed(lab.source, "zstd", 1000)
    _, transaction = dataset.transactions(lab.source, rounds=6, each=50)
    dataset.compacted(lab.source, later)
    lab.settings.update({"topics": json.dumps(list(HARD)), "heartbeats.replication.enabled": "true"})
    beat(chain[1], chain[0])
    beat(chain[0], chain[1])
    lab.copy()
    groups = [f"{lab.name}-{topic}" for topic in HARD]
    for topic, group in zip(HARD, groups):
        read_on(lab.source, group, [topic], 61)
    commit(lab.source, groups[0], "transactions", 120, note="påminnelse")
    transaction.abort_transaction(30)
    report = lab.pass_once()
    assert report.verdicts == {"exact": report.committed}
    onward = JobLab(lab.target, chain[2], lab.spark, tmp_path / "onward", lab.name, flows=["target->third"])
    onward.directory.mkdir()
    onward.settings.update({**lab.settings, "topics": json.dumps([f"source.{topic}" for topic in HARD])})
    onward.copy()
    assert onward.pass_once().committed == report.committed

    remote = {f"source.{topic}": partitions for topic, partitions in HARD.items()}
    questions = [(chain[1].bootstrap, "source,third"), (chain[2].bootstrap, "source,target")]
    answers = answered(*questions[0], *groups, "then", *questions[1], *groups)
    one_hop, two_hops = answers[chain[1].bootstrap], answers[chain[2].bootstrap]
    assert reported(one_hop, "hops") == {("source", "1"), ("third", "-1")}
    assert reported(one_hop, "heartbeats") == {("heartbeats",), ("source.heartbeats",)}
    assert reported(one_hop, "upstream") == {("source",)} and reported(one_hop, "checkpoints") == {(CHECKPOINTS,)}
    assert reported(one_hop, "remote topic") == {("source", topic) for topic in (*remote, "source.heartbeats")}
    assert offsets_told(one_hop) == [committed_by(lab.target, groups, remote)] * 2
    assert len(committed_by(lab.target, groups, remote)) == report.committed
    # Later offsets of the log map by other shifts, so a note that may speak of them is dropped.
    assert {note for _, note in committed_by(lab.target, groups, remote).values()} == {""}

    remote = {f"target.{topic}": partitions for topic, partitions in remote.items()}
    assert reported(two_hops, "hops") == {("source", "2"), ("target", "1")}
    assert reported(two_hops, "heartbeats") == {("target.heartbeats",), ("target.source.heartbeats",)}
    assert reported(two_hops, "upstream") == {("source",), ("target",)}
    assert reported(two_hops, "checkpoints") == {("target.checkpoints.internal",)}
    copies = {*remote, "target.heartbeats", "target.source.heartbeats"}
    assert reported(two_hops, "remote topic") == {("target", topic) for topic in copies}
    assert offsets_told(two_hops) == [committed_by(chain[2], groups, remote)] * 2
    assert len(committed_by(chain[2], groups, remote)) == report.committed


def answered(*questions: str) -> Dict[str, List[List[str]]]:
    """All that MirrorMaker's clients say, by cluster; one Java for all questions."""
    command = [java_command(), *quick_options(kafka_archive(JARS)), "-cp", str(JARS / "*")]
    program = str(ROOT / "tests" / "lab" / "MirrorClients.java")
    done = subprocess.run([*command, program, *questions], capture_output=True, encoding="utf-8", timeout=120)
    assert done.returncode == 0, done.stderr
    by_cluster: Dict[str, List[List[str]]] = {}
    for words in (line.split("\t") for line in done.stdout.splitlines()):
        if words[0] == "cluster":
            of_cluster = by_cluster.setdefault(words[1], [])
        else:
            of_cluster.append(words)
    return by_cluster


def reported(answers: Sequence[List[str]], asked: str) -> Set[Tuple[str, ...]]:
    return {tuple(words[1:]) for words in answers if words[0] == asked}


def offsets_told(answers: Sequence[List[str]]) -> List[Answers]:
    return [
        {(words[0], words[1], int(words[2])): (int(words[3]), words[4]) for words in reported(answers, asked)}
        for asked in ("remoteConsumerOffsets", "translateOffsets")
    ]


def committed_by(broker: KafkaBroker, groups: Sequence[str], partitions: Mapping[str, int]) -> Answers:
    return {(group, *at): found for group in groups for at, found in committed(broker, group, partitions).items()}
