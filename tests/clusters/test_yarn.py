"""YARN and HDFS of Hadoop's own jars: client and cluster mode, over kills, with the state on HDFS."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Callable, Dict, Iterator, List
from xml.etree import ElementTree

import pyspark
import pytest

from mirror_lib.errors import EXIT_FAILED, EXIT_OK
from tests.clusters.conftest import DYNAMIC, continuous, goes_on
from tests.integration.conftest import Ground
from tests.lab.brokers import KafkaBroker, java_command
from tests.lab.checkout import CACHE, ROOT, jars_folder
from tests.lab.java_class import program
from tests.lab.jvm import QUICK
from tests.lab.one_flow import OneFlow, until
from tests.lab.processes import descendants
from tests.lab.releases import LOGGING_OF_LOG4J1, fetched
from tests.lab.secured import SecuredBroker, acl, secured_cluster
from tests.lab.submitted import submit

SPARK_HOME = Path(pyspark.__file__).parent
NODES, NODE_MEGABYTES = 2, 4096
STOPPED = 143
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


def hadoop_jars() -> Path:
    """The folder of the minicluster's jars. Raises `LabError` where they cannot be fetched."""
    version = next(SPARK_HOME.glob("jars/hadoop-client-api-*.jar")).stem.rpartition("-")[2]
    parts = [f"org.apache.hadoop:hadoop-client-{part}:{version}" for part in ("api", "runtime", "minicluster")]
    # What the minicluster's jar neither holds nor names.
    needed = [
        *("org.mockito:mockito-core:4.11.0", "junit:junit:4.13.2", "org.bouncycastle:bcpkix-jdk18on:1.78.1"),
        *("org.glassfish.jaxb:jaxb-runtime:2.3.2", "org.slf4j:slf4j-reload4j:1.7.36"),
    ]
    return fetched(f"hadoop-{version}", needed, [*parts, "commons-logging:commons-logging:1.2"])


@dataclass(frozen=True)
class Yarn:
    """A running cluster. `hdfs` is the address of its file system, `conf` is HADOOP_CONF_DIR."""

    directory: Path
    process: subprocess.Popen[str]

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

    def kill_application(self, log: Path) -> None:
        """The one that `log` of its submitter names last."""
        submitted = re.findall(r"Submitted application (application_\d+_\d+)", log.read_text(errors="replace"))
        self._hadoop("yarn.client.cli.ApplicationCLI", "application", "-kill", submitted[-1])

    def executors(self) -> List[int]:
        return self._containers("YarnCoarseGrainedExecutorBackend")

    def drivers(self) -> List[int]:
        return self._containers("org.apache.spark.deploy.yarn.ApplicationMaster")

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
        commands = descendants(self.process.pid).items()
        return [pid for pid, each in commands if each.partition(" ")[0].endswith("/java") and program in each]


def java_home() -> str:
    """Containers start Java by this variable."""
    return str(Path(java_command()).resolve().parents[1])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    """A cluster with `NODES` NodeManagers, all of it gone on the way out."""
    directory = tmp_path_factory.mktemp("hadoop")
    conf = directory / "conf"
    conf.mkdir()
    (conf / "log4j.properties").write_text(LOGGING_OF_LOG4J1.format(log=directory / "hadoop.log"))
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
            subprocess.run(command, cwd=scratch, check=True)
    Path(f"{archive}.part").rename(archive)
    return archive


@pytest.fixture(scope="module")
def archive(cluster: Yarn) -> str:
    """The executors' and the driver's Python, on HDFS."""
    return f"{cluster.upload(packed_environment())}#env"


@pytest.fixture
def flow(cluster: Yarn, ground: Ground, topic_name: Callable[[], str]) -> OneFlow:
    source, target, _, directory = ground
    return flow_between(cluster, source, target, topic_name(), directory)


def flow_between(cluster: Yarn, source: KafkaBroker, target: KafkaBroker, topic: str, directory: Path) -> OneFlow:
    return OneFlow(source, target, topic, directory, state_address=f"{cluster.hdfs}/mirror/{topic}")


def options(archive: str, mode: str) -> List[str]:
    return [*SMALL, "--archives", archive, "--deploy-mode", mode]


def test_cluster_mode_continues_after_a_killed_executor_and_a_killed_application(
    cluster: Yarn, archive: str, flow: OneFlow, ground: Ground
) -> None:
    where = options(archive, "cluster")
    with continuous(flow, ground, *where, **cluster.environment) as job:
        os.kill(cluster.executors()[0], signal.SIGKILL)
        goes_on(flow, job)
        cluster.kill_application(flow.directory / "continuous.log")
        assert job.wait(60) == EXIT_FAILED
        assert "Failed to add file" not in cluster.logs()


@pytest.mark.parametrize(("mode", "code"), [("client", EXIT_OK), ("cluster", STOPPED)])
def test_run_continues_after_a_killed_executor_and_a_signal_to_the_submitter_ends_it(
    cluster: Yarn, archive: str, flow: OneFlow, ground: Ground, mode: str, code: int
) -> None:
    where = [*options(archive, mode), *DYNAMIC]
    with continuous(flow, ground, *where, **cluster.environment) as job:
        os.kill(cluster.executors()[0], signal.SIGKILL)
        goes_on(flow, job)
        job.send_signal(signal.SIGTERM)
        assert job.wait(120) == code
        until(lambda: not cluster.drivers() and not cluster.executors())


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[SecuredBroker]:
    with secured_cluster(tmp_path / "secured") as broker:
        yield broker


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_key_stores_and_secrets_are_found_by_name_where_they_are_shipped(
    cluster: Yarn, secured: SecuredBroker, ground: Ground, topic_name: Callable[[], str], mode: str
) -> None:
    """The configuration names them without a folder. The archive is a file of the submitter here."""
    flow = flow_between(cluster, ground[0], secured, topic_name(), ground[3])
    flow.fill(200)
    rights = [acl("CN=mirror", "All", kind, "*") for kind in ("Topic", "Group", "TransactionalId")]
    secured.acl_admin().create_acls([*rights, acl("CN=mirror", "All", "Cluster", "kafka-cluster")])
    login, secrets, lines = secured.tls("JKS"), [], []
    for name, value in login.items():
        hidden = name.endswith("password")
        secrets += [f"{name}={value}"] if hidden else []
        lines.append(f'    {name}: "{f"${{file:secrets.properties:{name}}}" if hidden else Path(value).name}"')
    config = flow.config
    plain = f'  target: {{bootstrap.servers: "{secured.bootstrap}"}}'
    assert plain in config.read_text()
    config.write_text(config.read_text().replace(plain, "\n".join(["  target:", *lines])))
    (flow.directory / "secrets.properties").write_text("\n".join(secrets))
    stores = [shutil.copy(login[f"ssl.{kind}.location"], flow.directory) for kind in ("truststore", "keystore")]
    files = ["--files", ",".join([*map(str, stores), str(flow.directory / "secrets.properties")])]
    where = [*options(f"{packed_environment()}#env", mode), *files]
    ended = submit(flow.directory, *where, config=config, **cluster.environment)
    assert ended.code == EXIT_OK, ended.text
    flow.assert_exact(ground[2])
