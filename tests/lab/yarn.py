"""YARN and HDFS of the Hadoop that this environment's Spark brings: one Java process, and containers below it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Dict, Iterator, List
from xml.etree import ElementTree

import pyspark

from tests.lab.brokers import java_command
from tests.lab.checkout import CACHE, ROOT, LabError, jars_folder
from tests.lab.ivy import Module, fetched
from tests.lab.java_class import program
from tests.lab.jvm import QUICK
from tests.lab.processes import descendants, kill_tree

SPARK_HOME = Path(pyspark.__file__).parent
NODES, NODE_MEGABYTES = 2, 4096
# Hadoop's web applications define classes by Java's own ClassLoader.
OPENED = "--add-opens=java.base/java.lang=ALL-UNNAMED"
# What a test's job asks for. Its Spark is on every node, so nothing of it is uploaded.
SMALL = (
    *("--master", "yarn", "--conf", f"spark.yarn.jars=local:{SPARK_HOME}/jars/*"),
    *("--conf", "spark.driver.memory=1g", "--conf", "spark.executor.memory=512m"),
    *("--conf", "spark.executor.instances=2", "--conf", "spark.executor.cores=2"),
    *("--conf", f"spark.executor.extraJavaOptions={' '.join(QUICK)}"),
    *("--conf", "spark.yarn.appMasterEnv.SPARK_LOCAL_IP=127.0.0.1"),
    *("--conf", "spark.executorEnv.SPARK_LOCAL_IP=127.0.0.1"),
)


def hadoop_version() -> str:
    jar = next(SPARK_HOME.glob("jars/hadoop-client-api-*.jar"))
    return jar.stem.rpartition("-")[2]


def hadoop_jars() -> Path:
    """The folder of the minicluster's jars. Raises `LabError` where they cannot be fetched."""
    version = hadoop_version()
    wanted = [
        *(Module("org.apache.hadoop", f"hadoop-client-{part}", version, False) for part in ("api", "runtime")),
        Module("org.apache.hadoop", "hadoop-client-minicluster", version, False),
        # What the minicluster's jar neither holds nor names.
        Module("org.mockito", "mockito-core", "4.11.0"),
        Module("junit", "junit", "4.13.2"),
        Module("commons-logging", "commons-logging", "1.2", False),
        Module("org.bouncycastle", "bcpkix-jdk18on", "1.78.1"),
        Module("org.glassfish.jaxb", "jaxb-runtime", "2.3.2"),
        Module("org.slf4j", "slf4j-reload4j", "1.7.36"),
    ]
    return fetched(f"hadoop-{version}", wanted, f"hadoop-client-minicluster-{version}.jar")


@dataclass(frozen=True)
class Yarn:
    """A running cluster. `hdfs` is the address of its file system, `conf` is HADOOP_CONF_DIR."""

    directory: Path
    process: subprocess.Popen[str]

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def conf(self) -> Path:
        return self.directory / "conf"

    @property
    def hdfs(self) -> str:
        settings = ElementTree.parse(self.conf / "yarn-site.xml").getroot()
        return next(each.findtext("value", "") for each in settings if each.findtext("name") == "fs.defaultFS")

    @property
    def environment(self) -> Dict[str, str]:
        return {"HADOOP_CONF_DIR": str(self.conf), "JAVA_HOME": java_home()}

    def kill_application(self, application: str) -> None:
        self._hadoop("yarn.client.cli.ApplicationCLI", "application", "-kill", application)

    def executors(self) -> List[int]:
        return self._containers("YarnCoarseGrainedExecutorBackend")

    def drivers(self) -> List[int]:
        return self._containers("org.apache.spark.deploy.yarn.ApplicationMaster")

    def lose_a_node(self) -> None:
        """One that runs executors and no driver is gone, as when its machine is."""
        of_drivers = {self._node(pid) for pid in self.drivers()}
        lost = {pid: self._node(pid) for pid in self.executors() if self._node(pid) not in of_drivers}
        node = next(iter(lost.values()))
        for pid in [pid for pid, on in lost.items() if on == node]:
            kill_tree(pid)
        assert self.process.stdin is not None
        self.process.stdin.write(f"stop {node}\n")
        self.process.stdin.flush()

    def _node(self, pid: int) -> int:
        """The NodeManager of a container, which has a folder of that one's."""
        (number,) = set(re.findall(r"-localDir-nm-(\d+)_", descendants(self.pid)[pid]))
        return int(number)

    def upload(self, file: Path) -> str:
        address = f"{self.hdfs}/{file.name}"
        self._hadoop("fs.FsShell", "-put", "-f", str(file), address)
        return address

    def _hadoop(self, tool: str, *words: str) -> None:
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.hadoop.{tool}", *words]
        subprocess.run(command, env={**os.environ, **self.environment}, capture_output=True, check=True, timeout=120)

    def logs(self) -> str:
        found = sorted(self.directory.glob("yarn/*/*/*-logDir-*/application_*/container_*/std*"))
        return "\n".join(f"== {path.parent.name} {path.name}\n{path.read_text(errors='replace')}" for path in found)

    def _containers(self, program: str) -> List[int]:
        commands = descendants(self.pid).items()
        return [pid for pid, each in commands if each.partition(" ")[0].endswith("/java") and program in each]


