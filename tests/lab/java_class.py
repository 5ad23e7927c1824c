"""Java programs of the lab: compiled for real brokers, or run next to them; and Kafka's own Java producer.

Tiered storage (KIP-405) for real brokers is one: a folder that may be slow, and topics whose old segments go there.
"""

from __future__ import annotations

import subprocess
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterator, Mapping, Optional, Sequence

from tests.lab.brokers import JARS, KafkaBroker, child, java_command
from tests.lab.checkout import ROOT, LabError
from tests.lab.jvm import QUICK, kafka_archive, quick_options
from tests.lab.processes import kill_tree


def compiled(name: str, folder: Path, package: str = "lab") -> Path:
    """Compile `NAME.java` of `tests/lab` or another folder against Kafka's jars into `folder`. Raises `LabError`."""
    javac = str(Path(java_command()).resolve().with_name("javac"))
    program = str(ROOT / "tests" / package / f"{name}.java")
    folder.mkdir(parents=True, exist_ok=True)
    command = [javac, "-nowarn", "-d", str(folder), "-cp", f"{JARS}/*", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"{program} does not compile: {done.stderr.strip()[:300]}")
    return folder


@contextmanager
def program(
    name: str,
    jars: Path,
    directory: Path,
    *arguments: str,
    options: Sequence[str] = (),
    environment: Optional[Mapping[str, str]] = None,
) -> Iterator[subprocess.Popen[str]]:
    """`tests/lab/NAME.java` once it has printed `ready`; gone with all that it started on the way out."""
    log, source = directory / "console.log", str(ROOT / "tests" / "lab" / f"{name}.java")
    command = [java_command(), *QUICK, *options, "-cp", f"{jars}/*", source, *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with log.open("ab") as errors:
        process = child(command, env=environment, stderr=errors, **pipes)
    with process:
        try:
            assert process.stdout is not None
            if not any(line == "ready\n" for line in process.stdout):
                raise LabError(f"{name} did not start: {log.read_text()[-500:]}")
            yield process
        finally:
            kill_tree(process.pid)


def produce_by_java(broker: KafkaBroker, topic: str, keys: Sequence[str]) -> None:
    """One record for each key, by Kafka's console producer, which leaves the partition to the producer."""
    tool = [java_command(), *quick_options(kafka_archive(JARS)), "-cp", f"{JARS}/*"]
    options = ["--bootstrap-server", broker.bootstrap, "--topic", topic, "--reader-property", "parse.key=true"]
    text = "".join(f"{key}\tvalue\n" for key in keys)
    command = [*tool, "org.apache.kafka.tools.ConsoleProducer", *options]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


# A topic of this kind keeps nothing but the segment that is written to.
AT_ONCE = {"remote_storage_enable": "true", "local_retention_ms": "1", "segment_ms": "1000", "retention_ms": "-1"}


@dataclass(frozen=True)
class SlowStore:
    """A folder that brokers use as their tiered storage; its class is compiled into `folder`."""

    folder: Path

    def compiled(self) -> SlowStore:
        compiled("SlowStore", self.folder)
        return self

    def broker_properties(self) -> Dict[str, str]:
        metadata = "rlmm.config.remote.log.metadata.topic"
        return {
            "remote.log.storage.system.enable": "true",
            "remote.log.storage.manager.class.name": "SlowStore",
            "remote.log.storage.manager.class.path": f"{self.folder}/",
            "rsm.config.dir": str(self.folder / "segments"),
            "remote.log.metadata.manager.listener.name": "PLAINTEXT",
            f"{metadata}.replication.factor": "1",
            f"{metadata}.num.partitions": "1",
            "remote.log.manager.task.interval.ms": "500",
            "log.retention.check.interval.ms": "1000",
        }

    @contextmanager
    def slow(self, seconds: float = 600.0) -> Iterator[None]:
        """Meanwhile, for so long at most, brokers get nothing within the time that they wait for it."""
        sign = self.folder / "segments" / "slow"
        sign.touch()
        timer = threading.Timer(seconds, sign.unlink)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
            sign.unlink(missing_ok=True)


def first_local_offset(broker: KafkaBroker, topic: str) -> int:
    """Where the oldest segment begins that the broker itself has of partition 0."""
    return min(int(each.name[:-4]) for each in (broker.directory / "data" / f"{topic}-0").glob("*.log"))
