"""A state folder that is damaged, older, lost, of other clusters, or not writable: the next run makes an exact copy, or
is refused before it writes, and the steps of docs/fix/state.md make one."""

from __future__ import annotations

import copy
import os
import shutil
import signal
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List

import pytest

from mirror_lib.cli import main
from mirror_lib.config.model import ClusterConfig
from mirror_lib.errors import EXIT_OK, EXIT_REFUSED, RefusedError
from mirror_lib.facts import readable
from mirror_lib.kafka.admin import KafkaCluster
from mirror_lib.ledger import delta_table
from tests.integration.conftest import Command
from tests.lab.brokers import KafkaBroker
from tests.lab.crash import CrashPoint, mirror, run_mirror
from tests.lab.damage import CASES, cut, damage
from tests.lab.one_flow import ABOUT_TO_WRITE, NewFlow, OneFlow, stopped_process, until
from tests.lab.readers import read_if_there

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A task has written its rows, and its driver does not know.
ROWS_WRITTEN = ("mirror_lib.rows.writer:RowWriter.run", "after", 1)


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    return new_flow("damaged")


def kill(flow: OneFlow) -> None:
    """A run that dies while it writes."""
    point = ROWS_WRITTEN if "engine" in flow.settings else ABOUT_TO_WRITE
    crash = CrashPoint(*point, flow.directory / uuid.uuid4().hex, "kill driver")
    flow.fill(200)
    assert run_mirror(flow.config, crash=crash) == -9 and crash.reached


def follow_the_steps(flow: OneFlow, spark: SparkSession) -> None:
    """The steps of docs/fix/state.md: the folder is moved aside, a run, a verification."""
    flow.state.rename(flow.directory / uuid.uuid4().hex)
    flow.copy(spark)
    assert main(["verify", str(flow.config)]) == EXIT_OK