def application_of(log: Path) -> str:
    return str(re.findall(r"Submitted application (application_\d+_\d+)", log.read_text(errors="replace"))[-1])


def java_home() -> str:
    """Containers start Java by this variable."""
    return str(Path(java_command()).resolve().parents[1])


@contextmanager
def yarn(directory: Path) -> Iterator[Yarn]:
    """A cluster with `NODES` NodeManagers, all of it gone on the way out."""
    conf = directory / "conf"
    conf.mkdir(parents=True)
    log = directory / "hadoop.log"
    (conf / "log4j.properties").write_text(
        f"log4j.rootLogger=INFO, file\nlog4j.appender.file=org.apache.log4j.FileAppender\n"
        f"log4j.appender.file.File={log}\nlog4j.appender.file.layout=org.apache.log4j.PatternLayout\n"
        "log4j.appender.file.layout.ConversionPattern=%d %p %c{1} %m%n\n"
    )
    options = ["-Xmx1g", OPENED, f"-Dlog4j.configuration=file:{conf}/log4j.properties"]
    options.append(f"-Dtest.build.data={directory}/yarn")
    arguments = (str(directory), str(NODES), str(NODE_MEGABYTES))
    own = {**os.environ, "JAVA_HOME": java_home()}
    with program("HadoopCluster", hadoop_jars(), directory, *arguments, options=options, environment=own) as process:
        yield Yarn(directory, process)


def packed_environment() -> Path:
    """`mirror-env.tar.gz` as docs/deploy/spark.md has it made, for a cluster that brings its Spark; made on first
    use.

    It has no mirror_lib: that is shipped by spark-submit.sh.
    """
    setup = zlib.crc32((ROOT / "setup.py").read_bytes())
    archive = CACHE / f"mirror-env-{setup:08x}.tar.gz"
    if archive.exists():
        return archive
    delta = next(jars_folder().glob("delta-spark_*.jar")).stem.rpartition("-")[2]
    with TemporaryDirectory(prefix="mirror-env-") as scratch:
        pip = [f"{scratch}/env/bin/python", "-m", "pip", "-q"]
        for command in (
            [str(ROOT / "conf" / "deploy" / "yarn" / "pack.sh")],
            ["tar", "-xzf", "mirror.tar.gz"],
            [sys.executable, "-m", "venv", "env"],
            [*pip, "install", "./mirror[platform]", "venv-pack", "importlib_metadata"],
            [*pip, "install", "--no-deps", f"delta-spark=={delta}"],
            [*pip, "uninstall", "-y", "spark-kafka-mirror"],
            ["env/bin/venv-pack", "-q", "-p", "env", "-o", f"{archive}.part", "--format", "tar.gz"],
        ):
            done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
            if done.returncode:
                raise LabError(f"the executors' environment cannot be packed: {done.stderr.strip()[-500:]}")
    Path(f"{archive}.part").rename(archive)
    return archive
