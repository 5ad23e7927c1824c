"""The ways to copy a topic, each started as a user starts it: a `Copy` in, a process that leads a session out."""

from __future__ import annotations

import contextlib
import os
import signal
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, ContextManager, Dict, Iterator, Mapping, Sequence

from tests.bench.cases import Case
from tests.lab.brokers import KafkaBroker, background
from tests.lab.checkout import CACHE, jars_folder
from tests.lab.flow_lab import write_config
from tests.lab.mirrormaker import MirrorMaker

TASKS = 2
CLASSES = CACHE / "bench" / "classes"
# What Kafka's own start scripts give, and for MirrorMaker their heap.
JVM = ["-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35", "-XX:MaxInlineLevel=15"]
JVM += ["-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"]
BROKER_JVM = [*JVM, "-Xms1g", "-Xmx1g"]
MIRRORMAKER_JVM = [*JVM, "-Xms256m", "-Xmx2g"]


@dataclass(frozen=True)
class Copy:
    """One copy of a case's topic, read at `source`, into the remote topic that `alias` gives it; files in `folder`."""

    case: Case
    source: str
    brokers: Mapping[str, KafkaBroker]
    alias: str
    folder: Path

    @property
    def target(self) -> KafkaBroker:
        return self.brokers["target"]

    @property
    def remote_topic(self) -> str:
        return f"{self.alias}.{self.case.name}"


Process = Any
Engine = Callable[[Copy], ContextManager[Process]]


def mirror(copy: Copy) -> ContextManager[Process]:
    """The main job, which copies record batches."""
    return _bounded(copy, {"engine": "batches"})


def rows(copy: Copy) -> ContextManager[Process]:
    """The main job through Spark's rows, which stay as they are where the case changes nothing."""
    return _bounded(copy, {"engine": "records"} if copy.case.change is None else copy.case.change.flow)


def _bounded(copy: Copy, changes: Mapping[str, str]) -> ContextManager[Process]:
    """All records that are there, then it ends."""
    servers = {copy.alias: copy.source, "target": copy.target.bootstrap}
    return job(copy.folder, config_of(copy.folder, servers, [copy.case.name.replace(".", "[.]")], **changes), "--json")


def config_of(
    folder: Path, servers: Mapping[str, str], topics: Sequence[str], trigger: str = "availableNow", **flow: Any
) -> Path:
    """A file in `folder` of a flow from the first to the second of `servers`, with its state next to it."""
    settings = {"topics": list(topics), "tasks.max": TASKS, "replication.factor": 1, **flow}
    ends = {"state": folder / "state", "trigger": trigger}
    return write_config(folder / "mirror.yaml", "mirror", servers, ["->".join(servers)], settings, **ends)


def job(folder: Path, config: Path, *words: str) -> ContextManager[Process]:
    """The main job through spark-submit, Java as Spark starts it."""
    return launched(["./spark-submit.sh", "jobs/mirror.py", str(config), *words], folder, submit_environment())


def submit_environment() -> Dict[str, str]:
    """The environment of spark-submit.sh: the jars of the checkout, and Java as Spark starts it."""
    environment = {**os.environ, "MIRROR_JARS_DIR": str(jars_folder()), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment.pop("SPARK_SUBMIT_OPTS", None)
    return environment


def tuned(copy: Copy) -> ContextManager[Process]:
    """MirrorMaker 2 with more tasks, large fetches and batches, and the topic's codec, so that the target keeps it."""
    transforms = {} if copy.case.change is None else copy.case.change.transforms
    properties = {
        f"{copy.alias}.bootstrap.servers": copy.source,
        f"{copy.alias}.consumer.isolation.level": copy.case.isolation,
        **tuned_properties(copy.alias),
        "target.producer.batch.size": "131072",
        "target.producer.linger.ms": "20",
        "target.producer.buffer.memory": "67108864",
        "target.producer.max.request.size": "4194304",
        "target.producer.compression.type": copy.case.codec,
        f"{copy.alias}.consumer.receive.buffer.bytes": "1048576",
        **{f"{copy.alias}->target.{key}": value for key, value in transforms.items()},
    }
    clusters = {copy.alias: copy.brokers["source"], "target": copy.target}
    return mirrormaker(copy.folder, clusters, copy.case.name.replace(".", "\\."), properties)


def tuned_properties(source: str) -> Dict[str, str]:
    return {
        f"{source}->target.tasks.max": str(TASKS),
        f"{source}.consumer.fetch.max.bytes": "67108864",
        f"{source}.consumer.max.partition.fetch.bytes": "8388608",
        f"{source}.consumer.max.poll.records": "5000",
    }


@contextmanager
def mirrormaker(
    folder: Path, clusters: Mapping[str, KafkaBroker], topics: str, properties: Mapping[str, str]
) -> Iterator[Process]:
    """MirrorMaker 2 between the two clusters, Java as its own script starts it."""
    flow = "->".join(clusters)
    fixed = {"refresh.topics.interval.seconds": "600", "emit.checkpoints.interval.seconds": "60"}
    fixed.update({f"{flow}.enabled": "true", f"{flow}.topics": topics})
    running = MirrorMaker(folder, clusters, {**fixed, **properties}, MIRRORMAKER_JVM).start()
    try:
        yield running.process
    finally:
        running.kill()


@contextmanager
def launched(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Iterator[Process]:
    """A process of the checkout that leads a session, which is gone when the block is left; its output in `folder`."""
    process = background(command, folder / "out.log", env=environment)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


ENGINES: Mapping[str, Engine] = {"mirror": mirror, "tuned": tuned, "rows": rows}
COMPARED = ("mirror", "tuned")
COMPARED_CHANGING = ("rows", "tuned")
# They end by themselves; MirrorMaker runs without end.
OURS = ("mirror", "rows")
