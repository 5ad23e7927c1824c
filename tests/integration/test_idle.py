"""What a run finds before it starts: a bounded run with nothing to do ends without Spark, and whatever there is to do
starts it."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Tuple

import pytest

from mirror_lib.cli import main
from mirror_lib.config.loader import load
from mirror_lib.control.heartbeats import HeartbeatWriter
from mirror_lib.copy_job import writer_check
from mirror_lib.errors import EXIT_OK
from mirror_lib.groups.mm2_format import Heartbeat, decode_checkpoint, encode_heartbeat
from mirror_lib.kafka.admin import clusters_of
from mirror_lib.kafka.compacted_topic import InternalTopic
from mirror_lib.ledger.offset_syncs import OffsetSyncTable
from mirror_lib.ledger.records import MirrorRun
from mirror_lib.ledger.runs import RunTable
from mirror_lib.plan.idle import Work, idle_outcomes, may_do_without_spark
from mirror_lib.replication.start_rules import Writer
from mirror_lib.takeover.signs import OtherWriter, other_writer
from tests.integration.conftest import Ground
from tests.lab.brokers import KafkaBroker
from tests.lab.crash import mirror
from tests.lab.dataset import set_configs
from tests.lab.flow_lab import FlowLab, values
from tests.lab.group_lab import commit
from tests.lab.meanwhile import meanwhile
from tests.lab.one_flow import NewFlow, OneFlow
from tests.lab.readers import read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    return new_flow("idle", records=30)


def run_without_java(flow: OneFlow) -> Tuple[int, List[Dict[str, Any]]]:
    """The exit code of a run that could not start Spark, and its JSON documents."""
    with mirror("run", flow.config, "--json", JAVA_HOME=str(flow.directory / "none")) as running:
        code = running.wait()
    return code, [json.loads(line) for line in running.output.splitlines() if line.startswith("{")]


def has_work(flow: OneFlow) -> bool:
    config = load(str(flow.config))
    try:
        outcomes = idle_outcomes(config, config.flows)
    except Work:
        return True
    assert [(each.records, each.error) for each in outcomes] == [(0, None)]
    return False


def copy(flow: OneFlow, spark: SparkSession) -> None:
    flow.copy(spark)
    assert not has_work(flow)


def test_run_with_nothing_to_do_needs_no_java(flow: OneFlow, spark: SparkSession) -> None:
    """Its groups are where they belong, and its checkpoints and heartbeats are written without Spark."""
    group = f"{flow.topic}.readers"
    flow.settings = {"sync.group.offsets.enabled": "true", "groups": f'["{group}"]', "emit.heartbeats.enabled": "true"}
    commit(flow.source, group, flow.topic, 7)
    assert main(["run", str(flow.config)]) == EXIT_OK
    beats = len(beats_on(flow.target))
    code, documents = run_without_java(flow)
    assert code == EXIT_OK
    assert [(each["records"], each["error"]) for each in documents] == [(0, None)]
    assert len(beats_on(flow.target)) == beats + 1
    commit(flow.source, group, flow.topic, 9)
    assert has_work(flow), "a group moved"
    commit(flow.target, group, flow.remote_topic, 1)
    assert not has_work(flow), "another client committed"
    assert checkpoints_of(flow, group)[-1] == 9
    commit(flow.source, group, flow.topic, 7)
    flow.fill(1)
    assert has_work(flow) and run_without_java(flow)[0] != EXIT_OK


def checkpoints_of(flow: OneFlow, group: str) -> List[int]:
    """The upstream offsets of the group's checkpoints, in their order."""
    (log,) = read_topic(flow.target, "source.checkpoints.internal").values()
    read = [decode_checkpoint(each.key or b"", each.value or b"") for each in log.values()]
    return [each.upstream_offset for each in read if each.group == group]


def beats_on(broker: KafkaBroker) -> List[object]:
    return [record for log in read_topic(broker, "heartbeats").values() for record in log.values()]


