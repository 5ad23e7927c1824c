"""Clusters of any Kafka release from 2.4 on: ZooKeeper up to 3.2, KRaft after that; one broker, or several.

A `ReleaseCluster` is used as a `KafkaBroker` is. With three brokers its topics have three replicas, and min ISR is 2.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

import pyspark
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.lab import brokers
from tests.lab.brokers import DEFAULTS, LOGGING, KafkaBroker, free_ports, is_listening, java_command, lines_of
from tests.lab.checkout import CACHE, LabError
from tests.lab.jvm import QUICK

FETCH_SECONDS = 600
MODULE = """\
<ivy-module version="2.0">
  <info organisation="mirror" module="lab"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{}
  </dependencies>
</ivy-module>
"""
DEPENDENCY = '    <dependency org="{}" name="{}" rev="{}" conf="default->default" transitive="{}"/>'


def fetched(name: str, wanted: Sequence[str], alone: Sequence[str] = ()) -> Path:
    """The folder `.cache/NAME` with the jars of `wanted` and of all that they need, and with the jars of `alone`.

    Each is `organisation:module:revision`. Raises `LabError` where they cannot be fetched.
    """
    folder = CACHE / name
    CACHE.mkdir(exist_ok=True)
    # Several test processes may need the jars at the same time: the first one fetches them.
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _fetch(folder, [(each, "true") for each in wanted] + [(each, "false") for each in alone])
    return folder


def _fetch(folder: Path, wanted: Sequence[Sequence[str]]) -> None:
    part, module, log = (CACHE / f"{folder.name}.{end}" for end in ("part", "xml", "log"))
    shutil.rmtree(part, ignore_errors=True)
    lines = [DEPENDENCY.format(*each.split(":"), transitive) for each, transitive in wanted]
    module.write_text(MODULE.format("\n".join(lines)))
    (resolver,) = Path(pyspark.__file__).parent.glob("jars/ivy-2*.jar")
    settings = os.environ.get("IVY_SETTINGS")
    command = [
        *("java", "-jar", str(resolver), *(["-settings", settings] if settings else [])),
        *("-cache", str(CACHE / "ivy" / folder.name), "-ivy", str(module), "-confs", "default"),
        *("-retrieve", f"{part}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    with log.open("wb") as out:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=FETCH_SECONDS)
    if done.returncode:
        raise LabError(f"{folder.name} cannot be fetched: check the network or proxy (log: {log})")
    part.rename(folder)


# Kafka 4 logs with Log4j 2, earlier brokers with Log4j 1, which reload4j maintains.
LOG4J2 = ["org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"]
LOG4J1 = ["ch.qos.reload4j:reload4j:1.2.25", "org.slf4j:slf4j-reload4j:1.7.36"]
# KRaft is for production from 3.3 on; HDInsight's 3.2 runs on ZooKeeper.
FIRST_KRAFT = (3, 3)
KRAFT_ONLY = ("process.roles", "node.id", "controller.", "listener.security.protocol.map", "broker.")
# Topic configs by the release that brought them. Before it a broker refuses the name, and has no such limit.
NEWER_CONFIGS = {"message_timestamp_after_max_ms": (3, 6), "message_timestamp_before_max_ms": (3, 6)}
REPLICATED = (
    *("default.replication.factor", "offsets.topic.replication.factor", "transaction.state.log.replication.factor"),
    "share.coordinator.state.topic.replication.factor",
)
MIN_ISR = ("min.insync.replicas", "transaction.state.log.min.isr", "share.coordinator.state.topic.min.isr")

LOGGING_OF_LOG4J1 = """\
log4j.rootLogger=INFO, file
log4j.appender.file=org.apache.log4j.FileAppender
log4j.appender.file.File={log}
log4j.appender.file.layout=org.apache.log4j.PatternLayout
log4j.appender.file.layout.ConversionPattern=%d %p %c{{1}} %m%n
"""
ZOOKEEPER = """\
dataDir={data}
clientPortAddress=127.0.0.1
clientPort={port}
tickTime=500
maxClientCnxns=0
admin.enableServer=false
"""
# Brokers from before 3.0 were not built for Java 17.
OPENED = ("java.base/java.lang", "java.base/java.nio", "java.base/sun.nio.ch", "java.base/java.util")


def release(version: str) -> Tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def kafka_jars(version: str) -> Path:
    """The folder of this release's broker and MirrorMaker client. Raises `LabError` where it cannot be fetched."""
    # The first client of MirrorMaker in Maven Central is 2.6.0's.
    alone = [f"org.apache.kafka:connect-mirror-client:{version if release(version) >= (2, 6) else '2.6.0'}"]
    if release(version) >= (3,):
        alone.append(f"org.apache.kafka:kafka-tools:{version}")
    # Kafka 2.4 to 3.9 were built for Scala 2.13 as well, so one name serves all.
    wanted = [f"org.apache.kafka:kafka_2.13:{version}", *(LOG4J2 if release(version) >= (4,) else LOG4J1)]
    return fetched(f"kafka-{version}", wanted, alone)


