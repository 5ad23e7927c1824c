"""spark-submit.sh: which connector for which Spark, whose options win, exit codes, and a clean end on SIGTERM."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, List, Sequence, Tuple

import pytest

from mirror_lib.driver_java import COLLECTOR, LATE_COMPILER
from tests.lab.checkout import ROOT, jars_folder
from tests.lab.jvm import quick_spark

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


def folder_of_jars(tmp_path: Path, *names: str) -> Dict[str, str]:
    """A Spark that has antlr itself, and a folder of jars for it."""
    env = fake_spark(tmp_path / "spark", "4.1.1", "2.13")
    (tmp_path / "spark" / "jars" / "antlr4-runtime-4.13.1.jar").touch()
    jars = tmp_path / "jars-of-ours"
    jars.mkdir()
    for name in names:
        (jars / name).touch()
    kept = tmp_path / "kept.jsa"
    kept.touch()
    return {**env, "MIRROR_JARS_DIR": str(jars), "MIRROR_CLASSES": str(kept)}


def test_folder_of_jars_replaces_every_download(tmp_path: Path) -> None:
    env = folder_of_jars(tmp_path, "a-1.0.jar")
    for master in ("yarn", "local-cluster[2,1,1024]"):
        command = dry_run(env, f"--master={master}", "--jars=mine.jar")
        assert "--packages" not in command
        assert value_of(command, "--jars") == f"mine.jar,{env['MIRROR_JARS_DIR']}/a-1.0.jar"


def test_where_one_jvm_keeps_its_classes_its_class_path_has_the_jars_that_spark_lacks(tmp_path: Path) -> None:
    env = folder_of_jars(tmp_path, "antlr4-runtime-4.9.3.jar", "a-1.0.jar", "b.jar")
    command = dry_run(env, "--jars=mine.jar")
    assert value_of(command, "--driver-class-path") == "{0}/a-1.0.jar:{0}/b.jar".format(env["MIRROR_JARS_DIR"])
    assert value_of(command, "--jars") == "mine.jar"
    assert "--driver-class-path" not in dry_run({**env, "MIRROR_CLASSES": ""})


@pytest.mark.parametrize(
    "own", [("--driver-class-path", "mine"), ("--conf", "spark.driver.extraClassPath=mine"), ("--properties-file", "p")]
)
def test_class_path_of_the_caller_stays_as_it_is(tmp_path: Path, own: Tuple[str, str]) -> None:
    env = folder_of_jars(tmp_path, "a-1.0.jar")
    (tmp_path / "p").write_text("spark.driver.extraClassPath mine\n")
    command = dry_run(env, own[0], own[1].replace("p", str(tmp_path / "p")) if own[1] == "p" else own[1])
    assert [option for option in command if "class-path" in option] == [own[0]] * (own[0] == "--driver-class-path")
    assert value_of(command, "--jars") == f"{env['MIRROR_JARS_DIR']}/a-1.0.jar"


def test_classes_that_were_kept_are_used_where_the_driver_runs_here(tmp_path: Path) -> None:
    kept = tmp_path / "kept classes.jsa"
    env = {**fake_spark(tmp_path, "4.1.1", "2.13"), "MIRROR_CLASSES": str(kept)}
    used = f'-XX:SharedArchiveFile="{kept}"'
    assert used not in value_of(dry_run(env), "--driver-java-options")
    kept.touch()
    assert used in value_of(dry_run(env), "--driver-java-options")
    assert "--driver-java-options" not in dry_run(env, "--deploy-mode", "cluster")


def test_jobs_leave_only_hot_code_to_javas_second_compiler_unless_the_caller_gives_java_options(tmp_path: Path) -> None:
    env, name = fake_spark(tmp_path, "4.1.1", "2.13"), "--driver-java-options"
    for job in ("jobs/mirror.py", "jobs/translate_offsets.py"):
        assert LATE_COMPILER in value_of(dry_run(env, job), name)
    command = dry_run(env, name, "-Xss4m")
    assert command[len(command) - command[::-1].index(name)] == "-Xss4m"  # Spark takes the last


@pytest.mark.parametrize("name", ["JAVA_TOOL_OPTIONS", "SPARK_SUBMIT_OPTS"])
def test_javas_collector_is_the_callers_if_there_is_one(tmp_path: Path, name: str) -> None:
    env, given = fake_spark(tmp_path, "4.1.1", "2.13"), "--driver-java-options"
    env = {key: value for key, value in env.items() if key not in ("JAVA_TOOL_OPTIONS", "SPARK_SUBMIT_OPTS")}
    assert COLLECTOR in value_of(dry_run(env), given)
    assert COLLECTOR in value_of(dry_run({**env, name: "-XX:-UseGCOverheadLimit"}), given)
    assert COLLECTOR not in value_of(dry_run({**env, name: "-Xss4m -XX:+UseG1GC"}), given)
    assert COLLECTOR not in value_of(dry_run(env, "--conf", "spark.driver.defaultJavaOptions=-XX:+UseZGC"), given)
    (tmp_path / "spark-env.sh").write_text('# -XX:+UseG1GC\nexport SPARK_SUBMIT_OPTS="-XX:+UseG1GC"\n')
    assert COLLECTOR not in value_of(dry_run({**env, "SPARK_CONF_DIR": str(tmp_path)}), given)
    (tmp_path / "opts").mkdir()
    (tmp_path / "opts" / "java-opts").write_text("-XX:+UseSerialGC\n")
    assert COLLECTOR not in value_of(dry_run({**env, "SPARK_CONF_DIR": str(tmp_path / "opts")}), given)
    (tmp_path / "p").write_text("spark.driver.defaultJavaOptions -Xss4m -XX:+UseSerialGC\n")
    assert COLLECTOR not in value_of(dry_run(env, "--properties-file", str(tmp_path / "p")), given)


def test_master_is_local_with_retries_unless_the_caller_names_one(tmp_path: Path) -> None:
    env = fake_spark(tmp_path, "4.1.1", "2.13")
    assert value_of(dry_run(env), "--master") == "local[*,4]"
    assert value_of(dry_run(env, "--master", "yarn"), "--master") == "yarn"
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.master   yarn\n")
    assert "--master" not in dry_run(env)


def environment_of_python(folder: Path) -> Path:
    """One with this Python and without a pyspark."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    return folder