@pytest.fixture(scope="module")
def killed(both_clusters: List[KafkaBroker], tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> OneFlow:
    """A flow that ran three times and was killed at the fourth."""
    source, target = both_clusters
    flow = OneFlow(source, target, f"damaged-{uuid.uuid4().hex[:8]}", tmp_path_factory.mktemp("killed"))
    for _ in range(3):
        flow.fill(50)
        flow.copy(spark)
    kill(flow)
    return flow


@pytest.fixture
def whole(killed: OneFlow, tmp_path: Path) -> OneFlow:
    """The same with a copy of its state in a folder that Spark has not read."""
    shutil.copytree(killed.state, tmp_path / "state")
    flow = copy.copy(killed)
    flow.directory = tmp_path
    return flow


@pytest.mark.parametrize("name", CASES)
def test_copy_is_exact_after_a_damage_of_the_ledger(
    killed: OneFlow, whole: OneFlow, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The ledger is older than the remote log each time: that of the kill, then of every case before."""
    lost = damage(whole.state / "offset_syncs", name)
    copied = whole.copies()
    if not lost:
        assert whole.code(spark) == "MIR-401"
        with monkeypatch.context() as patched:
            patched.setattr(delta_table, "LARGE_TABLE", -1)  # which Spark reads
            assert whole.code(spark) == "MIR-401"
        assert whole.copies() == copied
        follow_the_steps(whole, spark)
    whole.fill(50)
    killed.written = whole.written
    whole.copy(spark, exact=True)


ROWS = {"engine": "records"}
KEYED = {**ROWS, "partitioner": "key"}
SHARED = {"shared.remote.topics": "true"}
SETTINGS: Dict[str, Dict[str, Any]] = {
    "rows": ROWS,
    "keyed": KEYED,
    "shared": SHARED,
    "shared rows": {**ROWS, **SHARED},
    "keyed, shared": {**KEYED, **SHARED},
    "latest": {"consumer.auto.offset.reset": "latest"},
    "at least once": {"delivery": "at-least-once"},
}


def assert_once(flow: OneFlow, spark: SparkSession) -> None:
    """Every record of the source once on the remote topic, for flows of any kind."""
    assert flow.all_copied()
    if "engine" in flow.settings:
        assert flow.false_origins() == []
    else:
        flow.assert_exact(spark)


@pytest.mark.long
@pytest.mark.parametrize("kind", SETTINGS)
def test_flow_of_another_kind_is_exact_after_its_state_went_back_in_time(
    flow: OneFlow, spark: SparkSession, kind: str
) -> None:
    """The whole folder of before the last two runs, then its ledger alone, then the other tables alone."""
    flow.settings = SETTINGS[kind]
    flow.copy(spark)  # before the first record, for `latest`
    flow.fill(150)
    flow.copy(spark)
    earlier = shutil.copytree(flow.state, flow.directory / "earlier")
    flow.fill(50)
    flow.copy(spark)
    kill(flow)
    later = shutil.copytree(flow.state, flow.directory / "later")
    for ledger, others in ((earlier, earlier), (earlier, later), (later, earlier)):
        shutil.rmtree(flow.state)
        shutil.copytree(others, flow.state)
        shutil.rmtree(flow.state / "offset_syncs")
        shutil.copytree(ledger / "offset_syncs", flow.state / "offset_syncs")
        flow.fill(20)
        flow.copy(spark)
        assert_once(flow, spark)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["rows", "keyed", "at least once"])
def test_flow_of_another_kind_is_exact_after_the_steps(flow: OneFlow, spark: SparkSession, kind: str) -> None:
    flow.settings = SETTINGS[kind]
    flow.fill(150)
    flow.copy(spark)
    kill(flow)
    cut(0)(flow.state / "offset_syncs")
    assert flow.code(spark) == "MIR-401"
    follow_the_steps(flow, spark)
    assert_once(flow, spark)


@pytest.mark.long
def test_re_created_source_is_not_appended_again_by_an_older_state(flow: OneFlow, spark: SparkSession) -> None:
    """A backup from before the source was re-created: its records once stood twice on the remote topic."""
    flow.settings["on.data.loss"] = "continue"
    flow.fill(60)
    flow.copy(spark)
    earlier = shutil.copytree(flow.state, flow.directory / "earlier")
    flow.create_source_anew(40)
    flow.copy(spark)
    copied = flow.copies()
    assert copied == 100 * flow.partitions
    shutil.rmtree(flow.state)
    shutil.copytree(earlier, flow.state)
    flow.copy(spark)
    assert flow.copies() == copied


@pytest.mark.long
def test_checkpoint_of_spark_that_is_ahead_of_the_ledger_hides_no_record(flow: OneFlow, spark: SparkSession) -> None:
    """The ledger and its remote topic are gone, and the checkpoint has every offset: a continuous run waited for the
    next record before it copied those that the source has."""
    flow.fill(30)
    flow.copy(spark)
    shutil.rmtree(flow.state / "offset_syncs")
    flow.target.delete_topic(flow.remote_topic)
    flow.trigger = "1 second"
    with flow.running(spark):
        until(flow.all_copied, 40)


# --- whose records are on the remote topic: a run appends only after what both logs prove ---------------------------


@pytest.fixture
def owned(new_flow: NewFlow) -> OneFlow:
    return new_flow("owned", partitions=2)


@pytest.mark.long
def test_expired_remote_log_is_not_filled_again_by_another_state_folder(owned: OneFlow, spark: SparkSession) -> None:
    owned.fill(100)
    assert owned.code(spark) == ""
    owned.target.expire(owned.remote_topic, {0: -1, 1: 60})
    shutil.rmtree(owned.state)
    owned.fill(50)
    assert main(["plan", str(owned.config)]) == 3
    assert owned.code(spark) == "MIR-329"
    assert {number: len(log) for number, log in owned.remote().items()} == {0: 0, 1: 41}
    # The way on: the operator knows the next offset of one log, and the first one that the other log still has.
    owned.settings["start.position"] = f'"{owned.topic}:0=100, {owned.topic}:1=59"'
    assert owned.code(spark) == ""
    assert owned.differences_after({0: 100, 1: 59}) == []


@pytest.mark.long
def test_latest_without_its_state_leaves_no_gap(owned: OneFlow, spark: SparkSession) -> None:
    owned.settings["consumer.auto.offset.reset"] = "latest"
    assert owned.code(spark) == ""  # the remote topic is made, and the start recorded
    owned.fill(40)
    assert owned.code(spark) == ""
    kept = owned.directory / "kept"
    owned.state.rename(kept)
    owned.fill(30)
    assert owned.code(spark) == "MIR-329"
    shutil.rmtree(owned.state)
    kept.rename(owned.state)
    assert owned.code(spark) == ""
    owned.assert_exact(spark)


def test_logs_prove_where_a_run_without_its_state_resumes_or_stop_it(owned: OneFlow, spark: SparkSession) -> None:
    owned.fill(100)
    assert owned.code(spark) == ""
    shutil.rmtree(owned.state)
    owned.fill(50)
    assert main(["plan", str(owned.config)]) == 0
    assert owned.code(spark) == ""
    owned.assert_exact(spark)
    # A log that has lost copied records proves nothing, and two that are empty are copied from their ends on.
    shutil.rmtree(owned.state)
    owned.source.expire(owned.topic, {0: 30, 1: 30})
    assert owned.code(spark) == "MIR-329" and owned.all_copied()
    shutil.rmtree(owned.state)
    owned.source.expire(owned.topic, {0: -1, 1: -1})
    owned.target.expire(owned.remote_topic, {0: -1, 1: -1})
    assert owned.code(spark) == ""
    owned.fill(20)
    assert owned.code(spark) == ""
    assert owned.differences_after({0: 150, 1: 150}) == []


# --- other clusters, a lane that hangs, Spark's checkpoints ---------------------------------------------------------

WRITTEN_BESIDE = ("heartbeats", "source.checkpoints.internal")


@pytest.mark.long
def test_where_another_cluster_stands_behind_an_alias_nothing_is_made_or_copied_nor_done_beside_the_copy(
    spark: SparkSession, flow: OneFlow
) -> None:
    """Neither by one run nor by a continuous one, which ends."""
    flow.fill(400)
    flow.copy(spark)
    swapped = OneFlow(flow.target, flow.source, flow.topic, flow.directory)
    swapped.fill(10)
    error = swapped.run(spark).error
    assert isinstance(error, RefusedError) and "the source cluster has id" in str(error)
    assert not swapped.has_remote_topic()

    beside = ("sync.topic.configs", "emit.heartbeats", "emit.checkpoints")
    swapped.settings = {f"{each}.enabled": "true" for each in beside}
    # Alike by its name, it would get the configs of the source's topic.
    swapped.target.create_topic(swapped.remote_topic, swapped.partitions, retention_ms="86400000")
    before = [read_if_there(swapped.target, topic) for topic in WRITTEN_BESIDE]
    swapped.trigger = "1 second"
    with mirror("run", swapped.config) as running:
        assert running.wait() == 3
    assert "the source cluster has id" in running.output
    with KafkaCluster(ClusterConfig("target", {"bootstrap.servers": swapped.target.bootstrap})) as cluster:
        (configs,) = readable(cluster.topic_configs([swapped.remote_topic], ["retention.ms"])).values()
    assert configs["retention.ms"].value == "86400000"
    assert [read_if_there(swapped.target, topic) for topic in WRITTEN_BESIDE] == before


@pytest.mark.long
def test_sigterm_ends_a_run_whose_lane_hangs_and_the_next_one_completes(spark: SparkSession, flow: OneFlow) -> None:
    flow.fill(400)
    point = CrashPoint(*ABOUT_TO_WRITE, flow.directory / "stopped", "stop")
    with mirror("run", flow.config, crash=point) as running:
        stopped_process(flow.directory / "stopped", 180)
        os.kill(running.pid, signal.SIGTERM)
        assert running.wait(60) == 143
    assert flow.copies() < flow.everything
    flow.copy(spark, exact=True)


def checkpoints(flow: OneFlow) -> List[Path]:
    return list((flow.state / "checkpoints" / "source-target").glob("*"))


@pytest.mark.long
def test_checkpoint_of_a_run_that_was_stopped_or_failed_is_not_left_behind_and_none_is_needed(
    flow: OneFlow, spark: SparkSession
) -> None:
    flow.fill(400)
    flow.trigger = "1 second"
    with flow.running(spark) as ends:
        until(lambda: flow.all_copied() and len(checkpoints(flow)) == 1, 120)
    assert [end.error for end in ends] == [None] and checkpoints(flow) == []
    flow.trigger = "availableNow"
    flow.fill(200)
    flow.copy(spark, exact=True)
    (gone_on_with,) = checkpoints(flow)
    flow.fill(10)
    assert flow.run(spark).error is None and checkpoints(flow) == [gone_on_with]
    flow.create_source_anew(10)
    assert flow.run(spark).error is not None and checkpoints(flow) == []


# --- a folder that cannot be written ---------------------------------------------------------------------------------


# Root may write any folder but one of a file system that refuses: below /proc only Spark's attempt shows it.
@pytest.mark.parametrize("state", ["FILE/state", "/proc/mirror/state"])
def test_run_is_refused_before_it_writes_to_the_target(
    flow: OneFlow, spark: SparkSession, command: Command, state: str
) -> None:
    (flow.directory / "file").write_text("")
    flow.state_address = state.replace("FILE", str(flow.directory / "file"))
    refused = command("run", flow.config, "--once")
    (error,) = [line for line in refused.err.splitlines() if "error: " in line]
    assert refused.code == EXIT_REFUSED and flow.state_address in error
    assert not flow.has_remote_topic()


def test_plan_names_the_state_folder_and_ends_as_the_run_would(flow: OneFlow, command: Command) -> None:
    (flow.directory / "file").write_text("")
    flow.state_address = str(flow.directory / "file" / "state")
    planned = command("plan", flow.config, "--json")
    (document,) = planned.documents
    assert planned.code == EXIT_REFUSED and flow.state_address in document["refusal"]
    assert document["changes"], "the plan is shown all the same"
    flow.state_address = ""
    assert command("plan", flow.config).code == EXIT_OK
    assert not flow.state.exists()
