"""A job by `spark-submit.sh` in a process of its own, with the environment of a user's shell; and a standalone Spark
cluster on loopback for it: a master and workers from this environment's Spark, each a Java process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Iterator, List, Sequence
from urllib.error import URLError
from urllib.request import urlopen

import pyspark

from tests.lab.brokers import background, end_with_parent, free_ports
from tests.lab.checkout import ROOT, jars_folder
from tests.lab.jvm import QUICK, quick_spark
from tests.lab.one_flow import until
from tests.lab.processes import descendants, kill_tree

SCRIPT = str(ROOT / "spark-submit.sh")
JOB = str(ROOT / "jobs" / "mirror.py")
# Of the test's own process, and no part of a user's shell.
INHERITED = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME", "SPARK_SUBMIT_OPTS", "PYTHONPATH")


@dataclass(frozen=True)
class Ended:
    """`text` is all that it printed: Spark merges the driver's streams."""

    code: int
    text: str


def environment(**changes: str) -> Dict[str, str]:
    """A user's, with this Python and its Spark as `.venv`."""
    kept = {name: value for name, value in os.environ.items() if name not in INHERITED}
    own = {"MIRROR_VENV": sys.prefix, "MIRROR_JARS_DIR": str(jars_folder())}
    return {**kept, **own, **quick_spark(), "SPARK_LOCAL_IP": "127.0.0.1", **changes}


@contextmanager
def submitted(log: Path, *command: str, env: Dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """The job while it runs; what it prints goes to `log`."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            [SCRIPT, *command], env=env, cwd=log.parent, stdout=out, stderr=out, preexec_fn=end_with_parent
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(120)


def submit(directory: Path, *options: str, config: Path, extra: Sequence[str] = (), **changes: str) -> Ended:
    log = directory / "submitted.log"
    log.write_bytes(b"")
    with submitted(log, *options, JOB, str(config), *extra, env=environment(**changes)) as process:
        code = process.wait(600)
    return Ended(code, log.read_text(errors="replace"))


SPARK_HOME = Path(pyspark.__file__).parent
READY_SECONDS = 180.0
# What a test's job asks for, so that two workers fit on a small machine.
SMALL = (
    *("--conf", "spark.executor.memory=512m", "--conf", "spark.driver.memory=768m"),
    *("--conf", f"spark.executor.extraJavaOptions={' '.join(QUICK)}"),
)


@dataclass
class Standalone:
    """`master` is its URL. A worker has two cores, and each gives one executor to an application."""

    directory: Path
    port: int
    page: int
    processes: List[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def start_worker(self, before: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """`before` is a command that runs it, such as `unshare -m`. It is registered when this returns."""
        name, there = f"worker-{len(self.processes)}", self.workers()
        size = ["--cores", "2", "--memory", "2g", "--webui-port", "0"]
        folder = ["--work-dir", str(self.directory / name)]
        process = self._start(name, ["worker.Worker", *size, *folder, self.master], before)
        until(lambda: self.workers() > there, READY_SECONDS)
        return process

    def workers(self) -> int:
        """How many are alive by what the master says; -1 while it does not answer."""
        try:
            with urlopen(f"http://127.0.0.1:{self.page}/json/", timeout=5) as answer:
                return int(json.load(answer)["aliveworkers"])
        except (URLError, OSError, ValueError):
            return -1

    def stop(self) -> None:
        for process in reversed(self.processes):
            kill_tree(process.pid)
            process.wait()

    def _start(self, name: str, what: Sequence[str], before: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        role, *options = what
        command = [*before, str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}"]
        command += ["--host", "127.0.0.1", *options]
        env = {**os.environ, "SPARK_HOME": str(SPARK_HOME), "SPARK_DAEMON_JAVA_OPTS": " ".join(QUICK)}
        env.update({"SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": "127.0.0.1"})
        # SIGPWR then decommissions a worker.
        env["SPARK_WORKER_OPTS"] = "-Dspark.decommission.enabled=true"
        process = background(command, self.directory / f"{name}.log", env=env)
        self.processes.append(process)
        return process


def executors_of(pid: int) -> List[int]:
    return [each for each, args in descendants(pid).items() if "CoarseGrainedExecutorBackend" in args]


@contextmanager
def standalone(directory: Path, workers: int = 2) -> Iterator[Standalone]:
    directory.mkdir(parents=True, exist_ok=True)
    port, page = free_ports(2)
    cluster = Standalone(directory, port, page)
    try:
        cluster._start("master", ["master.Master", "--port", str(port), "--webui-port", str(page)])
        until(lambda: cluster.workers() == 0, READY_SECONDS)
        for _ in range(workers):
            cluster.start_worker()
        yield cluster
    finally:
        cluster.stop()