def test_all_that_a_run_would_do_starts_spark(flow: OneFlow, spark: SparkSession) -> None:
    assert has_work(flow), "before the first run"
    copy(flow, spark)
    clusters = flow.source.cluster_id, flow.target.cluster_id
    RunTable(spark, str(flow.state)).started(MirrorRun("killed", "source->target", 2, "exactly-once", *clusters))
    assert has_work(flow), "a run did not end"
    copy(flow, spark)
    flow.partitions += 1
    flow.source.grow(flow.topic, flow.partitions)
    assert has_work(flow), "a partition came"
    copy(flow, spark)
    for value in ("123456789", "-1"):
        set_configs(flow.source, flow.topic, {"retention.ms": value})
        assert has_work(flow) == (value != "-1"), "a config differs"
    flow.settings["topics.exclude"] = "[nothing]"
    assert not has_work(flow)
    flow.settings["commit.source.group"] = f"{flow.topic}.progress"
    assert has_work(flow), "its committed offsets would expire"
    del flow.settings["commit.source.group"]
    flow.create_source_anew(0)
    assert has_work(flow), "the topic is another one"


def test_session_platform_and_file_decide_whether_spark_may_be_left_out_but_no_end_of_a_transaction(
    flow: OneFlow, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = flow.source.producer(transactional_id=flow.topic)
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition in range(flow.partitions):
        producer.produce(flow.topic, b"in a transaction", partition=partition)
    producer.commit_transaction(30)
    copy(flow, spark)
    producer.begin_transaction()
    producer.produce(flow.topic, b"waits", partition=0)
    producer.flush(30)
    config = load(str(flow.config))
    assert [len(each.waiting) for each in idle_outcomes(config, config.flows)] == [1]
    producer.abort_transaction(30)
    assert not may_do_without_spark(config, {}), "this process has a session"
    monkeypatch.delitem(sys.modules, "pyspark.sql")
    assert may_do_without_spark(config, {})
    for environment in ({"CONTAINER_ID": "container_1"}, {"DATABRICKS_RUNTIME_VERSION": "16.4"}):
        assert not may_do_without_spark(config, environment)
    assert not may_do_without_spark(replace(config, spark_when_idle=True), {})


# --- another tool: looked for only where remote records have no rows; the mirror's own signs never refuse a run -------


def checked(lab: FlowLab, run_is_open: bool = False) -> OtherWriter:
    """What a run of the lab's flow finds before it writes."""
    config = load(str(lab.config))
    (flow,) = config.flows
    ledger = OffsetSyncTable(lab.spark, config.state)
    with clusters_of(flow) as both:
        return other_writer(flow, config.flows, *both, lambda: (ledger.positions(flow.name), ()), lambda: run_is_open)


@contextmanager
def again_and_again(write: Callable[[], object]) -> Iterator[None]:
    def work(stop: threading.Event) -> List[None]:
        while not stop.wait(0.2):
            write()
        return []

    write()
    with meanwhile(work):
        yield


def test_signs_of_another_tool_refuse_and_the_mirrors_own_do_not(ground: Ground) -> None:
    # Heartbeats are of two aliases: under those that all tests have, another tool's would refuse their runs too.
    lab = FlowLab(*ground, "signs", flows=["other->target"], other_names={"other": ground[0]})
    lab.create("orders")
    lab.write("orders", values(100))
    assert checked(lab) == OtherWriter(), "a first run waits for nothing"
    lab.copy()
    lab.write("orders", values(10))
    assert checked(lab) == OtherWriter(), "nor does a later one"

    shutil.rmtree(lab.directory / "state")
    assert checked(lab).state is Writer.NONE and checked(lab).reason
    (flow,) = load(str(lab.config)).flows
    beats = [HeartbeatWriter(flow, lambda cluster: None, copies) for copies in (False, True)]
    with again_and_again(beats[0].beat), again_and_again(beats[1].beat):
        assert checked(lab).state is Writer.NONE
        lab.copy()
    assert lab.differences("orders") == []

    shutil.rmtree(lab.directory / "state")
    heartbeat = [encode_heartbeat(Heartbeat("other", "target", 1))]
    with InternalTopic(flow.target, "heartbeats", 1) as topic, again_and_again(lambda: topic.append(heartbeat)):
        assert checked(lab).state is Writer.RUNNING
        outcome = lab.run()
        assert outcome.error is not None and outcome.error.code == "MIR-340"
    with again_and_again(lambda: lab.target.write(lab.remote("orders"), b"another tool's")):
        assert checked(lab).state is Writer.RUNNING
        assert checked(lab, run_is_open=True).state is Writer.NONE, "the fence stops what an open run writes"
        check = writer_check(lab.spark, load(str(lab.config)), flow, fences=True)
        with clusters_of(flow) as both:
            assert check.refuse(*both).state is Writer.NONE, "so it does of a process that this one fences"
    for each in beats:
        each.close()
