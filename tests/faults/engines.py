"""What is put to the test: this mirror, and MirrorMaker 2 with exactly-once off and on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from tests.faults.cluster import Cluster
from tests.lab.brokers import die_with_parent
from tests.lab.checkout import ROOT
from tests.lab.flow_lab import QUIET
from tests.lab.mirrormaker import DEFAULTS, MirrorMaker
from tests.lab.ports import free_ports
from tests.lab.small_disk import SmallDisk
from tests.lab.standalone import descendants, executors_of
from tests.lab.submitted import JOB, SCRIPT, environment


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
    starts: int = 0
    name = ""

    @property
    def remote_topic(self) -> str:
        """Where it copies to."""
        return f"source.{self.topic}"

    def command(self) -> Sequence[str]:
        """What starts one."""
        raise NotImplementedError

    def environment(self) -> Dict[str, str]:
        """In which environment."""
        return dict(os.environ)

    @property
    def log(self) -> Path:
        """All that it printed, over all starts."""
        return self.folder / f"{self.name}.log"

    @property
    def running(self) -> bool:
        """Whether the one that was started last runs."""
        return bool(self.processes) and self.processes[-1].poll() is None

    def start(self) -> subprocess.Popen[bytes]:
        """Start one more process; earlier ones are left as they are."""
        self.starts += 1
        process = self.launch(self.command(), self.name)
        self.processes.append(process)
        return process

    def launch(self, command: Sequence[str], name: str) -> subprocess.Popen[bytes]:
        """A process that leads a group of its own; what it prints goes to the log of that name."""
        with (self.folder / f"{name}.log").open("ab") as out:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        self.started.append(process)
        return process

    def kill(self) -> None:
        """`kill -9` to the process that leads; what it started notices by itself."""
        self.processes[-1].kill()
        self.processes[-1].wait()

    def kill_all(self, signal_: signal.Signals = signal.SIGKILL) -> None:
        """A signal to every process of the last start at once, as when its machine fails, or a service ends it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.processes[-1].pid, signal_)

    def freeze(self, which: int = -1) -> None:
        """Every process of that start stands still; its connections stay open."""
        os.killpg(self.processes[which].pid, signal.SIGSTOP)

    def thaw(self, which: int = -1) -> None:
        """They resume where they stopped."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.processes[which].pid, signal.SIGCONT)

    def workers(self) -> List[int]:
        """Its processes that hold the lines to the brokers, where those are others than the one that leads."""
        return []

    def stop(self) -> Optional[int]:
        """SIGTERM to each that runs; the exit code of the last copy, `None` where it had to be killed."""
        for process in self.started:
            if process.poll() is None:
                process.terminate()
        code: Optional[int] = None
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(60)
        self.end()
        return code

    def end(self) -> None:
        """Nothing that it started is left."""
        for process in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGCONT)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
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
        """The configuration file, written again from the settings."""
        settings = {
            "tasks.max": 2,
            "replication.factor": 3,
            "refresh.topics.interval.seconds": 2,
            "batch.max.seconds": 5,
            **QUIET,
            **self.settings,
        }
        lines = [
            f"name: {self.topic}",
            "clusters:",
            f'  source: {{bootstrap.servers: "{self.source.far}"}}',
            f'  target: {{bootstrap.servers: "{self.target.far}"}}',
            "flows:",
            "  source->target:",
            f"    topics: [{self.topic}]",
            *(f"    {key}: {value}" for key, value in settings.items()),
            f"state: {self.state_folder}",
            'trigger: "1 second"',
        ]
        path = self.folder / "mirror.yaml"
        path.write_text("\n".join(lines) + "\n")
        return path

    def command(self) -> Sequence[str]:
        if self.spark_options:
            return [SCRIPT, *self.spark_options, JOB, str(self.config)]
        run = ["-m", "mirror_lib.cli", "run", str(self.config)]
        return [sys.executable, *(run if self.disk is None else self.disk.python(run))]

    def environment(self) -> Dict[str, str]:
        return environment(**self.more_environment)

    def workers(self) -> List[int]:
        below = descendants(self.processes[-1].pid)
        return [pid for pid, command in below.items() if "pyspark.daemon" in command or "pyspark.worker" in command]

    def executors(self) -> List[int]:
        """Its executors' JVMs, where they have some of their own."""
        return executors_of(self.processes[-1].pid)

    def start_translation(self) -> subprocess.Popen[bytes]:
        """The second job: group offsets follow."""
        return self.launch([sys.executable, "-m", "mirror_lib.cli", "translate", str(self.config)], "translate")


@dataclass
class MirrorMaker2(Engine):
    """Kafka's dedicated mode as its documentation shows it, with what three brokers ask for."""

    name = "mm2"

    def command(self) -> Sequence[str]:
        return MirrorMaker(self.folder / f"mm2-{self.starts}", {}, self.properties()).command()

    def properties(self) -> Dict[str, str]:
        """Its settings file, over what the lab gives every MirrorMaker."""
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
