"""spark-submit.sh: which connector for which Spark, whose options win, exit codes, and a clean end on SIGTERM. `make
clusters`."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, List

import pyspark
import pytest
from confluent_kafka.admin import AdminClient

from mirror_lib.errors import ConfigError
from mirror_lib.spark.java import COLLECTOR, LATE_COMPILER
from mirror_lib.spark.session import REMOTE, refuse_remote
from tests.lab.brokers import free_ports
from tests.lab.checkout import CACHE, ROOT, jars_folder
from tests.lab.jvm import quick_spark

SCRIPT = str(ROOT / "spark-submit.sh")

# Asks its Python workers once more after the signal: an end that takes the workers along is not a clean one.
JOB = """
import signal, sys, threading
from pyspark.sql import SparkSession
import mirror_lib.errors

spark = SparkSession.builder.getOrCreate()
count = lambda: spark.sparkContext.range(8).map(lambda n: n + 1).sum()
stopped = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stopped.set())
assert count() == 36
print("ready", spark.sparkContext.master, *sys.argv[1:], flush=True)
if "wait" in sys.argv:
    while not stopped.wait(0.2):
        pass
    print("counted", count(), flush=True)
sys.exit(7)
"""


def environment(**changes: str) -> Dict[str, str]:
    """This Python and its Spark, as the environment that the script uses."""
    inherited = {name: value for name, value in os.environ.items() if name != "MIRROR_JARS_DIR"}
    return {**inherited, "MIRROR_VENV": sys.prefix, **changes}


def fake_spark(home: Path, version: str, scala: str) -> Dict[str, str]:
    """A Spark installation that has a version and nothing else."""
    (home / "jars").mkdir(parents=True)
    (home / "jars" / f"spark-core_{scala}-{version}.jar").touch()
    return environment(MIRROR_VENV="", SPARK_HOME=str(home), PYSPARK_PYTHON=sys.executable)


def dry_run(env: Dict[str, str], *options: str) -> List[str]:
    command = [SCRIPT, "--dry-run", *options, "jobs/mirror.py", "my config.yaml"]
    done = subprocess.run(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return shlex.split(done.stdout)


def value_of(command: List[str], option: str) -> str:
    return command[command.index(option) + 1]


def refused(env: Dict[str, str], *arguments: str) -> str:
    """What the script prints where it refuses."""
    done = subprocess.run([SCRIPT, *arguments], env=env, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("version", "scala", "connector", "delta"),
    [
        ("3.3.4", "2.12", "spark-sql-kafka-0-10_2.12:3.3.4", "io.delta:delta-core_2.12:2.3.0"),
        ("3.5.1-amzn-0", "2.12", "spark-sql-kafka-0-10_2.12:3.5.1", "io.delta:delta-spark_2.12:3.3.2"),
        ("4.2.0", "2.13", "spark-sql-kafka-0-10_2.13:4.2.0", "io.delta:delta-spark_4.2_2.13:4.4.0"),
    ],
)
def test_connector_and_delta_fit_the_spark_that_runs(
    tmp_path: Path, version: str, scala: str, connector: str, delta: str
) -> None:
    command = dry_run(fake_spark(tmp_path, version, scala), "--packages", "org.example:mine:1")
    assert value_of(command, "--packages").split(",") == ["org.example:mine:1", f"org.apache.spark:{connector}", delta]


def test_folder_of_jars_replaces_every_download_and_is_the_class_path_where_one_jvm_keeps_its_classes(
    tmp_path: Path,
) -> None:
    env = fake_spark(tmp_path / "spark", "4.1.1", "2.13")
    ours, kept, file = tmp_path / "ours", tmp_path / "kept classes.jsa", tmp_path / "p"
    ours.mkdir()
    for path in (*(ours / name for name in ("antlr4-runtime-4.9.3.jar", "a-1.0.jar", "b.jar")), kept):
        path.touch()
    (tmp_path / "spark" / "jars" / "antlr4-runtime-4.13.1.jar").touch()  # Spark has it itself
    file.write_text("spark.driver.extraClassPath mine\n")
    env.update(MIRROR_JARS_DIR=str(ours), MIRROR_CLASSES=str(kept))
    jars, path_option = f"{ours}/a-1.0.jar,{ours}/antlr4-runtime-4.9.3.jar,{ours}/b.jar", "--driver-class-path"
    for master in ("yarn", "local-cluster[2,1,1024]"):
        command = dry_run(env, f"--master={master}", "--jars=mine.jar")
        assert "--packages" not in command and value_of(command, "--jars") == f"mine.jar,{jars}"
    command = dry_run(env, "--jars=mine.jar", "--driver-java-options", "-Xss4m")
    assert value_of(command, path_option) == f"{ours}/a-1.0.jar:{ours}/b.jar"
    assert value_of(command, "--jars") == "mine.jar"
    options = [command[n + 1] for n, word in enumerate(command) if word == "--driver-java-options"]
    assert f'-XX:SharedArchiveFile="{kept}"' in options[0] and LATE_COMPILER in options[0]
    assert options[1:] == ["-Xss4m"]  # Spark takes the last
    without = dry_run({**env, "MIRROR_CLASSES": str(tmp_path / "none.jsa")})
    assert path_option not in without and "Shared" not in value_of(without, "--driver-java-options")
    # The caller's class path stays as it is.
    conf = "spark.driver.extraClassPath=mine"
    for own in ((path_option, "mine"), ("--conf", conf), ("--properties-file", str(file))):
        command = dry_run(env, *own)
        assert command.count(path_option) == (own[0] == path_option) and value_of(command, "--jars") == jars


@pytest.mark.long
def test_javas_collector_is_the_callers_if_there_is_one(tmp_path: Path) -> None:
    for folder, name, text in (
        ("env", "spark-env.sh", '# -XX:+UseG1GC\nexport SPARK_SUBMIT_OPTS="-XX:+UseG1GC"\n'),
        ("opts", "java-opts", "-XX:+UseSerialGC\n"),
        ("conf", "p", "spark.driver.defaultJavaOptions -Xss4m -XX:+UseSerialGC\n"),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text)
    env = {**fake_spark(tmp_path, "4.1.1", "2.13"), "JAVA_TOOL_OPTIONS": "", "SPARK_SUBMIT_OPTS": ""}
    for options, changes, ours in (
        ([], {"JAVA_TOOL_OPTIONS": "-XX:-UseGCOverheadLimit"}, True),
        ([], {"JAVA_TOOL_OPTIONS": "-Xss4m -XX:+UseG1GC"}, False),
        ([], {"SPARK_SUBMIT_OPTS": "-Xss4m -XX:+UseG1GC"}, False),
        (["--conf", "spark.driver.defaultJavaOptions=-XX:+UseZGC"], {}, False),
        ([], {"SPARK_CONF_DIR": str(tmp_path / "env")}, False),
        ([], {"SPARK_CONF_DIR": str(tmp_path / "opts")}, False),
        (["--properties-file", str(tmp_path / "conf" / "p")], {}, False),
    ):
        java = value_of(dry_run({**env, **changes}, *options), "--driver-java-options")
        assert (COLLECTOR in java) is ours, (options, changes)


def test_options_of_the_caller_come_after_ours_and_the_job_last_and_the_master_is_local_without_his(
    tmp_path: Path,
) -> None:
    env = fake_spark(tmp_path, "4.1.1", "2.13")
    command = dry_run(env, "--conf", "spark.ui.enabled=true", "--name", "a b")
    assert command.index("spark.ui.enabled=true") > command.index("spark.ui.enabled=false")
    assert command[-4:] == ["--name", "a b", "jobs/mirror.py", "my config.yaml"]
    assert value_of(dry_run(env), "--master") == "local[*,4]"
    assert value_of(dry_run(env, "--master", "yarn"), "--master") == "yarn"
    assert value_of(dry_run(env, "-c", "spark.master=yarn"), "--master") == "yarn"
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.master   yarn\n")
    assert "--master" not in dry_run(env)


def test_environment_without_a_spark_goes_with_the_one_that_the_caller_names(tmp_path: Path) -> None:
    env, venv = fake_spark(tmp_path / "cluster", "3.3.2", "2.12"), tmp_path / "env"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    assert dry_run({**env, "MIRROR_VENV": str(venv)})[0] == f"{tmp_path}/cluster/bin/spark-submit"
    own = venv / "lib" / "python3.8" / "site-packages" / "pyspark"
    fake_spark(own, "3.5.7", "2.12")
    assert dry_run({**env, "MIRROR_VENV": str(venv)})[0] == f"{own}/bin/spark-submit"


def wrapper(folder: Path) -> Path:
    """What `/usr/bin/spark-submit` is on EMR and HDP: a script that starts the real one, here as a child of its own."""
    real = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    (folder / "bin").mkdir(parents=True)
    script = folder / "bin" / "spark-submit"
    script.write_text(f'#!/bin/sh\nexport SPARK_HOME={real.parents[1]}\n"{real}" "$@"\nexit $?\n')
    script.chmod(0o755)
    return script


def of_the_path(script: Path) -> Dict[str, str]:
    """Neither an environment nor a SPARK_HOME says where Spark is."""
    kept = {name: value for name, value in environment().items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    path = f"{script.parent}{os.pathsep}{os.environ['PATH']}"
    return {**kept, "PATH": path, "MIRROR_VENV": "", "PYSPARK_PYTHON": sys.executable}


@pytest.mark.long
def test_spark_submit_on_the_path_may_be_a_script_that_starts_another(tmp_path: Path) -> None:
    script = wrapper(tmp_path)
    env = {**of_the_path(script), "MIRROR_JARS_DIR": str(jars_folder()), "MIRROR_CLASSES": ""}
    job = tmp_path / "job.py"
    job.write_text(JOB)
    assert dry_run(env)[0] == str(script)
    with subprocess.Popen([SCRIPT, str(job), "wait"], env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline().startswith("ready local[*,4]")
        running.send_signal(signal.SIGTERM)
        output, _ = running.communicate(timeout=60)
    assert (output.splitlines(), running.returncode) == (["counted 36"], 7)


def test_connector_fits_the_spark_that_a_script_reports_and_one_without_a_version_is_not_taken(tmp_path: Path) -> None:
    script = wrapper(tmp_path)
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text("spark.master yarn\n")
    report = f"Spark Command: java -cp {conf}:/usr/lib/spark/jars/*:/etc/hadoop org.apache.spark.deploy.SparkSubmit"
    said = f"{report}\n   version 3.4.1-amzn-2\n\nUsing Scala version 2.12.15, OpenJDK\n"
    script.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{said}END\n")
    command = dry_run(of_the_path(script))
    assert command[0] == str(script)
    assert "--master" not in command  # its own settings name one
    assert value_of(command, "--packages").split(",")[0] == "org.apache.spark:spark-sql-kafka-0-10_2.12:3.4.1"
    script.write_text("#!/bin/sh\nexit 1\n")
    assert dry_run(of_the_path(script))[0] == str(Path(pyspark.__file__).parent / "bin" / "spark-submit")


def cluster_run(tmp_path: Path, *options: str, **changes: str) -> List[str]:
    env = {**fake_spark(tmp_path / "spark", "3.5.7", "2.12"), "MIRROR_VENV": "", **changes}
    return dry_run(env, "--master", "yarn", "--deploy-mode", "cluster", *options)


def confs(command: List[str]) -> Dict[str, str]:
    pairs = [command[i + 1] for i, word in enumerate(command) if word == "--conf"]
    return dict(pair.split("=", 1) for pair in pairs)


def test_driver_on_yarn_gets_the_archives_python_its_log_settings_and_one_attempt(tmp_path: Path) -> None:
    env = {"PYSPARK_PYTHON": "", "PYSPARK_DRIVER_PYTHON": sys.executable}
    command = cluster_run(tmp_path, "--archives", "mirror-env.tar.gz#env", **env)
    assert confs(command)["spark.pyspark.python"] == "./env/bin/python"
    assert confs(command)["spark.yarn.maxAppAttempts"] == "1"
    assert sys.executable not in " ".join(command)
    shipped = [Path(each).name for each in value_of(command, "--files").split(",")]
    options = value_of(command, "--driver-java-options").split()
    assert f"-Dlog4j2.configurationFile={shipped[0]}" in options
    # The Python that the caller names stays.
    command = cluster_run(tmp_path / "b", "--conf", "spark.pyspark.python=/opt/python", PYSPARK_PYTHON="")
    assert confs(command)["spark.pyspark.python"] == "/opt/python"
    command = cluster_run(tmp_path / "c", "--archives", "a.zip#env", PYSPARK_PYTHON="./env/bin/python3.11")
    assert confs(command)["spark.pyspark.python"] == "./env/bin/python3.11"
    # A platform's spark-env.sh may set the variables anew, so a driver here has settings too.
    env = {**fake_spark(tmp_path / "d", "3.5.1", "2.12"), **env}
    here = confs(dry_run(env, "--master", "yarn", "--archives", "a.zip#env"))
    assert here["spark.pyspark.python"] == "./env/bin/python"
    assert here["spark.pyspark.driver.python"] == sys.executable
    here = confs(dry_run(env, "--master", "yarn", "--conf", "spark.pyspark.python=/opt/python"))
    assert here["spark.pyspark.python"] == "/opt/python" and "spark.pyspark.driver.python" not in here


def test_files_named_after_the_job_are_shipped_and_named_as_the_driver_finds_them(tmp_path: Path) -> None:
    env = fake_spark(tmp_path / "spark", "3.5.7", "2.12")
    config, client = tmp_path / "mirror.yaml", tmp_path / "client.properties"
    config.touch()
    client.touch()
    given = [str(config), f"--consumer.config={client}", "--json", str(tmp_path / "absent.yaml")]
    where = ["--master", "yarn", "--deploy-mode", "cluster", "--files", f"keys.jks,{client}"]
    command = dry_run(env, *where, "jobs/mirror.py", *given)
    assert value_of(command, "--files").split(",")[:3] == ["keys.jks", str(client), str(config)]
    at = command.index("jobs/mirror.py")
    expected = ["mirror.yaml", "--consumer.config=client.properties", "--json", str(tmp_path / "absent.yaml")]
    assert command[at + 1 : at + 5] == expected
    # Two files of one name cannot be shipped.
    other = tmp_path / "b" / "client.properties"
    other.parent.mkdir()
    other.touch()
    assert "client.properties" in refused(env, "--dry-run", *where[:4], "jobs/mirror.py", str(client), str(other))


def test_signal_before_yarn_has_the_application_ends_the_submitter(tmp_path: Path) -> None:
    """The script used to end there with 1 and to leave Spark's client alone, which then submitted the application."""
    env, submit = fake_spark(tmp_path, "4.0.0", "2.13"), tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text("#!/bin/sh\necho $$ >&2\nexec sleep 300\n")
    submit.chmod(0o755)
    command = [SCRIPT, "--master", "yarn", "--deploy-mode", "cluster", "jobs/mirror.py"]
    with subprocess.Popen(command, env=env, cwd=ROOT, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        client = int(running.stderr.readline())
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == 143
    assert not Path(f"/proc/{client}").exists()


IN_CLUSTER = ("--dry-run", "--conf", "spark.submit.deployMode=cluster")


@pytest.mark.parametrize(
    ("change", "arguments", "sentence"),
    [
        ({}, [], "name a job"),
        ({"MIRROR_VENV": "", "SPARK_HOME": "/no/spark"}, ["--dry-run", "jobs/mirror.py"], "SPARK_HOME=/no/spark"),
        ({}, ["jobs/no-such.py"], "there is no job jobs/no-such.py"),
        ({"MIRROR_JARS_DIR": "/no/such/folder"}, ["jobs/mirror.py"], "is not a folder"),
        ({"JAVA_HOME": "/no/such/java"}, ["jobs/mirror.py"], "Java was not found"),
        ({}, [*IN_CLUSTER, "--master", "spark://host:7077", "jobs/mirror.py"], "--deploy-mode client"),
        ({}, [*IN_CLUSTER, "--master", "k8s://host", "jobs/mirror.py"], "--deploy-mode client"),
    ],
)
def test_what_cannot_work_is_said_in_one_line(change: Dict[str, str], arguments: List[str], sentence: str) -> None:
    said = refused(environment(**change), *arguments)
    assert sentence in said and len(said.splitlines()) == 1


def submit(tmp_path: Path, *arguments: str, **changes: str) -> subprocess.Popen[str]:
    job = tmp_path / "job.py"
    job.write_text(JOB)
    command = [SCRIPT, "--conf", "spark.driver.memory=512m", str(job), *arguments]
    env = environment(**{"MIRROR_JARS_DIR": str(jars_folder()), "MIRROR_CLASSES": "", **changes})
    return subprocess.Popen(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_job_gets_its_arguments_and_a_signal_that_leaves_its_workers_alone_and_its_exit_code_comes_back(
    tmp_path: Path, signal_number: signal.Signals
) -> None:
    damaged = tmp_path / "damaged.jsa"
    damaged.write_text("not Java's")
    # A terminal's width cuts the lines of `ps`, in which the script looks for the driver.
    with submit(tmp_path, "wait", "a b", "--json", MIRROR_CLASSES=str(damaged), COLUMNS="80") as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready local[*,4] wait a b --json\n"
        running.send_signal(signal_number)
        output, _ = running.communicate(timeout=60)
    assert output.splitlines() == ["counted 36"]
    assert running.returncode == 7


@pytest.mark.parametrize("name", REMOTE)
def test_environment_of_a_remote_session_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){name}.*SINGLE_USER"):
        refuse_remote({name: "sc://here"})
    refuse_remote({name: ""})


INTERRUPTED = """
import signal
import sys
from py4j.protocol import Py4JNetworkError
from mirror_lib.spark.session import running_session
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
    print("stopped")
"""


@pytest.mark.long
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
    assert (output, running.returncode) == ("stopped\n", 0)


PROGRAM = """\
from mirror_lib.spark.session import running_session
for name in ("one", "another"):
    with running_session(name) as session:
        out = session._jvm.java.lang.System.out
        out.println("Deleted 0 files and directories in a total of 1 directories.")
        out.println(name)
    out.println("Exception in a thread of Spark's that noticed its end")
print("a document", flush=True)
"""


@pytest.mark.long
def test_java_prints_to_standard_error_without_noise_and_nothing_once_it_ends(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "a document\n"
    assert done.stderr.splitlines() == ["one", "another"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_clusters_to_try_things_on_are_filled_and_end_with_ctrl_c() -> None:
    ports, kept = free_ports(2), set(CACHE.glob("clusters-*"))
    environ = {**os.environ, "PORTS": f"{ports[0]} {ports[1]}"}
    command = [sys.executable, "-m", "tests.lab.demo", "clusters"]
    with subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True) as lab:
        assert lab.stdout is not None
        assert lab.stdout.readline().startswith(f"localhost:{ports[0]}: primary, with orders")
        topics = AdminClient({"bootstrap.servers": f"localhost:{ports[0]}"}).list_topics(timeout=30).topics
        assert {"orders", "payments.card"} <= set(topics)
        lab.send_signal(signal.SIGINT)
    assert lab.returncode == 0
    assert set(CACHE.glob("clusters-*")) == kept
