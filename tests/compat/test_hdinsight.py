"""HDInsight's two-way file as its document has it, between the releases that the document names: 2.4.1 and 3.2.0.

Only the two addresses are filled in. Runs where COMPAT_ROWS is set: it needs six brokers.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Iterator, List, Tuple

import pytest
from pyspark.sql import SparkSession

from mirror_lib.cli import main
from tests.integration.conftest import handlers_of_signals as handlers_of_signals
from tests.lab import dataset
from tests.lab.crash import CrashPoint, run_mirror
from tests.lab.examples import EXAMPLES
from tests.lab.group_lab import read_on
from tests.lab.one_flow import ABOUT_TO_WRITE
from tests.lab.readers import differences, read_topic
from tests.lab.releases import ReleaseCluster, releases

FILE = EXAMPLES / "hdinsight" / "both-ways-with-groups.properties"
PRIMARY, SECONDARY = "primary-kafka-cluster", "secondary-kafka-cluster"
Sites = Tuple[ReleaseCluster, ReleaseCluster]

ASKED = {"hdinsight", "all"} & {each.strip() for each in os.environ.get("COMPAT_ROWS", "").split(",")}
pytestmark = pytest.mark.skipif(not ASKED, reason="make compat runs it")


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Sites]:
    """Three brokers each, since the file asks for replication factor 3."""
    with releases(tmp_path_factory.mktemp("hdinsight"), primary=("2.4.1", 3), secondary=("3.2.0", 3)) as (one, two):
        yield one, two


def with_addresses(sites: Sites, folder: Path) -> Path:
    """The file with the clusters' own addresses, and a folder for its state; nothing else is changed."""
    text = FILE.read_text(encoding="utf-8")
    for alias, site in zip((PRIMARY, SECONDARY), sites):
        line = next(each for each in text.splitlines() if each.startswith(f"{alias}.bootstrap.servers"))
        text = text.replace(line, f"{alias}.bootstrap.servers = {site.bootstrap}")
    path = folder / FILE.name
    path.write_text(f"{text}\nstate = {folder / 'state'}\n", encoding="utf-8")
    return path


def fill(site: ReleaseCluster, topic: str, count: int) -> List[str]:
    site.create_topic(topic, 2)
    dataset.write(dataset.producer_of(site, batch_num_messages=40), topic, (b"%d" % n for n in range(count)), 2)
    return [topic]


def test_yaml_that_promises_exactly_once_is_refused_in_plan_and_run(
    sites: Sites, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = sites
    fill(two, "refused", 10)
    before = one.topics
    path = tmp_path / "mirror.yaml"
    path.write_text(
        f'clusters: {{one: {{bootstrap.servers: "{one.bootstrap}"}}, two: {{bootstrap.servers: "{two.bootstrap}"}}}}\n'
        "flows: {two->one: {topics: [refused], replication.factor: 3, emit.heartbeats.enabled: true}}\n"
        f"state: {tmp_path / 'state'}\n"
    )
    assert main(["plan", str(path), "--json"]) == 3
    printed = capsys.readouterr()
    assert "delivery: at-least-once" in printed.err
    assert json.loads(printed.out.splitlines()[0])["refusal"]
    assert main(["run", str(path), "--once"]) == 3
    assert one.topics == before


def test_file_runs_unchanged_both_ways_over_a_kill(
    sites: Sites, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    primary, secondary = sites
    path = with_addresses(sites, tmp_path)
    fill(primary, "TestMirrorMakerTopic", 4000)
    fill(secondary, "orders", 4000)
    assert sum(map(len, read_on(primary, "my-group", ["TestMirrorMakerTopic"]).values())) == 4000
    assert main(["plan", str(path), "--json"]) == 0
    plans = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    weaker = {each["flow"]: ", ".join(re.findall("[a-z-]+-once", each["copying"])) for each in plans}
    assert weaker == {f"{PRIMARY}->{SECONDARY}": "exactly-once", f"{SECONDARY}->{PRIMARY}": "at-least-once"}
    assert {each["flow"] for each in plans if each["warning"]} == {f"{SECONDARY}->{PRIMARY}"}
    crash = CrashPoint(*ABOUT_TO_WRITE, tmp_path / "died", "kill driver")
    assert run_mirror(path, "--once", crash=crash, seconds=400) == -9
    assert crash.reached
    assert main(["run", str(path), "--once"]) == 0
    for source, topic, target, alias in (
        (primary, "TestMirrorMakerTopic", secondary, PRIMARY),
        (secondary, "orders", primary, SECONDARY),
    ):
        assert differences(read_topic(source, topic), read_topic(target, f"{alias}.{topic}")) == []
    remote = f"{PRIMARY}.TestMirrorMakerTopic"
    assert sum(map(len, read_on(secondary, "my-group", [remote]).values())) == 0
    assert not {name for site in sites for name in site.topics if name.count("-kafka-cluster.") > 1}
