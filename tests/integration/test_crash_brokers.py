"""Brokers that a test ends: their disks lose records or fill up, they hold answers back, die behind one, or are away.
What was lost is copied again. `make faults` has brokers that are killed or stand still, and the state's disk.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import pytest
from confluent_kafka.cimpl import NewTopic
from kafka.protocol.producer import InitProducerIdRequest

from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import ClusterError, FencedError
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.kafka.connection import Disconnected, LogClient, Network
from mirror_lib.kafka.fencing import AnswerLost, Lane, fence, refresh
from mirror_lib.kafka.fetcher import MAX_WAIT_MS
from mirror_lib.ledger.table_reader import TableReader
from mirror_lib.replication.messages import NO_END
from tests.integration.conftest import Command, Names
from tests.lab.brokers import KafkaBroker, background, clusters, free_ports, second_broker
from tests.lab.checkout import LabError
from tests.lab.crash import CrashPoint, mirror
from tests.lab.group_lab import commit
from tests.lab.one_flow import ABOUT_TO_WRITE, NewFlow, OneFlow, stopped_process, until
from tests.lab.one_lane import LaneProcess, task_plans
from tests.lab.small_disk import SmallDisk, batch_starts, cut_tail, forget_indexes, last_segment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    "known, broken",
    [(True, True), (True, False), (False, True)],
    ids=["known", "between-two-fetches", "where-brokers-tell-no-ids"],
)
def test_records_of_a_topic_that_was_created_again_are_taken_for_the_next_ones_only_where_topics_have_no_ids(
    pair: List[KafkaBroker], new_flow: NewFlow, tmp_path: Path, known: bool, broken: bool
) -> None:
    flow = new_flow("again", source=pair[0], target=pair[1], partitions=1, records=400, remote=True)
    (plan,) = task_plans(flow)
    source_id = flow.source_topic_id() if known else ""
    tasks = tuple(replace(task, end=NO_END, source_topic_id=source_id) for task in plan.tasks)
    lane = LaneProcess(replace(plan, tasks=tasks, tails=True, max_seconds=60.0), tmp_path)
    try:
        until(lambda: flow.copies() == 400)
        os.kill(lane.process.pid, signal.SIGSTOP)
        time.sleep(2 * MAX_WAIT_MS / 1000)  # an answer that there is nothing new waits to be read by then
        flow.create_source_anew(600)
        if broken:
            flow.source.kill()
            flow.source.restart()
        os.kill(lane.process.pid, signal.SIGCONT)
        (part,) = lane.report(180.0).partitions
    finally:
        lane.end()
    assert flow.copies() == (400 if known else 600)
    assert ("was deleted and created again" in str(part.stopped)) == known


# --- disks ------------------------------------------------------------------------------------------------------

# The last batch on a log: the records are old, so the lane fenced again behind them.
MARKER = 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A disk of 96 MB, whose folder is new and empty."""
    try:
        disk = SmallDisk(tmp_path / "disk", 96)
    except LabError as error:
        pytest.skip(str(error))
    yield disk
    disk.close()


@pytest.fixture
def flow(pair: List[KafkaBroker], new_flow: NewFlow) -> OneFlow:
    return new_flow("disk", source=pair[0], target=pair[1], records=400)


def incidents(flow: OneFlow, spark: SparkSession) -> List[Tuple[str, int, int, int]]:
    rows = spark.read.format("delta").load(str(flow.state / "events")).where("topic is not null").collect()
    return [(row["kind"], row["partition"], row["from_offset"], row["until_offset"]) for row in rows]


def cut_remote(
    flow: OneFlow, end: Callable[[KafkaBroker], None], lost: Callable[[int], int], torn: bool = False, count: int = 1
) -> None:
    """End the target, and start it without the last batches of `count` remote partitions: `lost` of so many."""
    end(flow.target)
    for number in range(count):
        segment = last_segment(flow.target, flow.remote_topic, number)
        cut_tail(segment, lost(len(batch_starts(segment))), torn)
        if end is KafkaBroker.stop:
            forget_indexes(segment)
    flow.target.restart()


@pytest.mark.parametrize(
    ("end", "torn"),
    [(KafkaBroker.kill, False), (KafkaBroker.kill, True), (KafkaBroker.stop, False)],
    ids=["power cut", "power cut inside a batch", "older disk"],
)
def test_tail_that_the_remote_log_lost_on_disk_is_copied_again(
    spark: SparkSession, flow: OneFlow, end: Callable[[KafkaBroker], None], torn: bool
) -> None:
    flow.copy(spark)
    cut_remote(flow, end, lambda there: MARKER + 4, torn)
    (lost,) = flow.differences()
    assert lost.startswith("partition 0: 400 records on the source, 240 on the target")
    flow.fill(50)
    flow.copy(spark, exact=True)
    assert incidents(flow, spark) == [("remote log healed", 0, 240, 400)]


