"""A damaged, older or missing state folder: the next run makes an exact copy, or is refused and the steps of
docs/fix/state.md make one."""

from __future__ import annotations

import copy
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List

import pytest

from mirror_lib.cli import main
from mirror_lib.errors import EXIT_OK
from tests.lab.brokers import KafkaBroker
from tests.lab.checkout import ROOT
from tests.lab.crash import CrashPoint, run_mirror
from tests.lab.damage import CASES, cut, damage
from tests.lab.one_flow import ABOUT_TO_WRITE, NewFlow, OneFlow, until

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
def killed(
    both_clusters: List[KafkaBroker], tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> OneFlow:
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
    killed: OneFlow, whole: OneFlow, spark: SparkSession, name: str
) -> None:
    """The ledger is older than the remote log each time: that of the kill, then of every case before."""
    lost = damage(whole.state / "offset_syncs", name)
    copied = whole.copies()
    if not lost:
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
def test_damaged_ledger_is_reported_by_one_message(flow: OneFlow, spark: SparkSession) -> None:
    """Spark logged twenty lines before it: each attempt of each task."""
    flow.fill(20)
    flow.copy(spark)
    cut(0)(flow.state / "offset_syncs")
    ended = subprocess.run(
        [sys.executable, "-m", "mirror_lib.cli", "run", str(flow.config), "--once"],
        cwd=ROOT, capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    assert ended.returncode == 1 and "MIR-401" in ended.stderr and " ERROR " not in ended.stderr


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
@pytest.mark.parametrize("settings", [{**ROWS, "provenance": "off"}, {**KEYED, **SHARED}], ids=str)
def test_flow_that_needs_a_backup_of_its_ledger_copies_records_again_without_it(
    flow: OneFlow, spark: SparkSession, settings: Dict[str, Any]
) -> None:
    """Why the page excepts these flows: nothing on the remote topic shows what they copied. A batch lane of a shared
    remote topic mostly gets its old producer id again, so it has no control: only a target that forgot the
    transactional id gives another one."""
    flow.settings = settings
    flow.fill(100)
    flow.copy(spark)
    shutil.rmtree(flow.state / "offset_syncs")
    flow.copy(spark)
    assert flow.copies() == 2 * 100 * flow.partitions


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