@dataclass
class ReleaseCluster(KafkaBroker):
    """`version` in `size` broker processes. `port` and `controller_port` are the ones of the first one."""

    version: str = ""
    size: int = 1
    ports: Sequence[int] = ()
    zookeeper_port: int = 0

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    @property
    def jars(self) -> Path:
        return kafka_jars(self.version)

    @property
    def kraft(self) -> bool:
        return release(self.version) >= FIRST_KRAFT

    def _write_files(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)

    def _commands(self) -> List[str]:
        brokers = [self._broker(number) for number in range(1, self.size + 1)]
        if self.kraft:
            return brokers
        text = ZOOKEEPER.format(data=self.directory / "zk", port=self.zookeeper_port)
        main = ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self._write("zookeeper.properties", text))]
        return [shlex.join(["exec", *self._java("zookeeper", "128m"), *main]), *brokers]

    def answers(self) -> bool:
        """Whether each broker is registered, and the transaction coordinator gives out a producer id."""
        if not all(is_listening(port) for port in self.ports):
            return False
        try:
            found = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0}).list_topics(timeout=5)
        except KafkaException:
            return False
        if len(found.brokers) < self.size:
            return False
        self.cluster_id = str(found.cluster_id)
        return super().answers()

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> str:
        """As a single broker's, with a replica on each broker, and without configs that this release does not know."""
        known = {k: v for k, v in configs.items() if release(self.version) >= NEWER_CONFIGS.get(k, (0,))}
        return super().create_topic(name, partitions, **known)

    def _broker(self, number: int) -> str:
        """One shell line: format the folder if it is new, then become the broker."""
        config = self._write(f"server-{number}.properties", lines_of(self._settings(number)))
        java = self._java(f"broker-{number}", "512m")
        run = f"exec {shlex.join([*java, 'kafka.Kafka', str(config)])}"
        data = self.directory / f"data-{number}"
        if not self.kraft or (data / "meta.properties").exists():
            return run
        if number == 1:
            tool = ["kafka.tools.StorageTool", "format", "-t", self.cluster_id, "-c", str(config)]
            return f"{shlex.join([*java, *tool])} && {run}"
        brokers.write_ids(data, str(number), self.cluster_id)
        return run

    def _settings(self, number: int) -> Mapping[str, str]:
        port = self.ports[number - 1]
        listener = f"PLAINTEXT://127.0.0.1:{port}"
        given: Dict[str, str] = {
            **DEFAULTS,
            **dict.fromkeys(REPLICATED, str(self.size)),
            **dict.fromkeys(MIN_ISR, str(min(2, self.size))),
            "log.dirs": str(self.directory / f"data-{number}"),
            "listeners": listener,
            "advertised.listeners": listener,
        }
        if not self.kraft:
            kept = {key: value for key, value in given.items() if not key.startswith(KRAFT_ONLY)}
            address = f"127.0.0.1:{self.zookeeper_port}"
            session = {"zookeeper.connect": address, "zookeeper.session.timeout.ms": "6000"}
            return {**kept, **session, "broker.id": str(number), **self.properties}
        given["controller.quorum.voters"] = f"1@127.0.0.1:{self.controller_port}"
        given["node.id"] = str(number)
        if number == 1:
            given["listeners"] += f",CONTROLLER://127.0.0.1:{self.controller_port}"
        else:
            given["process.roles"] = "broker"
        return {**given, **self.properties}

    def _java(self, process: str, memory: str) -> List[str]:
        log = self.directory / ("broker.log" if process == "broker-1" else f"{process}.log")
        if release(self.version) >= (4,):
            logging = self._write(f"{process}.log4j2.properties", LOGGING.format(log=log))
            option = f"-Dlog4j2.configurationFile={logging}"
        else:
            logging = self._write(f"{process}.log4j.properties", LOGGING_OF_LOG4J1.format(log=log))
            option = f"-Dlog4j.configuration=file:{logging}"
        opened = [f"--add-opens={each}=ALL-UNNAMED" for each in OPENED] if release(self.version) < (3,) else []
        return [java_command(), *QUICK, f"-Xmx{memory}", *opened, "-cp", str(self.jars / "*"), option]

    def _write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text)
        return path


@contextmanager
def releases(directory: Path, **wanted: Tuple[str, int]) -> Iterator[List[ReleaseCluster]]:
    """Clusters by name, each a version and a number of brokers, started side by side and killed on the way out."""
    clusters: List[ReleaseCluster] = []
    for name, (version, size) in wanted.items():
        *ports, controller, zookeeper = free_ports(size + 2)
        own: Dict[str, Any] = {"version": version, "size": size, "ports": ports, "zookeeper_port": zookeeper}
        clusters.append(ReleaseCluster(name, directory / name, ports[0], controller, **own))
    with brokers.running(*clusters) as started:
        yield started