def test_power_cut_amid_a_run_is_said_and_the_next_run_copies_again_what_it_took(
    spark: SparkSession, flow: OneFlow, tmp_path: Path
) -> None:
    flow.settings["tasks.max"] = 1
    point = CrashPoint(*ABOUT_TO_WRITE, tmp_path / "stopped", "stop")
    with mirror("run", flow.config, crash=point) as run:
        worker = stopped_process(tmp_path / "stopped", 180)
        cut_remote(flow, KafkaBroker.kill, lambda there: there - 1, count=flow.partitions)
        assert flow.copies() == 0
        os.kill(worker, signal.SIGCONT)
        assert run.wait() == 1
    (error,) = [line for line in run.output.splitlines() if "error: " in line]
    assert "ends before offset" in error and "the next start copies the lost records again" in error
    flow.copy(spark, exact=True)


def test_copy_goes_on_where_a_full_disk_ended_the_target(
    spark: SparkSession, pair: List[KafkaBroker], new_flow: NewFlow, small_disk: SmallDisk, tmp_path: Path
) -> None:
    (tmp_path / "brokers").symlink_to(small_disk.path)
    with clusters(["full-target"], tmp_path / "brokers") as (target,):
        flow = new_flow("full", source=pair[0], target=target, records=6000)
        small_disk.fill(leave=1_000_000)
        with flow.running(spark) as outcomes:
            until(lambda: target.process is not None and target.process.poll() is not None)
            small_disk.make_room()
            # Its own log is on that disk, and may lack the reason: a broker without a log folder halts with 1.
            assert target.process is not None and target.process.returncode == 1
            target.restart()
            until(lambda: bool(outcomes), 120)
        assert outcomes[0].error is None
        flow.assert_exact(spark)


# --- answers that are lost, and outages ----------------------------------------------------------------------------


class Cut(LogClient):
    """A client whose line is cut behind the first new epoch that the coordinator gives out."""

    meanwhile: Optional[Callable[[], object]] = None

    def exchange(self, requests: Sequence[Tuple[Optional[int], Any]]) -> List[Any]:
        answers = super().exchange(requests)
        given = [isinstance(request, InitProducerIdRequest) for _, request in requests]
        if self.meanwhile is None or not given or not all(given) or any(answer.error_code for answer in answers):
            return answers
        happens, self.meanwhile = self.meanwhile, None
        happens()
        return [Disconnected("the line is cut") for _ in requests]


@pytest.fixture
def client(pair: List[KafkaBroker]) -> Iterator[Cut]:
    network = Network()
    client = Cut(network, "target", {"bootstrap_servers": pair[1].bootstrap})
    client.connect(time.monotonic() + 30)
    yield client
    client.close()
    network.close()


def epoch(lane: Lane) -> int:
    assert lane.held is not None
    return lane.held.epoch


def soon() -> float:
    return time.monotonic() + 60


def test_lane_that_lost_an_answer_goes_on_unless_its_coordinator_died_or_another_client_took_it_over(
    pair: List[KafkaBroker], client: Cut, topic_name: Names
) -> None:
    """Whether the lane is another client's now is not in the answer of a coordinator that was started again."""
    target, name = pair[1], "lane of one"

    def again() -> None:
        target.kill()
        target.restart()

    free = Lane(name, {target.create_topic(topic_name("lost"), 1): [0]})
    lane = replace(free, held=fence(client, [free], soon())[name])
    client.meanwhile = lambda: None
    renewed = replace(lane, held=refresh(client, [lane], soon())[name])
    assert epoch(renewed) == epoch(lane) + 1
    lane = renewed
    client.meanwhile = again
    with pytest.raises(AnswerLost):
        refresh(client, [lane], soon())
    # A request without an epoch takes the lane.
    assert fence(client, [free], soon())[name].epoch > epoch(lane)
    with pytest.raises(FencedError):
        refresh(client, [lane], soon())


