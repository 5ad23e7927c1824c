"""spark-submit.sh: which connector for which Spark, whose options win, exit codes, and a clean end on SIGTERM."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Dict, List

import pytest

from tests.lab.checkout import ROOT

SCRIPT = str(ROOT / "spark-submit.sh")

# Asks its Python workers once more after the signal: an end that takes the workers along is not a clean one.
JOB = """
import signal, sys, threading
from pyspark.sql import SparkSession
import mirror_lib.errors

spark = SparkSession.builder.getOrCreate()
count = lambda: spark.sparkContext.range(8).map(lambda n: n + 1).sum()
told = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: told.set())
assert count() == 36
print("ready", spark.sparkContext.master, *sys.argv[1:], flush=True)
if "wait" in sys.argv:
    while not told.wait(0.2):
        pass
    print("counted", count(), flush=True)
sys.exit(7)
"""


def environment(**changes: str) -> Dict[str, str]:
    """This Python and its Spark, as the environment that the script uses."""
    inherited = {name: value for name, value in os.environ.items() if name != "MIRROR_JARS_DIR"}
    return {**inherited, "MIRROR_VENV": sys.prefix, **changes}


def fake_spark(home: Path, version: str, scala: str) -> Dict[str, str]:
    """A Spark installation of which only the version can be read."""
    (home / "jars").mkdir(parents=True)
    (home / "jars" / f"spark-core_{scala}-{version}.jar").touch()
    return environment(MIRROR_VENV="", SPARK_HOME=str(home), PYSPARK_PYTHON=sys.executable)


def dry_run(env: Dict[str, str], *options: str) -> List[str]:
    command = [SCRIPT, "--dry-run", *options, "jobs/mirror.py", "my config.yaml"]
    done = subprocess.run(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return shlex.split(done.stdout)


def value_of(command: List[str], option: str) -> str:
    return command[command.index(option) + 1]


@pytest.mark.parametrize(
    ("version", "scala", "connector", "delta"),
    [
        ("3.3.4", "2.12", "spark-sql-kafka-0-10_2.12:3.3.4", "io.delta:delta-core_2.12:2.3.0"),
        ("3.4.4", "2.12", "spark-sql-kafka-0-10_2.12:3.4.4", "io.delta:delta-core_2.12:2.4.0"),
        ("3.5.1-amzn-0", "2.12", "spark-sql-kafka-0-10_2.12:3.5.1", "io.delta:delta-spark_2.12:3.3.2"),
        ("4.1.1", "2.13", "spark-sql-kafka-0-10_2.13:4.1.1", "io.delta:delta-spark_4.1_2.13:4.1.0"),
        ("4.2.0", "2.13", "spark-sql-kafka-0-10_2.13:4.2.0", "io.delta:delta-spark_4.2_2.13:4.4.0"),
    ],
)
def test_connector_and_delta_fit_the_spark_that_runs(
    tmp_path: Path, version: str, scala: str, connector: str, delta: str
) -> None:
    command = dry_run(fake_spark(tmp_path, version, scala), "--packages", "org.example:mine:1")
    assert value_of(command, "--packages").split(",") == ["org.example:mine:1", f"org.apache.spark:{connector}", delta]


def test_folder_of_jars_replaces_every_download(tmp_path: Path) -> None:
    jars = tmp_path / "jars-of-ours"
    jars.mkdir()
    (jars / "a.jar").touch()
    env = {**fake_spark(tmp_path / "spark", "4.1.1", "2.13"), "MIRROR_JARS_DIR": str(jars)}
    command = dry_run(env, "--jars=mine.jar")
    assert "--packages" not in command
    assert value_of(command, "--jars") == f"mine.jar,{jars}/a.jar"


def test_master_is_local_with_retries_unless_the_caller_names_one(tmp_path: Path) -> None:
    env = fake_spark(tmp_path, "4.1.1", "2.13")
    assert value_of(dry_run(env), "--master") == "local[*,4]"
    assert value_of(dry_run(env, "--master", "yarn"), "--master") == "yarn"
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.master   yarn\n")
    assert "--master" not in dry_run(env)


def test_options_of_the_caller_come_after_ours_and_the_job_last(tmp_path: Path) -> None:
    command = dry_run(fake_spark(tmp_path, "4.1.1", "2.13"), "--conf", "spark.ui.enabled=true", "--name", "a b")
    assert command.index("spark.ui.enabled=true") > command.index("spark.ui.enabled=false")
    assert command[-4:] == ["--name", "a b", "jobs/mirror.py", "my config.yaml"]


@pytest.mark.parametrize(
    ("change", "arguments", "sentence"),
    [
        ({}, [], "name a job"),
        ({}, ["jobs/no-such.py"], "there is no job jobs/no-such.py"),
        ({"MIRROR_JARS_DIR": "/no/such/folder"}, ["jobs/mirror.py"], "is not a folder"),
        ({"JAVA_HOME": "/no/such/java"}, ["jobs/mirror.py"], "Java was not found"),
    ],
)
def test_what_is_missing_is_said_in_one_line(change: Dict[str, str], arguments: List[str], sentence: str) -> None:
    command = [SCRIPT, *arguments]
    done = subprocess.run(command, env=environment(**change), cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert sentence in done.stderr and len(done.stderr.splitlines()) == 1


def submit(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    job = tmp_path / "job.py"
    job.write_text(JOB)
    command = [SCRIPT, "--conf", "spark.driver.memory=512m", str(job), *arguments]
    return subprocess.Popen(command, env=environment(), cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_job_gets_its_arguments_and_its_exit_code_comes_back(tmp_path: Path) -> None:
    with submit(tmp_path, "a b", "--json") as running:
        output, _ = running.communicate(timeout=120)
    assert output.splitlines() == ["ready local[*,4] a b --json"]
    assert running.returncode == 7


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_signal_reaches_the_driver_and_leaves_its_workers_alone(tmp_path: Path, signal_number: signal.Signals) -> None:
    with submit(tmp_path, "wait") as running:
        assert running.stdout is not None
        assert running.stdout.readline().startswith("ready")
        running.send_signal(signal_number)
        output, _ = running.communicate(timeout=60)
    assert output.splitlines() == ["counted 36"]
    assert running.returncode == 7
