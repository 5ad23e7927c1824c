"""Executors of their own. A standalone Spark cluster: the README's command on a fresh one, what the preflight refuses,
a worker that is lost for good. The image of Kubernetes without a pod: `local-cluster`, and a folder for the image's
`/opt`."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Dict, Iterator, List

import pytest
import yaml
from pyspark.sql import SparkSession
from pyspark.sql.utils import AnalysisException  # type: ignore[attr-defined]  # Spark 3.3 has no pyspark.errors

from mirror_lib.errors import EXIT_OK, EXIT_REFUSED
from tests.lab.checkout import ROOT, jars_folder
from tests.lab.one_flow import NewFlow, OneFlow, until
from tests.lab.processes import kill_tree
from tests.lab.submitted import JOB, SMALL, SPARK_HOME, Standalone, environment, standalone, submit, submitted

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("standalone"), workers=2) as started:
        yield started


@pytest.fixture
def flow(new_flow: NewFlow) -> OneFlow:
    return new_flow("standalone")


def options(cluster: Standalone) -> List[str]:
    return ["--master", cluster.master, *SMALL]


def assert_untouched(flow: OneFlow) -> None:
    assert not flow.has_remote_topic()
    assert not list(flow.state.glob("*")) and not list(flow.state.glob(".preflight*"))


def test_command_of_the_readme_copies_on_a_fresh_cluster(
    cluster: Standalone, flow: OneFlow, spark: SparkSession
) -> None:
    flow.fill()
    ended = submit(flow.directory, *options(cluster), config=flow.config)
    assert ended.code == 0, ended.text
    flow.assert_exact(spark)
    assert not list(flow.state.glob(".preflight*"))
    assert "on 4 slots" in ended.text  # of two workers with two cores, counted once they were there


@pytest.mark.parametrize("there", [False, True], ids=["no such program", "no packages"])
def test_executors_python_that_cannot_copy_is_refused_before_a_topic_is_created(
    cluster: Standalone, flow: OneFlow, tmp_path: Path, there: bool
) -> None:
    flow.fill(10)
    python = str(tmp_path / "bare" / "bin" / "python")
    if there:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    ended = submit(flow.directory, *options(cluster), config=flow.config, PYSPARK_PYTHON=python)
    assert ended.code == EXIT_REFUSED, ended.text
    assert "PYSPARK_PYTHON" in ended.text and python in ended.text
    assert_untouched(flow)


def elsewhere(script: Path, change: str, command: str) -> str:
    """A program that runs `command` where `change` was made to the files that it sees, and to no other client's."""
    if subprocess.run(["unshare", "-m", "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("this user may not have a mount namespace of its own")
    script.write_text(f'#!/bin/sh\nexec unshare -m sh -c \'{change} && exec {command} "$@"\' sh "$@"\n')
    script.chmod(0o755)
    return str(script)


def test_broker_that_only_the_driver_reaches_is_refused(cluster: Standalone, flow: OneFlow, tmp_path: Path) -> None:
    flow.fill(10)
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.99 localhost\n")
    python = elsewhere(tmp_path / "python", f"mount --bind {hosts} /etc/hosts", sys.executable)
    config = flow.config
    config.write_text(config.read_text().replace(flow.target.bootstrap, f"localhost:{flow.target.port}"))
    ended = submit(flow.directory, *options(cluster), config=config, PYSPARK_PYTHON=python)
    assert ended.code == EXIT_REFUSED, ended.text
    assert "cannot use the cluster target" in ended.text
    assert "cannot use the cluster source" not in ended.text
    assert_untouched(flow)


def test_state_on_a_disk_of_one_machine_is_refused(tmp_path: Path, flow: OneFlow) -> None:
    flow.fill(10)
    flow.state.mkdir()
    other = elsewhere(tmp_path / "machine", f"mount -t tmpfs none {flow.state}", "env")
    with standalone(tmp_path / "standalone", workers=0) as cluster:
        cluster.start_worker([other])
        ended = submit(flow.directory, *options(cluster), config=flow.config)
    assert ended.code == EXIT_REFUSED, ended.text
    assert str(flow.state) in ended.text
    assert_untouched(flow)


SECONDS = 240.0


def test_tail_goes_on_where_a_worker_is_lost_and_not_replaced(
    new_flow: NewFlow, spark: SparkSession, tmp_path: Path
) -> None:
    """The ledger's commit never starves: a tail whose Spark loses slots for good continues with those that are left."""
    flow = new_flow("slots", settings={"tasks.max": 2}, trigger="1 second", records=100)
    log = tmp_path / "submitted.log"  # Spark merges the driver's streams

    def waits() -> bool:
        lines = log.read_text().splitlines(keepends=True)
        documents: List[Dict[str, object]] = [json.loads(each) for each in lines if re.match(r"\{.*\}\n", each)]
        return any(each.get("waiting") == "waiting for records" for each in documents)

    def in_the_ledger() -> bool:
        # Not `isDeltaTable`, which remembers for an hour that a folder had no first commit yet.
        try:
            return sum(row[3] for row in flow.ledger(spark)) == flow.everything
        except AnalysisException:
            return False

    with standalone(tmp_path / "spark") as cluster, submitted(
        log, "--master", cluster.master, *SMALL, JOB, str(flow.config), "--json", env=environment()
    ) as running:
        until(flow.all_copied, SECONDS)
        flow.fill(20)
        until(waits, SECONDS)  # it tails, with both of its tasks on either executor
        kill_tree(cluster.processes[-1].pid)
        for _ in range(2):
            flow.fill(100)
            until(lambda: flow.all_copied() and in_the_ledger(), SECONDS)
        running.send_signal(signal.SIGTERM)
        assert running.wait(120) == EXIT_OK
    flow.assert_exact(spark)


KUBERNETES = ROOT / "conf" / "deploy" / "kubernetes"


def image_spark(folder: Path) -> Path:
    """Spark's home in the image: what the Dockerfile copies to its jars lies next to Spark's own."""
    home, jars = folder / "spark", folder / "spark" / "jars"
    jars.mkdir(parents=True)
    for path in SPARK_HOME.iterdir():
        if path.name != "jars":
            (home / path.name).symlink_to(path)
    text = (KUBERNETES / "Dockerfile").read_text()
    copied = re.findall(r"^COPY \.cache/\S+ /opt/spark/jars$", text, re.MULTILINE)
    removed = re.findall(r"^RUN rm /opt/spark/jars/(\S+)$", text, re.MULTILINE)
    for source in (SPARK_HOME / "jars", *(jars_folder() for _ in copied)):
        for jar in source.glob("*.jar"):
            if jar.name not in removed and not (jars / jar.name).exists():
                (jars / jar.name).symlink_to(jar)
    return home


@pytest.mark.parametrize("whole", [True, False], ids=["image", "image without the jars"])
def test_application_copies_with_the_jars_of_its_image(
    new_flow: NewFlow, spark: SparkSession, tmp_path: Path, whole: bool
) -> None:
    flow = new_flow("image", records=100)
    spec = yaml.safe_load((KUBERNETES / "scheduled-spark-application.yaml").read_text())["spec"]["template"]
    home = image_spark(tmp_path) if whole else SPARK_HOME
    settings = [word for name, value in spec["sparkConf"].items() for word in ("--conf", f"{name}={value}")]
    job = str(ROOT / "jobs" / Path(spec["mainApplicationFile"]).name)
    command = [str(home / "bin" / "spark-submit"), "--master", "local-cluster[2,1,1024]", *SMALL, *settings, job]
    environ = environment(SPARK_HOME=str(home), PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable)
    ran = subprocess.run(
        [*command, str(flow.config), *spec["arguments"][1:]],
        env=environ,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
    )
    assert (ran.returncode == 0) == whole, ran.stdout
    if whole:
        flow.assert_exact(spark)
