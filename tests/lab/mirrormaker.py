"""A real MirrorMaker 2 next to the product, dedicated or in a Connect worker: a Java process, ends with its starter."""

from __future__ import annotations

import json
import signal
import subprocess
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Mapping, Optional, Sequence

from mirror_lib.config.model import ClusterConfig, ReplicationFlow
from mirror_lib.control.heartbeats import HeartbeatWriter
from tests.lab.brokers import KAFKA_VERSION, LOGGING, KafkaBroker, background, end, free_ports, java_command, lines_of
from tests.lab.checkout import CACHE, LabError
from tests.lab.jvm import QUICK

CONNECT_JARS = CACHE / f"connect-{KAFKA_VERSION}"
PATIENCE_SECONDS = 300.0
# One broker holds everything; what takes minutes by default takes a second.
DEFAULTS = {
    "replication.factor": "1",
    "heartbeats.topic.replication.factor": "1",
    "checkpoints.topic.replication.factor": "1",
    "offset-syncs.topic.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "config.storage.replication.factor": "1",
    "refresh.topics.interval.seconds": "2",
    "emit.checkpoints.interval.seconds": "1",
    "sync.topic.acls.enabled": "false",
}


@dataclass
class _JavaProcess:
    """`main_class` with a file of its settings. `clusters` by alias; `properties` come over the settings' defaults;
    `java_options` are by default the ones of a short life."""

    directory: Path
    clusters: Mapping[str, KafkaBroker]
    properties: Mapping[str, str] = field(default_factory=dict)
    java_options: Sequence[str] = ("-Xmx512m", *QUICK)
    process: Optional[subprocess.Popen[bytes]] = None
    main_class = ""

    @property
    def log(self) -> Path:
        return self.directory / "mirrormaker.log"

    def settings(self) -> Mapping[str, str]:
        raise NotImplementedError

    def command(self) -> Sequence[str]:
        """What starts it, once its files are written."""
        if not CONNECT_JARS.is_dir():
            raise LabError(f"no Kafka Connect in {CONNECT_JARS}: run `make setup`")
        self.directory.mkdir(parents=True, exist_ok=True)
        file = self.directory / "mm2.properties"
        file.write_text(lines_of({**self.settings(), **self.properties}))
        (self.directory / "log4j2.properties").write_text(LOGGING.format(log=self.log))
        logging = f"-Dlog4j2.configurationFile={self.directory}/log4j2.properties"
        java = [java_command(), *self.java_options, logging, "-cp", f"{CONNECT_JARS}/*"]
        return [*java, self.main_class, str(file)]

    def launch(self) -> None:
        command = self.command()  # which makes the folder
        self.process = background(command, self.directory / "console.log")

    def wait_until(self, done: Callable[[], bool], what: str) -> None:
        """Return when `done` says so; it must still run then."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not done():
            if self.process is None or self.process.poll() is not None:
                raise LabError(f"MirrorMaker ended while {what} (log: {self.log})")
            if time.monotonic() > deadline:
                raise LabError(f"MirrorMaker was too slow: {what} (log: {self.log})")
            time.sleep(0.1)

    def stop(self) -> None:
        end(self.process, signal.SIGTERM, 30)

    def kill(self) -> None:
        end(self.process, signal.SIGKILL)


class MirrorMaker(_JavaProcess):
    """Kafka's dedicated mode."""

    main_class = "org.apache.kafka.connect.mirror.MirrorMaker"

    def settings(self) -> Mapping[str, str]:
        servers = {f"{alias}.bootstrap.servers": broker.bootstrap for alias, broker in self.clusters.items()}
        return {"clusters": ", ".join(self.clusters), **servers, **DEFAULTS}

    def start(self) -> MirrorMaker:
        self.launch()
        return self


class ConnectWorker(_JavaProcess):
    """A worker of a distributed Connect cluster, whose topics lie on the last of `clusters`: the flow's target."""

    main_class = "org.apache.kafka.connect.cli.ConnectDistributed"
    group, offsets_topic = "connect-lab", "connect-offsets"
    port = 0

    def settings(self) -> Mapping[str, str]:
        converter = "org.apache.kafka.connect.converters.ByteArrayConverter"
        topics = {"config": "connect-configs", "offset": self.offsets_topic, "status": "connect-status"}
        return {
            "bootstrap.servers": list(self.clusters.values())[-1].bootstrap,
            "group.id": self.group,
            "listeners": f"http://127.0.0.1:{self.port}",
            "plugin.discovery": "service_load",
            "key.converter": converter,
            "value.converter": converter,
            "header.converter": converter,
            **{f"{kind}.storage.topic": topic for kind, topic in topics.items()},
            **{key: value for key, value in DEFAULTS.items() if "storage" in key},
        }

    def start(self, connector: str, settings: Mapping[str, str]) -> ConnectWorker:
        """A worker that runs MirrorMaker's source connector from the first cluster to the last."""
        (self.port,) = free_ports(1)
        self.launch()
        (source, at_source), (target, at_target) = list(self.clusters.items())
        config = {
            "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
            "source.cluster.alias": source,
            "target.cluster.alias": target,
            "source.cluster.bootstrap.servers": at_source.bootstrap,
            "target.cluster.bootstrap.servers": at_target.bootstrap,
            **{key: value for key, value in DEFAULTS.items() if "storage" not in key},
            **settings,
        }
        self.wait_until(lambda: self._takes(connector, config), "taking a connector")
        return self

    def _takes(self, connector: str, config: Mapping[str, str]) -> bool:
        """False while the worker is starting."""
        url, kind = f"http://127.0.0.1:{self.port}/connectors/{connector}/config", {"Content-Type": "application/json"}
        request = urllib.request.Request(url, json.dumps(config).encode(), kind, method="PUT")
        try:
            return bool(urllib.request.urlopen(request, timeout=30))
        except OSError:
            return False


def beat(source: KafkaBroker, target: KafkaBroker) -> None:
    """One heartbeat of the flow between them, which lies on its target."""
    here, there = (ClusterConfig(each.name, {"bootstrap.servers": each.bootstrap}) for each in (source, target))
    writer = HeartbeatWriter(ReplicationFlow(here, there), lambda _: None)
    writer.beat()
    writer.close()