class PlainRun:
    """`mirror run` with plain lines."""

    def __init__(self, flow: OneFlow, directory: Path) -> None:
        self._lines = directory / "lines"
        command = [sys.executable, "-m", "mirror_lib.cli", "run", str(flow.config)]
        self.process = background(command, self._lines, start_new_session=False)

    def lines(self) -> List[str]:
        """What it printed, without the times."""
        return [line[20:] for line in self._lines.read_text().splitlines()]

    def outages(self) -> List[str]:
        """Its lines of outages: that they begin, and that they end."""
        return [line for line in self.lines() if " unreachable since " in line or " back after " in line]


def outage_is_reported_once(run: PlainRun, flow: OneFlow, broker: KafkaBroker, side: str, pause: bool = False) -> None:
    """Stop the broker of this side until that is reported, then start it again until new records are copied."""
    seen, before = len(run.outages()), len(run.lines())
    (broker.pause if pause else broker.stop)()
    until(lambda: len(run.outages()) > seen, 20, "the outage")
    at = [n for n, line in enumerate(run.lines()) if n >= before and f" {side} unreachable since " in line]
    assert len(at) == 1
    (broker.resume if pause else broker.restart)()
    until(lambda: len(run.outages()) > seen + 1, 60, "the end of the outage")
    assert len(run.outages()) == seen + 2
    flow.fill(10)
    until(flow.all_copied, 150, "the records after the outage")
    lines = run.lines()[at[0] :]
    (back,) = [n for n, line in enumerate(lines) if f" {side} back after " in line]
    assert re.fullmatch(rf"source->target {side} unreachable since \d\d:\d\d:\d\d", lines[0]), lines[0]
    assert re.fullmatch(rf"source->target {side} back after (\d+ s|\d\.\d s|\d+ min)", lines[back]), lines[back]
    assert not [line for line in lines[:back] if "all committed records copied" in line]


def test_outage_of_either_cluster_is_reported_at_its_begin_and_end_and_a_stop_in_it_is_no_kill(
    pair: List[KafkaBroker], new_flow: NewFlow, tmp_path: Path
) -> None:
    source, target = pair
    flow = new_flow("away", source=source, target=target, trigger="1 second", records=100)
    run = PlainRun(flow, tmp_path)
    try:
        until(lambda: any("all committed records copied" in line for line in run.lines()), 120, "the copy")
        assert run.outages() == []
        outage_is_reported_once(run, flow, source, "source")
        outage_is_reported_once(run, flow, target, "target", pause=True)
        assert flow.differences() == []
        source.stop()
        until(lambda: " unreachable since " in run.outages()[-1], 20, "the outage")
        time.sleep(6)  # until the driver itself waits for an answer of the source
        run.process.terminate()
        assert run.process.wait(30) == 0
    finally:
        run.process.kill()
        source.kill()
        source.restart()
    rows = TableReader(str(flow.state)).rows("runs", ("kind", "outcome", "records", "at"), "source->target")
    last = max(rows, key=lambda row: float(row["at"].timestamp()))
    assert (last["kind"], last["outcome"]) == ("ended", "stopped") and last["records"]


# --- a broker of two that is away: the flow names the partition that it alone has -----------------------------------


@pytest.fixture
def target(tmp_path: Path) -> Iterator[KafkaBroker]:
    """The first of two brokers; the second one may be away."""
    with clusters(["two-brokers"], tmp_path / "first") as (first,):
        yield first


@pytest.fixture
def second(target: KafkaBroker, tmp_path: Path) -> Iterator[KafkaBroker]:
    with second_broker(target, tmp_path / "second") as broker:
        yield broker


def leaders_of(broker: KafkaBroker, topic: str, replicas: Sequence[List[int]] = ()) -> Callable[[], List[int]]:
    """What reads the leaders of the topic's partitions, -1 for none. With `replicas` the topic is created on them."""
    admin = broker.admin()
    if replicas:
        new = NewTopic(topic, len(replicas), replica_assignment=list(replicas))
        admin.create_topics([new])[topic].result(30)

    def leaders() -> List[int]:
        found = admin.list_topics(topic, timeout=10).topics[topic].partitions
        return [found[number].leader for number in sorted(found)]

    return leaders


@pytest.mark.parametrize("settings", [{}, {"engine": "records"}, {"partitioner": "key"}], ids=str)
def test_remote_partition_without_a_leader_is_named_and_those_beside_it_are_copied(
    target: KafkaBroker, second: KafkaBroker, spark: SparkSession, new_flow: NewFlow, settings: Dict[str, Any]
) -> None:
    flow = new_flow("led", target=target, settings=settings, records=20)
    leaders = leaders_of(target, flow.remote_topic, [[1], [1], [2]])
    second.kill()
    until(lambda: leaders() == [1, 1, -1])
    keyed, error = "partitioner" in settings, str(flow.run(spark).error)
    advice = "check that the partition has a leader"
    reported = f"source->target: target answers with no end of {flow.remote_topic}-2 ({advice})"
    assert error == reported if keyed else f"{flow.topic}-2" in error
    second.restart()
    until(lambda: leaders() == [1, 1, 2])
    assert keyed or flow.copies() == flow.written * 2
    flow.copy(spark)
    assert flow.all_copied()


