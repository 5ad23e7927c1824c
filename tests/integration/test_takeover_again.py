"""Take-overs of other origins: a real Connect cluster that copied exactly once, and one of our own that was killed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Dict, Iterator, List

import pytest
from pyspark.sql import SparkSession

from mirror_lib.config.loader import load
from mirror_lib.kafka.admin import KafkaCluster
from tests.lab.brokers import KafkaBroker, clusters
from tests.lab.crash import CrashPoint, driver
from tests.lab.flow_lab import values
from tests.lab.group_lab import GroupLab, commit
from tests.lab.mirrormaker import ConnectWorker
from tests.lab.one_flow import until
from tests.lab.readers import Log, read_topic
from tests.lab.takeover_lab import Takeover, busy, made, records, write_one

pytestmark = pytest.mark.long

AS_CONNECT = f"connect-topic={ConnectWorker.offsets_topic}"
# What a killed worker left open is aborted within seconds.
BROKER = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[List[KafkaBroker]]:
    """Two clusters of this file alone: Connect keeps its own topics there."""
    with clusters(["source", "target"], tmp_path_factory.mktemp("pair"), BROKER) as brokers:
        yield brokers


def committed(lab: GroupLab, stem: str) -> Dict[int, Log]:
    """The remote log without what an aborted transaction left in it; empty while there is none."""
    try:
        return read_topic(lab.target, lab.remote(stem), "read_committed")
    except KeyError:
        return {}


def copied(lab: GroupLab, stem: str) -> int:
    return sum(map(len, committed(lab, stem).values()))


def test_connect_cluster_that_copied_exactly_once_is_taken_over(
    pair: List[KafkaBroker], spark: SparkSession, tmp_path: Path
) -> None:
    lab = made(pair, spark, tmp_path, "connect.orders", "connect.idle")
    lab.settings["consumer.isolation.level"] = "read_committed"
    topics = [lab.create("connect.orders", 2), lab.create("connect.idle")]
    lab.write("connect.idle", values(300))
    exactly_once = {"exactly.once.source.support": "enabled", "session.timeout.ms": "6000",
                    "heartbeat.interval.ms": "1000"}  # fmt: skip
    worker = ConnectWorker(tmp_path / "connect", {"source": pair[0], "target": pair[1]}, exactly_once)
    with busy(pair[0], topics[:1]):
        worker.start(
            "copies", {"topics": ",".join(topics), "source.consumer.isolation.level": "read_committed",
                       "exactly.once.support": "required", "producer.override.transaction.timeout.ms": "3000"},
        )  # fmt: skip
        worker.wait_until(lambda: copied(lab, "connect.orders") > 500 and copied(lab, "connect.idle") == 300, "copying")
        worker.kill()
    wait_until_gone(lab)
    before = {stem: committed(lab, stem) for stem in ("connect.orders", "connect.idle")}

    # What it was writing when it was killed is an open transaction, until the brokers abort it.
    deadline = time.monotonic() + 30
    while any("open" in each.verdict.reason for each in looked(lab).decided) and time.monotonic() < deadline:
        time.sleep(0.2)
    taken = looked(lab, execute=True)
    found = [each.verdict for each in taken.decided]
    assert {each.action for each in found} == {"take over"}, [each.reason for each in found]
    assert [(each.tail, each.doubled) for each in found] == [(0, 0)] * 3, "what it kept is what it wrote"

    lab.copy()
    for stem, logs in before.items():
        ours, copies = lab.read(stem), committed(lab, stem)
        for number, log in logs.items():
            assert records(copies[number])[: len(log)] == records(log)
            assert records(copies[number]) == records(ours[number]), f"{stem}-{number}"
    assert copied(lab, "connect.orders") > sum(map(len, before["connect.orders"].values())), "nothing was left to copy"


def looked(lab: GroupLab, execute: bool = False) -> Takeover:
    group = ConnectWorker.group
    return Takeover(lab, origin=AS_CONNECT, execute=execute, worker_group=group, connector="copies")


def wait_until_gone(lab: GroupLab) -> None:
    """Until the brokers have noticed that the worker is dead."""
    group = ConnectWorker.group
    with KafkaCluster(load(str(lab.config)).flows[0].target) as target:
        until(lambda: not target.describe_groups([group])[group].has_members)


LEDGER = "mirror_lib.ledger.offset_syncs:OffsetSyncTable.append"
TAKEOVERS = "mirror_lib.ledger.event_tables:EventTable.add_takeovers"
TOLD = "mirror_lib.kafka.groups:ClusterGroups.commit_offsets"


@pytest.mark.parametrize(
    ("function", "when", "left"),
    [
        pytest.param(TAKEOVERS, "before", [], id="before-its-audit-row"),
        pytest.param(TOLD, "before", ["events"], id="before-the-group-is-committed"),
        pytest.param(TOLD, "after", ["events"], id="when-the-group-was-committed"),
        pytest.param(LEDGER, "before", ["events"], id="before-the-ledger"),
        pytest.param(LEDGER, "after", ["events", "offset_syncs"], id="after-the-ledger"),
    ],
)
def test_take_over_that_died_is_made_again(
    pair: List[KafkaBroker],
    spark: SparkSession,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    function: str,
    when: str,
    left: List[str],
) -> None:
    stem = f"died-{request.node.callspec.id}"
    group = f"mirrormaker-1-{stem}"
    lab = made(pair, spark, tmp_path, stem)
    policy = {"replication.policy.class": "IdentityReplicationPolicy"}
    lab.settings.update({**policy, "start.position": f"group {group}", "commit.source.group": group})
    topic = lab.create(stem)
    lab.target.create_topic(topic)
    for number, value in enumerate(values(60)):
        write_one(lab.source, topic, number, value, 0)
    for number, value in enumerate(values(60)[:27]):
        write_one(lab.target, topic, number, value, 0)
    commit(lab.source, group, topic, 20)

    point = CrashPoint(function, when, token=tmp_path / "token")
    arguments = ["-m", "mirror_lib.cli", "takeover", str(lab.config), "--execute", "--from", f"group={group}"]
    with driver(arguments, point) as dying:
        assert dying.wait() == -9, dying.output
    state = tmp_path / "state"
    tables = [name for name in ("events", "offset_syncs") if (state / name).exists()]
    assert tables == left

    again = Takeover(lab, origin=f"group={group}", execute=True)
    has_ledger = "offset_syncs" in left
    assert again.written == (0 if has_ledger else 1)
    assert again.actions() == {f"{stem}-0": "already in the ledger" if has_ledger else "take over"}
    assert Takeover(lab, origin=f"group={group}").actions() == {f"{stem}-0": "already in the ledger"}
    lab.copy()
    ours, copies = (read_topic(broker, topic) for broker in pair)
    assert records(copies[0]) == records(ours[0])
