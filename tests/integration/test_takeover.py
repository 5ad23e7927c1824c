"""A take-over from a real MirrorMaker 2 that was killed while it wrote: no record is doubled or skipped by it."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Mapping, Tuple

import pytest
from pyspark.sql import SparkSession

from mirror_lib.config.loader import load
from mirror_lib.errors import RefusedError
from mirror_lib.facts import TopicPartition
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.ledger.offset_syncs import OffsetSyncTable
from mirror_lib.ledger.records import LedgerRow
from mirror_lib.topics.remote_topics import plan_flow
from tests.integration.conftest import Command
from tests.lab import dataset
from tests.lab.brokers import KafkaBroker
from tests.lab.crash import CrashPoint, driver
from tests.lab.flow_lab import values
from tests.lab.group_lab import NAME, GroupLab, Takeover, busy, commit, made, records, write_one
from tests.lab.mirrormaker import ConnectWorker, MirrorMaker
from tests.lab.one_flow import until
from tests.lab.readers import Log, read_if_there, read_topic

# As one would say it of a Connect cluster; only the name is that of MirrorMaker's own.
AS_CONNECT = "connect-topic=mm2-offsets.source.internal"
# Groups whose offsets MirrorMaker commits on the target.
SYNCED, OTHER = f"{NAME} synced", f"{NAME} synced once"


@dataclass
class Living:
    """A MirrorMaker at work, and a client that writes to what it copies."""

    lab: GroupLab
    mirrormaker: MirrorMaker
    writing: ExitStack = field(default_factory=ExitStack)


@pytest.fixture(scope="module")
def living(pair: List[KafkaBroker], spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Living]:
    """A MirrorMaker in its second life; the first one was killed while it wrote."""
    source, target = pair
    lab = made(pair, spark, tmp_path_factory.mktemp("left"), ".*")
    for stem, partitions in {"orders": 2, "control": 2, "idle": 1}.items():
        lab.create(stem, partitions)
    lab.write("idle", values(300))
    dataset.transactions(source, rounds=4, each=20)[1].abort_transaction(30)
    for group in (SYNCED, OTHER):
        commit(source, group, lab.topic("idle"), 250)
    properties = {
        "source->target.enabled": "true",
        "source->target.topics": f"{NAME}[.].*, transactions",
        "source->target.sync.group.offsets.enabled": "true",
        "source->target.sync.group.offsets.interval.seconds": "1",
        "target.offset.flush.interval.ms": "3000",
        "target.session.timeout.ms": "6000",
        "target.heartbeat.interval.ms": "1000",
    }
    mirrormaker = MirrorMaker(tmp_path_factory.mktemp("mm2"), {"source": source, "target": target}, properties)
    here = Living(lab, mirrormaker)
    with here.writing:
        here.writing.enter_context(busy(source, [lab.topic("orders"), lab.topic("control")]))
        write_behind_positions(here)
        grown(mirrormaker, lambda: written(lab), "writing")  # what the second life writes once more
        mirrormaker.kill()
        write_behind_positions(here)
        synced = partial(lab.at_target, stem="idle")
        mirrormaker.wait_until(lambda: bool(synced(SYNCED)) and bool(synced(OTHER)), "syncing groups")
        yield here
    mirrormaker.kill()


def write_behind_positions(here: Living) -> None:
    """Start it, and return soon after it kept positions, while it writes on. `idle` is then copied once."""
    here.mirrormaker.start()
    idle = (here.lab.topic("idle"), 0)
    here.mirrormaker.wait_until(lambda: idle in kept_positions(here.lab), "keeping the first positions")
    grown(here.mirrormaker, lambda: kept_sum(here.lab), "keeping positions")


@pytest.fixture(scope="module")
def left(living: Living) -> GroupLab:
    """What a MirrorMaker leaves that was killed twice while it wrote, when the brokers have noticed."""
    grown(living.mirrormaker, lambda: kept_sum(living.lab), "keeping positions")
    # Just kept, so what is written from now on lies behind these positions.
    grown(living.mirrormaker, lambda: written(living.lab), "writing")
    living.mirrormaker.kill()
    living.writing.close()
    flow = load(str(living.lab.config)).flows[0]
    with KafkaCluster(flow.target) as target:
        while target.describe_groups(["source-mm2"])["source-mm2"].has_members:
            threading.Event().wait(0.3)
    return living.lab


def grown(mirrormaker: MirrorMaker, count: Callable[[], int], what: str) -> None:
    """Return when `count` is 300 more than now."""
    enough = count() + 300
    mirrormaker.wait_until(lambda: count() > enough, what)


def kept_positions(lab: GroupLab) -> Mapping[TopicPartition, int]:
    """What MirrorMaker says it has copied, read by a reader of our own: the next upstream offsets."""
    logs = read_if_there(lab.target, "mm2-offsets.source.internal")
    kept: Dict[TopicPartition, int] = {}
    for record in (record for log in logs.values() for record in log.values()):
        connector, at = json.loads(record.key or b"[]")
        if connector == "MirrorSourceConnector":
            kept[at["topic"], at["partition"]] = json.loads(record.value or b"")["offset"] + 1
    return kept


def kept_sum(lab: GroupLab) -> int:
    return sum(offset for (topic, _), offset in kept_positions(lab).items() if topic == lab.topic("orders"))


def written(lab: GroupLab) -> int:
    """Records of `orders` on the target, doubles included."""
    return sum(end for (topic, _), end in lab.remote_ends().items() if topic == lab.remote("orders"))


def surplus(lab: GroupLab, stem: str, number: int) -> Tuple[int, int]:
    """How many records lie on the remote log too often, and how many not at all."""
    ours = Counter(records(lab.read(stem, "read_uncommitted")[number]))
    copies = Counter(records(lab.read_remote(stem)[number]))
    return sum((copies - ours).values()), sum((ours - copies).values())


def test_mirrormaker_that_runs_is_not_taken_over(living: Living) -> None:
    with pytest.raises(RefusedError, match="still runs: group source-mm2 on target has members"):
        Takeover(living.lab)
    with pytest.raises(RefusedError, match="still runs: group source-mm2 on target has members"):
        Takeover(living.lab, origin=AS_CONNECT, worker_group="source-mm2", connector="MirrorSourceConnector")
    # The group of a Connect cluster is unknown; then it shows by its heartbeats.
    with pytest.raises(RefusedError, match="still runs: its heartbeats arrive on target"):
        Takeover(living.lab, compare=1, origin=AS_CONNECT)
    with pytest.raises(RefusedError, match=r"still runs: the kept position of .* has changed meanwhile"):
        for _ in range(5):
            Takeover(living.lab, compare=1, origin=AS_CONNECT, worker_group="of others")
    # Its workers may live on with other connectors; then it shows by what it does.
    others = Takeover(living.lab, compare=1, origin=AS_CONNECT, worker_group="source-mm2", connector="Another")
    assert {each.kept_offset for each in others.decided} == {None}


def test_run_beside_mirrormaker_is_refused_before_it_writes(living: Living, tmp_path: Path, command: Command) -> None:
    lab = made((living.lab.source, living.lab.target), living.lab.spark, tmp_path / "beside", "beside")
    lab.settings.update({"emit.heartbeats.enabled": "true", "sync.group.offsets.enabled": "true"})
    lab.create("beside", 2)
    living.mirrormaker.wait_until(lambda: lab.remote("beside") in lab.target.topics, "creating a remote topic")
    before_its_first_record = lab.run()
    assert before_its_first_record.error is not None and before_its_first_record.error.code == "MIR-340"
    with busy(lab.source, [lab.topic("beside")]):
        grown(living.mirrormaker, lambda: sum(map(len, lab.read_remote("beside").values())), "copying a new topic")
        for refused in (command("run", lab.config, "--once"), command("plan", lab.config)):
            assert refused.code == 3 and "MIR-340" in refused.err
        doctor = command("doctor", lab.config, "--no-spark", "--json")
        assert [each["error"] for each in doctor.documents if each["level"] == "blocking"] == ["MIR-340"]
        assert doctor.code == 1
        lab.trigger = "1 second"
        (outcome,) = lab.run_all()
        assert outcome.error is not None and outcome.error.code == "MIR-340", "a continuous run ends as well"
        assert twice(lab) == 0
    heartbeats = read_topic(lab.target, "heartbeats")[0].values()
    assert not any(record.headers for record in heartbeats), "the refused runs wrote none"
    assert not (tmp_path / "beside" / "state" / "offset_syncs").exists()


def twice(lab: GroupLab) -> int:
    """How many records, of which no two are alike, are on the remote log once more."""
    logs = [records(log) for log in lab.read_remote("beside").values()]
    return sum(len(log) - len(set(log)) for log in logs)


def test_topic_of_a_refused_run_is_copied_once_after_the_take_over(left: GroupLab, tmp_path: Path) -> None:
    lab = made((left.source, left.target), left.spark, tmp_path / "after", "beside")
    assert set(Takeover(lab, execute=True).actions().values()) == {"take over"}
    lab.write("beside", values(50))
    lab.copy()
    assert lab.differences("beside") == [] and twice(lab) == 0
    lab.write_to(lab.target, lab.remote("beside"), [b"another tool's"])
    assert Takeover(lab).actions() == {"beside-0": "refused", "beside-1": "already in the ledger"}


def test_everything_it_wrote_is_found_and_the_rest_is_copied_once(
    left: GroupLab, tmp_path: Path, command: Command
) -> None:
    lab = made((left.source, left.target), left.spark, tmp_path / "taken", "orders", "idle")
    lab.settings["topics"] = json.dumps([lab.topic("orders"), lab.topic("idle"), "transactions"])
    lab.settings["heartbeats.replication.enabled"] = "true"
    kept = kept_positions(lab)
    group = f"{NAME} group"
    commit(lab.source, group, lab.topic("orders"), kept[lab.topic("orders"), 0] - 5)

    seen = Takeover(lab)
    assert set(seen.actions().values()) == {"take over"}, [each.verdict.reason for each in seen.decided]
    for number in (0, 1):
        found = seen.by_partition["orders", number]
        assert found.kept_offset == kept[lab.topic("orders"), number]
        # A process that was killed early may have reported none of its records: what is before it is not compared.
        assert found.verdict.doubled == surplus(lab, "orders", number)[0] or found.verdict.older
    assert sum(seen.by_partition["orders", number].verdict.tail for number in (0, 1)) > 0
    assert not (tmp_path / "taken" / "state" / "offset_syncs").exists(), "a look writes nothing"

    before = {stem: lab.read_remote(stem) for stem in ("orders", "idle")}
    doubled = {number: surplus(lab, "orders", number)[0] for number in (0, 1)}
    taken = Takeover(lab, compare=200, execute=True)
    assert taken.written == len(taken.decided) == 6, taken.actions()
    lab.copy()
    for stem, logs in before.items():
        for number, log in logs.items():
            after = lab.read_remote(stem)[number]
            start = taken.by_partition[stem, number].verdict.resumes_at
            assert start is not None
            source_log = lab.read(stem, "read_uncommitted")[number]
            ours = [record for offset, record in source_log.items() if offset >= start.upstream_offset]
            assert records(after)[: len(log)] == records(log)
            assert records(after)[len(log) :] == ours, f"{stem}-{number} does not resume where it ended"
            assert surplus(lab, stem, number) == (doubled[number] if stem == "orders" else 0, 0)

    at, _ = lab.at_target(OTHER, "idle")[0]
    commit(lab.target, OTHER, lab.remote("idle"), at + 1)
    verdicts = lab.translate()
    assert verdicts[group, "orders", 0] == "exact"
    assert (verdicts[SYNCED, "idle", 0], verdicts[OTHER, "idle", 0]) == ("exact", "committed by another client")
    place = {record.value: offset for offset, record in lab.read_remote("idle")[0].items()}
    assert at < lab.at_target(SYNCED, "idle")[0][0] == place[values(300)[250]]
    assert lab.at_target(OTHER, "idle")[0][0] == at + 1
    rest = lab.rest_of(group, "orders")[0]
    source_log = lab.read("orders", "read_uncommitted")[0]
    unread = [r for offset, r in source_log.items() if offset >= kept[lab.topic("orders"), 0] - 5]
    assert rest == unread
    lab.settings["heartbeats.replication.enabled"] = "false"  # a MirrorMaker that was killed doubles them too
    compared = command("verify", lab.config, "--json").documents[0]["topics"]
    assert not any(each["difference"] for topic in compared for each in topic["partitions"]), "what was compared"


@pytest.mark.long
def test_going_on_at_the_kept_position_itself_doubles_records(left: GroupLab, tmp_path: Path) -> None:
    lab = made((left.source, left.target), left.spark, tmp_path / "control", "control")
    tails = {number: Takeover(lab).by_partition["control", number].verdict.tail for number in (0, 1)}
    before = {number: surplus(lab, "control", number)[0] for number in (0, 1)}
    believe_kept_positions(lab)
    lab.copy()
    for number, tail in tails.items():
        assert surplus(lab, "control", number) == (before[number] + tail, 0)
    assert sum(tails.values()) > 0


def believe_kept_positions(lab: GroupLab) -> None:
    """What a take-over without a look at the logs would write."""
    config = load(str(lab.config))
    flow, kept, ends = config.flows[0], kept_positions(lab), lab.remote_ends()
    with KafkaCluster(flow.source) as source, KafkaCluster(flow.target) as target:
        (topic,) = plan_flow(flow, source, target).copied
    names, ids = (topic.source.name, topic.remote_topic), (topic.source.topic_id, topic.remote_topic_id)
    rows = [LedgerRow(*names, n, *ids, kept[names[0], n], ends[names[1], n], 0) for n in range(topic.partitions)]
    OffsetSyncTable(lab.spark, config.state).append(flow.name, rows, run_id="control", query_id="", batch_id=-1)


# --- other origins: a real Connect cluster that copied exactly once, and one of our own that was killed ---------------

CONNECT = f"connect-topic={ConnectWorker.offsets_topic}"


def committed(lab: GroupLab, stem: str) -> Dict[int, Log]:
    """The remote log without what an aborted transaction left in it; empty while there is none."""
    return read_if_there(lab.target, lab.remote(stem), "read_committed")


def copied(lab: GroupLab, stem: str) -> int:
    return sum(map(len, committed(lab, stem).values()))


@pytest.mark.long
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
    return Takeover(lab, origin=CONNECT, execute=execute, worker_group=group, connector="copies")


def wait_until_gone(lab: GroupLab) -> None:
    """Until the brokers have noticed that the worker is dead."""
    group = ConnectWorker.group
    with KafkaCluster(load(str(lab.config)).flows[0].target) as target:
        until(lambda: not target.describe_groups([group])[group].has_members)


LEDGER = "mirror_lib.ledger.offset_syncs:OffsetSyncTable.append"
TAKEOVERS = "mirror_lib.ledger.event_tables:EventTable.add_takeovers"
TOLD = "mirror_lib.kafka.groups:ClusterGroups.commit_offsets"


@pytest.mark.long
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
        write_one(lab.source, topic, number, value)
    for number, value in enumerate(values(60)[:27]):
        write_one(lab.target, topic, number, value)
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
