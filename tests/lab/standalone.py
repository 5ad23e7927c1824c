"""A standalone Spark cluster on loopback: a master and workers from this environment's Spark, each a Java process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Iterator, List, Sequence
from urllib.error import URLError
from urllib.request import urlopen

import pyspark

from tests.lab.brokers import background
from tests.lab.jvm import QUICK
from tests.lab.one_flow import until
from tests.lab.ports import free_ports

SPARK_HOME = Path(pyspark.__file__).parent
READY_SECONDS = 180.0
# What a test's job asks for, so that two workers fit on a small machine.
SMALL = (
    *("--conf", "spark.executor.memory=512m", "--conf", "spark.driver.memory=768m"),
    *("--conf", f"spark.executor.extraJavaOptions={' '.join(QUICK)}"),
)


@dataclass
class Standalone:
    """`master` is its URL. A worker has `cores` cores, and each gives one executor to an application."""

    directory: Path
    port: int
    page: int
    cores: int = 2
    processes: List[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def start_master(self) -> None:
        self._start("master", ["master.Master", "--port", str(self.port), "--webui-port", str(self.page)])
        until(lambda: self.workers() == 0, READY_SECONDS)

    def start_worker(self, before: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """`before` is a command that runs it, such as `unshare -m`. It is registered when this returns."""
        name, there = f"worker-{len(self.processes)}", self.workers()
        size = ["--cores", str(self.cores), "--memory", "2g", "--webui-port", "0"]
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
        process = background(command, self.directory / f"{name}.log", own_session=False, env=env)
        self.processes.append(process)
        return process


def java_of(pid: int) -> int:
    """The JVM that a driver's process started."""
    return next(each for each, args in descendants(pid).items() if "java" in args.split(" ")[0])


def executors_of(pid: int) -> List[int]:
    """The executors below a worker's process."""
    return [each for each, args in descendants(pid).items() if "CoarseGrainedExecutorBackend" in args]


def descendants(pid: int) -> Dict[int, str]:
    """The command line of each process below `pid`."""
    table = ["ps", "-A", "-ww", "-o", "pid=,ppid=,args="]
    listed = subprocess.run(table, stdout=subprocess.PIPE, text=True, check=True)
    rows = [line.split(None, 2) for line in listed.stdout.splitlines()]
    found: Dict[int, str] = {}
    below = {pid}
    while below:
        children = {int(row[0]): row[2] if len(row) > 2 else "" for row in rows if int(row[1]) in below}
        found.update(children)
        below = set(children)
    return found


def kill_tree(pid: int) -> None:
    """`kill -9` of a process and of all below it."""
    for each in (pid, *descendants(pid)):
        try:
            os.kill(each, signal.SIGKILL)
        except ProcessLookupError:
            continue


@contextmanager
def standalone(directory: Path, workers: int = 2, cores: int = 2) -> Iterator[Standalone]:
    """A cluster with so many workers; all of it is gone on the way out."""
    directory.mkdir(parents=True, exist_ok=True)
    port, page = free_ports(2)
    cluster = Standalone(directory, port, page, cores)
    try:
        cluster.start_master()
        for _ in range(workers):
            cluster.start_worker()
        yield cluster
    finally:
        cluster.stop()