def test_groups_whose_offsets_are_on_a_broker_that_is_away_are_not_taken_for_none(
    target: KafkaBroker, second: KafkaBroker
) -> None:
    """No broker listed them, and a cut-over left them where they were."""
    target.create_topic("orders", 1)
    groups = {f"readers {number}" for number in range(12)}
    for group in groups:
        commit(target, group, "orders", 0)
    with KafkaCluster(ClusterConfig("source", {"bootstrap.servers": target.bootstrap})) as cluster:
        assert set(cluster.group_names()) == groups and not cluster.unlisted_brokers()
        second.kill()
        leaders = leaders_of(target, "__consumer_offsets")
        until(lambda: -1 in leaders())
        assert not groups <= set(cluster.group_names()) and cluster.unlisted_brokers() == ["2"]


def test_source_partitions_beside_one_without_a_leader_are_copied(
    target: KafkaBroker, second: KafkaBroker, spark: SparkSession, new_flow: NewFlow, command: Command
) -> None:
    flow = new_flow("away", source=target, records=20, settings={"tail.seconds": 3})

    def printed_by(*words: str) -> Tuple[int, Dict[str, Any]]:
        done = command(*words, flow.config, "--json")
        return done.code, done.documents[-1]

    second.kill()
    leaders = leaders_of(target, flow.topic)
    until(lambda: -1 in leaders())
    names = [f"{flow.topic}-{number}" for number, leader in enumerate(leaders()) if leader < 0]
    assert 0 < len(names) < flow.partitions
    healthy = flow.partitions - len(names)
    error = flow.run(spark).error
    assert error is not None and (error.code, error.exit_code) == ("MIR-210", 1) and names[0] in str(error)
    assert flow.copies() == 20 * healthy
    code, found = printed_by("status")
    assert (code, found["leaderless"], len(found["partitions"])) == (1, names, healthy)
    assert "no leader" in [each["code"] for each in found["problems"]]
    code, found = printed_by("plan")
    assert code == 0 and names[0] in "".join(found["topics"]["copied"][0]["notes"])
    assert printed_by("verify")[0] == 1

    flow.trigger = "1 second"
    with flow.running(spark) as ends:
        second.restart()
        until(lambda: -1 not in leaders())
        until(lambda: flow.copies() == 20 * flow.partitions, 120)
        flow.fill(20)
        until(flow.all_copied, 120)
        second.kill()  # below a stage that tails
        until(lambda: -1 in leaders())
        led = [number for number, leader in enumerate(leaders()) if leader > 0]
        flow.fill(20, only=led)
        until(lambda: flow.copies() == flow.everything + 20 * len(led), 120)
        second.restart()
        until(lambda: -1 not in leaders())
        flow.fill(20, only=[number for number in range(flow.partitions) if number not in led])
        flow.written += 20
        until(flow.all_copied, 180)
    assert [end.error for end in ends] == [None]
    assert [printed_by(*each)[0] for each in (["verify", "--complete"], ["status"])] == [0, 0]


class LowBroker(KafkaBroker):
    """A broker that is ready without a transaction of the usual length."""

    def answers(self) -> bool:
        try:
            with KafkaCluster(ClusterConfig("low", {"bootstrap.servers": self.bootstrap}), 2) as cluster:
                return cluster.broker_count() == 1
        except ClusterError:
            return False


@pytest.fixture
def low(tmp_path: Path) -> Iterator[KafkaBroker]:
    port, controller_port = free_ports(2)
    broker = LowBroker("low", tmp_path / "low", port, controller_port, {"transaction.max.timeout.ms": "30000"})
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


def test_broker_config_that_is_too_low_is_named_with_the_value_to_set(
    new_flow: NewFlow, low: KafkaBroker, spark: SparkSession
) -> None:
    flow = new_flow("low", target=low, partitions=1, records=10)
    error = flow.run(spark).error
    assert error is not None and flow.copies() == 0
    assert "transaction.max.timeout.ms=60000" in str(error) and "Write on" not in str(error)
