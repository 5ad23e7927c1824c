"""A real MirrorMaker 2 beside the product: Kafka's own dedicated mode, one Java process that ends with its starter."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Mapping, Optional, Sequence

from tests.lab.brokers import KAFKA_VERSION, LOGGING, KafkaBroker, die_with_parent, java_command
from tests.lab.checkout import CACHE, LabError
from tests.lab.jvm import QUICK

CONNECT_JARS = CACHE / f"connect-{KAFKA_VERSION}"
PATIENCE_SECONDS = 120.0
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
class MirrorMaker:
    """MirrorMaker 2 with `properties` over its flows' defaults; `clusters` by alias.

    `java_options` are by default those of a short life.
    """

    directory: Path
    clusters: Mapping[str, KafkaBroker]
    properties: Mapping[str, str] = field(default_factory=dict)
    java_options: Sequence[str] = ("-Xmx512m", *QUICK)
    process: Optional[subprocess.Popen[bytes]] = None

    @property
    def log(self) -> Path:
        return self.directory / "mirrormaker.log"

    def start(self) -> MirrorMaker:
        if not CONNECT_JARS.is_dir():
            raise LabError(f"no Kafka Connect in {CONNECT_JARS}: run `make setup`")
        self.directory.mkdir(parents=True, exist_ok=True)
        settings = {
            "clusters": ", ".join(self.clusters),
            **{f"{alias}.bootstrap.servers": broker.bootstrap for alias, broker in self.clusters.items()},
            **DEFAULTS,
            **self.properties,
        }
        file = self.directory / "mm2.properties"
        file.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
        (self.directory / "log4j2.properties").write_text(LOGGING.format(log=self.log))
        logging = f"-Dlog4j2.configurationFile={self.directory}/log4j2.properties"
        command = [java_command(), *self.java_options, logging, "-cp", f"{CONNECT_JARS}/*"]
        with (self.directory / "console.log").open("ab") as console:
            self.process = subprocess.Popen(
                [*command, "org.apache.kafka.connect.mirror.MirrorMaker", str(file)],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        return self

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
        """Clean shutdown: positions are flushed."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """`kill -9`."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        os.kill(self.process.pid, how)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