def test_environment_without_a_spark_goes_with_the_one_that_the_caller_names(tmp_path: Path) -> None:
    env, venv = fake_spark(tmp_path / "cluster", "3.3.2", "2.12"), environment_of_python(tmp_path / "env")
    command = dry_run({**env, "MIRROR_VENV": str(venv)})
    assert command[0] == f"{tmp_path}/cluster/bin/spark-submit"
    own = venv / "lib" / "python3.8" / "site-packages" / "pyspark"
    fake_spark(own, "3.5.7", "2.12")
    assert dry_run({**env, "MIRROR_VENV": str(venv)})[0] == f"{own}/bin/spark-submit"


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


def submit(tmp_path: Path, *arguments: str, options: Sequence[str] = (), **changes: str) -> subprocess.Popen[str]:
    job = tmp_path / "job.py"
    job.write_text(JOB)
    command = [SCRIPT, *options, "--conf", "spark.driver.memory=512m", str(job), *arguments]
    env = environment(**{"MIRROR_JARS_DIR": str(jars_folder()), "MIRROR_CLASSES": "", **changes})
    return subprocess.Popen(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_job_gets_its_arguments_and_its_exit_code_comes_back(tmp_path: Path) -> None:
    with submit(tmp_path, "a b", "--json") as running:
        output, _ = running.communicate(timeout=120)
    assert output.splitlines() == ["ready local[*,4] a b --json"]
    assert running.returncode == 7


def test_classes_that_a_job_loaded_need_not_be_loaded_by_the_next_one(tmp_path: Path) -> None:
    loaded, changes = tmp_path / "loaded.txt", {"MIRROR_CLASSES": str(tmp_path / "classes.jsa")}
    delta = "io.delta.sql.DeltaSparkSessionExtension source: shared objects file"
    changes["SPARK_SUBMIT_OPTS"] = f"-XX:TieredStopAtLevel=1 -Xlog:class+load:file={loaded}"
    for options, from_archive in ((["--keep-classes"], False), ([], True)):
        with submit(tmp_path, options=options, **changes) as running:
            output, _ = running.communicate(timeout=120)
        assert output.splitlines() == ["ready local[*,4]"]
        assert running.returncode == 7
        assert (delta in loaded.read_text()) is from_archive


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_signal_reaches_the_driver_and_leaves_its_workers_alone(tmp_path: Path, signal_number: signal.Signals) -> None:
    damaged = tmp_path / "damaged.jsa"
    damaged.write_text("not Java's")
    with submit(tmp_path, "wait", MIRROR_CLASSES=str(damaged)) as running:
        assert running.stdout is not None
        assert running.stdout.readline().startswith("ready")
        running.send_signal(signal_number)
        output, _ = running.communicate(timeout=60)
    assert output.splitlines() == ["counted 36"]
    assert running.returncode == 7


INTERRUPTED = """
import signal
import sys
from py4j.protocol import Py4JNetworkError
from mirror_lib.session import running_session
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
try:
    with running_session("interrupted") as spark:
        print("ready", flush=True)
        try:
            spark.range(10 ** 13).selectExpr("sum(hash(id))").collect()
        finally:
            if sys.argv[1] == "and-java-does-not-answer-behind-it":
                raise Py4JNetworkError("Answer from Java side is empty")
except KeyboardInterrupt:
    print("told")
"""


@pytest.mark.parametrize("then", ["only", "and-java-does-not-answer-behind-it"])
def test_ctrl_c_ends_a_command_that_waits_for_spark(then: str) -> None:
    """Spark's own handler asks Java to cancel its jobs, which fails while the command's question is open. On a Ctrl-C
    Java may close the connection of a question that pyspark asks on the way out, too."""
    command, env = [sys.executable, "-c", INTERRUPTED, then], {**os.environ, **quick_spark()}
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=env) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        time.sleep(1)  # for the question to be open; the answer would take hours
        running.send_signal(signal.SIGINT)
        output, _ = running.communicate(timeout=60)
    assert (output, running.returncode) == ("told\n", 0)
