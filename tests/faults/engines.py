"""What is put to the test: this mirror, and MirrorMaker 2 with exactly-once off and on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from tests.faults.cluster import Cluster
from tests.lab.brokers import background, free_ports
from tests.lab.flow_lab import QUIET, write_config
from tests.lab.mirrormaker import DEFAULTS, MirrorMaker
from tests.lab.one_flow import until
from tests.lab.processes import command_of, send, state_of
from tests.lab.small_disk import SmallDisk
from tests.lab.submitted import JOB, SCRIPT, environment

# In the environment of every process of a start.
MARK = "LAB_FAULTS"


@dataclass
class Engine:
    """One replicator of `topic` from source to target. It may be started again after it was killed or has ended, and a
    second one may be started alongside it."""

    source: Cluster
    target: Cluster
    topic: str
    folder: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    # Those that copy, and all that were started.
    processes: List[subprocess.Popen[bytes]] = field(default_factory=list)
    started: List[subprocess.Popen[bytes]] = field(default_factory=list)
    name = ""

    @property
    def remote_topic(self) -> str:
        return f"source.{self.topic}"

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def environment(self) -> Dict[str, str]:
        return dict(os.environ)

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def running(self) -> int:
        return sum(process.poll() is None for process in self.processes)

    def start(self) -> None:
        self.processes.append(self.launch(self.command(), self.name))

    def launch(self, command: Sequence[str], name: str) -> subprocess.Popen[bytes]:
        """A process that leads a session; what it prints goes to the log of that name."""
        environment = {**self.environment(), MARK: self._mark(len(self.started))}
        process = background(command, self.folder / f"{name}.log", env=environment)
        self.started.append(process)
        return process

    def _mark(self, number: int) -> str:
        return f"{self.topic} {self.name} {number}"

    def kill(self) -> None:
        """`kill -9` to the process that leads; what it started notices by itself."""
        self.processes[-1].kill()
        self.processes[-1].wait()

    def members(self, process: subprocess.Popen[bytes]) -> List[int]:
        """Every process of that start, also those whose parents have died, and those that lead groups of their own, as
        Spark's Python daemons do: all of them inherit its environment."""
        wanted, found = f"{MARK}={self._mark(self.started.index(process))}".encode(), []
        for file in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if wanted in file.read_bytes().split(b"\0"):
                    found.append(int(file.parent.name))
        return found

    def kill_all(self, signal_: signal.Signals = signal.SIGKILL) -> None:
        """A signal to every process of the last start, as when its machine fails, or a service ends it."""
        send(self.members(self.processes[-1]), signal_)

    def freeze(self) -> None:
        """Every process of the last start stops; its connections stay open."""

        def frozen() -> bool:
            send(self.members(self.processes[-1]), signal.SIGSTOP)
            time.sleep(0.05)  # one that was just forked is among them now
            return all(state_of(pid) in ("T", "Z", "") for pid in self.members(self.processes[-1]))

        until(frozen, 10)

    def thaw(self, which: int = -1) -> None:
        send(self.members(self.processes[which]), signal.SIGCONT)

    def stop(self) -> Optional[int]:
        """SIGTERM to each that runs. The exit code of the copy: 0 where all that ran ended with it; `None` where none
        ran, or one had to be killed."""
        going = [process for process in self.started if process.poll() is None]
        for process in going:
            process.terminate()
        codes: List[Optional[int]] = []
        for process in going:
            try:
                codes.append(process.wait(90))
            except subprocess.TimeoutExpired:
                codes.append(None)
        self.end()
        return next((code for code in codes if code != 0), 0) if codes else None

    def end(self) -> None:
        for process in self.started:
            members = self.members(process)
            send(members, signal.SIGCONT)
            send(members, signal.SIGKILL)
            process.wait()


@dataclass
class Mirror(Engine):
    """`mirror run` in continuous mode, with Spark in local mode. `settings` are the flow's."""

    # Spark's, of `spark-submit`; without any it runs in local mode.
    spark_options: Sequence[str] = ()
    disk: Optional[SmallDisk] = None
    more_environment: Mapping[str, str] = field(default_factory=dict)
    name = "mirror"

    @property
    def state_folder(self) -> Path:
        """Where its state lies, as its own processes see it."""
        return self.disk.directory if self.disk is not None else self.folder / "state"

    @property
    def config(self) -> Path:
        settings = {
            "topics": f"[{self.topic}]",
            "tasks.max": 2,
            "replication.factor": 3,
            "refresh.topics.interval.seconds": 2,
            "batch.max.seconds": 5,
            "tail.seconds": 5,
            **QUIET,
            **self.settings,
        }
        path, servers = self.folder / "mirror.yaml", {"source": self.source.far, "target": self.target.far}
        ends = {"state": self.state_folder, "trigger": "1 second"}
        return write_config(path, self.topic, servers, ["source->target"], settings, **ends)

    def command(self) -> Sequence[str]:
        if self.spark_options:
            return [SCRIPT, *self.spark_options, JOB, str(self.config), "--take-over"]
        run = ["-m", "mirror_lib.cli", "run", str(self.config), "--take-over"]
        return [sys.executable, *(run if self.disk is None else self.disk.python(run))]

    def environment(self) -> Dict[str, str]:
        return environment(**self.more_environment)

    def workers(self) -> List[int]:
        return self._of("pyspark.daemon")

    def executors(self) -> List[int]:
        return self._of("CoarseGrainedExecutorBackend")

    def _of(self, word: str) -> List[int]:
        found = [pid for pid in self.members(self.processes[-1]) if word in command_of(pid)]
        assert found, f"there is no {word} to break"
        return found

    def start_translation(self) -> None:
        self.launch([sys.executable, "-m", "mirror_lib.cli", "translate", str(self.config)], "translate")


@dataclass
class MirrorMaker2(Engine):
    """Kafka's dedicated mode as its documentation shows it, with what three brokers ask for."""

    name = "mm2"

    def command(self) -> Sequence[str]:
        return MirrorMaker(self.folder / f"mm2-{len(self.processes)}", {}, self.properties()).command()

    def properties(self) -> Dict[str, str]:
        (port,) = free_ports(1)
        return {
            **{key: "3" for key in DEFAULTS if key.endswith("replication.factor")},
            "clusters": "source, target",
            "source.bootstrap.servers": self.source.far,
            "target.bootstrap.servers": self.target.far,
            "source->target.enabled": "true",
            "source->target.topics": self.topic,
            "source.consumer.isolation.level": "read_committed",
            "emit.heartbeats.enabled": "false",
            "listeners": f"http://127.0.0.1:{port}",
            **self.settings,
        }


@dataclass
class MirrorMaker2ExactlyOnce(MirrorMaker2):
    """The same with KIP-618's exactly-once."""

    name = "mm2-exactly-once"

    def properties(self) -> Dict[str, str]:
        on = {"target.exactly.once.source.support": "enabled", "dedicated.mode.enable.internal.rest": "true"}
        return {**super().properties(), **on}


ENGINES = {each.name: each for each in (Mirror, MirrorMaker2, MirrorMaker2ExactlyOnce)}
